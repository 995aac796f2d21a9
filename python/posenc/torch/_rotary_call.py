# SPDX-License-Identifier: Apache-2.0
"""What the families of rotation share."""
from __future__ import annotations

import functools

import torch

from .. import _posenc
from . import _checks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_TRANSPOSED = {"forward": "gradient", "gradient": "forward"}
_MODES = ("forward", "gradient", "inverse", "shift")
_COLUMNS = {"half": 2, "duplicated": 1, "repeated": 1}  # channels that a column is for


@functools.lru_cache(256)
def plan_of(encoding: str, dtype: torch.dtype, context: int | None) -> _posenc.RotaryPlan:
    """The plan of an encoding, kept."""
    return _posenc.RotaryPlan(encoding, str(dtype).removeprefix("torch."), context=context)


def transposed_mode(who: str, mode: str) -> str:
    """The mode whose rotation is the gradient of another's."""
    if mode not in _TRANSPOSED:
        raise RuntimeError(f'[torch {who}] has a gradient in the modes forward and gradient, got "{mode}"')
    return _TRANSPOSED[mode]


def pair(xs: tuple[Any, ...], keys: bool) -> tuple[Any, Any]:
    """q and k of a call; `keys`: one tensor alone is k."""
    if len(xs) == 2:
        return xs[0], xs[1]
    return (None, xs[0]) if keys else (xs[0], None)


def check_mode(who: str, mode: str) -> None:
    """A mode that exists."""
    if mode not in _MODES:
        _checks.refuse(who, f"mode must be {', '.join(_MODES)}", mode)


def check_rotation(who: str, xs: dict[str, Any], positions: Any, encoding: str, layout: str | None, mode: str,
                   context: int | None) -> None:
    """A rotation by positions: what its kernel refuses of elements, axes and sizes."""
    batch, tokens, channels = _checks.heads(who, xs, layout)
    _checks.places(who, "positions", positions, batch, tokens)
    check_mode(who, mode)
    first, x = next(iter(xs.items()))
    dim = plan_of(encoding, x.dtype, context).head_dim
    _checks.size(who, f"{first} must have {dim} channels, as the encoding has", channels, (dim,))


def check_row_call(who: str, xs: dict[str, Any], cos: Any, sin: Any, index: Any, pairing: str, columns: str, layout: str | None,
                   order: str, offset: int) -> None:
    """A rotation by cosine and sine: what its kernel refuses of words, elements, axes and sizes."""
    for name, word, words in (("pairing", pairing, ("half_split", "interleaved")), ("columns", columns, tuple(_COLUMNS)),
                              ("output_order", order, ("in_place", "even_then_odd"))):
        if word not in words:
            _checks.refuse(who, f"{name} must be {' or '.join(words)}", word)
    batch, tokens, channels = _checks.heads(who, xs, layout)
    _checks.rows(who, cos, sin, index, batch, tokens, next(iter(xs.values())))
    turned = cos.shape[-1] * _COLUMNS[columns] + offset
    if isinstance(turned, int) and isinstance(channels, int) and turned > channels:
        _checks.refuse(who, f"cos and sin must have columns for at most {channels} channels from offset {offset}", cos.shape[-1])


def check_pairs(who: str, q: Any, k: Any, d_q: Any, d_k: Any) -> None:
    """A gradient has the shape and elements of its tensor, and there is one for each."""
    for name, x, d in (("q", q, d_q), ("k", k, d_k)):
        if (x is None) is not (d is None):
            _checks.refuse(who, f"{name} and d_{name} must be given together", name if d is None else f"d_{name}")
        if x is not None:
            _checks.elements(who, f"d_{name}", d, (x.dtype,))
            _checks.shape(who, f"d_{name}", d, x.shape)
