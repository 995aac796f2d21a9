# SPDX-License-Identifier: Apache-2.0
"""Every token says whether the marker stands before it, behind it, or is itself: left or right (Yan et al. 2019, TENER)."""
from __future__ import annotations

import torch
from torch import Tensor

from . import Options
from .drawn import Drawn

DEFAULTS = {"train": 32, "test": 128, "steps": 300, "lr": 2e-3}
_LABELS, _MARKER, _TOKENS = 3, 3, 20  # labels 0..2 are outputs; tokens from 4 on are noise


def _batch(length: int, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    x = torch.randint(_MARKER + 1, _TOKENS, (count, length), generator=generator)
    marker = torch.randint(0, length, (count, 1), generator=generator)
    x.scatter_(1, marker, _MARKER)
    place = torch.arange(length)[None]
    return x, torch.where(place == marker, 2, (place > marker).long())


def make(options: Options) -> Drawn:
    return Drawn(_batch, _TOKENS, False, options)
