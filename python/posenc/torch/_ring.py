# SPDX-License-Identifier: Apache-2.0
"""Ring attention of several processes over torch.distributed, forward and backward (Liu et al., arXiv:2310.01889).

Queries and keys are rotated once. Keys and values go round the ranks while each computes the part of its queries for those that
it has. Parts are merged by their log-sum-exp as they come. Backward the keys go round again, each part is computed from the merged
result, and the gradients of keys and values travel one hop behind them, home at the end, where they are rotated back. A rank holds
what belongs to its own tokens and to those of one neighbour.
"""
from __future__ import annotations

import functools
import hashlib
import math
from typing import TYPE_CHECKING, Any, Callable, Iterable, Mapping, NamedTuple, Sequence

import torch
import torch.distributed as dist

from .. import _posenc
from .. import shard_tokens
from ._attention import _AXES, _HALF, _address, _result, _texts
from ._host import check_tensors
from ._rotary import rotate

if TYPE_CHECKING:
    from torch import Tensor

    from .._types import EncodingLike

_WHO = "[torch ring_attend]"
_MOST_RUNS = 4  # of neighbouring tokens in a shard that are calls of their own; more are one call by orders


class _Shard(NamedTuple):
    """The tokens of one rank: their orders, in their documents where there are any, and where each document begins."""

    orders: Tensor
    cu_seqlens: Tensor | None
    runs: list[tuple[int, int, int]]  # neighbouring tokens: first in the shard, first order, count


@functools.lru_cache(maxsize=8)  # the same in every layer of every step
def _shards(tokens: int, cu_seqlens: tuple[int, ...] | None, ranks: int, layout: str) -> list[_Shard]:
    shards = []
    for rank in range(ranks):
        own = torch.tensor(shard_tokens(tokens if cu_seqlens is None else list(cu_seqlens), ranks, rank, layout=layout), dtype=torch.int64)
        begins = None
        if cu_seqlens is not None:
            cu = torch.tensor(cu_seqlens)
            begins = torch.searchsorted(own, cu)
            own = own - cu[torch.searchsorted(cu, own, right=True) - 1]
        first = torch.cat([torch.ones(min(1, len(own)), dtype=torch.bool), own.diff() != 1]).nonzero().flatten().tolist()
        runs = [(at, int(own[at]), end - at) for at, end in zip(first, [*first[1:], len(own)])]
        shards.append(_Shard(own, begins, runs))
    return shards


class _Piece(NamedTuple):
    """Queries and keys of one call: places in the shards and counts, and what the call is told of their order."""

    q: tuple[int, int]
    k: tuple[int, int]
    options: dict[str, Any]
    has_sink: bool  # one call of each query has the sink, one more logit


def _pieces(own: _Shard, theirs: _Shard, causal: bool, window: Sequence[int] | None) -> list[_Piece]:
    queries, keys = own.runs, theirs.runs
    if own.cu_seqlens is not None or max(len(queries), len(keys)) > _MOST_RUNS:
        by_order: dict[str, Any] = {"query_order": own.orders, "key_order": theirs.orders}
        if own.cu_seqlens is not None:
            by_order |= {"query_cu_seqlens": own.cu_seqlens, "key_cu_seqlens": theirs.cu_seqlens}
        return [_Piece((0, len(own.orders)), (0, len(theirs.orders)), by_order, own is theirs)]
    left, right = (math.inf, math.inf) if window is None else (w if w >= 0 else math.inf for w in window)
    pieces = []
    for q_at, q0, n in queries:
        for k_at, k0, m in keys:
            hidden = (causal and k0 > q0 + n - 1) or k0 + m - 1 < q0 - left or k0 > q0 + n - 1 + right
            if not hidden:
                positions = {"query_positions": torch.arange(q0, q0 + n), "key_positions": torch.arange(k0, k0 + m)}
                pieces.append(_Piece((q_at, n), (k_at, m), {"offset": q0 - k0, **positions}, own is theirs and q_at == k_at))
    return pieces


