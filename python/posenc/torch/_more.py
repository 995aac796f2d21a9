# SPDX-License-Identifier: Apache-2.0
"""Attention that is no sum of terms, and results over disjoint keys joined: operators with gradients.

Each is `name(tensors, options) -> (out, log_sum_exp)` and `name_backward(d_out, d_log_sum_exp, out, log_sum_exp, tensors,
options) -> Tensor[]`, the gradients of all tensors in order.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, NoReturn, Sequence

import torch

from .. import _posenc
from . import _checks
from ._attention import _address, _whole
from ._attention_checks import check_arrays, check_constants, check_given
from ._host import Library, check_tensors

if TYPE_CHECKING:
    from torch import Tensor

_LIBRARY = Library("posenc", "FRAGMENT")


class _Operator:
    """call(tensors, details, out, log_sum_exp, done) computes into out and log_sum_exp, or with `done` has a `backward`."""

    def __init__(self, name: str, details: str, call: Callable[..., Any], check: Callable[..., None]) -> None:
        self.name, self.call, self.check = name, call, check
        _LIBRARY.define(f"{name}(Tensor[] tensors, {details}) -> (Tensor, Tensor)")
        _LIBRARY.define(f"{name}_backward(Tensor d_out, Tensor d_log_sum_exp, Tensor out, Tensor log_sum_exp, Tensor[] tensors, "
                        f"{details}) -> Tensor[]")
        _LIBRARY.impl(name, self._forward, "CPU")
        _LIBRARY.impl(name + "_backward", self._backward, "CPU")
        torch.library.register_fake(f"posenc::{name}", self._result, lib=_LIBRARY)
        torch.library.register_fake(f"posenc::{name}_backward", self._gradients, lib=_LIBRARY)
        torch.library.register_autograd(f"posenc::{name}", self._gradient, setup_context=self._keep, lib=_LIBRARY)
        torch.library.register_autograd(f"posenc::{name}_backward", self._refuse_twice, lib=_LIBRARY)
        self.operator = getattr(torch.ops.posenc, name).default
        self.operator_backward = getattr(torch.ops.posenc, name + "_backward").default

    def _shapes(self, tensors: Sequence[Tensor], details: Sequence[Any], who: str) -> tuple[list[Any], list[Any]]:
        """Of the output and its logarithms, once everything is checked, on every device."""
        self.check(who, tensors, *details)
        q, v = tensors[0], tensors[0] if self.name == "merge" else tensors[2]
        axes = details[0] or "thd"
        return [*q.shape[:-1], v.shape[-1]], [q.shape[axes.index(n)] if n in axes else 1 for n in "bht"]

    def _result(self, tensors: Sequence[Tensor], *details: Any) -> tuple[Tensor, Tensor]:
        shape, sums = self._shapes(tensors, details, f"torch {self.name}")
        return tensors[0].new_empty(shape), tensors[0].new_empty(sums, dtype=torch.float64)

    def _forward(self, tensors: Sequence[Tensor], *details: Any) -> tuple[Tensor, Tensor]:
        out, sums = self._result(tensors, *details)
        self.call([_address(x) for x in tensors], details, out, sums, False)
        return out, sums

    def _gradients(self, d_out: Tensor, d_sums: Tensor, out: Tensor, sums: Tensor, tensors: Sequence[Tensor],
                   *details: Any) -> list[Tensor]:
        who = f"torch {self.name}_backward"
        shapes = self._shapes(tensors, details, who)
        given = {"d_out": d_out, "out": out, "d_log_sum_exp": d_sums, "log_sum_exp": sums}
        _checks.one_device(who, {"tensors[0]": tensors[0], **given})
        for name, x in given.items():
            _checks.elements(who, name, x, (torch.float64,) if "log" in name else (tensors[0].dtype,))
            _checks.shape(who, name, x, shapes["log" in name])
        return [x.new_empty(x.shape) for x in tensors]

    def _backward(self, d_out: Tensor, d_sums: Tensor, out: Tensor, sums: Tensor, tensors: Sequence[Tensor],
                  *details: Any) -> list[Tensor]:
        self._gradients(d_out, d_sums, out, sums, tensors, *details)
        found = self.call([_address(x) for x in tensors], details, _address(out), _address(sums), True)(
            _address(d_out), _address(d_sums))
        return [torch.from_numpy(g).to(x.dtype) for g, x in zip(found, tensors)]

    @staticmethod
    def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        tensors, *ctx.details = inputs
        ctx.save_for_backward(*output, *tensors)

    def _gradient(self, ctx: Any, d_out: Tensor, d_sums: Tensor) -> tuple[Any, ...]:
        out, sums, *tensors = ctx.saved_tensors
        # A list of tensors has a list; an empty one of anything counts as one.
        others = ([None] * len(x) if isinstance(x, (list, tuple)) and (len(x) == 0 or isinstance(x[0], torch.Tensor)) else None
                  for x in ctx.details)
        return self.operator_backward(d_out, d_sums, out, sums, tensors, *ctx.details), *others

    def _refuse_twice(self, *_: Any) -> NoReturn:
        raise RuntimeError(f"[torch {self.name}] has no second derivative: its gradients must not be differentiated")

    def __call__(self, tensors: dict[str, Tensor], *details: Any) -> Any:
        check_given(f"torch {self.name}", tensors)
        check_tensors(f"torch {self.name}", tensors)
        if torch._C._get_tracing_state() is not None and not torch.compiler.is_compiling():
            raise RuntimeError(f"[torch {self.name}] must not be recorded by torch.jit.trace; use torch.export")
        return self.operator(list(tensors.values()), *details)


def _heads(who: str, order: str | None, tensors: Sequence[Tensor], names: Sequence[str]) -> list[dict[str, Any]]:
    """The sizes of each by its axes."""
    axes = order or "thd"
    if axes not in ("thd", "bthd", "bhtd", "tbhd"):
        _checks.refuse(who, "order must be thd, bthd, bhtd or tbhd", axes)
    _checks.one_device(who, dict(zip(names, tensors)))
    for name, x in zip(names, tensors):
        _checks.elements(who, name, x, _checks.REAL)
        _checks.axes(who, name, x, (len(axes),))
    return [{n: x.shape[axes.index(n)] if n in axes else 1 for n in "bthd"} for x in tensors]


def _same(who: str, name: str, x: dict[str, Any], letters: str, other: str, y: dict[str, Any]) -> None:
    words = {"b": "batch", "t": "tokens", "h": "heads", "d": "channels"}
    for n in letters:
        _checks.size(who, f"{name} must have the {words[n]} of {other}, {y[n]}", x[n], (y[n],))


def _divides(who: str, name: str, x: dict[str, Any], q: dict[str, Any]) -> None:
    if isinstance(x["h"], int) and isinstance(q["h"], int) and (x["h"] == 0 or q["h"] % x["h"]):
        _checks.refuse(who, f"heads of {name} must divide those of q, {q['h']}", x["h"])


def _check_keys(who: str, q: dict[str, Any], k: dict[str, Any], v: dict[str, Any]) -> None:
    _same(who, "k", k, "bd", "q", q)
    _same(who, "v", v, "bth", "k", k)
    _divides(who, "k", k, q)


_PATH = ("q", "k", "v", "w", "beta", "log_gate")


def _check_path(who: str, tensors: Sequence[Tensor], order: str | None, *_: Any) -> None:
    if len(tensors) not in (5, 6):
        _checks.refuse(who, "tensors must be 5 or 6", len(tensors))
    q, k, v, w, beta, *gate = _heads(who, order, tensors, _PATH)
    _check_keys(who, q, k, v)
    _same(who, "w", w, "d", "q", q)
    _same(who, "beta", beta, "h", "w", w)
    for name, x in zip(_PATH[3:], (w, beta, *gate)):
        _same(who, name, x, "bt", "k", k)
        _divides(who, name, x, q)
        if name != "w":
            _checks.size(who, f"{name} must have one channel", x["d"], (1,))


def _check_selective(who: str, tensors: Sequence[Tensor], order: str | None, arrays: Sequence[Tensor], names: Sequence[str],
                     *_: Any) -> None:
    if len(tensors) != 3:
        _checks.refuse(who, "tensors must be 3", len(tensors))
    q, k, v = _heads(who, order, tensors, _PATH)
    _check_keys(who, q, k, v)
    _checks.names(who, "arrays", names, arrays, _SELECTIVE)
    _checks.one_device(who, {"q": tensors[0], **dict(zip(names, arrays))})
    check_arrays(who, names, arrays, q["b"], q["t"], k["t"], q["h"])


def _check_merge(who: str, tensors: Sequence[Tensor], order: str | None, *_: Any) -> None:
    half = len(tensors) // 2
    if half == 0 or len(tensors) % 2:
        _checks.refuse(who, "tensors must be outputs and then their logarithms, as many", len(tensors))
    sizes = _heads(who, order, tensors[:half], [f"tensors[{n}]" for n in range(half)])
    _checks.one_device(who, {f"tensors[{n}]": x for n, x in enumerate(tensors)})
    for n, (x, sums) in enumerate(zip(sizes, tensors[half:])):
        _same(who, f"tensors[{n}]", x, "bthd", "tensors[0]", sizes[0])
        _checks.elements(who, f"tensors[{half + n}]", sums, _checks.WIDE)
        _checks.shape(who, f"tensors[{half + n}]", sums, [x["b"], x["h"], x["t"]])


_SELECTIVE = ("prefix", "chunk_origin", "key_length", "key_visible", "visible", "query_document", "key_document")


def _path(tensors: Sequence[Tensor], details: Sequence[Any], out: Tensor, sums: Tensor, done: bool) -> Any:
    order, offset, window_left, scale, gates_scaled = details
    names = _PATH[:len(tensors)]
    call = _posenc.PathAttention(dict(zip(names, tensors)), {
        "order": order, "offset": offset, "window_left": window_left, "scale": scale, "gates_scaled": gates_scaled,
        "out": out, "log_sum_exp": sums, "done": done, "torch": True})
    return lambda *d: [call.backward(*d)[n] for n in names]


def _selective(tensors: Sequence[Tensor], details: Sequence[Any], out: Tensor, sums: Tensor, done: bool) -> Any:
    order, arrays, names, head, keep_first, offset_word, offset, scale, causal, window, chunk, sink_tokens = details
    q, k, v = tensors
    call = _posenc.SelectiveAttention(q, k, v, {
        "order": order, "head": head, "keep_first": keep_first, "offset": offset if offset_word is None else offset_word,
        "scale": scale, "causal": causal, "window": None if window is None else list(window), "chunk": chunk,
        "sink_tokens": sink_tokens, **{n: _address(x) for n, x in zip(names, arrays)}, "out": out, "log_sum_exp": sums,
        "done": done, "torch": True})
    return lambda *d: [call.backward(*d)[n] for n in ("q", "k", "v")]


def _merge(tensors: Sequence[Tensor], details: Sequence[Any], out: Tensor, sums: Tensor, done: bool) -> Any:
    order, normalisation = details
    half = len(tensors) // 2
    parts = list(zip(tensors[:half], tensors[half:]))
    if not done:
        return _posenc.merge(parts, order=order, normalisation=normalisation, out=out, log_sum_exp=sums)

    def backward(*d: Tensor) -> list[Any]:
        found = _posenc.merge_backward(parts, (out, sums), *d, order=order, normalisation=normalisation)
        return [g[0] for g in found] + [g[1] for g in found]

    return backward


_attend_path = _Operator("attend_path", "str? order, SymInt? offset, SymInt? window_left, float? scale, bool? gates_scaled", _path,
                         _check_path)
_attend_selective = _Operator(
    "attend_selective", "str? order, Tensor[] arrays, str[] names, SymInt? head, bool? keep_first, str? offset_word, "
    "SymInt? offset, float? scale, bool? causal, SymInt[]? window, SymInt? chunk, SymInt? sink_tokens", _selective, _check_selective)
_merged = _Operator("merge", "str? order, str normalisation", _merge, _check_merge)


def attend_path(q: Tensor, k: Tensor, v: Tensor, w: Tensor, beta: Tensor, *, log_gate: Tensor | None = None,
                order: str | None = None, offset: int | None = None, window_left: int | None = None,
                scale: float | None = None, gates_scaled: bool | None = None, log_sum_exp: bool = False) -> Any:
    """`posenc.attend_path` of tensors, with gradients to all of them; log_sum_exp: and the logarithms.

    >>> import torch, posenc, posenc.torch
    >>> q, k, v, w = torch.randn(4, 6, 2, 8, requires_grad=True).unbind(0)
    >>> posenc.torch.attend_path(q, k, v, torch.nn.functional.normalize(w, dim=-1), torch.ones(6, 2, 1)).shape
    torch.Size([6, 2, 8])
    """
    tensors = {"q": q, "k": k, "v": v, "w": w, "beta": beta} | ({} if log_gate is None else {"log_gate": log_gate})
    check_constants("torch attend_path", {"scale": scale})
    result = _attend_path(tensors, order, offset, window_left, scale, gates_scaled)
    return tuple(result) if log_sum_exp else result[0]


def attend_selective(q: Tensor, k: Tensor, v: Tensor, *, order: str | None = None, head: int | None = None,
                     keep_first: bool | None = None, offset: int | str | None = None, scale: float | None = None,
                     causal: bool | None = None, window: Sequence[int] | None = None, chunk: int | None = None,
                     sink_tokens: int | None = None, log_sum_exp: bool = False, **arrays: Any) -> Any:
    """`posenc.attend_selective` of tensors, with gradients to q, k and v; log_sum_exp: and the logarithms.

    Its other arguments (prefix, chunk_origin, key_length, key_visible, visible, query_document, key_document) are tensors
    or lists of whole numbers.

    >>> import torch, posenc, posenc.torch
    >>> q, k, v = torch.randn(3, 6, 2, 8, requires_grad=True).unbind(0)
    >>> posenc.torch.attend_selective(q, k, v, causal=True).shape
    torch.Size([6, 2, 8])
    """
    for name in arrays:
        if name not in _SELECTIVE:
            raise TypeError(f"attend_selective() got an unexpected keyword argument '{name}'")
    given = {n: _whole(x) for n, x in arrays.items() if x is not None}
    check_tensors("torch attend_selective", given)
    check_constants("torch attend_selective", {"scale": scale})
    word, number = (offset, None) if isinstance(offset, str) else (None, offset)
    result = _attend_selective(
        {"q": q, "k": k, "v": v}, order, list(given.values()), list(given), head, keep_first, word, number, scale, causal,
        None if window is None else list(window), chunk, sink_tokens)
    return tuple(result) if log_sum_exp else result[0]


def merge(parts: Sequence[tuple[Tensor, Tensor]], *, order: str | None = None,
          normalisation: str = "softmax") -> tuple[Tensor, Tensor]:
    """`posenc.merge` of tensors: (out, log_sum_exp) of the pairs that `attend(log_sum_exp=True)` returns, with gradients.

    >>> import torch, posenc, posenc.torch
    >>> q, k, v = torch.randn(3, 6, 2, 8, dtype=torch.float64).unbind(0)
    >>> halves = [posenc.torch.attend("alibi", q, k[s], v[s], key_positions=range(s.start, s.stop), offset=0, log_sum_exp=True)
    ...           for s in (slice(0, 3), slice(3, 6))]
    >>> whole = posenc.torch.attend("alibi", q, k, v)
    >>> bool((posenc.torch.merge(halves)[0] - whole).abs().max() < 1e-12)
    True
    """
    pairs = list(parts) if hasattr(parts, "__iter__") else [parts]
    for pair in pairs:
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            _checks.refuse("torch merge", "parts must be pairs of out and log_sum_exp", type(pair).__name__)
    tensors: dict[str, Any] = {f"out of part {n}": out for n, (out, _) in enumerate(pairs)}
    tensors.update((f"log_sum_exp of part {n}", sums) for n, (_, sums) in enumerate(pairs))
    if not tensors:
        raise ValueError("[merge] parts must be at least one")
    result = _merged(tensors, order, normalisation)
    return result[0], result[1]
