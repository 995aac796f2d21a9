# SPDX-License-Identifier: Apache-2.0
"""Every token says whether the marker stands before it, behind it, or is itself: left or right (Yan et al. 2019, TENER)."""
from __future__ import annotations

import torch
from torch import Tensor


class Task:
    defaults = {"train": 32, "test": 128, "steps": 300, "lr": 2e-3}
    vocabulary, marker, causal = 20, 3, False  # labels 0 to 2 are outputs; tokens from 4 on are noise

    def batch(self, length: int, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        x = torch.randint(self.marker + 1, self.vocabulary, (count, length), generator=generator)
        marker = torch.randint(0, length, (count, 1), generator=generator)
        x.scatter_(1, marker, self.marker)
        place = torch.arange(length)[None]
        return x, torch.where(place == marker, 2, (place > marker).long())
