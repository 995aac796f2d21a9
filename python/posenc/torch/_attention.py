# SPDX-License-Identifier: Apache-2.0
"""Attention with position terms of torch's tensors.

posenc::attend(q, k, v, arrays, names, ...) -> (out, log_sum_exp)     functional
posenc::attend_backward(d_out, d_log_sum_exp, ...) -> Tensor[]       the gradients that are wanted, in order

`attend` goes to them where a graph is made or somebody watches; else to an autograd.Function over the same two
kernels. Both kernels are the binding of `posenc.attend`, which makes every check.
"""
from __future__ import annotations

from itertools import permutations
from typing import TYPE_CHECKING, Any, Iterable, Mapping, NoReturn, Sequence

import torch

from .. import _posenc
from .._attention import flat_regions
from ._attention_checks import arrays_of, check_constants, check_fake, check_given, check_names, check_result, head_size
from ._checks import one_device, refuse
from ._host import Library, check_tensors, direct, in_transform, is_compiling

if TYPE_CHECKING:
    from torch import Tensor

    from .._types import EncodingLike, PositionsLike

_LIBRARY = Library("posenc", "FRAGMENT")
_DETAILS = ("str[] names, str[] encodings, str? order, str? offset_word, SymInt? offset, bool? causal, SymInt[]? window, "
            "SymInt? prefix, SymInt? chunk, SymInt? sink_tokens, SymInt? length, float? scale, float? softcap, "
            "bool? softcap_after_terms, bool? exact=None")
_LIBRARY.define(f"attend(Tensor q, Tensor k, Tensor v, Tensor[] arrays, {_DETAILS}) -> (Tensor, Tensor)")
_LIBRARY.define("attend_backward(Tensor d_out, Tensor d_log_sum_exp, Tensor out, Tensor log_sum_exp, bool[] wanted, "
                f"Tensor q, Tensor k, Tensor v, Tensor[] arrays, {_DETAILS}) -> Tensor[]")
_OWN = ("q", "k", "v")
# Of an order and a number of axes: where batch, heads, tokens and channels are.
_AXES: dict[tuple[str, int], tuple[Any, int, int, int]] = {
    ("".join(axes), len(axes)): ("".join(axes).find("b") if "b" in axes else None, axes.index("h"), axes.index("t"), axes.index("d"))
    for letters in ("thd", "bthd") for axes in permutations(letters)}
_HALF = (torch.float16, torch.bfloat16)


def _call(q: Tensor, k: Tensor, v: Tensor, arrays: Sequence[Tensor], out: Tensor, log_sum_exp: Tensor, done: bool,
          names: Sequence[str], encodings: Sequence[str], order: str | None, offset_word: str | None, offset: int | None,
          causal: bool | None, window: Sequence[int] | None, prefix: int | None, chunk: int | None,
          sink_tokens: int | None, length: int | None, scale: float | None, softcap: float | None,
          softcap_after_terms: bool | None, exact: bool | None = None) -> _posenc.Attention:
    options: dict[str, Any] = {
        "order": order, "offset": offset if offset_word is None else offset_word, "causal": causal,
        "window": None if window is None else list(window), "prefix": prefix, "chunk": chunk, "sink_tokens": sink_tokens,
        "length": length, "scale": scale, "softcap": softcap, "softcap_after_terms": softcap_after_terms, "exact": exact, "out": out,
        "log_sum_exp": log_sum_exp, "done": done, "torch": True, "parameters": {}, "inputs": {}}
    for name, array in zip(names, arrays):
        group, _, key = name.partition(".")
        (options.setdefault(group, {}) if key else options)[key or group] = (
            array.tolist() if group in ("past_distances", "future_distances") else _address(array))
    return _posenc.Attention(encodings, _address(q), _address(k), _address(v), options)


def _address(x: Tensor) -> Tensor:
    return x.detach().resolve_neg() if x.requires_grad or x.is_neg() else x


