# SPDX-License-Identifier: Apache-2.0
"""A language model of characters: its loss on the same held-out characters after contexts of every length."""
from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .. import data, judge
from . import Options, Whole


class Task(Whole):
    defaults = {"train": 32, "test": 256, "steps": 600, "lr": 3e-3}

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self.corpus = data.corpus(options.text, options.held_out)
        data.check_length(self.corpus, options.train, options.test)
        self.vocabulary = len(self.corpus.letters)

    def batch(self, length: int, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        z = data.windows(self.corpus.train, length + 1, count, generator)
        return z[:, :-1], z[:, 1:]

    def judge(self, model: Any, seed: int) -> dict[str, Any]:
        o, text = self.options, self.corpus.held_out
        return {"loss": judge.same_targets(model, text, o.train, o.lengths()), "windows": judge.own_windows(model, text, o.lengths()),
                **judge.by_distance(model, text, o.train)}
