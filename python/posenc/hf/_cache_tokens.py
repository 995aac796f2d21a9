# SPDX-License-Identifier: Apache-2.0
"""The tokens of a cache: which of them are kept, at which positions, and which of them a query may see."""
from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from torch import Tensor


def whole(name: str, x: Any) -> int:
    """An argument that is a number of tokens or a position."""
    try:
        n = operator.index(x)
    except TypeError:
        n = 2**62
    if isinstance(x, bool) or abs(n) >= 2**62:
        raise ValueError(f"[hf KeyCache] {name} must be a whole number below 2^62, got " + (f'"{x}"' if isinstance(x, str) else str(x)))
    return n


class Strip:
    """A tensor that grows along one axis, by half when it is full. Tokens keep their numbers when earlier ones are dropped.

    A fork shares the memory until one of the two writes.
    """

    def __init__(self, axis: int) -> None:
        self.axis = axis
        self.data: Any = None
        self.base = 0  # the number of the first token in memory
        self.shared = False

    @property
    def room(self) -> int:
        """Tokens that fit."""
        return 0 if self.data is None else int(self.data.shape[self.axis])

    def view(self, low: int, high: int) -> Tensor:
        """Tokens low to high - 1."""
        return self.data.narrow(self.axis, low - self.base, high - low)  # type: ignore[no-any-return]

    def write(self, low: int, at: int, x: Tensor) -> None:
        """x becomes the tokens from `at` on; those from `low` on are kept."""
        end = at + x.shape[self.axis]
        if self.data is None or self.shared or self._frozen() or end - self.base > self.room:
            size = list(x.shape)
            needed = end - low
            size[self.axis] = needed if self.data is None else max(needed + needed // 2, min(self.room, needed * 2))
            data = x.new_empty(size)
            if at > low:
                data.narrow(self.axis, 0, at - low).copy_(self.view(low, at))
            self.data, self.base, self.shared = data, low, False
        self.view(at, end).copy_(x)

    def _frozen(self) -> bool:
        return bool(self.data.is_inference()) and not torch.is_inference_mode_enabled()

    def own(self) -> None:
        """Before tokens in memory change: nobody else has it."""
        if self.shared or (self.data is not None and self._frozen()):
            self.data, self.shared = self.data.clone(), False

    def fork(self) -> Strip:
        """Another strip of the same tokens."""
        other = Strip(self.axis)
        other.data, other.base = self.data, self.base
        self.shared = other.shared = self.data is not None
        return other

    def remove(self, start: int, stop: int, end: int) -> None:
        """Tokens start to stop - 1 leave; those behind them, up to `end`, move up."""
        data = torch.cat([self.view(self.base, start), self.view(stop, end)], self.axis)
        self.data, self.shared = data, False

    def rows(self, index: Tensor, axis: int) -> None:
        """Only these sequences of the batch stay, in this order."""
        if self.data is not None:
            self.data, self.shared = self.data.index_select(axis, index), False


class Tokens:
    """Of all layers alike. `end` counts tokens that are in the cache or were dropped by the window; `seen` counts evicted ones too."""

    def __init__(self, sinks: int, window: int | None) -> None:
        self.sinks, self.window = sinks, window
        self.seen = self.end = 0
        self.floor = 0  # tokens before it were dropped, sinks aside; it never falls, though evict lowers `end`
        self.positions = Strip(-1)  # [batch, end] or [axes, batch, end]
        self.index: Any = None  # [end]: the tokens by their number among all that were seen; None: none was evicted
        self.sink_index: Any = None  # [batch, sinks]: numbers of each row's first visible tokens; -1: not there yet
        self.sink_positions: Any = None  # [(axes,) batch, sinks]

    @property
    def start(self) -> int:
        """The first slot that a query sees."""
        return self.first_in_window - self.sinks if self.dropping else 0

    @property
    def dropping(self) -> bool:
        """Whether sinks and window are apart."""
        return self.first_in_window > self.sinks

    @property
    def first_in_window(self) -> int:
        """The first token of the window of the next query."""
        return max(self.floor, self.end - self.window + 1) if self.window is not None else 0

    @property
    def slots(self) -> int:
        """Keys that the next query sees besides its own."""
        return self.end - self.start

    def add(self, count: int, seen: int) -> None:
        """Tokens came, at the end; seen: as many as the caller counts for them."""
        self.end += count
        self.seen += seen
        if self.dropping:
            self.floor = self.first_in_window

    def keep(self, positions: Tensor, batch: int) -> None:
        """Positions of new tokens, [batch or 1, tokens] or [axes, batch or 1, tokens]."""
        new = positions.detach().expand(*positions.shape[:-2], batch, -1)
        self.positions.write(self.start if self.window is not None else 0, self.end, new)

    def arrivals(self, visible: Any, batch: int, queries: int) -> tuple[Tensor, Tensor] | None:
        """Sink numbers with those of new tokens, and which of them are new; None: no sink is new."""
        if not self.sinks or (self.sink_index is not None and bool((self.sink_index >= 0).all())):
            return None
        old = self.sink_index if self.sink_index is not None else torch.full((batch, self.sinks), -1)
        visible = torch.ones(batch, queries, dtype=torch.bool) if visible is None else visible.bool()
        rank = (old >= 0).sum(-1, keepdim=True) + visible.cumsum(-1) - 1
        hit = (rank[:, None] == torch.arange(self.sinks)[:, None]) & visible[:, None]  # [batch, sinks, queries]
        new = hit.any(-1)
        return torch.where(new, self.end + hit.int().argmax(-1), old), new

    def sinks_apart(self) -> Tensor:
        """[batch, sinks]: the sinks that left the window."""
        return (self.sink_index >= 0) & (self.sink_index < self.first_in_window)  # type: ignore[no-any-return]

    def closer(self) -> Tensor:
        """By how many positions each row's sinks move so that the window follows them, [batch, 1]."""
        apart = self.sinks_apart()
        count = apart.sum(-1, keepdim=True)
        last = self.sink_positions.gather(-1, (count - 1).clamp(min=0).expand(*self.sink_positions.shape[:-1], 1))
        first = self.positions.view(self.first_in_window, self.first_in_window + 1)
        gap = first - last - 1
        gap = gap.amin(0) if gap.dim() == 3 else gap
        return torch.where(count > 0, gap, torch.zeros_like(gap)).clamp(min=0)

    def sinks_at(self, positions: str) -> Tensor:
        """Positions of the sinks before the window, [(axes,) batch, sinks]: "slots", so that it follows them, or "stream"."""
        return self.sink_positions + (0 if positions == "stream" else self.closer())  # type: ignore[no-any-return]

    def places(self, queries: int, positions: str) -> Tensor:
        """Positions of the keys that are there and of new ones, [(axes,) batch, keys]; the last ones of them are those of a layer."""
        end = self.end + queries
        if not self.dropping or not self.sinks:
            return self.positions.view(self.positions.base, end)
        return torch.cat([self.sinks_at(positions), self.positions.view(self.first_in_window, end)], -1)

    def mask(self, given: Any, queries: int) -> Any:
        """A mask [batch, slots + queries] of one over all tokens that were seen; None: the given one is right."""
        if given is None:
            apart = self.sinks_apart() if self.dropping and self.sinks else None
            if apart is None or bool(apart.all()):
                return None
            given = torch.ones(apart.shape[0], self.seen + queries, dtype=torch.long)
        if given.shape[1] != self.seen + queries:
            raise ValueError(f"[hf KeyCache] attention_mask must have a column for each of {self.seen} tokens before and {queries} new ones, got {given.shape[1]}")
        if not self.dropping and self.index is None:
            return None if self.seen == self.end else given
        new, old = given[:, self.seen:], given[:, :self.seen] if self.index is None else given[:, self.index]
        if not self.dropping:
            return torch.cat([old, new], 1)
        window = old[:, self.first_in_window:]
        if not self.sinks:
            return torch.cat([window, new], 1)
        sinks = old.gather(1, self.sink_index.clamp(min=0)) * self.sinks_apart()
        return torch.cat([sinks.to(given.dtype), window, new], 1)

    def meets_sinks(self, start: int, stop: int) -> bool:
        """Whether a sink, or what lies between two of a row, is among the tokens start to stop - 1."""
        if self.sink_index is None:
            return False
        there, before, behind = self.sink_index >= 0, self.sink_index < start, self.sink_index >= stop
        return bool((there & ~before & ~behind).any()) or bool(((there & before).any(-1) & behind.any(-1)).any())

    def remove(self, start: int, stop: int) -> None:
        """Tokens start to stop - 1, none of which is a sink, leave."""
        if self.positions.data is not None:
            self.positions.remove(start, stop, self.end)
        index = torch.arange(self.end) if self.index is None else self.index
        self.index = torch.cat([index[:start], index[stop:]])
        if self.sink_index is not None:
            self.sink_index = torch.where(self.sink_index >= stop, self.sink_index - (stop - start), self.sink_index)
        self.end -= stop - start

    def place_sinks(self, new: Tensor) -> None:
        """Positions of those sinks that are new or moved."""
        if self.positions.data is None:
            return
        at = (self.sink_index - self.positions.base).clamp(min=0)
        found = self.positions.data.gather(-1, at.expand(*self.positions.data.shape[:-1], -1))
        self.sink_positions = found if self.sink_positions is None else torch.where(new, found, self.sink_positions)

    def sinks_in_memory(self) -> Any:
        """[batch, sinks]: those that are among the tokens before the next query; None: no sinks."""
        return None if self.sink_index is None else self.sink_index >= (self.first_in_window if self.dropping else 0)

    def fork(self) -> Tokens:
        """The same tokens; tensors are replaced, never written."""
        other = Tokens(self.sinks, self.window)
        other.__dict__.update(self.__dict__)
        other.positions = self.positions.fork()
        return other

    def select(self, rows: Tensor) -> None:
        """Only these sequences of the batch stay, in this order."""
        self.positions.rows(rows, -2)
        if self.sink_index is not None:
            self.sink_index = self.sink_index[rows]
        if self.sink_positions is not None:
            self.sink_positions = self.sink_positions.index_select(-2, rows)
