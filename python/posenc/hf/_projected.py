# SPDX-License-Identifier: Apache-2.0
"""Tables that a layer projects from rows which are the same in every call. They are kept as long as rows and weights hold the same
numbers: a comparison costs about a tenth of the projection."""
from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

_modules: Any = torch.nn.modules.module  # its functions have no types


class _Made(NamedTuple):
    of: tuple[Tensor, ...]  # copies of rows, weight and bias
    table: Tensor


class Projections:
    """Of one module, by the names of its layers. A copy of the module has none."""

    def __init__(self) -> None:
        self._made: dict[str, _Made] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {"_made": {}}

    def of(self, name: str, layer: Any, rows: Tensor) -> Tensor:
        """layer(rows)."""
        parts = (rows, layer.weight, layer.bias) if _is_plain(layer) else ()
        given = tuple(x for x in parts if x is not None)
        if not given or torch.is_grad_enabled() or torch.is_autocast_enabled("cpu") or any(type(x) not in (Tensor, torch.nn.Parameter) for x in given):
            self._made.pop(name, None)
            return layer(rows)  # type: ignore[no-any-return]
        made = self._made.get(name)
        if made is None or len(made.of) != len(given) or not all(map(_same, made.of, given)):
            made = _Made(tuple(x.detach().clone() for x in given), layer(rows))
            self._made[name] = made
        return made.table


def _is_plain(layer: Any) -> bool:
    """Whether nothing but its numbers says what it computes."""
    hooks = layer._forward_hooks or layer._forward_pre_hooks or _modules._has_any_global_hook()
    return type(layer) is torch.nn.Linear and not hooks and "forward" not in layer.__dict__


def _same(a: Tensor, b: Tensor) -> bool:
    return a.dtype == b.dtype and a.device == b.device and torch.equal(a, b)
