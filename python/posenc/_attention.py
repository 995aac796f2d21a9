# SPDX-License-Identifier: Apache-2.0
"""Attention with position terms."""
from __future__ import annotations

import operator

from ._posenc import Attention, PathAttention, SelectiveAttention

TYPE_CHECKING = False  # the module typing is not imported for its names
if TYPE_CHECKING:
    from typing import Any, Iterable, Mapping, Sequence

    from ._types import EncodingLike, PositionsLike


def attend(
    encodings: EncodingLike | Iterable[EncodingLike] | None,
    q: Any,
    k: Any,
    v: Any,
    *,
    order: str | None = None,
    parameters: Mapping[str, Any] | None = None,
    inputs: Mapping[str, Any] | None = None,
    query_positions: PositionsLike | None = None,
    key_positions: PositionsLike | None = None,
    query_order: Any = None,
    key_order: Any = None,
    offset: int | str | None = None,
    scale: float | None = None,
    softcap: float | None = None,
    softcap_after_terms: bool | None = None,
    causal: bool | None = None,
    window: Sequence[int] | None = None,
    prefix: Any = None,
    chunk: int | None = None,
    chunk_origin: Any = None,
    sink_tokens: int | None = None,
    head_side: Any = None,
    key_length: Any = None,
    key_visible: Any = None,
    visible: Any = None,
    bias: Any = None,
    query_document: Any = None,
    key_document: Any = None,
    query_cu_seqlens: Any = None,
    key_cu_seqlens: Any = None,
    block_table: Any = None,
    sink: Any = None,
    query_factor: Any = None,
    head_scale: Any = None,
    mix_before: Any = None,
    mix_after: Any = None,
    regions: Iterable[Mapping[str, Any]] | None = None,
    past_distances: Sequence[int] | None = None,
    future_distances: Sequence[int] | None = None,
    length: int | None = None,
    exact: bool | None = None,
    out: Any = None,
) -> Attention:
    """Attention of q, k and v with the terms and rotations of the encodings.

    The arrays must not change before the last use of the result: its `backward` computes every gradient, its `scores`
    the parts of the score. Arrays of whole numbers may be lists. Where [b, ...] is said, one row serves all.

    The encodings determine how q and k are prepared (a rotary encoding rotates them) and how scores are normalised:
    `StickBreaking` replaces the softmax. So there are no arguments for either. Add biases to q and k and normalise them
    before the call. For a norm after the rotation call `rotate`, then the norm, then `attend` without that encoding.

    Arguments:
        encodings: at most one rotary encoding, and any number that act in the score; None for content alone.
        q, k, v: [tokens, heads, channels], or four axes named by `order`. Heads of k and v divide those of q. k and v in
            uint8 are q8_0 blocks, channels / 32 * 34 bytes a head; they have no gradient.
        order: the axes of q, k, v and the output: thd (three axes, the default), bthd or bhtd (four axes).
        parameters, inputs: by the names of `score_parameters` and `score_inputs`.
        query_positions, key_positions: [t], [b, t] or [axes, b, t], for distances and rotations. By default tokens count up
            in their order, inside their sequence.
        query_order, key_order: [t] or [b, t], the index of each token in its sequence, for masks. Needed if tokens are not
            stored in order (shards, caches that evict). By default key j has order j, and `offset` places the queries. A
            causal call whose positions contradict the order warns unless orders are given.
        offset: places the queries without orders. end (default): as the last keys of each sequence of cu_seqlens, or of
            each row's key_length with block_table; start: as the first. A number is the order of the first query; with
            query_cu_seqlens it is added to where end puts it.
        scale: multiplies q.k; by default as the encodings require, else head_dim^-1/2.
        softcap: scaled q.k, s, becomes softcap tanh(s / softcap).
        softcap_after_terms: s includes the terms of the encodings, but not bias and DAPE's network.
        causal: hides keys of a later order than the query.
        window: (left, right), how many keys before and after its own a query sees; right -1 hides its own.
        prefix: a number or [b]; keys of a lower order are seen in spite of `causal`.
        chunk: keys of the same floor((order - chunk_origin) / chunk) are seen.
        chunk_origin: a number, [b], or [b, groups of heads]: the padding on the left, where chunks count from the text.
        sink_tokens: so many first keys are seen in spite of the window's left end.
        head_side: [heads] of uint8: 0 both sides, 1 keys up to the query's own, 2 keys from the query's own on.
        key_length: [b]; keys from there on are padding.
        key_visible: [t] or [b, t] of uint8 or bool; 0 hides a key from all queries.
        visible: [queries, keys] or [b, heads, queries, keys] of uint8 or bool; 0 hides a pair.
        bias: reals of the same shapes, added to the score; -inf hides.
        query_document, key_document: [t] or [b, t]; keys of equal numbers are seen (`document_index`).
        query_cu_seqlens, key_cu_seqlens: [sequences + 1], from 0 to the tokens: a ragged batch in one row. Each sequence
            of queries sees its own of the keys; order, positions and offset count inside it.
        block_table: [rows, pages] of a paged cache, with key_length; a row for each batch entry, or for each sequence of
            query_cu_seqlens. k and v are [pages, page size, heads, channels] (bhtd: heads before slots); key j of a row is
            slot j % page size of its page j // page size.
        sink: [heads], one more logit in the softmax, without a value.
        query_factor: [b, queries], multiplies q: a temperature by position.
        head_scale: [b, heads], multiplies the scaled q.k.
        mix_before, mix_after: [heads, heads], talking heads: mix the scores or probabilities of all heads into each.
        regions: of `self_extend`, `rerope`, `leaky_rerope` or `dual_chunk`. Each has positions
            for q and k. The rotary encoding rotates by them, or the `RotaryPlan` that the region has as its "rotation". A
            region may have rotated arrays "q" and "k" in place of positions "query" and "key".
        past_distances, future_distances: replace each distance 0, 1, ... in the score (`random_distances`), before and after
            the query; future by default as past.
        length: the length for which scalings by length are resolved.
        exact: use the engine in double, even if the fast engine supports the call (`explain_plan`).
        out: the array of the output. After an exception, Ctrl-C too, its contents are undefined.

    >>> import numpy, posenc
    >>> q, k, v = numpy.random.default_rng(0).normal(size=(3, 6, 4, 16))
    >>> a = posenc.attend(posenc.Alibi(), q, k, v, causal=True)
    >>> a.out.shape, a.log_sum_exp.shape
    ((6, 4, 16), (1, 4, 6))
    >>> sorted(a.backward(numpy.ones_like(q)))
    ['inputs', 'k', 'parameters', 'q', 'v']
    """
    options: dict[str, Any] = {
        "order": order, "parameters": dict_of("parameters", parameters), "inputs": dict_of("inputs", inputs),
        "query_positions": query_positions, "key_positions": key_positions, "query_order": query_order,
        "key_order": key_order, "offset": offset, "scale": scale,
        "softcap": softcap, "softcap_after_terms": softcap_after_terms, "causal": causal, "window": window,
        "prefix": prefix, "chunk": chunk, "chunk_origin": chunk_origin, "sink_tokens": sink_tokens, "head_side": head_side,
        "key_length": key_length, "key_visible": key_visible, "visible": visible, "bias": bias,
        "query_document": query_document, "key_document": key_document, "query_cu_seqlens": query_cu_seqlens,
        "key_cu_seqlens": key_cu_seqlens, "block_table": block_table, "sink": sink, "query_factor": query_factor,
        "head_scale": head_scale, "mix_before": mix_before, "mix_after": mix_after, "regions": flat_regions(regions),
        "past_distances": past_distances, "future_distances": future_distances, "length": length, "exact": exact, "out": out,
    }
    return Attention(encodings, q, k, v, options)


