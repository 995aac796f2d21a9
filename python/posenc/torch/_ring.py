# SPDX-License-Identifier: Apache-2.0
"""Ring attention of several processes over torch.distributed, forward and backward: the loop of posenc/parallel/ring.h, whose
group is one of torch.distributed.
"""
from __future__ import annotations

import functools
import hashlib
import operator
from typing import TYPE_CHECKING, Any, Iterable, Mapping, NamedTuple, Sequence

import torch
import torch.distributed as dist

from .. import _posenc
from .. import shard_tokens
from ._attention import _AXES, _HALF, _address, _result, _texts
from ._attention_checks import arrays_of, check_constants, check_given
from ._host import check_tensors

if TYPE_CHECKING:
    from torch import Tensor

    from .._types import EncodingLike

_WHO = "[torch ring_attend]"
_END = 7  # the channel that nothing is sent on


class _Shard(NamedTuple):
    """The tokens of a rank: their orders, in their documents where there are any, and where each document begins."""

    orders: Tensor
    cu_seqlens: Tensor | None
    distance: int  # the longest of the sequence


@functools.lru_cache(maxsize=8)  # the same in every layer of every step
def _shard(tokens: int, cu_seqlens: tuple[int, ...] | None, ranks: int, rank: int, layout: str) -> _Shard:
    own = torch.tensor(shard_tokens(tokens if cu_seqlens is None else list(cu_seqlens), ranks, rank, layout=layout), dtype=torch.int64)
    if cu_seqlens is None:
        return _Shard(own, None, max(tokens - 1, 0))
    cu = torch.tensor(cu_seqlens)
    begins = torch.searchsorted(own, cu)
    longest = max((b - a for a, b in zip(cu_seqlens, cu_seqlens[1:])), default=0)
    return _Shard(own - cu[torch.searchsorted(cu, own, right=True) - 1], begins, max(longest - 1, 0))


class _Transfer(NamedTuple):
    work: list[Any]
    got: Tensor | None  # a tensor of torch's own: what is lost may still be written to
    to: Tensor | None


class _Group:
    """The processes of a group as the ring calls them. gloo moves transfers by its own threads and has its own time-out."""

    def __init__(self, group: Any):
        self.rank, self.size, self._group = dist.get_rank(group), dist.get_world_size(group), group

    def _peer(self, rank: int) -> int:
        return rank if self._group is None else dist.get_global_rank(self._group, rank)

    def start(self, to: int, sent: Any, source: int, received: Any, channel: int) -> _Transfer | None:
        if channel == _END:  # this rank gives up: the others are late
            return None
        work: list[Any] = []
        into = None if received is None else torch.frombuffer(received, dtype=torch.uint8)
        got = None if into is None else torch.empty_like(into)
        if got is not None:
            work.append(dist.irecv(got, self._peer(source), self._group, channel))
        if sent is not None:
            work.append(dist.isend(torch.frombuffer(sent, dtype=torch.uint8).clone(), self._peer(to), self._group, channel))
        return _Transfer(work, got, into)

    def test(self, transfer: _Transfer) -> bool:
        return False

    def finish(self, transfer: _Transfer, seconds: float) -> bool:
        if seconds == 0:  # this rank gives up
            return False
        for w in transfer.work:
            if w is not None:
                w.wait()
        if transfer.to is not None and transfer.got is not None:
            transfer.to.copy_(transfer.got)
        return True


class _Ring(NamedTuple):
    """What both passes share."""

    encodings: list[str]
    options: dict[str, Any]
    names: list[str]
    distance: int
    group: _Group

    def call(self, tensors: Sequence[Tensor], sink: Tensor | None, parameters: Sequence[Tensor], result: tuple[Tensor, Tensor], done: bool) -> Any:
        options = {**self.options, "out": result[0], "log_sum_exp": result[1], "done": done, "parameters": dict(zip(self.names, parameters)),
                   "sink": sink}
        q, k, v = tensors
        return _posenc.RingAttention(self.encodings, q, k, v, self.group, self.distance, options)


