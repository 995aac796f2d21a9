# SPDX-License-Identifier: Apache-2.0
"""What acts at the input: rows composed with embeddings, and tables looked up by ids."""
from __future__ import annotations

import functools

import torch

from .. import _posenc
from . import _checks
from ._host import (
    Library, any_requires_grad, below_autograd, check_tensors, grad_enabled, in_forward_mode, in_transform, is_compiling,
)
from ._lookup import composed, gradients

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Mapping, Sequence

    from torch import Tensor

    from .._types import EncodingLike

_LIBRARY = Library("posenc", "FRAGMENT")
_LIBRARY.define("compose(Tensor x, Tensor positions, Tensor[] parameters, str[] names, str encoding, int? context) -> Tensor")
_LIBRARY.define("compose_(Tensor(a!) x, Tensor positions, Tensor[] parameters, str[] names, str encoding, int? context) -> ()")
_LIBRARY.define("compose_gradients(Tensor d, Tensor x, Tensor positions, Tensor[] parameters, str[] names, str encoding, int? context) -> Tensor[]")
_LIBRARY.define("embed(Tensor[] tables, Tensor[] ids, float[] scales, int[] offsets, int[] frozen, Tensor? rows, Tensor? gamma, "
                "Tensor? beta, float? epsilon) -> Tensor")
_LIBRARY.define("embed_gradients(Tensor d, Tensor[] tables, Tensor[] ids, float[] scales, int[] offsets, int[] frozen, Tensor? rows, "
                "Tensor? gamma, Tensor? beta, float? epsilon, bool[] wanted) -> Tensor[]")


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


@functools.lru_cache(256)
def _appended(encoding: str, context: int | None) -> int:
    return _posenc.InputPlan(encoding, seed=0, context=context).appended


@functools.lru_cache(256)
def _shapes(encoding: str) -> dict[str, Any]:
    return dict(_posenc.input_parameters(encoding))


@functools.lru_cache(256)
def _plan_of_none(encoding: str, dtype: torch.dtype, context: int | None) -> _posenc.InputPlan:
    return _posenc.InputPlan(encoding, _name(dtype), context=context)


def _check_parameters(who: str, parameters: Any, names: Any, encoding: str) -> None:
    """Names, elements and shapes of what an encoding learns: the kernels read them by name, so an unknown one would be ignored."""
    if not parameters and not names:
        return
    wanted = _shapes(encoding)
    _checks.names(who, "parameters", names, parameters, wanted)
    for name, p in zip(names, parameters):
        _checks.elements(who, name, p, _checks.REAL)
        _checks.shape(who, name, p, wanted[name])


def _plan(encoding: str, dtype: torch.dtype, parameters: Any, names: Any, context: int | None) -> _posenc.InputPlan:
    if not parameters:
        return _plan_of_none(encoding, dtype, context)
    named = {name: p.detach().float() if p.element_size() < 4 else p.detach() for name, p in zip(names, parameters)}
    return _posenc.InputPlan(encoding, _name(dtype), parameters=named, context=context)


def _compose(x: Any, positions: Any, parameters: Any, names: Any, encoding: str, context: int | None) -> Any:
    _check_parameters("torch compose", parameters, names, encoding)
    if not x.dim():  # any other number of axes is the plan's to refuse
        _checks.axes("torch compose", "x", x, (2, 3))
    out = composed(x, positions, parameters, names, encoding)
    if out is not None:
        return out
    plan = _plan(encoding, x.dtype, parameters, names, context)
    out = x.new_empty(*x.shape[:-1], x.shape[-1] + plan.appended)
    plan.apply(x.detach(), positions, out=out.detach())
    return out


def _compose_(x: Any, positions: Any, parameters: Any, names: Any, encoding: str, context: int | None) -> None:
    _check_parameters("torch compose_", parameters, names, encoding)
    if not x.dim():  # any other number of axes is the plan's to refuse
        _checks.axes("torch compose_", "x", x, (2, 3))
    out = composed(x, positions, parameters, names, encoding)
    if out is not None:
        x.detach().copy_(out)
        return
    plan = _plan(encoding, x.dtype, parameters, names, context)
    _refuse_more(plan.appended)
    plan.apply(x.detach(), positions, out=x.detach())