def attend_path(q: Any, k: Any, v: Any, w: Any, beta: Any, *, log_gate: Any = None, order: str | None = None,
                offset: int | None = None, window_left: int | None = None, scale: float | None = None,
                gates_scaled: bool | None = None, out: Any = None) -> PathAttention:
    """PaTH attention (Yang et al., 2025): between key and query lies the product of one reflection I - beta w w^T a token.

    Arguments:
        q, k, v: as of `attend`; queries are among the keys.
        w: [tokens of k, W, channels], W divides the heads; vectors of length 1 in the paper.
        beta: [tokens of k, W, 1], 0 to 2 in the paper.
        log_gate: [tokens of k, F, 1], the logarithms of PaTH-FoX's gates, F divides the heads.
        order: the axes of all arrays: thd, bthd or bhtd.
        offset: the key of the first query; by default queries are the last keys.
        window_left: how many keys before its own a query sees.
        scale: multiplies the products; by default head_dim^-1/2.
        gates_scaled: the scale multiplies the gates too, as in flash-linear-attention (the default).
        out: the array of the output.

    >>> import numpy, posenc
    >>> q, k, v, w = numpy.random.default_rng(0).normal(size=(4, 6, 2, 8))
    >>> w /= numpy.linalg.norm(w, axis=-1, keepdims=True)
    >>> a = posenc.attend_path(q, k, v, w, numpy.ones((6, 2, 1)))
    >>> a.out.shape, sorted(a.backward(numpy.ones_like(q)))
    ((6, 2, 8), ['beta', 'k', 'q', 'v', 'w'])
    """
    arrays: dict[str, Any] = {"q": q, "k": k, "v": v, "w": w, "beta": beta, "log_gate": log_gate}
    return PathAttention(arrays, {"order": order, "offset": offset, "window_left": window_left, "scale": scale,
                                  "gates_scaled": gates_scaled, "out": out})


