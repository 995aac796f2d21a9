# SPDX-License-Identifier: Apache-2.0
"""What the families of rotation share."""
from __future__ import annotations

import functools

import torch

from .. import _posenc

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_TRANSPOSED = {"forward": "gradient", "gradient": "forward"}


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