class _Ring:
    """What all calls of a ring share."""

    def __init__(self, encodings: list[str], options: dict[str, Any], names: Sequence[str], axis: int, shards: list[_Shard], group: Any):
        self.encodings, self.options, self.names, self.axis, self.shards, self.group = encodings, options, names, axis, shards, group
        self.rank, self.ranks = dist.get_rank(group), dist.get_world_size(group)
        self.next, self.previous = (dist.get_global_rank(group, (self.rank + step) % self.ranks) if group is not None else
                                    (self.rank + step) % self.ranks for step in (1, -1))

    def pieces(self, step: int) -> list[_Piece]:
        owner = (self.rank - step) % self.ranks
        return _pieces(self.shards[self.rank], self.shards[owner], bool(self.options["causal"]), self.options["window"])

    def call(self, piece: _Piece, q: Tensor, k: Tensor, v: Tensor, parameters: Sequence[Tensor], sink: Tensor | None,
             out: Tensor, sums: Tensor, done: bool) -> Any:
        options = {**self.options, **piece.options, "out": out, "log_sum_exp": sums, "done": done, "torch": True, "inputs": {},
                   "parameters": dict(zip(self.names, parameters)), **({"sink": sink} if piece.has_sink and sink is not None else {})}
        return _posenc.Attention(self.encodings, q.narrow(self.axis, *piece.q), k.narrow(self.axis, *piece.k),
                                 v.narrow(self.axis, *piece.k), options)

    def swap(self, *sent: Tensor, tag: int) -> Callable[[], list[Tensor]]:
        """Sends tensors to the next rank; the function that it returns waits for those of the rank before."""
        flat = torch.cat([x.contiguous().view(torch.uint8).flatten() for x in sent])
        got = torch.empty_like(flat)
        work = [dist.irecv(got, self.previous, self.group, tag), dist.isend(flat, self.next, self.group, tag)]

        def finish() -> list[Tensor]:
            for w in work:
                if w is not None:
                    w.wait()
            parts = torch.split(got, [x.numel() * x.element_size() for x in sent])
            return [part.clone().view(x.dtype).reshape(x.shape) for part, x in zip(parts, sent)]

        return finish