def attend_selective(q: Any, k: Any, v: Any, *, order: str | None = None, head: int | None = None,
                     keep_first: bool | None = None, offset: int | str | None = None, scale: float | None = None,
                     causal: bool | None = None, window: Sequence[int] | None = None, prefix: Any = None,
                     chunk: int | None = None, chunk_origin: Any = None, sink_tokens: int | None = None,
                     key_length: Any = None, key_visible: Any = None, visible: Any = None, query_document: Any = None,
                     key_document: Any = None, masked: Any = None, out: Any = None) -> SelectiveAttention:
    """Selective attention (Leviathan et al., 2024): keys that earlier queries of one head score positively are masked for later queries.

    Arguments:
        head: the query head whose scores mask.
        keep_first: the first key is never masked (the default).
        masked: how much earlier queries mask each key, float64 [batch, keys], such as of earlier steps of decoding. The call adds
            what its own queries mask. Such a call has no gradients.
        q, k, v, order, offset, scale, causal, window, prefix, chunk, chunk_origin, sink_tokens, key_length, key_visible, visible,
        query_document, key_document, out: as of `attend`.

    >>> import numpy, posenc
    >>> q, k, v = numpy.random.default_rng(0).normal(size=(3, 6, 2, 8))
    >>> posenc.attend_selective(q, k, v, causal=True).out.shape
    (6, 2, 8)
    """
    return SelectiveAttention(q, k, v, {
        "order": order, "head": head, "keep_first": keep_first, "offset": offset, "scale": scale, "causal": causal,
        "window": window, "prefix": prefix, "chunk": chunk, "chunk_origin": chunk_origin, "sink_tokens": sink_tokens,
        "key_length": key_length, "key_visible": key_visible, "visible": visible, "query_document": query_document,
        "key_document": key_document, "masked": masked, "out": out})


_FARTHEST = 2 ** 63 - 1


def flat_regions(regions: Iterable[Mapping[str, Any]] | None) -> dict[str, Any] | None:
    """Regions as arrays by name: `0.bounds` (chunk, low, high); `0.query`, `0.key` and, where it has a plan, `0.rotation`; or `0.q` and `0.k`."""
    if regions is None:
        return None
    import numpy

    flat: dict[str, Any] = {}
    several: Iterable[Any] = regions if hasattr(regions, "__iter__") else [regions]
    for n, region in enumerate(several):
        names = set(region.keys()) if hasattr(region, "keys") else set()
        arrays = names == {"chunk", "low", "high", "q", "k"}
        if not arrays and names - {"rotation"} != {"chunk", "low", "high", "query", "key"}:
            got = ", ".join(sorted(map(str, names))) or type(region).__name__
            raise ValueError("[attention] regions must be those of self_extend, rerope, leaky_rerope or dual_chunk, each "
                             f'with chunk, low, high, and query and key or q and k, got "{got}"')
        low, high = region["low"], region["high"]
        bounds = (region["chunk"], -_FARTHEST if low is None else low, _FARTHEST if high is None else high)
        try:
            flat[f"{n}.bounds"] = numpy.array([operator.index(x) for x in bounds], numpy.int64)
        except (TypeError, OverflowError):
            raise ValueError(f"[attention] chunk, low and high of regions must be whole numbers of 64 bits, got {bounds}") from None
        for name in ("q", "k") if arrays else ("query", "key", "rotation"):
            if name in names:
                flat[f"{n}.{name}"] = region[name]
    return flat


def dict_of(name: str, named: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Arrays by name."""
    if named is None:
        return None
    if not hasattr(named, "items"):
        raise ValueError(f'[attention] {name} must be a mapping of names to arrays, got "{type(named).__name__}"')
    return dict(named.items())