def _refuse_more(appended: int) -> None:
    if appended:
        raise ValueError(f"[torch compose_] an encoding that appends channels to x needs a tensor of its own: use compose, got {appended} more")


def _compose_autograd(x: Any, positions: Any, parameters: Any, *more: Any) -> None:
    """Nothing is recorded in place: what a gradient would need is refused."""
    if grad_enabled() and any_requires_grad((x, positions, *parameters)):
        raise RuntimeError("[torch compose_] tensors must not require a gradient where one is written in place; "
                           "use compose, or torch.no_grad()")
    with below_autograd():
        torch.ops.posenc.compose_.default(x, positions, parameters, *more)
    if not x.is_inference():
        torch.autograd.graph.increment_version(x)


def _compose_negated(x: Any, positions: Any, parameters: Any, *more: Any) -> None:
    # torch's own fallback for views of negated numbers asks operators in place for a result.
    plain = x.resolve_neg()
    torch.ops.posenc.compose_.default(plain, positions, [p.resolve_neg() for p in parameters], *more)
    if plain is not x:
        x.copy_(plain)


def _check_compose(who: str, x: Any, positions: Any, parameters: Any, names: Any, encoding: str) -> None:
    """Of tensors without memory."""
    _checks.one_device(who, {"x": x, "positions": positions, **_checks.listed("parameters", parameters)})
    _check_parameters(who, parameters, names, encoding)  # before a plan of that size is made
    _checks.elements(who, "x", x, _checks.REAL)
    _checks.axes(who, "x", x, (2, 3))
    _checks.places(who, "positions", positions, x.shape[0] if x.dim() == 3 else 1, x.shape[-2])


def _compose_in_place_fake(x: Any, positions: Any, parameters: Any, names: Any, encoding: str, context: int | None) -> None:
    _check_compose("torch compose_", x, positions, parameters, names, encoding)
    _refuse_more(_appended(encoding, context))


def _compose_fake(x: Any, positions: Any, parameters: Any, names: Any, encoding: str, context: int | None) -> Any:
    _check_compose("torch compose", x, positions, parameters, names, encoding)
    return x.new_empty(*x.shape[:-1], x.shape[-1] + _appended(encoding, context))


def _compose_gradients(d: Any, x: Any, positions: Any, parameters: Any, names: Any, encoding: str, context: int | None) -> Any:
    _check_parameters("torch compose_gradients", parameters, names, encoding)
    if not x.dim():  # any other number of axes is the plan's to refuse
        _checks.axes("torch compose_gradients", "x", x, (2, 3))
    _checks.shape("torch compose_gradients", "d", d, (*x.shape[:-1], x.shape[-1] + _appended(encoding, context)))
    d = d.detach().contiguous()
    made = gradients(d, x, positions, parameters, names, encoding)
    if made is not None:
        return made
    plan = _plan(encoding, x.dtype, parameters, names, context)
    d_x = torch.empty_like(x, memory_format=torch.contiguous_format)
    wide = [torch.zeros(p.shape, dtype=torch.float64) for p in parameters]
    plan.gradient_into(d, positions, x.detach(), d_x, dict(zip(names, wide)))
    return [d_x, *(w.to(p.dtype) for w, p in zip(wide, parameters))]


def _compose_gradients_fake(d: Any, x: Any, positions: Any, parameters: Any, names: Any, encoding: str, context: int | None) -> Any:
    who = "torch compose_gradients"
    _check_compose(who, x, positions, parameters, names, encoding)
    _checks.one_device(who, {"x": x, "d": d})
    _checks.elements(who, "d", d, (x.dtype,))
    _checks.shape(who, "d", d, (*x.shape[:-1], x.shape[-1] + _appended(encoding, context)))
    return [torch.empty_like(y, memory_format=torch.contiguous_format) for y in (x, *parameters)]