def _shapes(q: Tensor, v: Tensor, order: str | None) -> tuple[list[Any], list[Any]]:
    """Of the output and of log_sum_exp."""
    shape = list(q.shape)
    at = _AXES.get((order or "thd", len(shape))) if order is None or isinstance(order, str) else None
    if at is None or v.dim() not in (len(shape), 4):  # the kernel refuses it
        return shape, [0, 0, 0]
    b, h, t, d = at
    sums = [1 if b is None else shape[b], shape[h], shape[t]]
    shape[d] = head_size(v)  # of pages too
    return shape, sums


def _result(q: Tensor, v: Tensor, order: str | None) -> tuple[Tensor, Tensor]:
    shape, sums = _shapes(q, v, order)
    return q.new_empty(shape), q.new_empty(sums, dtype=torch.float64)


def _fake(q: Tensor, k: Tensor, v: Tensor, arrays: Sequence[Tensor], *details: Any) -> tuple[Tensor, Tensor]:
    check_fake("torch attend", q, k, v, arrays, *details)
    return _result(q, v, details[2])


def _forward(q: Tensor, k: Tensor, v: Tensor, arrays: Sequence[Tensor], *details: Any) -> tuple[Tensor, Tensor]:
    check_names("torch attend", details[0], arrays, q, k)
    out, log_sum_exp = _result(q, v, details[2])
    _call(q, k, v, arrays, out, log_sum_exp, False, *details)
    return out, log_sum_exp


def _backward(d_out: Tensor, d_log_sum_exp: Tensor, out: Tensor, log_sum_exp: Tensor, wanted: Sequence[bool], q: Tensor,
              k: Tensor, v: Tensor, arrays: Sequence[Tensor], names: Sequence[str], *details: Any) -> list[Tensor]:
    check_names("torch attend_backward", names, arrays, q, k)
    check_result("torch attend_backward", d_out, d_log_sum_exp, out, log_sum_exp, wanted, q, arrays, _shapes(q, v, details[1]))
    return _pull_back(d_out, d_log_sum_exp, out, log_sum_exp, wanted, q, k, v, arrays, names, *details)


def _pull_back(d_out: Tensor | None, d_log_sum_exp: Tensor | None, out: Tensor, log_sum_exp: Tensor, wanted: Sequence[bool], q: Tensor,
               k: Tensor, v: Tensor, arrays: Sequence[Tensor], names: Sequence[str], *details: Any) -> list[Tensor]:
    """The same of what autograd kept and checks; None: nothing comes back to it."""
    if d_out is None:
        d_out = torch.zeros_like(out)
    call = _call(q, k, v, arrays, _address(out), _address(log_sum_exp), True, names, *details)
    every = (*_OWN, *names)
    only = [n for n, w in zip(every, wanted) if w]
    found = call.backward(_address(d_out), None if d_log_sum_exp is None else _address(d_log_sum_exp), only)
    gradients = []
    for name, of, w in zip(every, (q, k, v, *arrays), wanted):
        if w:
            group, _, key = name.partition(".")
            gradient = torch.from_numpy(found[group][key] if key else found[group])
            gradients.append(gradient if gradient.dtype is of.dtype else gradient.to(of.dtype))
    return gradients


_LIBRARY.impl("attend", _forward, "CPU")
_LIBRARY.impl("attend_backward", _backward, "CPU")
torch.library.register_fake("posenc::attend", _fake, lib=_LIBRARY)


def _gradients(d_out: Tensor, d_log_sum_exp: Tensor, out: Tensor, log_sum_exp: Tensor, wanted: Sequence[bool], q: Tensor,
               k: Tensor, v: Tensor, arrays: Sequence[Tensor], *details: Any) -> list[Tensor]:
    who = "torch attend_backward"
    check_fake(who, q, k, v, arrays, *details)
    one_device(who, {"q": q, "d_out": d_out, "d_log_sum_exp": d_log_sum_exp, "out": out, "log_sum_exp": log_sum_exp})
    check_result(who, d_out, d_log_sum_exp, out, log_sum_exp, wanted, q, arrays, _shapes(q, v, details[2]))
    return [x.new_empty(x.shape) for x, w in zip((q, k, v, *arrays), wanted) if w]


