# SPDX-License-Identifier: Apache-2.0
"""One call for a whole axis of vmap: the axis joins the batch."""
from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable


def _front(x: Any, dim: int | None, size: int) -> Any:
    """The axis of vmap in front; of what has none, the same for all."""
    return x.expand(size, *x.shape) if dim is None else x.movedim(dim, 0)


def as_one_batch(xs: Any, dims: Any, size: int, layout: str | None) -> tuple[Any, str, int, Callable[[Any], Any]]:
    """Heads with their layout and the batch that one of them had; and what takes a result apart again, axis 0."""
    layout = layout or "thd"
    flat = [_front(x, dim, size) for x, dim in zip(xs, dims)]
    if layout in ("thd", "htd"):
        return flat, "b" + layout, 1, lambda y: y
    batch = layout.index("b")
    rows = flat[0].shape[1 + batch]
    flat = [x.movedim(0, batch).flatten(batch, batch + 1) for x in flat]
    return flat, layout, rows, lambda y: y.unflatten(batch, (size, rows)).movedim(batch, 0)


def positions_as_one_batch(p: Any, dim: int | None, size: int, rows: int) -> Any:
    """[t], [b, t] or [axes, b, t] for a batch of size * rows."""
    if dim is None and p.dim() == 1:
        return p
    p = _front(p, dim, size)
    if p.dim() == 4:  # [size, axes, b, t]
        p = p.movedim(0, 1)
        return p.expand(p.shape[0], size, rows, p.shape[-1]).flatten(1, 2)
    if p.dim() == 2:
        p = p.unsqueeze(1)
    return p.expand(size, rows, p.shape[-1]).flatten(0, 1)


def rows_as_one_batch(cos_sin: tuple[Any, Any], dims: Any, size: int, rows: int) -> Any:
    """Cosine and sine, [t, c], [b, t, c] or [b, t, h, c], for a batch of size * rows."""
    if dims[0] is None and dims[1] is None and cos_sin[0].dim() == 2:
        return cos_sin
    made = []
    for x, dim in zip(cos_sin, dims):
        x = _front(x, dim, size)
        if x.dim() == 3:
            x = x.unsqueeze(1)
        made.append(x.expand(size, rows, *x.shape[2:]).flatten(0, 1))
    return made
