# SPDX-License-Identifier: Apache-2.0
"""Cached keys that move: the plan of posenc.RerotationPlan for tensors, in place."""
from __future__ import annotations

import torch

from .. import _posenc
from ._checks import refuse
from ._host import any_requires_grad, check_tensors, direct, in_forward_mode, is_compiling

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Sequence

    from torch import Tensor

    from .._types import EncodingLike, PositionsLike

_WHO = "torch rerotate"


class RerotationPlan:
    """Moves cached keys to other positions, or from the encoding `before` to `after`: checked and prepared once. dtype: that of
    the keys, or "q8_0" for ggml's blocks, as tensors of uint8 with head size / 32 * 34 bytes on their last axis. cut_blocks: blocks
    of which only some channels rotate are rounded again; otherwise they are rejected. It is immutable; threads may share it.

    Nothing is recorded by autograd. Positions may be tensors.
    """

    def __init__(self, before: EncodingLike | _posenc.RotaryPlan, after: EncodingLike | _posenc.RotaryPlan,
                 dtype: torch.dtype | str = torch.float32, *, cut_blocks: bool = False) -> None:
        self._plan = _posenc.RerotationPlan(before, after, str(dtype).removeprefix("torch."), cut_blocks=cut_blocks)

    @property
    def verdict(self) -> str:
        """"kept": both rotations are the same, so only keys whose position changes are rewritten. Otherwise "moved"."""
        return self._plan.verdict

    @property
    def dtype(self) -> torch.dtype | str:
        """Type of the keys."""
        name = self._plan.dtype
        return name if name == "q8_0" else getattr(torch, name)

    def bound(self, moves: int = 1) -> float:
        """The largest error of a pair after so many moves, relative to its length; of q8_0 to the largest absolute value of its
        blocks."""
        return self._plan.bound(moves)

    def move(self, keys: Tensor, *, old_positions: PositionsLike, new_positions: PositionsLike, layout: str | None = None) -> str:
        """Moves keys in place, to the new position of each token. Returns "kept" if no key changed, otherwise "moved"."""
        _check(keys=keys)
        return _written(keys, self._plan.move(keys, old_positions=old_positions, new_positions=new_positions, order=layout))

    def move_into(self, keys: Tensor, out: Tensor, *, old_positions: PositionsLike, new_positions: PositionsLike,
                  layout: str | None = None) -> str:
        """The same into other memory, which receives every key."""
        _check(keys=keys, out=out)
        return _written(out, self._plan.move_into(keys, out, old_positions=old_positions, new_positions=new_positions, order=layout))

    def move_pages(self, pool: Tensor, pages: Tensor | Sequence[int], *, old_positions: PositionsLike, new_positions: PositionsLike,
                   out: Tensor | Sequence[int] | None = None, tokens: Tensor | Sequence[int] | None = None,
                   layout: str | None = None) -> str:
        """Moves the listed pages of a pool [pages, page size, heads, head size] in place, or into the pages `out`. tokens: used slots
        of each page. Positions have a row for each listed page, or one for all: a position for each slot, or that of the first slot."""
        _check(pool=pool)
        return _written(pool, self._plan.move_pages(pool, pages, old_positions=old_positions, new_positions=new_positions, out=out,
                                                    tokens=tokens, order=layout))

    def move_pages_into(self, pool: Tensor, out_pool: Tensor, pages: Tensor | Sequence[int], *, old_positions: PositionsLike,
                        new_positions: PositionsLike, out: Tensor | Sequence[int] | None = None,
                        tokens: Tensor | Sequence[int] | None = None, layout: str | None = None) -> str:
        """The same into another pool."""
        _check(pool=pool, out_pool=out_pool)
        return _written(out_pool, self._plan.move_pages_into(pool, out_pool, pages, old_positions=old_positions,
                                                             new_positions=new_positions, out=out, tokens=tokens, order=layout))


def _check(**tensors: Any) -> None:
    """Refuses what has no address, and what autograd, a transform or a compiler watches."""
    given = tuple(tensors.values())
    if is_compiling() or not direct(given) or in_forward_mode():
        check_tensors(_WHO, tensors)
        refuse(_WHO, "tensors must be dense ones with memory, outside torch.compile, torch.func and forward mode", "others")
    if any_requires_grad(given):
        name = next(n for n, x in tensors.items() if x.requires_grad)
        refuse(_WHO, f"{name} must not require a gradient; use {name}.detach()", "requires_grad=True")


def _written(x: Tensor, verdict: str) -> str:
    """The version of a tensor counts the write."""
    if verdict == "moved" and not x.is_inference():
        torch.autograd.graph.increment_version(x)
    return verdict