class _RingAttend(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, ring: _Ring, has_sink: bool, q: Tensor, k: Tensor, v: Tensor, *arrays: Tensor) -> Tensor:
        q, k, v, *arrays = (_address(x) for x in (q, k, v, *arrays))  # type: ignore[assignment]
        sink, parameters = (arrays[0], arrays[1:]) if has_sink else (None, arrays)
        wide = q.float() if q.dtype in _HALF else q  # the gradients read an output that is not rounded
        result = _result(wide, v, ring.options["order"])
        ring.call((wide, k, v), sink, parameters, result, False)
        ctx.ring, ctx.has_sink = ring, has_sink
        ctx.save_for_backward(q, k, v, *result, *arrays)
        return result[0].to(q.dtype)

    @staticmethod
    def backward(ctx: Any, *d_outs: Any) -> tuple[Any, ...]:
        q, k, v, out, sums, *arrays = (_address(x) for x in ctx.saved_tensors)
        sink, parameters = (arrays[0], arrays[1:]) if ctx.has_sink else (None, arrays)
        call = ctx.ring.call((q.float() if q.dtype in _HALF else q, k, v), sink, parameters, (out, sums), True)
        found = call.backward(d_outs[0].to(out.dtype))
        gradients = [found[n] for n in ("q", "k", "v", *(["sink"] if ctx.has_sink else []))]
        gradients += [found["parameters"][n] for n in ctx.ring.names]
        return None, None, *(torch.from_numpy(d).to(x.dtype) for d, x in zip(gradients, (q, k, v, *arrays)))


def _number(facts: Any) -> int:
    """A hash that all ranks must have."""
    return int.from_bytes(hashlib.blake2b(repr(facts).encode(), digest_size=7).digest(), "big")


def _whole_numbers(cu_seqlens: Any) -> tuple[int, ...]:
    try:
        return tuple(operator.index(n) for n in cu_seqlens)
    except TypeError:
        raise ValueError(f'{_WHO} cu_seqlens must be a list of whole numbers, got "{cu_seqlens}"') from None


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

    What needs the keys in between (CoPE, gates of pairs, stick-breaking of other tokens than contiguous ones) is rejected. A rank
    that fails or stops ends the call on the others with the error of torch.distributed, after the time-out of the group at the
    latest.
    """
    if not dist.is_available() or not dist.is_initialized():
        raise RuntimeError(f"{_WHO} needs torch.distributed.init_process_group, in every process")
    named = arrays_of("torch ring_attend", "parameters", parameters)
    check_given("torch ring_attend", {"q": q, "k": k, "v": v})
    check_tensors("torch ring_attend", {"q": q, "k": k, "v": v, **named, **({} if sink is None else {"sink": sink})})
    check_constants("torch ring_attend", {"scale": scale, "softcap": softcap})
    axes = _AXES.get((order or "thd", q.dim()))
    if axes is None:
        raise ValueError(f'{_WHO} order must name the axes of q, which has {q.dim()}, got "{order or "thd"}"')
    packed = None if cu_seqlens is None else _whole_numbers(cu_seqlens)
    if cu_seqlens is not None and (axes[0] is not None and q.shape[axes[0]] != 1):
        raise ValueError(f"{_WHO} cu_seqlens need a batch of 1, got {q.shape[axes[0]]}")
    if packed is not None and (len(packed) == 0 or tokens is not None):
        raise ValueError(f"{_WHO} cu_seqlens must end at the number of tokens, and exclude tokens, got {list(packed)} and {tokens}")
    ring_group, axis = _Group(group), axes[2]
    total = packed[-1] if packed is not None else q.shape[axis] * ring_group.size if tokens is None else tokens
    shard = _shard(total, packed, ring_group.size, ring_group.rank, layout)
    for name, x in (("q", q), ("k", k), ("v", v)):
        if x.dim() != q.dim() or x.shape[axis] != len(shard.orders):
            raise ValueError(f"{_WHO} {name} must have the {len(shard.orders)} tokens of rank {ring_group.rank}, got the shape {list(x.shape)}")
    texts = _texts(encodings)
    options = {"order": order, "causal": causal, "window": None if window is None else list(window), "scale": scale, "softcap": softcap,
               "softcap_after_terms": softcap_after_terms, "exact": exact, "query_order": shard.orders, "key_order": shard.orders,
               "query_positions": shard.orders, "key_positions": shard.orders, "query_cu_seqlens": shard.cu_seqlens,
               "key_cu_seqlens": shard.cu_seqlens, "agreement": _number([texts, layout, total, packed])}
    ring = _Ring(texts, options, list(named), shard.distance, ring_group)
    out = _RingAttend.apply(ring, sink is not None, q, k, v, *([] if sink is None else [sink]), *named.values())
    return out  # type: ignore[no-any-return]