def _compose_save(ctx: Any, inputs: Any, output: Any) -> None:
    x, positions, parameters, *more = inputs
    if positions.requires_grad:
        raise RuntimeError("[torch compose] positions must not require a gradient")
    ctx.save_for_backward(x, positions, *parameters)
    ctx.more = more


def _compose_backward(ctx: Any, d: Any) -> Any:
    x, positions, *parameters = ctx.saved_tensors
    made = torch.ops.posenc.compose_gradients(d, x, positions, parameters, *ctx.more)
    return made[0], None, list(made[1:]), None if parameters else [], None, None


def _parts(tables: Any, ids: Any, scales: Any, offsets: Any, frozen: Any, rows: Any) -> list[_posenc.EmbedPart]:
    parts = [_posenc.EmbedPart(t.detach(), i, scale=s, offset=o, frozen=None if f < 0 else f)
             for t, i, s, o, f in zip(tables, ids, scales, offsets, frozen)]
    return parts if rows is None else [_posenc.EmbedPart(rows=rows.detach()), *parts]


def _norm(gamma: Any, beta: Any, epsilon: float | None) -> _posenc.EmbedNorm | None:
    if epsilon is None:
        return None
    return _posenc.EmbedNorm(*(None if x is None else x.detach() for x in (gamma, beta)), epsilon=epsilon)


def _check_counts(who: str, n: int, *lists: Any) -> None:
    if not n or {len(x) for x in lists} != {n}:
        raise ValueError(f"[{who}] ids, scales, offsets and frozen must be as many as the tables, got {n} tables")


def _check_lists(who: str, tables: Any, ids: Any, scales: Any, offsets: Any, frozen: Any, rows: Any, gamma: Any, beta: Any,
                 epsilon: Any) -> None:
    """What the lists of a call have in common."""
    _check_counts(who, len(tables), ids, scales, offsets, frozen)
    if epsilon is None and (gamma is not None or beta is not None):
        raise ValueError(f"[{who}] epsilon must be given with gamma or beta")
    for name, x in (("gamma", gamma), ("beta", beta)):
        _checks.elements(who, name, x, (tables[0].dtype,))
        _checks.shape(who, name, x, tables[0].shape[-1:])


def _check_embed(who: str, tables: Any, ids: Any, scales: Any, offsets: Any, frozen: Any, rows: Any, gamma: Any, beta: Any, epsilon: Any) -> None:
    """Of tensors without memory."""
    named = _checks.listed("tables", tables) | _checks.listed("ids", ids)
    _checks.one_device(who, {**named, "rows": rows, "gamma": gamma, "beta": beta})
    _check_lists(who, tables, ids, scales, offsets, frozen, rows, gamma, beta, epsilon)
    batch = _embed_out(tables, ids, rows).shape[0]
    for name, x in named.items():
        _checks.elements(who, name, x, _checks.WHOLE if name[0] == "i" else _checks.REAL if x is tables[0] else (tables[0].dtype,))
        _checks.axes(who, name, x, (1, 2) if name[0] == "i" else (2,))
        if name[0] == "i":
            if x.dim() == 2 and x.shape[0] != batch:
                _checks.size(who, f"{name} must have 1 row or one for each of {batch} sequences", x.shape[0], (1,))
            _checks.size(who, f"{name} must have {ids[0].shape[-1]} tokens, as many as ids[0]", x.shape[-1], (ids[0].shape[-1],))
        else:
            _checks.size(who, f"{name} must have {tables[0].shape[-1]} channels, as many as tables[0]", x.shape[-1], tables[0].shape[-1:])
    if rows is not None:
        _checks.elements(who, "rows", rows, (tables[0].dtype,))
        _checks.axes(who, "rows", rows, (2, 3))
        for n, want in zip(rows.shape[-2:], (ids[0].shape[-1], tables[0].shape[-1])):
            _checks.size(who, f"rows must have the tokens and channels of the tables, {ids[0].shape[-1]} and {tables[0].shape[-1]}", n, (want,))


def _embed_fake(tables: Any, ids: Any, scales: Any, offsets: Any, frozen: Any, rows: Any, gamma: Any, beta: Any, epsilon: Any) -> Any:
    _check_embed("torch embed", tables, ids, scales, offsets, frozen, rows, gamma, beta, epsilon)
    return _embed_out(tables, ids, rows)


