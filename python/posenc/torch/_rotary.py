# SPDX-License-Identifier: Apache-2.0
"""Rotation: by any rotary encoding without a table, and by anybody's cosine and sine."""
from __future__ import annotations

import torch

from .. import _posenc
from ._batch import as_one_batch, positions_as_one_batch, rows_as_one_batch
from ._checks import one_device
from ._learned_phase import ROTATE_LEARNED
from ._operator import _LIBRARY, Family, NoSecondDerivative
from ._rotary_call import check_mode, check_pairs, check_rotation, check_row_call, pair, plan_of, transposed_mode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from torch import Tensor

    from .._types import EncodingLike

class _Rotate(Family):
    name = "rotate"
    tensors = ("positions",)
    schema = "Tensor positions, str encoding, str? layout, str rotate_mode, int? context, bool keys"

    def compute(self, xs: Any, out: Any, rest: Any) -> None:
        positions, encoding, layout, mode, context, keys = rest
        _posenc.torch_rotate(plan_of(encoding, xs[0].dtype, context), *pair(xs, keys), *pair(out, keys), positions, layout, mode)

    def check(self, xs: Any, rest: Any) -> None:
        check_rotation(f"torch {self.name}", xs, *rest[:5])

    def transposed(self, rest: Any) -> Any:
        positions, encoding, layout, mode, context, keys = rest
        return positions, encoding, layout, transposed_mode(self.name, mode), context, keys

    def check_learned(self, rest: Any) -> None:
        raise RuntimeError("[torch rotate] positions must not require a gradient")

    def batched(self, xs: Any, dims: Any, size: int, rest: Any, rest_dims: Any) -> Any:
        positions, encoding, layout, *more = rest
        flat, layout, rows, apart = as_one_batch(xs, dims, size, layout)
        return flat, (positions_as_one_batch(positions, rest_dims[0], size, rows), encoding, layout, *more), apart


class _RotateRows(Family):
    name = "rotate_rows"
    tensors = ("cos", "sin", "index")
    schema = ("Tensor cos, Tensor sin, Tensor? index, str pairing, str columns, str? layout, "
              "str output_order, int offset, str rotate_mode")

    def compute(self, xs: Any, out: Any, rest: Any) -> None:
        if len(xs) == 2:
            _posenc.torch_rotate_rows(xs[0], xs[1], out[0], out[1], *rest)
        else:
            _posenc.torch_rotate_rows(xs[0], None, out[0], None, *rest)

    def check(self, xs: Any, rest: Any) -> None:
        check_row_call(f"torch {self.name}", xs, *rest[:-1])
        check_mode(f"torch {self.name}", rest[-1])

    def transposed(self, rest: Any) -> Any:
        return *rest[:-1], transposed_mode(self.name, rest[-1])

    def check_learned(self, rest: Any) -> None:
        transposed_mode(self.name, rest[-1])  # the other modes have no gradient

    def rest_gradients(self, xs: Any, d: Any, rest: Any, needed: Any) -> list[Any]:
        if not (needed[0] or needed[1]):
            return [None, None, None]
        # <d, transposed rotation of x> = <rotation of d, x>
        x, y = (xs, d) if rest[-1] == "forward" else (d, xs)
        with torch.no_grad():
            made = _row_gradients(*pair(x, False), *pair(y, False), *rest[:-1])
        if torch.is_grad_enabled():
            made = [NoSecondDerivative.apply("[torch rotate_rows] the gradient of cos and sin", g, *xs, *d) for g in made]
        return [made[0] if needed[0] else None, made[1] if needed[1] else None, None]

    def batched(self, xs: Any, dims: Any, size: int, rest: Any, rest_dims: Any) -> Any:
        cos, sin, index, pairing, columns, layout, *more = rest
        flat, layout, rows, apart = as_one_batch(xs, dims, size, layout)
        if index is None:
            cos, sin = rows_as_one_batch((cos, sin), rest_dims, size, rows)
        elif rest_dims[0] is None and rest_dims[1] is None:
            index = positions_as_one_batch(index, rest_dims[2], size, rows)
        else:
            raise RuntimeError("[torch rotate_rows] vmap goes over index or over cos and sin, not over both")
        return flat, (cos, sin, index, pairing, columns, layout, *more), apart


_LIBRARY.define("row_gradients(Tensor q, Tensor? k, Tensor d_q, Tensor? d_k, Tensor cos, Tensor sin, Tensor? index, str pairing, "
                "str columns, str? layout, str output_order, int offset) -> (Tensor, Tensor)")


def _row_gradients_check(q: Any, k: Any, d_q: Any, d_k: Any, cos: Any, sin: Any, *rest: Any) -> None:
    who = "torch row_gradients"
    check_pairs(who, q, k, d_q, d_k)
    check_row_call(who, {n: x for n, x in (("q", q), ("k", k)) if x is not None}, cos, sin, *rest)


