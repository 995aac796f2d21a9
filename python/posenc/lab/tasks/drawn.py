# SPDX-License-Identifier: Apache-2.0
"""A task whose sequences are drawn: accuracy on the tokens that are asked for, and on whole sequences."""
from __future__ import annotations

from typing import Any, Callable

import torch
from torch import Tensor

from .. import judge
from ..errors import LabError
from ..model import Model
from . import Options

Batch = Callable[[int, int, torch.Generator], tuple[Tensor, Tensor]]


class Drawn:
    """batch(length, count, generator) -> x, y [count, length]; y is -100 where nothing is asked.

    tested: batches of the tests, where they differ; more: what else is measured.
    """

    def __init__(self, batch: Batch, vocabulary: int, causal: bool, options: Options, tested: Batch | None = None,
                 more: Callable[[Model], dict[str, Any]] | None = None) -> None:
        self._batch, self._tested, self._more = batch, tested or batch, more
        self.vocabulary, self.causal, self.options = vocabulary, causal, options

    def batch(self, length: int, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        return self._checked(self._batch, length, count, generator)

    def _checked(self, make: Batch, length: int, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        x, y = make(length, count, generator)
        for name, t in (("x", x), ("y", y)):
            if t.dim() != 2 or t.shape[0] != count or t.dtype != torch.int64 or t.shape != x.shape:
                raise LabError(f"{name} of a batch must be int64 [{count}, tokens], got {str(t.dtype)[6:]} {list(t.shape)}")
        if int(x.min()) < 0 or int(x.max()) >= self.vocabulary or int(y.max()) >= self.vocabulary:
            raise LabError(f"tokens of a batch must be below the vocabulary, {self.vocabulary}, got {max(int(x.max()), int(y.max()))}")
        return x, y

    def judge(self, model: Model, seed: int) -> dict[str, Any]:
        found: dict[str, Any] = {"accuracy": {}, "exact": {}}
        for n in self.options.lengths():
            generator = torch.Generator().manual_seed(999 + n)  # the same sequences for every scheme and seed
            token, whole = judge.accuracy(model, lambda count: self._checked(self._tested, n, count, generator))
            found["accuracy"][str(n)], found["exact"][str(n)] = token, whole
        return {**found, **(self._more(model) if self._more else {})}