def _embed_out(tables: Any, ids: Any, rows: Any) -> Any:
    if rows is not None and all(i.dim() < rows.dim() for i in ids):
        return rows.new_empty(rows.shape)
    longest = max(ids, key=lambda i: i.dim())
    return tables[0].new_empty(*longest.shape, tables[0].shape[-1])


def _embed(tables: Any, ids: Any, scales: Any, offsets: Any, frozen: Any, rows: Any, gamma: Any, beta: Any, epsilon: Any) -> Any:
    _check_lists("torch embed", tables, ids, scales, offsets, frozen, rows, gamma, beta, epsilon)
    out = _embed_out(tables, ids, rows)
    _posenc.embed(_parts(tables, ids, scales, offsets, frozen, rows), norm=_norm(gamma, beta, epsilon), out=out.detach())
    return out


def _wanted(a: Any) -> list[Any]:
    """Rows, tables, gamma and beta of a call, as far as their gradients are asked for."""
    tables, rows, gamma, beta, wanted = a[0], a[5], a[6], a[7], a[9]
    if len(wanted) != len(tables) + 3:
        raise ValueError(f"[torch embed_gradients] wanted must be a word for rows, each table, gamma and beta, {len(tables) + 3}, "
                         f"got {len(wanted)}")
    return [x if want else None for x, want in zip((rows, *tables, gamma, beta), wanted)]


def _embed_gradients(d: Any, *a: Any) -> Any:
    _check_lists("torch embed_gradients", *a[:9])
    wide = [None if x is None else torch.zeros(x.shape, dtype=torch.promote_types(x.dtype, torch.float32)) for x in _wanted(a)]
    *parts, gamma, beta = wide
    _posenc.embed_gradient_into(_parts(*a[:6]), d.detach().contiguous(), d_parts=parts[a[5] is None:], d_gamma=gamma, d_beta=beta,
                                norm=_norm(a[6], a[7], a[8]))
    return [w.to(x.dtype) for w, x in zip(wide, _wanted(a)) if w is not None]


def _embed_gradients_fake(d: Any, *a: Any) -> Any:
    who = "torch embed_gradients"
    _check_embed(who, *a[:9])
    of = _embed_out(a[0], a[1], a[5])
    _checks.one_device(who, {"tables[0]": of, "d": d})
    _checks.elements(who, "d", d, (of.dtype,))
    _checks.shape(who, "d", d, of.shape)
    return [torch.empty_like(x, memory_format=torch.contiguous_format) for x in _wanted(a) if x is not None]


def _embed_save(ctx: Any, inputs: Any, output: Any) -> None:
    tables, ids, scales, offsets, frozen, *others, epsilon = inputs
    ctx.save_for_backward(*tables, *ids, *others)
    ctx.more = len(tables), (scales, offsets, frozen), epsilon


def _embed_backward(ctx: Any, d: Any) -> Any:
    n, numbers, epsilon = ctx.more
    saved = ctx.saved_tensors
    rows, gamma, beta = saved[2 * n:]
    needed = ctx.needs_input_grad
    wanted = [x is not None and bool(need) for x, need in zip((rows, *saved[:n], gamma, beta), (needed[5], *needed[0], *needed[6:8]))]
    made = iter(torch.ops.posenc.embed_gradients(d, list(saved[:n]), list(saved[n: 2 * n]), *numbers, rows, gamma, beta, epsilon, wanted))
    d_rows, *d_tables, d_gamma, d_beta = [next(made) if want else None for want in wanted]
    return d_tables, [None] * n, None, None, None, d_rows, d_gamma, d_beta, None


def _once(name: str, op: Any) -> Any:
    """The Autograd kernel of a gradient: it is not differentiated again."""
    def kernel(*a: Any) -> Any:
        flat = [x for part in a for x in (part if isinstance(part, (list, tuple)) else (part,))]
        if torch.is_grad_enabled() and any(isinstance(x, torch.Tensor) and x.requires_grad for x in flat):
            raise RuntimeError(f"[torch {name}] has no second derivative")
        with torch._C._AutoDispatchBelowAutograd():
            return op()(*a)
    return kernel


