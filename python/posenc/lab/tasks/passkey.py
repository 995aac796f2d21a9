# SPDX-License-Identifier: Apache-2.0
"""Find four digits behind a mark, hidden in noise, when asked at the end (Mohtashami and Jaggi 2023): far recall."""
from __future__ import annotations

import torch
from torch import Tensor

_DIGITS, _KEY, _MARK, _ASK, _NOISE = 10, 4, 10, 11, 12


class Task:
    defaults = {"train": 48, "test": 384, "steps": 1500, "lr": 3e-3}
    vocabulary, least = 28, 2 * _KEY + 2

    def batch(self, length: int, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        x = torch.randint(_NOISE, self.vocabulary, (count, length), generator=generator)
        digits = torch.randint(0, _DIGITS, (count, _KEY), generator=generator)
        room = length - 2 * _KEY  # the last _KEY tokens are the question and its first answers
        place = torch.randint(0, room, (count, 1), generator=generator)
        x.scatter_(1, place, _MARK)
        x.scatter_(1, place + 1 + torch.arange(_KEY), digits)
        x[:, -_KEY] = _ASK
        x[:, -_KEY + 1:] = digits[:, :-1]
        y = torch.full_like(x, -100)
        y[:, -_KEY:] = digits
        return x, y