torch.library.register_fake("posenc::attend_backward", _gradients, lib=_LIBRARY)
_operator = torch.ops.posenc.attend.default
_operator_backward = torch.ops.posenc.attend_backward.default


def _refuse_twice(*_: Any) -> NoReturn:
    raise RuntimeError("[torch attend] has no second derivative: its gradients must not be differentiated")


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    q, k, v, arrays, *ctx.details = inputs
    ctx.save_for_backward(*output, q, k, v, *arrays)


def _operator_gradient(ctx: Any, d_out: Tensor, d_log_sum_exp: Tensor) -> tuple[Any, ...]:
    out, log_sum_exp, q, k, v, *arrays = ctx.saved_tensors
    needed = list(ctx.needs_input_grad[:3])
    listed = ctx.needs_input_grad[3]
    wanted = needed + (list(listed) if isinstance(listed, (list, tuple)) else [listed] * len(arrays))
    wanted = [w and x.is_floating_point() for w, x in zip(wanted, (q, k, v, *arrays))]
    found = iter(_operator_backward(d_out, d_log_sum_exp, out, log_sum_exp, wanted, q, k, v, arrays, *ctx.details))
    d = [next(found) if w else None for w in wanted]
    # An empty list among the others counts as one of tensors.
    return *d[:3], d[3:], *([] if x == [] else None for x in ctx.details)


torch.library.register_autograd("posenc::attend", _operator_gradient, setup_context=_keep, lib=_LIBRARY)
torch.library.register_autograd("posenc::attend_backward", _refuse_twice, lib=_LIBRARY)


# vmap: one call after another.
def _each(function: Any, info: Any, in_dims: Sequence[Any], args: Sequence[Any]) -> list[Any]:
    def taken(x: Any, dim: Any, i: int) -> Any:
        if isinstance(x, (list, tuple)) and isinstance(dim, (list, tuple)):
            return [taken(y, d, i) for y, d in zip(x, dim)]
        return x if dim is None or not isinstance(x, torch.Tensor) else x.select(dim, i)

    if info.batch_size == 0:
        refuse("torch attend", "vmap must have at least one entry", 0)
    rows = [function(*(taken(x, d, i) for x, d in zip(args, in_dims))) for i in range(info.batch_size)]
    return [torch.stack(r) for r in zip(*rows)]


def _operator_vmap(info: Any, in_dims: Sequence[Any], *args: Any) -> tuple[Any, Any]:
    out = _each(_operator, info, in_dims, args)
    return tuple(out), (0,) * len(out)


def _operator_backward_vmap(info: Any, in_dims: Sequence[Any], *args: Any) -> tuple[Any, Any]:
    out = _each(_operator_backward, info, in_dims, args)
    return out, [0] * len(out)


torch.library.register_vmap("posenc::attend", _operator_vmap, lib=_LIBRARY)
torch.library.register_vmap("posenc::attend_backward", _operator_backward_vmap, lib=_LIBRARY)


class _Attend(torch.autograd.Function):
    @staticmethod
    def forward(details: Any, q: Tensor, k: Tensor, v: Tensor, *arrays: Tensor) -> Any:
        return _forward(q, k, v, arrays, *details)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.details, q, k, v, *arrays = inputs
        _keep(ctx, (q, k, v, arrays, *ctx.details), output)

    @staticmethod
    def backward(ctx: Any, *d: Any) -> Any:
        tensors = ctx.saved_tensors
        wanted = tuple(w and x.is_floating_point() for w, x in zip(ctx.needs_input_grad[1:], tensors[2:]))
        if torch.is_grad_enabled():  # a graph of the gradients, which must refuse theirs
            found = iter(_AttendBackward.apply(tuple(ctx.details), wanted, *d, *tensors))
        else:
            found = iter(_AttendBackward.forward(tuple(ctx.details), wanted, *d, *tensors))
        return None, *(next(found) if w else None for w in wanted)

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any) -> Any:
        out = _each(_Attend.apply, info, in_dims, args)
        return tuple(out), (0,) * len(out)

    @staticmethod
    def jvp(ctx: Any, *_: Any) -> NoReturn:
        raise RuntimeError("[torch attend] has no forward-mode derivative (jvp); take the gradient")


