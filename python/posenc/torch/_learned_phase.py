# SPDX-License-Identifier: Apache-2.0
"""Rotation whose frequencies, or real-valued positions, are learned."""
from __future__ import annotations

import functools

import torch

from .. import _posenc
from . import _checks
from ._batch import as_one_batch, positions_as_one_batch
from ._operator import _LIBRARY, Family, NoSecondDerivative
from ._rotary_call import check_pairs, check_rotation, pair, plan_of, transposed_mode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def _plan(encoding: str, dtype: torch.dtype, context: int | None, frequencies: Any) -> _posenc.RotaryPlan:
    plan = plan_of(encoding, dtype, context)
    if frequencies is None:
        return plan
    given = frequencies.detach()
    return plan.with_frequencies(given.float() if given.dtype in (torch.float16, torch.bfloat16) else given)


@functools.lru_cache(256)
def _own_shape(encoding: str, context: int | None) -> tuple[int, ...]:
    """Heads or 1, axes and pairs of the encoding's own frequencies."""
    own = _posenc.frequencies(encoding, context=context).shape
    return (1, 1, *own) if len(own) == 1 else tuple(own)


def _check_frequencies(who: str, frequencies: Any, heads: Any, encoding: str, context: int | None) -> None:
    """[heads or 1, axes, pairs], of tensors without memory."""
    if frequencies is None:
        return
    _checks.elements(who, "frequencies", frequencies, _checks.REAL)
    _checks.axes(who, "frequencies", frequencies, (3,))
    own = _own_shape(encoding, context)
    _checks.size(who, f"frequencies must have 1 row or one for each of {heads} heads", frequencies.shape[0], (heads, 1))
    for word, n, want in zip(("axes", "pairs"), frequencies.shape[1:], own[1:]):
        _checks.size(who, f"frequencies must have the {word} of the encoding, {want}", n, (want,))


def _heads(x: Any, layout: str | None) -> Any:
    return x.shape[(layout or "thd").index("h")]


class _RotateLearned(Family):
    name = "rotate_learned"
    tensors = ("positions", "frequencies")
    schema = "Tensor positions, Tensor? frequencies, str encoding, str? layout, str rotate_mode, int? context, bool keys"

    def compute(self, xs: Any, out: Any, rest: Any) -> None:
        positions, frequencies, encoding, layout, mode, context, keys = rest
        plan = _plan(encoding, xs[0].dtype, context, frequencies)
        _posenc.torch_rotate(plan, *pair(xs, keys), *pair(out, keys), positions, layout, mode)

    def check(self, xs: Any, rest: Any) -> None:
        positions, frequencies, *more = rest
        check_rotation(f"torch {self.name}", xs, positions, *more[:4])
        x = next(iter(xs.values()))
        _check_frequencies(f"torch {self.name}", frequencies, _heads(x, more[1]), more[0], more[3])

    def transposed(self, rest: Any) -> Any:
        positions, frequencies, encoding, layout, mode, context, keys = rest
        return positions, frequencies, encoding, layout, transposed_mode(self.name, mode), context, keys

    def check_learned(self, rest: Any) -> None:
        transposed_mode(self.name, rest[4])  # the other modes have no gradient

    def rest_gradients(self, xs: Any, d: Any, rest: Any, needed: Any) -> list[Any]:
        positions, frequencies, encoding, layout, mode, context, keys = rest
        if not (needed[0] or needed[1]):
            return [None, None]
        # <d, transposed rotation of x> = <rotation of d, x>
        x, y = (xs, d) if mode == "forward" else (d, xs)
        with torch.no_grad():
            made = _phase_gradients(*pair(x, keys), *pair(y, keys), positions, frequencies, encoding, layout, context,
                                    bool(needed[0]), bool(needed[1]))
        if torch.is_grad_enabled():
            made = [NoSecondDerivative.apply("[torch rotate_learned] the gradient of positions and frequencies", g, *xs, *d)
                    for g in made]
        return [g if wanted else None for g, wanted in zip(made, needed)]

    def batched(self, xs: Any, dims: Any, size: int, rest: Any, rest_dims: Any) -> Any:
        positions, frequencies, encoding, layout, *more = rest
        if rest_dims[1] is not None:
            raise RuntimeError("[torch rotate_learned] vmap goes over q, k and positions, not over frequencies")
        flat, layout, rows, apart = as_one_batch(xs, dims, size, layout)
        return flat, (positions_as_one_batch(positions, rest_dims[0], size, rows), frequencies, encoding, layout, *more), apart


