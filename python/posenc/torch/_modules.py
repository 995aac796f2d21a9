# SPDX-License-Identifier: Apache-2.0
"""Modules: an encoding with its parameters, which start as published."""
from __future__ import annotations

import torch

from .. import _posenc
from ._checks import LAYOUTS, refuse
from ._input import compose
from ._rotary import rotate

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from torch import Tensor

    from .._types import EncodingLike


class RotaryEmbedding(torch.nn.Module):
    """Rotates q, or q and k, by positions. It has no buffers.

    learned: the frequencies are a parameter, `frequencies` [heads or 1, axes, pairs], that starts as the encoding's
    own. heads: each head has its own. A model that is cast to bfloat16 rounds them too, by up to 0.4%: at position
    1000 the fastest pair is then 4 rad off. Keep this module out of the cast.

    >>> import posenc, torch
    >>> from posenc.torch import RotaryEmbedding
    >>> rope = RotaryEmbedding(posenc.Rope(head_dim=64, pairing="half_split"), layout="bhtd")
    >>> q, k = rope(torch.ones(1, 8, 5, 64), torch.ones(1, 2, 5, 64), positions=torch.arange(5))
    >>> q.shape, k.shape
    (torch.Size([1, 8, 5, 64]), torch.Size([1, 2, 5, 64]))
    """

    frequencies: torch.nn.Parameter | None

    def __init__(self, encoding: EncodingLike, *, layout: str | None = None, context: int | None = None, learned: bool = False,
                 heads: int | None = None, dtype: torch.dtype | None = None) -> None:
        super().__init__()
        _posenc.RotaryPlan(encoding, context=context)  # refuses here what is no rotary encoding
        if layout is not None and layout not in LAYOUTS:
            refuse("torch RotaryEmbedding", f"layout must be {', '.join(LAYOUTS)}", layout)
        self.encoding, self.layout, self.context, self._heads = str(encoding), layout, context, heads
        if heads is not None and not learned:
            raise ValueError(f"[torch RotaryEmbedding] heads of their own need learned=True, got heads={heads}")
        self.register_parameter("frequencies", torch.nn.Parameter(torch.empty(self._start().shape, dtype=dtype)) if learned else None)
        self.reset_parameters()

    def _start(self) -> Tensor:
        own = torch.from_numpy(_posenc.frequencies(self.encoding, context=self.context))
        own = own.reshape(1, 1, -1) if own.dim() == 1 else own
        if self._heads is None or own.shape[0] == self._heads:
            return own
        if own.shape[0] > 1 or self._heads < 1:
            raise ValueError(f"[torch RotaryEmbedding] heads must be those of the encoding, {own.shape[0]}, got {self._heads}")
        return own.repeat(self._heads, 1, 1)

    def reset_parameters(self) -> None:
        """The encoding's own frequencies again."""
        if self.frequencies is not None:
            with torch.no_grad():
                self.frequencies.copy_(self._start())

    def forward(self, q: Tensor | None, k: Tensor | None = None, *, positions: Tensor) -> Any:
        """As `rotate`."""
        return rotate(self.encoding, q, k, positions=positions, layout=self.layout, context=self.context,
                      frequencies=self.frequencies)

    def extra_repr(self) -> str:
        """The encoding."""
        return self.encoding


class InputPositions(torch.nn.Module):
    """Any encoding at the input; its parameters have the names of `posenc.input_parameters`.

    They start as published, drawn from torch's generator.
    """

    _names: dict[str, str] = {}  # what a parameter is called in the state_dict, where not by its own name

    def __init__(self, encoding: EncodingLike, *, context: int | None = None, dtype: torch.dtype | None = None) -> None:
        super().__init__()
        self.encoding, self.context = str(encoding), context
        self._learned = {name: self._names.get(name, name) for name, _ in _posenc.input_parameters(self.encoding)}
        start = self._start()
        for mine, value in zip(self._learned.values(), start):
            self.register_parameter(mine, torch.nn.Parameter(torch.empty(value.shape, dtype=dtype)))
        self._fill(start)

    def _start(self) -> list[Tensor]:
        seed = int(torch.randint(2**62, (), device="cpu"))  # under torch.device("meta") too
        plan = _posenc.InputPlan(self.encoding, seed=seed, context=self.context)
        return [torch.from_numpy(value) for value in plan.parameters.values()]

    def _fill(self, start: list[Tensor]) -> None:
        with torch.no_grad():
            for mine, value in zip(self._learned.values(), start):
                getattr(self, mine).copy_(value)

    def reset_parameters(self) -> None:
        """Draws them again."""
        self._fill(self._start())

    def forward(self, x: Tensor, positions: Tensor | None = None) -> Tensor:
        """x, [t, c] or [b, t, c], composed with the rows of its positions; none given: 0, 1, 2 .."""
        if positions is None:
            positions = torch.arange(x.shape[-2], device=x.device)
        named = {name: getattr(self, mine) for name, mine in self._learned.items()}
        return compose(self.encoding, x, positions=positions, parameters=named, context=self.context)

    def extra_repr(self) -> str:
        """The encoding."""
        return self.encoding


class SinusoidalPositions(InputPositions):
    """Adds a sinusoid of any convention (`posenc.Sinusoidal` and its settings of programs)."""


class LearnedPositions(InputPositions):
    """Adds rows of a learned table (`posenc.Learned`); `weight` in the state_dict, as torch.nn.Embedding has it."""

    _names = {"table": "weight"}