for _f in (_compose, _compose_, _compose_gradients, _embed, _embed_gradients):
    _LIBRARY.impl(_f.__name__[1:], _f, "CPU")
_LIBRARY.impl("compose_", _compose_autograd, "Autograd")
_LIBRARY.impl("compose_", _compose_negated, "Negative")
for _n, _f in (("compose", _compose_fake), ("compose_", _compose_in_place_fake), ("embed", _embed_fake),
               ("embed_gradients", _embed_gradients_fake), ("compose_gradients", _compose_gradients_fake)):
    torch.library.register_fake(f"posenc::{_n}", _f, lib=_LIBRARY)
torch.library.register_autograd("posenc::compose", _compose_backward, setup_context=_compose_save, lib=_LIBRARY)
torch.library.register_autograd("posenc::embed", _embed_backward, setup_context=_embed_save, lib=_LIBRARY)
_LIBRARY.impl("compose_gradients", _once("compose", lambda: torch.ops.posenc.compose_gradients.default), "Autograd")
_LIBRARY.impl("embed_gradients", _once("embed", lambda: torch.ops.posenc.embed_gradients.default), "Autograd")


def _check(who: str, tensors: dict[str, Any]) -> None:
    check_tensors(f"torch {who}", tensors)
    if not is_compiling() and (in_transform() or in_forward_mode()):
        raise RuntimeError(f"[torch {who}] does not run inside torch.func and forward mode")


def compose(encoding: EncodingLike, x: Tensor, *, positions: Tensor, parameters: Mapping[str, Tensor] | None = None,
            context: int | None = None) -> Tensor:
    """x, [t, c] or [b, t, c], composed with the rows of its positions, by any encoding that acts at the input.

    parameters: what the encoding learns, by name (`posenc.input_parameters`). Differentiable once in x and in them.
    """
    given = dict(parameters or {})
    _check("compose", {"x": x, "positions": positions, **given})
    made: Tensor = torch.ops.posenc.compose.default(x, positions, list(given.values()), list(given), str(encoding), context)
    return made


def compose_(encoding: EncodingLike, x: Tensor, *, positions: Tensor, parameters: Mapping[str, Tensor] | None = None,
             context: int | None = None) -> None:
    """The same in place, for encodings that append nothing; tensors that require a gradient are rejected unless gradients are off."""
    given = dict(parameters or {})
    _check("compose_", {"x": x, "positions": positions, **given})
    torch.ops.posenc.compose_.default(x, positions, list(given.values()), list(given), str(encoding), context)


def embed(tables: Sequence[Tensor], ids: Sequence[Tensor], *, scales: Sequence[float] | None = None,
          offsets: Sequence[int] | None = None, frozen: Sequence[int | None] | None = None, rows: Tensor | None = None,
          gamma: Tensor | None = None, beta: Tensor | None = None, epsilon: float | None = None) -> Tensor:
    """The sum of tables looked up by ids, [t] or [b, t], and of `rows`, in one pass; with `epsilon` a layer norm behind it.

    One of scales, offsets (added to the ids) and frozen (a row that is not trained) for each table. Differentiable
    once in tables, rows, gamma and beta.
    """
    n = len(tables)
    scales = [1.0] * n if scales is None else list(scales)
    offsets = [0] * n if offsets is None else list(offsets)
    rows_kept = [-1] * n if frozen is None else [-1 if f is None else f for f in frozen]
    _check_counts("torch embed", n, ids, scales, offsets, rows_kept)  # torch finds no operator for a call without tensors
    _check("embed", {f"tables[{i}]": t for i, t in enumerate(tables)} | {f"ids[{i}]": t for i, t in enumerate(ids)}
           | {"rows": rows, "gamma": gamma, "beta": beta})
    made: Tensor = torch.ops.posenc.embed.default(list(tables), list(ids), scales, offsets, rows_kept, rows, gamma, beta, epsilon)
    return made
