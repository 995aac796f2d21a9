# SPDX-License-Identifier: Apache-2.0
"""Repeat the token three places back, of random ones: relative addressing."""
from __future__ import annotations

import torch
from torch import Tensor


class Task:
    defaults = {"train": 32, "test": 128, "steps": 600, "lr": 3e-3}
    vocabulary, back, least = 16, 3, 4

    def batch(self, length: int, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        x = torch.randint(0, self.vocabulary, (count, length), generator=generator)
        y = torch.full_like(x, -100)
        y[:, self.back:] = x[:, :-self.back]
        return x, y
