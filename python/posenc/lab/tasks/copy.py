# SPDX-License-Identifier: Apache-2.0
"""Repeat a word of up to `train` letters after a mark, and end: begin w mark w end (Kazemnejad et al. 2023, sec. 3)."""
from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from . import Options
from .drawn import Drawn

DEFAULTS = {"train": 10, "test": 40, "steps": 4000, "lr": 2e-3}
_LETTERS, _BEGIN, _MARK, _END = 16, 16, 17, 18


def word_batch(backwards: bool, length: int, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    word = torch.randint(0, _LETTERS, (count, length), generator=generator)
    column = torch.ones(count, 1, dtype=torch.int64)
    whole = torch.cat([_BEGIN * column, word, _MARK * column, word.flip(1) if backwards else word, _END * column], 1)
    x, y = whole[:, :-1], whole[:, 1:].clone()
    y[:, :length + 1] = -100  # asked from the mark on
    return x, y


def words(options: Options, backwards: bool) -> Drawn:
    """In training every batch has a length of its own, 1 to `train`; tests have exactly their length."""
    def trained(length: int, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        return word_batch(backwards, int(torch.randint(1, length + 1, (1,), generator=generator)), count, generator)
    return Drawn(trained, _END + 1, True, options, partial(word_batch, backwards))


def make(options: Options) -> Drawn:
    return words(options, False)
