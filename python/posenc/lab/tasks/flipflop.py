# SPDX-License-Identifier: Apache-2.0
"""Read the bit that was written last (Liu et al. 2023, arXiv:2306.00946): state, with many or few distractors.

Pairs of an instruction and a bit: write, ignore, read. The first pair writes, the last reads.
"""
from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .. import judge
from ..model import Model
from . import Options
from .drawn import Drawn

DEFAULTS = {"train": 64, "test": 512, "steps": 1000, "lr": 3e-3}
_WRITE, _IGNORE, _READ, _TOKENS = 2, 3, 4, 5
_TRAINED, _SPARSE, _DENSE = 0.8, 0.98, 0.1  # share of pairs that are to be ignored


def _batch(ignore: float, length: int, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    pairs = length // 2
    kind = torch.rand(count, pairs, generator=generator)
    instruction = torch.where(kind < ignore, _IGNORE, torch.where(kind < (1 + ignore) / 2, _WRITE, _READ))
    instruction[:, 0], instruction[:, -1] = _WRITE, _READ
    bit = torch.randint(0, 2, (count, pairs), generator=generator)
    place = torch.where(instruction == _WRITE, torch.arange(pairs), -1).cummax(1).values
    read = instruction == _READ
    bit = torch.where(read, bit.gather(1, place), bit)
    x = torch.stack([instruction, bit], -1).flatten(1)
    y = torch.full_like(x, -100)
    y[:, 0::2] = torch.where(read, bit, -100)
    return x, y


def make(options: Options) -> Drawn:
    def others(model: Model) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, ignore in (("sparse", _SPARSE), ("dense", _DENSE)):
            found[name] = {}
            for n in options.lengths():
                generator = torch.Generator().manual_seed(999 + n)
                found[name][str(n)] = judge.accuracy(model, lambda count: _batch(ignore, n, count, generator))[0]
        return found
    return Drawn(lambda n, count, generator: _batch(_TRAINED, n, count, generator), _TOKENS, True, options, more=others)