class _AttendDirect(torch.autograd.Function):
    """The same outside functorch's transforms. A setup_context costs torch a look at the signature in every call."""

    @staticmethod
    def forward(ctx: Any, details: Any, q: Tensor, k: Tensor, v: Tensor, *arrays: Tensor) -> Any:
        result = _forward(q, k, v, arrays, *details)
        ctx.set_materialize_grads(False)
        ctx.details = details
        ctx.save_for_backward(*result, q, k, v, *arrays)
        return result

    @staticmethod
    def backward(ctx: Any, *d: Any) -> Any:
        return _Attend.backward(ctx, *d)

    @staticmethod
    def jvp(ctx: Any, *d: Any) -> Any:
        return _Attend.jvp(ctx, *d)


class _AttendBackward(torch.autograd.Function):
    @staticmethod
    def forward(details: Any, wanted: Any, d_out: Tensor | None, d_sum: Tensor | None, out: Tensor, log_sum_exp: Tensor, q: Tensor,
                k: Tensor, v: Tensor, *arrays: Tensor) -> Any:
        return tuple(_pull_back(d_out, d_sum, out, log_sum_exp, wanted, q, k, v, arrays, *details))

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *d: Any) -> Any:
        _refuse_twice()

    @staticmethod
    def jvp(ctx: Any, *d: Any) -> Any:
        _refuse_twice()

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any) -> Any:
        out = _each(_AttendBackward.apply, info, in_dims, args)
        return tuple(out), (0,) * len(out)


def _positions(x: Any) -> Any:
    if x is None or isinstance(x, torch.Tensor):
        return x
    numbers = list(x)
    return torch.tensor(numbers, dtype=torch.float64 if any(isinstance(n, float) for n in numbers) else torch.int64)


def _whole(x: Any) -> Any:
    return x if x is None or isinstance(x, torch.Tensor) else torch.tensor(x, dtype=torch.int64)


