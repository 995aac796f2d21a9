# SPDX-License-Identifier: Apache-2.0
"""The rotation of one module of a model, kept as it was: cosine and sine of any positions, with phases in double."""
from __future__ import annotations

import copy
import inspect
from typing import TYPE_CHECKING, Any, NamedTuple, Sequence

import torch
from torch.overrides import TorchFunctionMode

from .. import torch as host
from ._probe import Form

if TYPE_CHECKING:
    from torch import Tensor

Rows = tuple["Tensor", "Tensor"]  # cosine and sine, [batch or 1, tokens, columns]


class _Wide(TorchFunctionMode):
    """A rotary module's own code, with float64 wherever it says float32."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        def wide(x: Any) -> Any:
            return torch.float64 if x is torch.float32 else x

        if func is torch.Tensor.float:
            return args[0].double()
        return func(*map(wide, args), **{n: wide(x) for n, x in (kwargs or {}).items()})


def _scalars(module: Any) -> dict[str, float]:
    """Factors on cosine and sine; lengths are no part of what is computed."""
    return {n: float(x) for n, x in module.__dict__.items() if isinstance(x, (int, float)) and not isinstance(x, bool) and "seq" not in n}


def _read(module: Any) -> dict[str, Tensor]:
    """Tensors that the rotation is computed from."""
    both = {**module._parameters, **module._buffers}
    return {n: x for n, x in both.items() if x is not None and "original" not in n}


class Encoding:
    """What a rotary module computes now. Its values do not follow later changes of the module."""

    def __init__(self, module: Any) -> None:
        self._stamps = self._stamp(module)
        self.scalars = _scalars(module)
        self.tensors = {n: x.detach().to(torch.float64 if x.is_floating_point() else x.dtype, copy=True) for n, x in _read(module).items()}
        self._twin = self._made(module)

    def _made(self, module: Any) -> Any:
        twin = copy.copy(module)
        twin.__dict__.update(_buffers=dict(self.tensors), _parameters={}, **self.scalars)
        return twin

    @staticmethod
    def _stamp(module: Any) -> list[tuple[Tensor, int]]:
        return [(x, 0 if x.is_inference() else x._version) for x in _read(module).values()]

    def is_of(self, module: Any) -> bool:
        """Whether the module still computes this."""
        if _scalars(module) != self.scalars:
            return False
        now = self._stamp(module)
        if len(now) == len(self._stamps) and all(a is b and v == w and not a.is_inference() for (a, v), (b, w) in zip(now, self._stamps)):
            return True
        read = _read(module)
        same = read.keys() == self.tensors.keys() and all(
            x.shape == self.tensors[n].shape and torch.equal(x.to(self.tensors[n].dtype), self.tensors[n]) for n, x in read.items())
        self._stamps = now if same else self._stamps
        return same

    def equals(self, other: Encoding) -> bool:
        """The same numbers."""
        return (type(self) is type(other) and self.scalars == other.scalars and self.tensors.keys() == other.tensors.keys()
                and all(x.shape == other.tensors[n].shape and torch.equal(x, other.tensors[n]) for n, x in self.tensors.items()))

    def with_values(self, tensors: dict[str, Tensor], scalars: dict[str, float]) -> Encoding:
        """The same module with the numbers of a file."""
        made = copy.copy(self)
        made._stamps, made.tensors, made.scalars = [], tensors, scalars
        made._twin = made._made(self._twin)
        return made

    def rows(self, positions: Tensor, more: tuple[tuple[str, Any], ...] = ()) -> Rows:
        """Of positions [batch, tokens] or [axes, batch, tokens], in float64; more: other arguments of the module."""
        x = torch.empty(*positions.shape[-2:], 1, dtype=torch.float64)
        with torch.no_grad(), torch.autocast("cpu", enabled=False), _Wide():
            made = inspect.unwrap(type(self._twin).forward)(self._twin, x, position_ids=positions, **dict(more))
        if not (isinstance(made, tuple) and len(made) == 2 and all(isinstance(m, torch.Tensor) and m.dtype is torch.float64 for m in made)):
            raise TypeError("the module does not return cosine and sine")
        return made


_CLOSE = 1e-5  # float32 rows of positions below 8


def computes(encoding: Encoding, module: Any, more: tuple[tuple[str, Any], ...], positions: Tensor) -> bool:
    """Whether rows in double are the module's own at positions where float32 is exact enough, below 8."""
    try:
        wide = encoding.rows(positions, more)
        with torch.no_grad():
            own = inspect.unwrap(type(module).forward)(module, torch.empty(*positions.shape[-2:], 1), position_ids=positions, **dict(more))
        return all(a.shape == b.shape and float((a - b).abs().max()) <= _CLOSE for a, b in zip(wide, own))
    except (TypeError, ValueError, RuntimeError):
        return False


