# SPDX-License-Identifier: Apache-2.0
"""Operators that rotate one tensor, or two, each with its twin in place, and the function that calls them.

A family has four operators: NAME and NAME_qk give new tensors, NAME_ and NAME_qk_ write into theirs and return nothing.
The schemas have no defaults: kernels in Python would not be handed arguments that equal theirs.
Kernels: CPU, fake, Autograd and vmap. An operator in place with a CPU kernel alone would pass opcheck and give wrong
gradients silently: its Autograd kernel refuses tensors that require one, and counts their version.
"""
from __future__ import annotations

import torch

from ._checks import one_device
from ._host import (
    Library, any_requires_grad, below_autograd, check_tensors, direct, grad_enabled, in_forward_mode, in_transform, is_compiling,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_LIBRARY = Library("posenc", "FRAGMENT")


class Family:
    """What a family computes; the classes that derive from it say how."""

    name: str
    schema: str  # of what follows the tensors
    tensors: tuple[str, ...]  # of it, the tensors, which come first

    def compute(self, xs: tuple[Any, ...], out: tuple[Any, ...], rest: tuple[Any, ...]) -> None:
        """Into `out`, on addresses."""
        raise NotImplementedError

    def transposed(self, rest: tuple[Any, ...]) -> tuple[Any, ...]:
        """The arguments with which the gradient of the result gives that of the tensors. Refuses by name."""
        raise NotImplementedError

    def rest_gradients(self, xs: tuple[Any, ...], d: tuple[Any, ...], rest: tuple[Any, ...], needed: Any) -> list[Any]:
        """Gradients of the tensors of `rest`, None where not needed."""
        return [None] * len(self.tensors)

    def batched(self, xs: tuple[Any, ...], dims: Any, size: int, rest: tuple[Any, ...], rest_dims: Any) -> tuple[Any, tuple[Any, ...], Any]:
        """For vmap: the tensors and arguments of one call for all, and what takes a result apart again."""
        raise NotImplementedError

    def check(self, xs: dict[str, Any], rest: tuple[Any, ...]) -> None:
        """Refuses by name what `compute` would: for tensors without memory."""
        raise NotImplementedError

    def check_learned(self, rest: tuple[Any, ...]) -> None:
        """Where tensors of `rest` require a gradient: refuses those that have none."""

    def __init__(self) -> None:
        self.one, self.two = _Operator(self, 1, self.name), _Operator(self, 2, self.name + "_qk")

    def _operator(self, q: Any, k: Any) -> tuple[_Operator, tuple[Any, ...]]:
        if q is not None and k is not None:
            return self.two, (q, k)
        if q is None and k is None:
            raise ValueError(f"[torch {self.name}] q or k must be given")
        return self.one, (k if q is None else q,)

    def named(self, xs: tuple[Any, ...], rest: tuple[Any, ...]) -> dict[str, Any]:
        """All tensors of a call by name."""
        return dict(zip(("q", "k"), xs)) | dict(zip(self.tensors, rest))

    def __call__(self, q: Any, k: Any, rest: tuple[Any, ...]) -> Any:
        """New tensors: of q, of k, or both."""
        op, xs = self._operator(q, k)
        given = xs + rest[: len(self.tensors)]
        if not is_compiling() and direct(given):
            if in_forward_mode():
                return _Transformed.apply(op, *xs, *rest)
            if grad_enabled() and any_requires_grad(given):
                return _Recorded.apply(op, False, rest[op.fixed:], *given)
            return op.make(xs, rest)
        check_tensors(f"torch {self.name}", self.named(xs, rest))
        if not is_compiling() and (in_transform() or in_forward_mode()):
            return _Transformed.apply(op, *xs, *rest)
        return op.overload(*xs, *rest)

    def into(self, q: Any, k: Any, rest: tuple[Any, ...]) -> None:
        """The same in place."""
        op, xs = self._operator(q, k)
        given = xs + rest[: len(self.tensors)]
        if not is_compiling() and direct(given) and not in_forward_mode():
            op.refuse_history(xs, rest)
            self.compute(xs, xs, rest)
            op.count(xs)
            return
        check_tensors(f"torch {self.name}_", self.named(xs, rest))
        if not is_compiling() and (in_transform() or in_forward_mode()):
            raise RuntimeError(f"[torch {self.name}_] writes in place, which transforms of torch.func and forward mode "
                               f"cannot follow; use {self.name}")
        op.overload_in_place(*xs, *rest)


class _Operator:
    """One operator of `n` tensors and its twin in place, with all their kernels."""

    def __init__(self, family: Family, n: int, name: str) -> None:
        self.family, self.n, self.name = family, n, name
        self.fixed = len(family.tensors)
        names = ("q", "k")[:n] if n == 2 else ("x",)
        given = ", ".join(f"Tensor {x}" for x in names)
        written = ", ".join(f"Tensor({a}!) {x}" for a, x in zip("ab", names))
        made = "Tensor" if n == 1 else "(Tensor, Tensor)"
        _LIBRARY.define(f"{name}({given}, {family.schema}) -> {made}")
        _LIBRARY.define(f"{name}_({written}, {family.schema}) -> ()")
        self.overload = getattr(torch.ops.posenc, name).default
        self.overload_in_place = getattr(torch.ops.posenc, name + "_").default
        _LIBRARY.impl(name, self.raw, "CPU")
        _LIBRARY.impl(name + "_", self.raw_in_place, "CPU")
        _LIBRARY.impl(name + "_", self._negated_in_place, "Negative")
        _LIBRARY.impl(name, self._autograd, "Autograd")
        _LIBRARY.impl(name + "_", self._autograd_in_place, "Autograd")
        torch.library.register_fake(f"posenc::{name}", self._fake, lib=_LIBRARY)
        torch.library.register_fake(f"posenc::{name}_", self._fake_in_place, lib=_LIBRARY)
        torch.library.register_vmap(f"posenc::{name}", self._vmap, lib=_LIBRARY)

    def make(self, xs: tuple[Any, ...], rest: tuple[Any, ...]) -> Any:
        """On addresses, no gradient."""
        if self.n == 2:
            out = torch.empty_like(xs[0]), torch.empty_like(xs[1])
            self.family.compute(xs, out, rest)
            return out
        x = torch.empty_like(xs[0])
        self.family.compute(xs, (x,), rest)
        return x

    def raw(self, *a: Any) -> Any:
        """The same, as the dispatcher calls it."""
        return self.make(a[: self.n], a[self.n:])

    def raw_in_place(self, *a: Any) -> None:
        """On addresses, into the tensors themselves."""
        self.family.compute(a[: self.n], a[: self.n], a[self.n:])

    def _fake_in_place(self, *a: Any) -> None:
        xs, rest = a[: self.n], a[self.n:]
        who = f"torch {self.family.name}"
        one_device(who, self.family.named(xs, rest))
        self.family.check(dict(zip(("q", "k"), xs)), rest)

    def _fake(self, *a: Any) -> Any:
        self._fake_in_place(*a)
        out = tuple([torch.empty_like(x) for x in a[: self.n]])
        return out if self.n == 2 else out[0]

    def tensors_of(self, a: tuple[Any, ...]) -> tuple[Any, ...]:
        """All tensors among the arguments."""
        return a[: self.n + self.fixed]

    def _autograd(self, *a: Any) -> Any:
        if in_forward_mode():
            return _Transformed.apply(self, *a)
        if grad_enabled() and any_requires_grad(self.tensors_of(a)):
            return _Recorded.apply(self, True, a[self.n + self.fixed:], *self.tensors_of(a))
        with below_autograd():
            return self.overload(*a)

    def _autograd_in_place(self, *a: Any) -> None:
        self.refuse_history(a[: self.n], a[self.n:])
        with below_autograd():
            self.overload_in_place(*a)
        self.count(a[: self.n])

    def _negated_in_place(self, *a: Any) -> None:
        # torch's own fallback for views of negated numbers asks operators in place for a result.
        plain = [x.resolve_neg() if isinstance(x, torch.Tensor) else x for x in a]
        self.overload_in_place(*plain)
        for x, y in zip(a[: self.n], plain):
            if x is not y:
                x.copy_(y)

    def refuse_history(self, xs: tuple[Any, ...], rest: tuple[Any, ...]) -> None:
        """In place nothing is recorded: what a gradient would need is refused."""
        if grad_enabled() and any_requires_grad(xs + rest[: self.fixed]):
            raise RuntimeError(f"[torch {self.family.name}_] tensors must not require a gradient where one is written in place; "
                               f"use {self.family.name}, or torch.no_grad()")

    def count(self, xs: tuple[Any, ...]) -> None:
        """Their version counts the write."""
        for x in xs:
            if not x.is_inference():
                torch.autograd.graph.increment_version(x)

    def _vmap(self, info: Any, dims: Any, *a: Any) -> Any:
        n = self.n
        xs, rest, apart = self.family.batched(a[:n], dims[:n], info.batch_size, a[n:], dims[n:])
        out = self.overload(*xs, *rest)
        return (tuple(apart(x) for x in out), (0, 0)) if n == 2 else (apart(out), 0)

    def save(self, ctx: Any, tensors: tuple[Any, ...], more: tuple[Any, ...]) -> None:
        """What backward and jvp need: q and k themselves only where others among the tensors require a gradient."""
        n = self.n
        learned = any_requires_grad(tensors[n:])
        ctx.kept = self, learned, more
        if learned:
            self.family.check_learned((*tensors[n:], *more))
            ctx.save_for_backward(*tensors[n:], *tensors[:n])
        else:
            ctx.save_for_backward(*tensors[n:])

    def backward(self, ctx: Any, d: tuple[Any, ...], needed: Any) -> tuple[Any, ...]:
        """Gradients of all tensors."""
        n, fixed, family = self.n, self.fixed, self.family
        _, learned, more = ctx.kept
        saved = ctx.saved_tensors
        rest = saved[:fixed] + more
        dx: tuple[Any, ...] = (None,) * n
        if any(needed[:n]):
            made = family(d[0], d[1] if n == 2 else None, family.transposed(rest))
            dx = made if n == 2 else (made,)
        others = family.rest_gradients(saved[fixed:], d, rest, needed[n:]) if learned else [None] * fixed
        return (*dx, *others)


class _Recorded(torch.autograd.Function):
    """Eager, and the Autograd kernel (`dispatched`): records the gradient at a third of the cost of what torch.func needs."""

    @staticmethod
    def forward(ctx: Any, op: _Operator, dispatched: bool, more: tuple[Any, ...], *tensors: Any) -> Any:
        op.save(ctx, tensors, more)
        if not dispatched:
            return op.make(tensors[: op.n], tensors[op.n:] + more)
        with below_autograd():
            return op.overload(*tensors, *more)

    @staticmethod
    def backward(ctx: Any, *d: Any) -> Any:
        return (None, None, None, *ctx.kept[0].backward(ctx, d, ctx.needs_input_grad[3:]))


def _zeros(d: tuple[Any, ...], shapes: list[Any]) -> tuple[Any, ...]:
    """Zeros for those that are missing; one is not."""
    one = next(x for x in d if x is not None)
    return tuple(one.new_zeros(shape) if x is None else x for x, shape in zip(d, shapes))


class _Transformed(torch.autograd.Function):
    """Inside torch.func (grad, jvp, vmap ...) and forward mode."""

    @staticmethod
    def forward(op: _Operator, *a: Any) -> Any:
        return op.family(a[0], a[1] if op.n == 2 else None, a[op.n:])

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        op, a = inputs[0], inputs[1:]
        tensors = op.tensors_of(a)
        op.save(ctx, tensors, a[len(tensors):])
        ctx.set_materialize_grads(False)  # a tangent of cos that is zero is none
        ctx.shapes = [x.shape for x in (output if op.n == 2 else (output,))]
        ctx.save_for_forward(*tensors[op.n:])

    @staticmethod
    def backward(ctx: Any, *d: Any) -> Any:
        op, _, more = ctx.kept
        made = op.backward(ctx, _zeros(d, ctx.shapes), ctx.needs_input_grad[1: 1 + op.n + op.fixed])
        return (None, *made, *(None for _ in more))

    @staticmethod
    def jvp(ctx: Any, _: Any, *t: Any) -> Any:
        op, _, more = ctx.kept
        n, fixed = op.n, op.fixed
        if any(x is not None for x in t[n: n + fixed]):
            raise RuntimeError(f"[torch {op.family.name}] has a forward-mode derivative for q and k only, not for "
                               + " or ".join(op.family.tensors))
        t = _zeros(t[:n], ctx.shapes)
        return op.family(t[0], t[1] if n == 2 else None, ctx.saved_tensors[:fixed] + more)

    @staticmethod
    def vmap(info: Any, dims: Any, op: _Operator, *a: Any) -> Any:
        return op._vmap(info, dims[1:], *a)


class NoSecondDerivative(torch.autograd.Function):
    """Hands a gradient on, and refuses to differentiate it again."""

    generate_vmap_rule = True

    @staticmethod
    def forward(what: str, d: Any, *of: Any) -> Any:
        return d.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.what = inputs[0]

    @staticmethod
    def backward(ctx: Any, *d: Any) -> Any:
        raise RuntimeError(f"{ctx.what} has no second derivative")

    @staticmethod
    def jvp(ctx: Any, *t: Any) -> Any:
        raise RuntimeError(f"{ctx.what} has no second derivative")
