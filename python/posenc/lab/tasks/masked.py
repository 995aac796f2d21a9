# SPDX-License-Identifier: Apache-2.0
"""Guess masked characters (Devlin et al. 2018, sec. 3.1) in BERT's arrangement: without positions, a bag of words."""
from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .. import data, judge
from . import Options, lm

_SHARE = 0.15


class Task(lm.Task):
    defaults = {"train": 32, "test": 128, "steps": 1500, "lr": 3e-3}
    causal, segments = False, 2

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self.mask = self.vocabulary
        self.vocabulary += 1

    def hide(self, z: Tensor, generator: torch.Generator, asked: slice = slice(None)) -> tuple[Tensor, Tensor]:
        hidden = torch.rand(z.shape, generator=generator) < _SHARE
        hidden[:, 0] |= ~hidden.any(1)
        y = torch.full_like(z, -100)
        y[:, asked] = torch.where(hidden, z, -100)[:, asked]
        return torch.where(hidden, self.mask, z), y

    def batch(self, length: int, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        return self.hide(data.windows(self.corpus.train, length, count, generator), generator)

    def judge(self, model: Any, seed: int) -> dict[str, Any]:
        """The same hidden characters, in the middle of texts of every length."""
        text, lengths = self.corpus.held_out, self.options.lengths()
        middle = {n: slice((lengths[-1] - n) // 2, (lengths[-1] + n) // 2) for n in lengths}
        starts = torch.linspace(0, len(text) - lengths[-1], 64).long()
        x, y = self.hide(text[starts[:, None] + torch.arange(lengths[-1])], torch.Generator().manual_seed(999), middle[lengths[0]])
        both = {str(n): judge.loss_and_accuracy(model, x[:, at], y[:, at]) for n, at in middle.items()}
        return {"loss": {n: loss for n, (loss, _) in both.items()}, "accuracy": {n: share for n, (_, share) in both.items()},
                "unigram": judge.unigram(self.corpus.train, y[y >= 0], self.vocabulary)}
