# SPDX-License-Identifier: Apache-2.0
"""Repeat a word of up to `train` letters after a mark, and end: begin w mark w end (Kazemnejad et al. 2023, sec. 3)."""
from __future__ import annotations

import torch
from torch import Tensor


class Task:
    """In training every batch has a length of its own, 1 to `train`; tests have exactly their length."""

    defaults = {"train": 10, "test": 40, "steps": 4000, "lr": 2e-3}
    vocabulary, begin, mark, end = 19, 16, 17, 18  # letters are those below
    backwards = False

    def batch(self, length: int, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        return self.tested(int(torch.randint(1, length + 1, (1,), generator=generator)), count, generator)

    def tested(self, length: int, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        word = torch.randint(0, self.begin, (count, length), generator=generator)
        column = torch.ones(count, 1, dtype=torch.int64)
        again = word.flip(1) if self.backwards else word
        whole = torch.cat([self.begin * column, word, self.mark * column, again, self.end * column], 1)
        x, y = whole[:, :-1], whole[:, 1:].clone()
        y[:, :length + 1] = -100  # asked from the mark on
        return x, y