class TableEncoding(Encoding):
    """Rows of a table `embed_positions` of an attention layer, sine before cosine (GPT-J, CodeGen)."""

    def _made(self, module: Any) -> Any:
        return None

    def rows(self, positions: Tensor, more: tuple[tuple[str, Any], ...] = ()) -> Rows:
        table = self.tensors["embed_positions"]
        if bool((positions < 0).any()) or bool((positions >= len(table)).any()):
            raise ValueError(f"[hf KeyCache] positions must be in the model's table of {len(table)} rows, got {int(positions.min())} to {int(positions.max())}")
        sin, cos = table[positions].chunk(2, -1)
        return cos, sin


def makes_rows(module: Any) -> bool:
    """Whether a module computes cosine and sine from positions."""
    name = type(module).__name__.lower()
    forward = inspect.signature(inspect.unwrap(type(module).forward)).parameters
    return ("rotary" in name or "rope" in name) and list(forward)[2:3] == ["position_ids"]


def arguments(module: Any, args: tuple[Any, ...], given: dict[str, Any]) -> tuple[Any, tuple[tuple[str, Any], ...]]:
    """Positions of one call of a module that makes rows, and its other arguments."""
    names = list(inspect.signature(inspect.unwrap(type(module).forward)).parameters)[1:]
    named = {**dict(zip(names, args)), **given}
    named.pop("x", None)
    return named.pop("position_ids", None), tuple(sorted(named.items()))


def made_of(cos: Tensor, made: Sequence[Any]) -> Any:
    """The latest call with these rows: the same tensor, a view or a copy of it. A call whose `cos` is None has any rows."""
    def same(x: Any) -> bool:
        return x is None or x is cos or (x.data_ptr() == cos.data_ptr() and x.shape == cos.shape)

    def equal(x: Any) -> bool:
        return x.numel() == cos.numel() and torch.equal(x.flatten(), cos.flatten())

    return next((m for test in (same, equal) for m in reversed(made) if test(m.cos)), None)


def has_table(module: Any) -> bool:
    """Whether an attention layer has a table of rows of its own."""
    table = module._buffers.get("embed_positions")
    return table is not None and table.dim() == 2 and "attention" in type(module).__name__.lower()


class Place(NamedTuple):
    """Where the rotated channels of one layer are, and what rotates them."""

    in_values: bool  # update(latent, rotated) of compressed keys
    offset: int
    width: int
    form: Form
    path: str  # of the module that makes the rows
    more: tuple[tuple[str, Any], ...]


def between(old: Rows, new: Rows) -> Rows:
    """Rows that turn what `old` rotated into what `new` would have, factors included."""
    (a, b), (c, s) = old, new
    size = a * a + b * b
    return (c * a + s * b) / size, (s * a - c * b) / size


def inverse(rows: Rows) -> Rows:
    """Rows that take a rotation back, factors included."""
    c, s = rows
    size = c * c + s * s
    return c / size, -s / size


def turn(keys: Tensor, rows: Rows, form: Form) -> None:
    """Rotates keys [batch, heads, tokens, channels] in place; their channels are in the order of the function's output."""
    cos, sin = rows
    if form.first:
        cos, sin = cos[..., : cos.shape[-1] // 2], sin[..., : sin.shape[-1] // 2]
    if cos.shape[0] != keys.shape[0]:
        cos, sin = (x.expand(keys.shape[0], -1, -1) for x in (cos, sin))
    dtype = torch.float64 if keys.dtype is torch.float64 else torch.float32
    pairing = "half_split" if form.output_order == "even_then_odd" else form.pairing
    host.rotate_rows_(keys, None, cos.to(dtype), sin.to(dtype), pairing=pairing, columns=form.columns, layout="bhtd")


def in_output_order(x: Tensor, form: Form, columns: int) -> Tensor:
    """Channels before the rotation, where those of its output stand."""
    if form.output_order == "in_place":
        return x
    n = columns * (2 if form.columns == "half" and not form.first else 1)
    return torch.cat([x[..., :n:2], x[..., 1:n:2], x[..., n:]], -1)
