# SPDX-License-Identifier: Apache-2.0
"""Encodings at the input whose rows are rows of their parameters, as they are: `embed` reads the tables where they lie, where
a plan would copy them for every call."""
from __future__ import annotations

import functools

import torch

from .. import _posenc

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


@functools.lru_cache(256)
def _found(encoding: str, context: int | None) -> Any:
    return _posenc.input_lookup(encoding, context)


def parts_of(x: Any, positions: Any, parameters: Any, names: Any, encoding: str, context: int | None) -> Any:
    """x and the tables as parts of `embed`; None: this call needs a plan, which also says what is wrong with it."""
    found = _found(encoding, context) if parameters else None
    if found is None or positions.is_floating_point() or x.dim() < 2:
        return None
    gain, terms = found
    named = dict(zip(names, parameters))
    if {t[0] for t in terms} != set(names):
        return None
    parts = [_posenc.EmbedPart(rows=x.detach(), scale=gain)]
    for name, shape, axis, offset, factor, frozen in terms:
        table = named[name].detach()
        streams = positions if positions.dim() == 3 else positions[None]
        if tuple(table.shape) != shape or shape[1] != x.shape[-1] or axis >= streams.shape[0]:
            return None
        parts.append(_posenc.EmbedPart(table.to(x.dtype), streams[axis], scale=factor, offset=offset, frozen=frozen))
    return parts


def compose_into(out: Any, parts: Any) -> bool:
    """Whether it could: a plan says what is wrong where it could not."""
    try:
        _posenc.embed(parts, out=out.detach())
    except ValueError:
        return False
    return True


def gradients(d: Any, x: Any, parameters: Any, names: Any, encoding: str, context: int | None, parts: Any) -> list[Any]:
    """Of x and of the parameters; of a table in float32 or float64, from sums in double."""
    gain, terms = _found(encoding, context)
    wide = {n: torch.zeros(p.shape, dtype=torch.promote_types(p.dtype, torch.float32)) for n, p in zip(names, parameters)}
    _posenc.embed_gradient_into(parts, d, d_parts=[None, *(wide[t[0]] for t in terms)])
    return [d.to(x.dtype) * gain, *(w.to(p.dtype) for w, p in zip(wide.values(), parameters))]
