# SPDX-License-Identifier: Apache-2.0
"""Repeat the token three places back, of random ones: relative addressing."""
from __future__ import annotations

import torch
from torch import Tensor

from . import Options
from .drawn import Drawn

DEFAULTS = {"train": 32, "test": 128, "steps": 600, "lr": 3e-3}
_TOKENS, _BACK = 16, 3


def _batch(length: int, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    x = torch.randint(0, _TOKENS, (count, length), generator=generator)
    y = torch.full_like(x, -100)
    y[:, _BACK:] = x[:, :-_BACK]
    return x, y


def make(options: Options) -> Drawn:
    return Drawn(_batch, _TOKENS, True, options)
