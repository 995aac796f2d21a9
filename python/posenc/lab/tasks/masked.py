# SPDX-License-Identifier: Apache-2.0
"""Guess masked characters (Devlin et al. 2018, sec. 3.1) in BERT's arrangement: without positions, a bag of words."""
from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .. import data, judge
from ..model import Model
from . import Options

DEFAULTS = {"train": 32, "test": 128, "steps": 1500, "lr": 3e-3}
_SHARE = 0.15


class Masked:
    causal = False
    segments = 2

    def __init__(self, options: Options) -> None:
        self.options = options
        self.corpus = data.corpus(options.text, options.held_out)
        data.check_length(self.corpus, options.train, options.test)
        self.mask = len(self.corpus.letters)
        self.vocabulary = self.mask + 1

    def hide(self, z: Tensor, generator: torch.Generator, asked: slice = slice(None)) -> tuple[Tensor, Tensor]:
        hidden = torch.rand(z.shape, generator=generator) < _SHARE
        hidden[:, 0] |= ~hidden.any(1)
        y = torch.full_like(z, -100)
        y[:, asked] = torch.where(hidden, z, -100)[:, asked]
        return torch.where(hidden, self.mask, z), y

    def batch(self, length: int, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        return self.hide(data.windows(self.corpus.train, length, count, generator), generator)

    def judge(self, model: Model, seed: int) -> dict[str, Any]:
        """The same hidden characters, in the middle of texts of every length."""
        o, text = self.options, self.corpus.held_out
        longest = o.lengths()[-1]
        starts = torch.linspace(0, len(text) - longest, 64).long()
        x, y = self.hide(text[starts[:, None] + torch.arange(longest)], torch.Generator().manual_seed(999),
                         slice((longest - o.train) // 2, (longest + o.train) // 2))
        found: dict[str, Any] = {"loss": {}, "accuracy": {}}
        for n in o.lengths():
            middle = slice((longest - n) // 2, (longest + n) // 2)
            found["loss"][str(n)], found["accuracy"][str(n)] = judge.loss_and_accuracy(model, x[:, middle], y[:, middle])
        return {**found, "unigram": judge.unigram(self.corpus.train, y[y >= 0], self.vocabulary)}


def make(options: Options) -> Masked:
    return Masked(options)
