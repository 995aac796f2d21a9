# SPDX-License-Identifier: Apache-2.0
"""Read the bit that was written last (Liu et al. 2023, arXiv:2306.00946): state, with many or few distractors.

Pairs of an instruction and a bit: write, ignore, read. The first pair writes, the last reads.
"""
from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from .. import judge

_WRITE, _IGNORE, _READ = 2, 3, 4


class Task:
    """ignored: the share of pairs that are to be ignored."""

    defaults = {"train": 64, "test": 512, "steps": 1000, "lr": 3e-3}
    vocabulary, least = 5, 4

    def batch(self, length: int, count: int, generator: torch.Generator, ignored: float = 0.8) -> tuple[Tensor, Tensor]:
        pairs = length // 2
        kind = torch.rand(count, pairs, generator=generator)
        instruction = torch.where(kind < ignored, _IGNORE, torch.where(kind < (1 + ignored) / 2, _WRITE, _READ))
        instruction[:, 0], instruction[:, -1] = _WRITE, _READ
        bit = torch.randint(0, 2, (count, pairs), generator=generator)
        place = torch.where(instruction == _WRITE, torch.arange(pairs), -1).cummax(1).values
        read = instruction == _READ
        bit = torch.where(read, bit.gather(1, place), bit)
        x = torch.stack([instruction, bit], -1).flatten(1)
        y = torch.full_like(x, -100)
        y[:, 0::2] = torch.where(read, bit, -100)
        return x, y

    def more(self, model: Any, lengths: list[int]) -> dict[str, Any]:
        return {name: judge.accuracies(model, partial(self.batch, ignored=ignored), lengths)[0] for name, ignored in (("sparse", 0.98), ("dense", 0.1))}
