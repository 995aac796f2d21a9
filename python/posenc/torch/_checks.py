# SPDX-License-Identifier: Apache-2.0
"""What the operators check themselves, so that a direct call through torch.ops is as safe as one of the functions.

The kernels for the CPU check the elements and sizes of whatever they read. Tensors without memory (the meta device, FakeTensor) reach
the fake kernels only, which call the checks of this file. A call that mixes devices is dispatched to a fake kernel too: unless it is
rejected there, the result is memory that nobody has written.
"""
from __future__ import annotations

import torch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Collection, Iterable, Mapping, NoReturn, Sequence

REAL = frozenset({torch.float64, torch.float32, torch.bfloat16, torch.float16})
WIDE = frozenset({torch.float64, torch.float32})
WHOLE = frozenset({torch.int64, torch.int32})
PLACES = WHOLE | {torch.float64}
LAYOUTS = ("thd", "bthd", "bhtd", "tbhd", "htd")
FLAGS = frozenset({torch.bool, torch.uint8})


def refuse(who: str, rule: str, got: Any) -> NoReturn:
    """Raises by who, rule and value, as the library does."""
    raise ValueError(f'[{who}] {rule}, got ' + (f'"{got}"' if isinstance(got, str) else str(got)))


def one_device(who: str, tensors: Mapping[str, Any]) -> None:
    """All tensors, None aside, are on the device of the first one."""
    first, place = "", ""
    for name, x in tensors.items():
        if x is None:
            continue
        if not first:
            first, place = name, x.device.type
        elif x.device.type != place:
            refuse(who, f"{name} must be on the device of {first}, {place}", x.device.type)


def listed(name: str, tensors: Iterable[Any]) -> dict[str, Any]:
    """The tensors of a list by name: name[0], name[1] ..."""
    return {f"{name}[{i}]": x for i, x in enumerate(tensors)}


def elements(who: str, name: str, x: Any, allowed: Collection[torch.dtype]) -> None:
    """The elements of a tensor; None has none."""
    if x is not None and x.dtype not in allowed:
        words = sorted(str(t).removeprefix("torch.") for t in allowed)
        refuse(who, f"{name} must have elements of {', '.join(words)}", str(x.dtype).removeprefix("torch."))


def axes(who: str, name: str, x: Any, allowed: Sequence[int]) -> None:
    """The number of axes of a tensor; None has none."""
    if x is not None and x.dim() not in allowed:
        refuse(who, f"{name} must have {' or '.join(map(str, allowed))} axes", x.dim())


def size(who: str, rule: str, value: Any, allowed: Collection[Any]) -> None:
    """One size. Sizes that are known at run time only become a check there."""
    if all(isinstance(n, int) for n in (value, *allowed)):
        if value not in allowed:
            refuse(who, rule, value)
    elif len(allowed) == 1:
        torch._check_value(value == next(iter(allowed)), lambda: f"[{who}] {rule}, got {value}")


def shape(who: str, name: str, x: Any, wanted: Sequence[Any]) -> None:
    """The whole shape of a tensor; None has none."""
    if x is None:
        return
    known = all(isinstance(n, int) for n in (*x.shape, *wanted))
    if x.dim() != len(wanted) or (known and list(x.shape) != list(wanted)):
        refuse(who, f"{name} must be {list(wanted)}", list(x.shape))
    for n, want in () if known else zip(x.shape, wanted):
        size(who, f"{name} must be {list(wanted)}, sizes", n, (want,))


def names(who: str, what: str, given: Sequence[str], arrays: Sequence[Any], known: Collection[str] | None = None) -> None:
    """A name for each array, none of them twice; known: those that exist."""
    if len(given) != len(arrays):
        refuse(who, f"names must be as many as {what}, {len(arrays)}", len(given))
    for i, name in enumerate(given):
        if known is not None and name not in known:
            refuse(who, f"names must be of {', '.join(sorted(known)) or 'nothing, the encoding has no parameters'}", name)
        if name in given[:i]:
            refuse(who, "names must differ", name)


def heads(who: str, xs: Mapping[str, Any], layout: str | None) -> tuple[Any, Any, Any]:
    """Queries and keys of a rotation: elements, axes and sizes. Returns batch, tokens and channels."""
    order = layout or "thd"
    if order not in LAYOUTS:
        refuse(who, f"layout must be {', '.join(LAYOUTS)}", order)
    found: list[tuple[Any, Any, Any]] = []
    first, its_type = next((name, x.dtype) for name, x in xs.items())
    for name, x in xs.items():
        elements(who, name, x, REAL if name == first else {its_type})
        axes(who, name, x, (len(order),))
        found.append((x.shape[order.index("b")] if "b" in order else 1, x.shape[order.index("t")], x.shape[order.index("d")]))
        for word, n, want in zip(("batch", "tokens", "channels"), found[-1], found[0]):
            size(who, f"{name} must have the {word} of {first}, {want}", n, (want,))
    return found[0]


def places(who: str, name: str, p: Any, batch: Any, tokens: Any, allowed: Collection[torch.dtype] = PLACES) -> None:
    """Positions [t], [b, t] or [axes, b, t]."""
    if p is None:
        return
    elements(who, name, p, allowed)
    axes(who, name, p, (1, 2, 3))
    size(who, f"{name} must have a position for each of {tokens} tokens", p.shape[-1], (tokens,))
    if p.dim() > 1:
        size(who, f"{name} must have 1 row or one for each of {batch} sequences", p.shape[-2], (batch, 1))


def rows(who: str, cos: Any, sin: Any, index: Any, batch: Any, tokens: Any, q: Any) -> None:
    """Cosine and sine of the caller, [t, c], [b, t, c] or [b, t, h, c]; with an index [rows, c]."""
    allowed = {q.dtype} if q.dtype is torch.float64 else {q.dtype, torch.float32}
    for name, x in (("cos", cos), ("sin", sin)):
        elements(who, name, x, allowed)
        axes(who, name, x, (2,) if index is not None else (2, 3, 4))
    shape(who, "sin", sin, cos.shape)
    if index is not None:
        places(who, "index", index, batch, tokens, WHOLE)
        return
    size(who, f"cos must have a row for each of {tokens} tokens", cos.shape[0 if cos.dim() == 2 else 1], (tokens,))
    if cos.dim() > 2:
        size(who, f"cos must have the batch of the tensors, {batch}", cos.shape[0], (batch,))