_LIBRARY.define("phase_gradients(Tensor? q, Tensor? k, Tensor? d_q, Tensor? d_k, Tensor positions, Tensor? frequencies, "
                "str encoding, str? layout, int? context, bool of_positions, bool of_frequencies) -> (Tensor, Tensor)")


def _sizes(x: Any, layout: str | None) -> tuple[int, int]:
    """Batch and tokens."""
    layout = layout or "thd"
    return x.shape[layout.index("b")] if "b" in layout else 1, x.shape[layout.index("t")]


def _one_of(who: str, q: Any, k: Any, d_q: Any, d_k: Any, frequencies: Any, of_frequencies: bool) -> Any:
    """q, or k where there is no q, of a call whose gradients fit."""
    check_pairs(who, q, k, d_q, d_k)
    if q is None and k is None:
        raise ValueError(f"[{who}] q or k must be given")
    if of_frequencies and frequencies is None:
        raise ValueError(f"[{who}] frequencies must be given to compute their gradient")
    return k if q is None else q


def _phase_gradients_cpu(q: Any, k: Any, d_q: Any, d_k: Any, positions: Any, frequencies: Any, encoding: str, layout: str | None,
                         context: int | None, of_positions: bool, of_frequencies: bool) -> Any:
    x = _one_of("torch phase_gradients", q, k, d_q, d_k, frequencies, of_frequencies)
    plan = _plan(encoding, x.dtype, context, frequencies)
    axes = positions.shape[0] if positions.dim() == 3 else 1
    d_positions = torch.zeros(axes, *_sizes(x, layout), dtype=torch.float64) if of_positions else None
    d_frequencies = torch.zeros(frequencies.shape, dtype=torch.float64) if of_frequencies else None
    _posenc.torch_phase_gradients(plan, q, k, d_q, d_k, positions, d_positions, d_frequencies, layout)
    if d_positions is not None and positions.dim() < 3:
        d_positions = d_positions[0]
    return (positions.new_empty(0) if d_positions is None else d_positions.sum_to_size(positions.shape).to(positions.dtype),
            x.new_empty(0) if d_frequencies is None else d_frequencies.to(frequencies.dtype))


def _phase_gradients_fake(q: Any, k: Any, d_q: Any, d_k: Any, positions: Any, frequencies: Any, encoding: Any, layout: Any,
                          context: Any, of_positions: bool, of_frequencies: bool) -> Any:
    who = "torch phase_gradients"
    _checks.one_device(who, {"q": q, "k": k, "d_q": d_q, "d_k": d_k, "positions": positions, "frequencies": frequencies})
    x = _one_of(who, q, k, d_q, d_k, frequencies, of_frequencies)
    check_rotation(who, {n: y for n, y in (("q", q), ("k", k)) if y is not None}, positions, encoding, layout, "forward", context)
    _check_frequencies(who, frequencies, _heads(x, layout), encoding, context)
    return (positions.new_empty(positions.shape if of_positions else 0),
            frequencies.new_empty(frequencies.shape) if of_frequencies else x.new_empty(0))


def _phase_gradients_vmap(info: Any, dims: Any, *a: Any) -> Any:
    """One after the other: what all share would have to be summed."""
    made = [_phase_gradients(*(x if dim is None else x.select(dim, i) for x, dim in zip(a, dims))) for i in range(info.batch_size)]
    return (torch.stack([m[0] for m in made]), torch.stack([m[1] for m in made])), (0, 0)


_LIBRARY.impl("phase_gradients", _phase_gradients_cpu, "CPU")
torch.library.register_fake("posenc::phase_gradients", _phase_gradients_fake, lib=_LIBRARY)
torch.library.register_vmap("posenc::phase_gradients", _phase_gradients_vmap, lib=_LIBRARY)
_phase_gradients: Any = torch.ops.posenc.phase_gradients.default
ROTATE_LEARNED = _RotateLearned()
