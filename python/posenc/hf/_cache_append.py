# SPDX-License-Identifier: Apache-2.0
"""The tokens of one cache behind those of another, at positions that follow them."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ._cache_layer import KeyLayer
from ._cache_rows import Rows, between, inverse, turn
from ._cache_tokens import whole

if TYPE_CHECKING:
    from torch import Tensor

    from ._cache import KeyCache


def _by_row(positions: Tensor, largest: bool) -> Tensor:
    """The largest or smallest position of each sequence, [batch, 1]."""
    flat = positions if positions.dim() == 2 else positions.transpose(0, 1).flatten(1)
    return flat.amax(-1, keepdim=True) if largest else flat.amin(-1, keepdim=True)


def _positions(cache: KeyCache, other: KeyCache, at: int | None) -> Any:
    """Of the other's tokens where they come to; None: the model has no positions that move."""
    if other.tokens.positions.data is None:
        if at is not None:
            raise ValueError(f"[hf KeyCache] at must not be given for a model that rotates nothing, got {at}")
        return None
    place: Any = 0 if at is None else whole("at", at)
    if at is None and cache.tokens.end:
        place = _by_row(cache.tokens.positions.view(cache.tokens.first_in_window, cache.tokens.end), True) + 1
    old = other.tokens.positions.view(0, other.tokens.end)
    new = old - _by_row(old, False) + place
    most = int(new.abs().max())
    if not 0 <= most <= 2**37:
        raise ValueError(f"[hf KeyCache] positions must be at most 2^37, got {most}")
    return new


def _check(cache: KeyCache, other: KeyCache) -> None:
    for i, (mine, theirs) in enumerate(zip(cache.layers, other.layers)):
        if not isinstance(theirs, KeyLayer) or not theirs.is_initialized:
            continue
        if not isinstance(mine, KeyLayer) or (mine.place is not None and mine.place != theirs.place):
            raise ValueError(f"[hf KeyCache] other must rotate as this cache does, but layer {i} differs")
        for name, a, b in (("keys", mine._k.data, theirs._k.data), ("values", mine._v.data, theirs._v.data)):
            if a is not None and (a.shape[:2] != b.shape[:2] or a.shape[3] != b.shape[3] or a.dtype is not b.dtype):
                raise ValueError(f"[hf KeyCache] other must have {name} of {list(a.shape[:2])} and {a.shape[3]} channels in layer {i}, got "
                                 f"{list(b.shape[:2])} and {b.shape[3]}")


def append(cache: KeyCache, other: KeyCache, at: int | None) -> None:
    """The other's keys are moved from where and how they were rotated to where they come to."""
    _check(cache, other)
    if other.learned:
        raise ValueError(f'[hf KeyCache] append requires positions in the keys or scores, got positions at the input, "{other.learned}"')
    moved = other._placed("append")
    cache._placed("append")
    new = _positions(cache, other, at)
    rows: dict[Any, tuple[Any, Rows]] = {}
    for layer in moved:
        place = layer.place
        assert place is not None
        cache.encodings.known.setdefault(place.path, other.encodings.known[place.path])
        if (key := (place.path, place.more)) not in rows:
            old = other.encodings.rows(place, other.tokens.positions.view(0, other.tokens.end))
            rows[key] = old, cache.encodings.rows(place, new)
    end, count = cache.tokens.end, other.tokens.end
    for mine, theirs in zip(cache.layers, other.layers):
        if isinstance(mine, KeyLayer) and isinstance(theirs, KeyLayer) and theirs.is_initialized:
            _add(mine, theirs, rows, end, count)
    if new is not None:
        cache.tokens.positions.write(cache.tokens.start, end, new)
    if cache.tokens.index is not None or other.tokens.index is not None:
        mine_index = torch.arange(end) if cache.tokens.index is None else cache.tokens.index
        added = torch.arange(count) if other.tokens.index is None else other.tokens.index
        cache.tokens.index = torch.cat([mine_index, added + cache.tokens.seen])
    cache.tokens.add(count, other.tokens.seen)
    cache.moved = max(cache.moved, other.moved + (bool(moved) and not cache.keeps_raw))


def _add(mine: KeyLayer, theirs: KeyLayer, rows: dict[Any, tuple[Any, Rows]], end: int, count: int) -> None:
    mine.place = theirs.place
    low = mine.owner.tokens.start
    mine.mapped.cut(end)
    mine._k.write(low, end, theirs._k.view(0, count))
    mine._v.write(low, end, theirs._v.view(0, count))
    place = theirs.place
    if place is None:
        return
    old, new = rows[place.path, place.more]
    raw: Tensor | None = theirs.raw.view(0, count) if theirs.owner.keeps_raw else None
    window = mine.window(end, end + count)
    if mine.owner.keeps_raw:
        if raw is None:
            raw = window.clone()
            turn(raw, inverse(old), place.form)
        mine.raw.write(low, end, raw)
    if raw is not None:
        window.copy_(raw)
    turn(window, new if raw is not None else between(old, new), place.form)
