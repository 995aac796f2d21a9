# SPDX-License-Identifier: Apache-2.0
"""What a function that rotates does, found out by calling it on random numbers."""
from __future__ import annotations

import contextlib
import functools
import inspect
from typing import Any, Callable, Iterator, NamedTuple

import torch

from .. import torch as host

_ROLES = {n: "q" for n in ("q", "xq", "query", "x", "tensor", "hidden_states")} | {n: "k" for n in ("k", "xk", "key")}
_ROLES |= {"cos": "cos", "sin": "sin"}
_HEAD = 16  # channels of a head while it is tried
# Columns of cos and sin while it is tried, and what of them the function may read: (columns, the first half only).
_WIDTHS = (_HEAD, 3 * _HEAD // 4, _HEAD // 2, _HEAD // 4)
_COLUMNS = (("duplicated", False), ("repeated", False), ("half", True), ("half", False))
_PAIRINGS = (("half_split", "in_place"), ("interleaved", "in_place"), ("interleaved", "even_then_odd"))


class Form(NamedTuple):
    """How the channels of one head and the columns of one row belong together."""

    pairing: str
    output_order: str
    columns: str
    first: bool  # the first half of the columns alone is read


class Function(NamedTuple):
    """A function that posenc can take over."""

    forms: dict[int, Form]  # by place in _WIDTHS
    roles: tuple[str, ...]  # of its first arguments
    names: tuple[str, ...]  # of all of them
    layout: str
    unsqueeze_dim: int | None  # its default, where it is an argument
    mixed: bool  # a 16-bit q stays 16-bit when cos and sin are float32

    def read(self, a: tuple[Any, ...], kw: dict[str, Any]) -> tuple[dict[str, Any], str]:
        """The arguments of a call by role, and the layout of q and k; "": one that is not known."""
        given = dict(zip(self.roles, a)) | {r: kw[n] for r, n in zip(self.roles, self.names) if n in kw}
        if self.unsqueeze_dim is None:
            return given, self.layout
        at = self.names.index("unsqueeze_dim")
        axis = kw.get("unsqueeze_dim", a[at] if at < len(a) else self.unsqueeze_dim)
        return given, {1: "bhtd", 2: "bthd"}.get(int(axis), "")

    def form(self, dim: int, width: int) -> Form | None:
        """For a head of `dim` channels and rows of `width` columns."""
        return self.forms.get(0 if width == dim else 1 if 2 * width > dim else 2 if 2 * width == dim else 3)


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """What is tried is tried in float32 on the CPU, whatever the caller has set: the answer is kept."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    try:
        with torch.no_grad(), torch.device("cpu"), torch.autocast("cpu", enabled=False):
            yield
    finally:
        torch.set_default_dtype(before)


def _signature(function: Callable[..., Any]) -> tuple[tuple[str, ...], tuple[str, ...]] | str:
    parameters = list(inspect.signature(function).parameters.values())
    names = tuple(p.name for p in parameters)
    roles = []
    for name in names:
        if name not in _ROLES:
            break
        roles.append(_ROLES[name])
    free = [p for p in parameters[len(roles):] if p.default is p.empty]
    known = len(roles) == len(set(roles)) and set(roles) in ({"q", "k", "cos", "sin"}, {"q", "cos", "sin"})
    return (tuple(roles), names) if known and not free else f"takes ({', '.join(names[:6])})"


def _given(layout: str, width: int, dtype: torch.dtype = torch.float32) -> dict[str, torch.Tensor]:
    g = torch.Generator().manual_seed(1)
    shape = {"bhtd": (2, 3, 5), "bthd": (2, 5, 3), "thd": (5, 3)}[layout]
    rows = (5, width) if layout == "thd" else (2, 5, width)
    sizes = {"q": (*shape, _HEAD), "k": (*shape, _HEAD), "cos": rows, "sin": rows}
    return {n: torch.randn(s, generator=g).to(dtype if n in "qk" else torch.float32) for n, s in sizes.items()}


def _call(function: Callable[..., Any], roles: tuple[str, ...], given: dict[str, torch.Tensor]) -> tuple[Any, ...]:
    made = function(*(given[r].clone() for r in roles))
    return made if isinstance(made, tuple) else (made,)


def _same_form(want: tuple[Any, ...], given: dict[str, torch.Tensor], layout: str, width: int) -> Form | None:
    for columns, first in _COLUMNS:
        rows = [given[n][..., : width // 2] if first else given[n] for n in ("cos", "sin")]
        for pairing, order in _PAIRINGS:
            try:
                got = host.rotate_rows(given["q"], given["k"], *rows, pairing=pairing, columns=columns, layout=layout,
                                       output_order=order)
            except ValueError:  # more columns than channels
                continue
            if all(torch.allclose(a, b, rtol=1e-6, atol=1e-6) for a, b in zip(got, want)):
                return Form(pairing, order, columns, first)
    return None


@functools.lru_cache(None)
def probe(function: Callable[..., Any]) -> Function | str:
    """What it computes, or why posenc cannot take it over."""
    with alone():
        return _probe(function)


def _probe(function: Callable[..., Any]) -> Function | str:
    found = _signature(function)
    if isinstance(found, str):
        return found
    roles, names = found
    why = "computes something else"
    for layout in ("bhtd", "bthd", "thd"):
        forms = {}
        for place, width in enumerate(_WIDTHS):
            given = _given(layout, width)
            try:
                want = _call(function, roles, given)
                if len(want) != 1 + ("k" in roles) or any(w.shape != given["q"].shape for w in want):
                    continue
            except Exception:  # whatever it raises, it does not take these shapes
                continue
            form = _same_form(want, given, layout, width)
            if form is not None:
                forms[place] = form
        if forms:
            place, parameters = min(forms), inspect.signature(function).parameters
            low = _call(function, roles, _given(layout, _WIDTHS[place], torch.bfloat16))[0]
            default = parameters["unsqueeze_dim"].default if "unsqueeze_dim" in parameters else None
            return Function(forms, roles, names, layout, default, low.dtype is torch.bfloat16)
    return why