class _RingAttend(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, ring: _Ring, has_sink: bool, q: Tensor, k: Tensor, v: Tensor, *arrays: Tensor) -> Tensor:
        q, k, v, *arrays = (_address(x) for x in (q, k, v, *arrays))  # type: ignore[assignment]
        sink, parameters = (arrays[0], arrays[1:]) if has_sink else (None, arrays)
        wide = q.float() if q.dtype in _HALF else q  # parts are merged in floats
        order = ring.options["order"]
        out, sums = _result(wide, v, order)
        out.zero_(), sums.fill_(-math.inf)
        key, value, begun = k, v, set()
        for step in range(ring.ranks):
            finish = ring.swap(key, value, tag=0) if step + 1 < ring.ranks else None
            for piece in ring.pieces(step):
                own, own_sums = out.narrow(ring.axis, *piece.q).contiguous(), sums.narrow(2, *piece.q).contiguous()
                part, part_sums = torch.empty_like(own), torch.empty_like(own_sums)
                ring.call(piece, wide, key, value, parameters, sink, part, part_sums, False)
                if piece.q in begun:
                    _posenc.merge([(own, own_sums), (part, part_sums)], order=order, out=part, log_sum_exp=part_sums)
                begun.add(piece.q)
                out.narrow(ring.axis, *piece.q).copy_(part), sums.narrow(2, *piece.q).copy_(part_sums)
            if finish is not None:
                key, value = finish()
        ctx.ring, ctx.has_sink = ring, has_sink
        ctx.save_for_backward(q, k, v, out, sums, *arrays)
        return out.to(q.dtype)

    @staticmethod
    def backward(ctx: Any, *d_outs: Any) -> tuple[Any, ...]:
        ring: _Ring = ctx.ring
        q, k, v, out, sums, *arrays = (_address(x) for x in ctx.saved_tensors)
        sink, parameters = (arrays[0], arrays[1:]) if ctx.has_sink else (None, arrays)
        wide, d_out = q.float() if q.dtype in _HALF else q, d_outs[0].to(out.dtype)
        d_q = torch.zeros_like(out if out.shape == q.shape else wide)
        d_arrays = [torch.zeros(x.shape, dtype=torch.float64) for x in arrays]
        every = [*(["sink"] if ctx.has_sink else []), *(f"parameters.{n}" for n in ring.names)]
        key, value, d_keys = k, v, None
        for step in range(ring.ranks):
            finish = ring.swap(key, value, tag=0) if step + 1 < ring.ranks else None
            d_k, d_v = (torch.zeros(x.shape, dtype=out.dtype) for x in (k, v))
            for piece in ring.pieces(step):
                whole = out.narrow(ring.axis, *piece.q), sums.narrow(2, *piece.q)
                call = ring.call(piece, wide, key, value, parameters, sink, *whole, True)
                only = ["q", "k", "v", *(n for n in every if n != "sink" or piece.has_sink)]
                found = call.backward(d_out.narrow(ring.axis, *piece.q), None, only, whole)
                for to, at, name in ((d_q, piece.q, "q"), (d_k, piece.k, "k"), (d_v, piece.k, "v")):
                    to.narrow(ring.axis, *at).add_(torch.from_numpy(found[name]))
                for to, name in zip(d_arrays, every):
                    if name in only:
                        group, _, inner = name.partition(".")
                        to.add_(torch.from_numpy(found[group][inner] if inner else found[group]))
            if d_keys is not None:  # of these keys, from the ranks that had them before
                for to, more in zip((d_k, d_v), d_keys()):
                    to.add_(more)
            d_keys = ring.swap(d_k, d_v, tag=1) if ring.ranks > 1 else lambda d_k=d_k, d_v=d_v: [d_k, d_v]
            if finish is not None:
                key, value = finish()
        d_k, d_v = d_keys()  # type: ignore[misc]
        for x in d_arrays:
            dist.all_reduce(x, group=ring.group)
        return None, None, d_q.to(q.dtype), d_k.to(k.dtype), d_v.to(v.dtype), *(d.to(x.dtype) for d, x in zip(d_arrays, arrays))


def _agree(group: Any, facts: Any) -> None:
    """Refuses calls that are not the same on all ranks."""
    number = int.from_bytes(hashlib.blake2b(repr(facts).encode(), digest_size=7).digest(), "big")
    both = torch.tensor([number, -number])
    dist.all_reduce(both, op=dist.ReduceOp.MAX, group=group)
    if int(both[0]) != -int(both[1]):
        raise ValueError(f"{_WHO} all ranks must call it with the same options and shapes; this rank has {facts}")


def _check_merges(ring: _Ring, q: Tensor, k: Tensor, v: Tensor, parameters: Sequence[Tensor]) -> None:
    """Refuses what cannot be computed from parts, by a call of one token."""
    one = _Piece((0, 1), (0, 1), {"offset": 0, "query_positions": torch.zeros(1, dtype=torch.int64),
                                  "key_positions": torch.zeros(1, dtype=torch.int64)}, False)
    a, b, c = (x.new_ones([1 if n == ring.axis else s for n, s in enumerate(x.shape)]) for x in (q, k, v))
    out, sums = _result(a, c, ring.options["order"])
    call = ring.call(one, a, b, c, parameters, None, out, sums, False)
    try:
        call.backward(out, None, ["q"], (out, sums))
    except ValueError as why:
        raise ValueError(f"{_WHO} cannot compute {', '.join(ring.encodings)}: its results over parts of the keys do not merge ({why})") from None


