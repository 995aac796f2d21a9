# SPDX-License-Identifier: Apache-2.0
"""Encodings at the input whose rows are rows of their parameters, as they are: the tables are read where they lie, where a plan
would copy them for every call."""
from __future__ import annotations

import torch

from .. import _posenc

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def _tables(x: Any, parameters: Any, names: Any) -> dict[str, Any]:
    """In the type of x, as a plan has them."""
    return {name: p.detach().to(x.dtype) for name, p in zip(names, parameters)}


def composed(x: Any, positions: Any, parameters: Any, names: Any, encoding: str) -> Any:
    """x with its rows; None: a plan makes them, or says what is wrong."""
    if not parameters:
        return None
    out = torch.empty_like(x, memory_format=torch.contiguous_format)
    return out if _posenc.compose_tables(encoding, x.detach(), positions, _tables(x, parameters, names), out) else None


def gradients(d: Any, x: Any, positions: Any, parameters: Any, names: Any, encoding: str) -> list[Any] | None:
    """Of x and of the parameters, from sums in double, in float32 or float64 before they get their type; None: a plan makes them."""
    if not parameters:
        return None
    of_x, *wide = (torch.zeros(t.shape, dtype=torch.promote_types(t.dtype, torch.float32)) for t in (x, *parameters))
    if not _posenc.compose_tables_gradient(encoding, d, x.detach(), positions, _tables(x, parameters, names), of_x, dict(zip(names, wide))):
        return None
    return [w.to(t.dtype) for w, t in zip((of_x, *wide), (x, *parameters))]
