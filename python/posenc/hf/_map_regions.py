# SPDX-License-Identifier: Apache-2.0
"""The regions of a distance map."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Mapping, NoReturn, Sequence

import numpy
import torch

from .._attention import flat_regions

if TYPE_CHECKING:
    from torch import Tensor

DistanceMap = Callable[[Sequence[int], Sequence[int]], Sequence[Mapping[str, Any]]]


def refuse(rule: str, got: Any) -> NoReturn:
    """Raises by rule and value."""
    raise ValueError(f"[hf accelerate] {rule}, got " + (f'"{got}"' if isinstance(got, str) else str(got)))


def regions_of(distance_map: DistanceMap, pairs: Sequence[tuple[Sequence[int], Sequence[int]]]) -> list[dict[str, Any]]:
    """The map of query and key positions of each sequence, with positions as tensors [batch, tokens]."""
    given = [distance_map(q, k) for q, k in pairs]
    for row in given:
        if not hasattr(row, "__iter__"):
            refuse("distance_map must return a list of regions, as posenc.self_extend does", type(row).__name__)
    rows = [list(row) for row in given]
    for row in rows:
        flat_regions(row)  # refuses what is no region
        if any("q" in r for r in row):
            refuse("distance_map must give positions for each region", "q and k")
    bounds = [[(r["chunk"], r["low"], r["high"]) for r in row] for row in rows]
    if not bounds[0]:
        refuse("distance_map must give at least one region", "none")
    if any(b != bounds[0] for b in bounds):
        refuse("distance_map must give the same regions for each sequence of a batch", "others")
    sizes = {"query": len(pairs[0][0]), "key": len(pairs[0][1])}
    return [{"chunk": chunk, "low": low, "high": high, **{n: _places([row[i][n] for row in rows], n, size) for n, size in sizes.items()}}
            for i, (chunk, low, high) in enumerate(bounds[0])]


def _places(rows: Sequence[Any], name: str, tokens: int) -> Tensor:
    """Positions of one region, int64 or, where they are fractions, float64."""
    arrays = [numpy.asarray(x) for x in rows]
    for x in arrays:
        if x.shape != (tokens,) or x.dtype.kind not in "iuf":
            refuse(f"distance_map must give {tokens} {name} positions, which are numbers, in each region", f"{x.dtype} of shape {list(x.shape)}")
    both = numpy.stack(arrays)
    return torch.from_numpy(both.astype(numpy.float64 if both.dtype.kind == "f" else numpy.int64))


def one_axis(positions: Tensor) -> Tensor:
    """[batch or 1, tokens] of positions that are the same on all axes; others as they are."""
    return positions[0] if positions.dim() == 3 and bool((positions == positions[:1]).all()) else positions


def keys_stay(distance_map: DistanceMap) -> bool:
    """Whether keys have the same positions with every query, tried with two of them."""
    one, other = (regions_of(distance_map, [(range(n, n + 1), range(n + 1))]) for n in (8, 9))
    bounds = [[(r["chunk"], r["low"], r["high"]) for r in regions] for regions in (one, other)]
    return bounds[0] == bounds[1] and all(torch.equal(a["key"], b["key"][:, :9]) for a, b in zip(one, other))


def key_positions(regions: Sequence[Mapping[str, Any]], query: Tensor, keys: Tensor) -> Tensor:
    """[batch or 1, queries, keys]: of each key in the first region that contains the pair, for queries and keys [batch or 1, tokens]; 0 in
    none."""
    at = torch.zeros_like(keys)[:, None]
    for r in reversed(regions):
        apart = torch.div(query, r["chunk"], rounding_mode="floor")[..., None] - torch.div(keys, r["chunk"], rounding_mode="floor")[:, None]
        low, high = r["low"], r["high"]
        inside = torch.ones_like(apart, dtype=torch.bool) if low is None else apart >= low
        at = torch.where(inside if high is None else inside & (apart <= high), r["key"][:, None], at)
    return at
