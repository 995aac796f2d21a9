# SPDX-License-Identifier: Apache-2.0
"""Attention of few queries under a distance map, by the rotated copy of the keys of a KeyCache.

The copy has one position for each key. One query needs no other. With several queries, a key at the edge of a region is in one region for
early queries and in another one for late queries. Such keys are rotated in the call, and the results of both sets of keys are merged by
their log-sum-exp L:

    o = (exp(L1) o1 + exp(L2) o2) / (exp(L1) + exp(L2))
"""
from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Mapping

import torch

import posenc

from ._map_regions import key_positions, keys_stay

if TYPE_CHECKING:
    from torch import Tensor

    from ._map_regions import DistanceMap

FEW = 64  # queries: with more, the attention takes most of the time
_BY_KEY = ("key_visible", "visible", "bias", "key_document", "key_order")  # their last axis are keys


def orders(options: dict[str, Any], queries: int, keys: int) -> None:
    """Masks go by the order of the tokens in the cache, whatever their positions are."""
    if "key_order" not in options:
        first = options.pop("offset", keys - queries)
        options.update(query_order=torch.arange(queries) + (0 if first == "start" else first), key_order=torch.arange(keys))


class Steps:
    """Of one map."""

    def __init__(self, distance_map: DistanceMap) -> None:
        self._map = distance_map
        self._at: Any = None  # regions; positions of keys in the copy; keys that need others too

    @functools.cached_property
    def _keys_stay(self) -> bool:
        return keys_stay(self._map)

    def attend(self, layer: Any, plan: posenc.RotaryPlan, regions: list[dict[str, Any]], tensors: tuple[Tensor, Tensor, Tensor],
               options: dict[str, Any]) -> Tensor | None:
        """The output [batch, tokens, heads, channels] of q, k and v of these axes; None: the call rotates all keys. regions: with positions
        [batch or 1, tokens]. options: arguments of `posenc.attend`, with query_positions and key_positions."""
        q, k, v = tensors
        if q.shape[1] > FEW or not self._has_copy(layer, k, q.shape[1]):
            return None
        at, others = self._places(regions, options["query_positions"], options["key_positions"])
        if 2 * len(others) > k.shape[1] or "key_cu_seqlens" in options:
            return None
        copy = layer.mapped.view(k.transpose(1, 2), layer.low, at, plan, layer.owner.tokens.sinks if layer.owner.tokens.dropping else 0)
        if copy is None:
            return None
        turned = [_bounds(r) | {"q": _turned(q, plan, r["query"]), "k": copy.transpose(1, 2)} for r in regions]
        if not len(others):
            return _attend(q, k, v, options, turned).out  # type: ignore[no-any-return]
        there = torch.ones(1, k.shape[1], dtype=torch.bool)
        there[:, others] = False
        most = _attend(q, k, v, options | {"key_visible": there & options.get("key_visible", there)}, turned)
        options = dict(options)
        orders(options, q.shape[1], k.shape[1])
        options = {n: x.index_select(-1, others) if n in (*_BY_KEY, "key_positions") else x for n, x in options.items() if n != "sink"}
        here = [_bounds(r) | {"query": r["query"], "key": r["key"].index_select(-1, others), "rotation": plan} for r in regions]
        rest = _attend(q, k[:, others], v[:, others], options, here)
        out = torch.empty_like(most.out)
        posenc.merge([most, rest], order="bthd", out=out)
        return out

    def _has_copy(self, layer: Any, k: Tensor, queries: int) -> bool:
        from ._cache_layer import KeyLayer

        return isinstance(layer, KeyLayer) and not layer.owner.keeps_raw and layer.holds(k.transpose(1, 2), queries) and self._keys_stay

    def _places(self, regions: list[dict[str, Any]], query: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
        """Positions of keys [batch, tokens] in the region that they have with the last query, and which keys have another position with
        another query; those of the last call are kept for the next layer."""
        if self._at is None or self._at[0] is not regions:
            at = key_positions(regions, query, keys)
            self._at = regions, at[:, -1], (at[:, :-1] != at[:, -1:]).any(1).any(0).nonzero()[:, 0]
        return self._at[1:]  # type: ignore[no-any-return]


def _bounds(region: Mapping[str, Any]) -> dict[str, Any]:
    return {n: region[n] for n in ("chunk", "low", "high")}


def _attend(q: Tensor, k: Tensor, v: Tensor, options: Mapping[str, Any], regions: list[dict[str, Any]]) -> Any:
    options = {n: x.detach() if isinstance(x, torch.Tensor) else x for n, x in options.items()}
    return posenc.attend([], q, k, v, order="bthd", out=q.new_empty(*q.shape[:3], v.shape[-1]), regions=regions, **options)


def _turned(q: Tensor, plan: posenc.RotaryPlan, at: Tensor) -> Tensor:
    """A copy of q [batch, tokens, heads, channels], rotated."""
    q = q.clone()
    plan.rotate_(q, positions=at, order="bthd")
    return q
