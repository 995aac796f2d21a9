# SPDX-License-Identifier: Apache-2.0
"""Repeat the second token of the sequence at every later place: absolute addressing."""
from __future__ import annotations

import torch
from torch import Tensor

from . import Options
from .drawn import Drawn

DEFAULTS = {"train": 32, "test": 128, "steps": 600, "lr": 3e-3}
_TOKENS = 16


def _batch(length: int, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    x = torch.randint(0, _TOKENS, (count, length), generator=generator)
    y = x[:, 1:2].repeat(1, length)
    y[:, :1] = -100
    return x, y


def make(options: Options) -> Drawn:
    return Drawn(_batch, _TOKENS, True, options)
