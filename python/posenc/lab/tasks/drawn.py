# SPDX-License-Identifier: Apache-2.0
"""A task whose sequences are drawn: accuracy on the tokens that are asked for, and on whole sequences."""
from __future__ import annotations

from typing import Any, Callable

import torch
from torch import Tensor

from .. import judge
from ..errors import LabError
from ..model import Model
from . import Options, Whole

Batch = Callable[[int, int, torch.Generator], tuple[Tensor, Tensor]]


class Drawn(Whole):
    """of: an object with batch, vocabulary and causal; tested: its batches of the tests, where they differ; more: what else
    is measured."""

    def __init__(self, of: Any, options: Options) -> None:
        super().__init__(options)
        self.of, self.vocabulary, self.causal = of, of.vocabulary, bool(getattr(of, "causal", True))

    def batch(self, length: int, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        return self._checked(self.of.batch, length, count, generator)

    def tested(self, length: int, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        return self._checked(getattr(self.of, "tested", self.of.batch), length, count, generator)

    def _checked(self, make: Batch, length: int, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        least = getattr(self.of, "least", 1)
        if length < least:
            raise LabError(f"{self.of.__module__.rpartition('.')[2]} needs texts of {least} tokens or more, got {length}")
        made: Any = make(length, count, generator)
        if not isinstance(made, tuple) or len(made) != 2:
            raise LabError(f"batch must return x and y, got {type(made).__name__}")
        for name, t in zip("xy", made):
            if not isinstance(t, Tensor) or t.dim() != 2 or t.shape[0] != count or t.dtype != torch.int64 or t.shape != made[0].shape or not t.numel():
                found = f"{str(t.dtype)[6:]} {list(t.shape)}" if isinstance(t, Tensor) else type(t).__name__
                raise LabError(f"{name} of a batch must be int64 [{count}, tokens], got {found}")
        x, y = made
        asked = y[y != -100]
        if not asked.numel():
            raise LabError("y of a batch must ask for an output, got -100 everywhere")
        for name, t in (("x", x), ("y", asked)):
            if wrong := [token for token in (int(t.min()), int(t.max())) if not 0 <= token < self.vocabulary]:
                raise LabError(f"{name} of a batch must have tokens from 0 to {self.vocabulary - 1}, got {wrong[0]}")
        return x, y

    def judge(self, model: Model, seed: int) -> dict[str, Any]:
        lengths = self.options.lengths()
        token, whole = judge.accuracies(model, self.tested, lengths)
        more: Any = getattr(self.of, "more", None)
        return {"accuracy": token, "exact": whole, **(more(model, lengths) if more else {})}
