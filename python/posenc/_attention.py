# SPDX-License-Identifier: Apache-2.0
"""Attention with position terms."""
from __future__ import annotations

from ._posenc import Attention

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
    offset: int | str | None = None,
    scale: float | None = None,
    softcap: float | None = None,
    softcap_after_terms: bool | None = None,
    causal: bool | None = None,
    window: Sequence[int] | None = None,
    prefix: Any = None,
    chunk: int | None = None,
    sink_tokens: int | None = None,
    key_length: Any = None,
    key_visible: Any = None,
    visible: Any = None,
    bias: Any = None,
    query_document: Any = None,
    key_document: Any = None,
    query_cu_seqlens: Any = None,
    key_cu_seqlens: Any = None,
    sink: Any = None,
    query_factor: Any = None,
    head_scale: Any = None,
    length: int | None = None,
    out: Any = None,
) -> Attention:
    """Attention of q, k and v with what the encodings add to the score or the output, and what they rotate.

    encodings: at most one rotary and any number that act in the score. parameters: what they learn, by name
    (`score_parameters`); inputs: what comes with the call (`score_inputs`). order: thd for arrays of three axes,
    else bthd or bhtd. offset: where the queries stand among the keys, `end` (the default), `start` or a number.
    scale: of q.k, by default what the encodings ask for, else head_dim^-1/2. softcap: scaled q.k, s,
    becomes c tanh(s / c); softcap_after_terms: its sum with what the encodings add does, while bias and DAPE's
    network stay outside. window: keys seen on the left and on the right. bias: added to the score; visible: 0 hides.
    The arrays must not change before the last use of the result, whose `backward` gives every gradient and whose
    `scores` shows the parts.

    >>> import numpy, posenc
    >>> q, k, v = numpy.random.default_rng(0).normal(size=(3, 6, 4, 16))
    >>> a = posenc.attend(posenc.Alibi(), q, k, v, causal=True)
    >>> a.out.shape, a.log_sum_exp.shape
    ((6, 4, 16), (1, 4, 6))
    >>> sorted(a.backward(numpy.ones_like(q)))
    ['inputs', 'k', 'parameters', 'q', 'v']
    """
    options: dict[str, Any] = {
        "order": order, "parameters": _dict(parameters), "inputs": _dict(inputs),
        "query_positions": query_positions, "key_positions": key_positions, "offset": offset, "scale": scale,
        "softcap": softcap, "softcap_after_terms": softcap_after_terms, "causal": causal, "window": window,
        "prefix": prefix, "chunk": chunk, "sink_tokens": sink_tokens, "key_length": key_length,
        "key_visible": key_visible, "visible": visible, "bias": bias, "query_document": query_document,
        "key_document": key_document, "query_cu_seqlens": query_cu_seqlens, "key_cu_seqlens": key_cu_seqlens,
        "sink": sink, "query_factor": query_factor, "head_scale": head_scale, "length": length, "out": out,
    }
    return Attention(encodings, q, k, v, options)


def _dict(named: Mapping[str, Any] | None) -> dict[str, Any] | None:
    return None if named is None else dict(named)
