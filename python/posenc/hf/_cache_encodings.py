# SPDX-License-Identifier: Apache-2.0
"""The rotations of one cache: for each module that makes rows, what rotated the keys that are there."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._cache_rows import Encoding, Place, Rows, computes

if TYPE_CHECKING:
    from torch import Tensor

    from ._cache import KeyCache


class Encodings:
    """By the path of the module."""

    def __init__(self, cache: KeyCache) -> None:
        self.cache = cache
        self.known: dict[str, Encoding] = {}
        self._trusted: dict[Any, bool] = {}

    def fork(self, cache: KeyCache) -> Encodings:
        """For another cache."""
        other = Encodings(cache)
        other.known, other._trusted = dict(self.known), dict(self._trusted)
        return other

    def now(self, path: str, module: Any, kind: type[Encoding]) -> Encoding:
        """The present rotation of a module. Keys of another one are rejected, or rotated again."""
        have = self.known.get(path)
        if have is not None and have.is_of(module):
            return have
        if have is not None and self.cache.tokens.end:
            if not self.cache.keeps_raw and not self.cache.mapped:
                raise ValueError(f'[hf KeyCache] the frequencies of "{path}" must not change while rotated keys are in the cache, as a dynamic scaling, '
                                 'LongRoPE or new rope_parameters do; use keys="unrotated"')
            for layer in self.cache._own_layers:
                layer.stale = layer.place is not None
        made = self.known[path] = kind(module)
        return made

    def trusted(self, path: str, module: Any, more: Any, positions: Tensor) -> bool:
        """Whether rows in double are the module's own where float32 is exact enough."""
        key = (path, more)
        if key not in self._trusted:
            self._trusted[key] = computes(self.known[path], module, more, positions % 8)
        return self._trusted[key]

    def rows(self, place: Place, positions: Tensor) -> Rows:
        """Rows of one layer."""
        if not self._trusted.get((place.path, place.more), True):
            raise ValueError(f'[hf KeyCache] keys move only by a rotary module whose rows posenc can compute, got "{place.path}"')
        return self.known[place.path].rows(positions, place.more)
