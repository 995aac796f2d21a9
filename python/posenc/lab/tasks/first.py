# SPDX-License-Identifier: Apache-2.0
"""Repeat the second token of the sequence at every later place: absolute addressing."""
from __future__ import annotations

import torch
from torch import Tensor


class Task:
    defaults = {"train": 32, "test": 128, "steps": 600, "lr": 3e-3}
    vocabulary, least = 16, 2

    def batch(self, length: int, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        x = torch.randint(0, self.vocabulary, (count, length), generator=generator)
        y = x[:, 1:2].repeat(1, length)
        y[:, :1] = -100
        return x, y