def ring_attend(
    encodings: EncodingLike | Iterable[EncodingLike] | None, q: Tensor, k: Tensor, v: Tensor, *, layout: str = "zigzag",
    tokens: int | None = None, cu_seqlens: Sequence[int] | None = None, group: Any = None, order: str | None = None,
    parameters: Mapping[str, Tensor] | None = None, causal: bool | None = None, window: Sequence[int] | None = None,
    scale: float | None = None, softcap: float | None = None, softcap_after_terms: bool | None = None, sink: Tensor | None = None,
    exact: bool | None = None,
) -> Tensor:
    """`attend` of a sequence that is spread over the processes of a group of torch.distributed (gloo), with gradients.

    q, k, v: the tokens of this rank, `shard_tokens(tokens, ranks, rank, layout=layout)`, or of packed documents
    `shard_tokens(cu_seqlens, ...)`. tokens: of the whole sequence; by default those of q times the ranks. A token is at its number,
    in its document where there are several. Every rank makes the same call. Gives the output of the rank's tokens, in the dtype of
    q. Gradients of q, k and v are the rank's; those of parameters and the sink are summed over all ranks, the same on each.

    What needs the keys in between (CoPE, stick-breaking, gates) is rejected. A rank that fails or stops ends the call on the others
    with the error of torch.distributed, after the time-out of the group at the latest.
    """
    if not dist.is_available() or not dist.is_initialized():
        raise RuntimeError(f"{_WHO} needs torch.distributed.init_process_group, in every process")
    axes = _AXES.get((order or "thd", q.dim()))
    if axes is None:
        raise ValueError(f'{_WHO} order must name the axes of q, which has {q.dim()}, got "{order or "thd"}"')
    if cu_seqlens is not None and (axes[0] is not None and q.shape[axes[0]] != 1):
        raise ValueError(f"{_WHO} cu_seqlens need a batch of 1, got {q.shape[axes[0]]}")
    if cu_seqlens is not None and (len(cu_seqlens) == 0 or tokens is not None):
        raise ValueError(f"{_WHO} cu_seqlens must end at the number of tokens, and exclude tokens, got {list(cu_seqlens)} and {tokens}")
    ranks, axis = dist.get_world_size(group), axes[2]
    named = dict(parameters or {})
    check_tensors("torch ring_attend", {"q": q, "k": k, "v": v, **named, **({} if sink is None else {"sink": sink})})
    total = cu_seqlens[-1] if cu_seqlens is not None else q.shape[axis] * ranks if tokens is None else tokens
    rotary, others = _posenc.split_rotation(_texts(encodings), q.shape[axes[1]], q.shape[axes[3]])
    options = {"order": order, "causal": causal, "window": None if window is None else list(window), "scale": scale, "softcap": softcap,
               "softcap_after_terms": softcap_after_terms, "exact": exact}
    shape = [list(x.shape[:axis]) + list(x.shape[axis + 1:]) + [str(x.dtype)] for x in (q, k, v)]
    _agree(group, [_texts(encodings), layout, total, None if cu_seqlens is None else list(cu_seqlens), options, shape,
                   {n: list(x.shape) for n, x in named.items()}, None if sink is None else list(sink.shape)])
    shards = _shards(total, None if cu_seqlens is None else tuple(map(int, cu_seqlens)), ranks, layout)
    ring = _Ring(others, options, list(named), axis, shards, group)
    for name, x in (("q", q), ("k", k), ("v", v)):
        if x.dim() != q.dim() or x.shape[axis] != len(shards[ring.rank].orders):
            raise ValueError(f"{_WHO} {name} must have the {len(shards[ring.rank].orders)} tokens of rank {ring.rank}, got the shape {list(x.shape)}")
    _check_merges(ring, _address(q), _address(k), _address(v), [_address(x) for x in named.values()])
    dtype = q.dtype
    if rotary is not None:
        where: dict[str, Any] = {"positions": shards[ring.rank].orders, "layout": order}
        q, k = rotate(rotary, q.float() if dtype in _HALF else q, **where), rotate(rotary, None, k, **where)
    out = _RingAttend.apply(ring, sink is not None, q, k, v, *([] if sink is None else [sink]), *named.values())
    return out.to(dtype)  # type: ignore[no-any-return]