def attend(
    encodings: EncodingLike | Iterable[EncodingLike] | None, q: Tensor, k: Tensor, v: Tensor, *,
    order: str | None = None, parameters: Mapping[str, Tensor] | None = None, inputs: Mapping[str, Tensor] | None = None,
    query_positions: PositionsLike | None = None, key_positions: PositionsLike | None = None,
    query_order: Any = None, key_order: Any = None,
    offset: int | str | None = None, scale: float | None = None, softcap: float | None = None,
    softcap_after_terms: bool | None = None, causal: bool | None = None, window: Sequence[int] | None = None,
    prefix: int | Tensor | None = None, chunk: int | None = None, chunk_origin: Any = None, sink_tokens: int | None = None,
    head_side: Tensor | None = None, key_length: Any = None, key_visible: Tensor | None = None, visible: Tensor | None = None,
    bias: Tensor | None = None, query_document: Any = None, key_document: Any = None,
    query_cu_seqlens: Any = None, key_cu_seqlens: Any = None, block_table: Any = None, sink: Tensor | None = None,
    query_factor: Tensor | None = None, head_scale: Tensor | None = None, mix_before: Tensor | None = None,
    mix_after: Tensor | None = None, regions: Iterable[Mapping[str, Any]] | None = None,
    past_distances: Sequence[int] | None = None, future_distances: Sequence[int] | None = None, length: int | None = None,
    exact: bool | None = None, log_sum_exp: bool = False,
) -> Any:
    """`posenc.attend` of tensors: its arguments, with gradients to every real tensor among them.

    Gives the output, in the dtype of q; log_sum_exp: and the logarithms, float64 [batch, heads, queries]. Parameters,
    inputs and what else is added to the score may be of 16 bits: they are widened. torch.compile sees one operator
    without a break; vmap calls it row by row; forward mode and second derivatives are refused.

    >>> import torch, posenc, posenc.torch
    >>> q, k, v = torch.randn(3, 1, 4, 6, 16, requires_grad=True).unbind(0)
    >>> table = torch.zeros(32, 4, requires_grad=True)
    >>> out = posenc.torch.attend(posenc.T5(bidirectional=False), q, k, v, order="bhtd", parameters={"table": table}, causal=True)
    >>> out.sum().backward()
    >>> table.grad.shape
    torch.Size([32, 4])
    """
    given: dict[str, Any] = {f"{group}.{n}": x for group, named in (("parameters", parameters), ("inputs", inputs))
                             for n, x in arrays_of("torch attend", group, named).items()}
    whole_prefix = None if isinstance(prefix, torch.Tensor) else prefix
    given.update(
        query_positions=_positions(query_positions), key_positions=_positions(key_positions),
        query_order=_whole(query_order), key_order=_whole(key_order), chunk_origin=_whole(chunk_origin), head_side=head_side,
        prefix=prefix if whole_prefix is None else None, key_length=_whole(key_length), key_visible=key_visible, visible=visible,
        bias=bias, query_document=_whole(query_document), key_document=_whole(key_document),
        query_cu_seqlens=_whole(query_cu_seqlens), key_cu_seqlens=_whole(key_cu_seqlens), block_table=_whole(block_table),
        sink=sink, query_factor=query_factor, head_scale=head_scale, mix_before=mix_before, mix_after=mix_after,
        past_distances=_whole(past_distances), future_distances=_whole(future_distances))
    if regions is not None:
        flat = flat_regions(regions) or {}
        if any(n.endswith((".rotation", ".q")) for n in flat):
            refuse("torch attend", "regions must rotate by the encodings; posenc.attend has regions with a rotation or q and k",
                   "a rotation or q and k of their own")
        given.update((f"regions.{n}", torch.as_tensor(x)) for n, x in flat.items())
    named = {n: x for n, x in given.items() if x is not None}
    check_given("torch attend", {"q": q, "k": k, "v": v})
    check_tensors("torch attend", {"q": q, "k": k, "v": v, **named})
    check_constants("torch attend", {"scale": scale, "softcap": softcap,
                                     **{n: x for n, x in named.items() if "positions" in n or n.startswith("regions.")}})
    arrays = [x.float() if x.dtype in _HALF else x for x in named.values()]
    word, number = (offset, None) if isinstance(offset, str) else (None, offset)
    details = (list(named), _texts(encodings), order, word, number, causal, None if window is None else list(window),
               whole_prefix, chunk, sink_tokens, length, scale, softcap, softcap_after_terms, exact)
    if torch._C._get_tracing_state() is not None and not is_compiling():
        raise RuntimeError("[torch attend] must not be recorded by torch.jit.trace, which keeps no list of words; use torch.export")
    if in_transform() and not is_compiling():
        result = _Attend.apply(details, q, k, v, *arrays)
    elif is_compiling() or not direct((q, k, v, *arrays)):
        result = torch.ops.posenc.attend(q, k, v, arrays, *details)
    elif torch.is_grad_enabled():
        result = _AttendDirect.apply(details, q, k, v, *arrays)
    else:
        result = _forward(q, k, v, arrays, *details)
    return tuple(result) if log_sum_exp else result[0]


def _texts(encodings: Any) -> list[str]:
    if encodings is None:
        return []
    several = list(encodings) if hasattr(encodings, "__iter__") and not isinstance(encodings, str) else [encodings]
    for e in several:
        if not isinstance(e, str) and not hasattr(e, "_text"):
            raise ValueError(f'[torch attend] encoding must be SCHEME text or an encoding of posenc, got "{e}"')
    return [e if isinstance(e, str) else e._text for e in several]