def _row_gradients_cpu(q: Any, k: Any, d_q: Any, d_k: Any, cos: Any, sin: Any, *rest: Any) -> Any:
    check_pairs("torch row_gradients", q, k, d_q, d_k)
    wide = torch.float64 if cos.dtype is torch.float64 else torch.float32
    d_cos, d_sin = torch.zeros_like(cos, dtype=wide), torch.zeros_like(sin, dtype=wide)
    _posenc.torch_row_gradients(q, k, d_q, d_k, cos, sin, rest[0], d_cos, d_sin, *rest[1:])
    return d_cos.to(cos.dtype), d_sin.to(sin.dtype)


_LIBRARY.impl("row_gradients", _row_gradients_cpu, "CPU")


def _row_gradients_fake(q: Any, k: Any, d_q: Any, d_k: Any, cos: Any, sin: Any, *rest: Any) -> Any:
    one_device("torch row_gradients", {"q": q, "k": k, "d_q": d_q, "d_k": d_k, "cos": cos, "sin": sin, "index": rest[0]})
    _row_gradients_check(q, k, d_q, d_k, cos, sin, *rest)
    return torch.empty_like(cos), torch.empty_like(sin)


torch.library.register_fake("posenc::row_gradients", _row_gradients_fake, lib=_LIBRARY)


def _row_gradients_vmap(info: Any, dims: Any, *a: Any) -> Any:
    """One after the other: rows that all share would have to be summed."""
    made = [_row_gradients(*(x if dim is None else x.select(dim, i) for x, dim in zip(a, dims))) for i in range(info.batch_size)]
    return (torch.stack([m[0] for m in made]), torch.stack([m[1] for m in made])), (0, 0)


torch.library.register_vmap("posenc::row_gradients", _row_gradients_vmap, lib=_LIBRARY)
_row_gradients: Any = torch.ops.posenc.row_gradients.default
_rotate, _rotate_rows = _Rotate(), _RotateRows()


def _learned(positions: Any, frequencies: Any) -> bool:
    """Whether the call needs the operator of learned phases; the other has fewer arguments."""
    return frequencies is not None or (isinstance(positions, torch.Tensor) and positions.requires_grad)


def rotate(encoding: EncodingLike, q: Tensor | None, k: Tensor | None = None, *, positions: Tensor, layout: str | None = None,
           mode: str = "forward", context: int | None = None, frequencies: Tensor | None = None) -> Any:
    """Rotates q, or q and k, into new tensors, by any rotary encoding with its scalings; no table is made.

    positions: [t], [b, t] or [axes, b, t] of int64, int32 or float64. layout: thd (tensors of three axes), bhtd, bthd or
    tbhd. mode: forward, gradient, inverse or shift. context: the length that the encoding is resolved for, where it
    depends on one. frequencies: [heads or 1, axes, pairs] in rad per position, in place of the encoding's own: learned
    ones. Gives a tensor, or two where both are given. Differentiable in q and k, as often as asked for, and once in
    frequencies and in float64 positions.
    """
    if _learned(positions, frequencies):
        return ROTATE_LEARNED(q, k, (positions, frequencies, str(encoding), layout, mode, context, q is None))
    return _rotate(q, k, (positions, str(encoding), layout, mode, context, q is None))


def rotate_(encoding: EncodingLike, q: Tensor | None, k: Tensor | None = None, *, positions: Tensor, layout: str | None = None,
            mode: str = "forward", context: int | None = None, frequencies: Tensor | None = None) -> None:
    """The same in place; tensors that require a gradient are rejected unless gradients are off."""
    if _learned(positions, frequencies):
        ROTATE_LEARNED.into(q, k, (positions, frequencies, str(encoding), layout, mode, context, q is None))
    else:
        _rotate.into(q, k, (positions, str(encoding), layout, mode, context, q is None))


def rotate_rows(q: Tensor, k: Tensor | None, cos: Tensor, sin: Tensor, *, pairing: str, columns: str, layout: str | None = None,
                index: Tensor | None = None, output_order: str = "in_place", offset: int = 0, mode: str = "forward") -> Any:
    """Rotates q, or q and k, into new tensors by anybody's cosine and sine.

    cos, sin: [t, c], [b, t, c] or [b, t, h, c], or a table of which `index` picks a row for each token. columns: half
    (a column for each pair), duplicated or repeated. pairing: half_split or interleaved. layout: thd (tensors of three
    axes), bhtd, bthd or tbhd. output_order: in_place, or even_then_odd of interleaved pairs. offset: the first
    rotated channel. Differentiable in q and k, and once in cos and sin.
    """
    return _rotate_rows(q, k, (cos, sin, index, pairing, columns, layout, output_order, offset, mode))


def rotate_rows_(q: Tensor, k: Tensor | None, cos: Tensor, sin: Tensor, *, pairing: str, columns: str, layout: str | None = None,
                 index: Tensor | None = None, output_order: str = "in_place", offset: int = 0, mode: str = "forward") -> None:
    """The same in place; tensors that require a gradient are rejected unless gradients are off."""
    _rotate_rows.into(q, k, (cos, sin, index, pairing, columns, layout, output_order, offset, mode))
