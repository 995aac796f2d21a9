# SPDX-License-Identifier: Apache-2.0
"""Under a distance map: a copy of one layer's keys, each rotated by the position that it has in its region.

A step with one query needs each key in one region only, so one copy serves all regions. Most keys keep their position from step to
step: with a window of w, ReRoPE and Self-Extend move the key w tokens back to another region, and dual chunk moves none. A step
rotates the new key and those whose position differs from that of the copy, whatever moved them.
"""
from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from ._cache_tokens import Strip

if TYPE_CHECKING:
    from torch import Tensor

    import posenc


class MappedKeys:
    """The copy of one layer, [batch, heads, tokens, channels], with the position of each key, [batch, tokens]."""

    def __init__(self) -> None:
        self._begin(0, None)

    def _begin(self, low: int, plan: posenc.RotaryPlan | None) -> None:
        self._x, self._at = Strip(2), Strip(-1)
        self._end, self._plan = low, plan  # tokens from _end on are not copied

    def view(self, raw: Tensor, low: int, at: Tensor, plan: posenc.RotaryPlan, sinks: int = 0) -> Tensor | None:
        """Of the tokens from `low` on, whose keys without a rotation are raw, at positions [batch or 1, tokens]; None in the first step by
        a plan, since dynamic scalings have another one in each step. sinks: so many first ones are copies of other tokens, in place of
        those that left the window; they are rotated anew."""
        at, end = at.expand(raw.shape[0], -1), low + raw.shape[2]
        if plan is not self._plan:
            self._begin(low, plan)
            return None
        if not self._x.base <= low <= self._end:
            self._begin(low, plan)
        have = self._end
        if have < end:
            self._x.write(low, have, raw[:, :, have - low:])
            self._at.write(low, have, at[:, have - low:].double())
            plan.rotate_(self._x.view(have, end), positions=at[:, have - low:].contiguous(), order="bhtd")
            self._end = end
        if sinks and have > low:
            self._at.view(low, min(low + sinks, have)).fill_(torch.nan)
        old = (self._at.view(low, have) != at[:, :have - low]).any(0).nonzero()[:, 0]
        if len(old):  # the new token is written: no fork shares the memory
            x, new = raw.index_select(2, old), at.index_select(1, old)
            plan.rotate_(x, positions=new, order="bhtd")
            self._x.view(low, have).index_copy_(2, old, x)
            self._at.view(low, have).index_copy_(1, old, new.double())
        return self._x.view(low, end)

    def cut(self, end: int) -> None:
        """Tokens from `end` on are others now."""
        self._end = min(self._end, end)

    def remove(self, start: int, stop: int) -> None:
        """Tokens start to stop - 1 leave; those behind them move up."""
        if self._end <= stop or start < self._x.base:
            self.cut(start)
            return
        for strip in (self._x, self._at):
            strip.remove(start, stop, self._end)
        self._end -= stop - start

    def select(self, rows: Tensor) -> None:
        """Only these sequences of the batch stay, in this order."""
        self._x.rows(rows, 0)
        self._at.rows(rows, 0)

    def fork(self) -> MappedKeys:
        """The same copy of another cache."""
        other = MappedKeys()
        other._x, other._at, other._end, other._plan = self._x.fork(), self._at.fork(), self._end, self._plan
        return other
