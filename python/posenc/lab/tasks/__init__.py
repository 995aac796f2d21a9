# SPDX-License-Identifier: Apache-2.0
"""Tasks of the lab, one file each. A task makes batches and judges a trained model.

A task of one's own is a class with `batch(length, count, generator) -> (x, y)`, integers [count, length], y -100 where
nothing is asked; `vocabulary`; and, if it is for an encoder, `causal = False`.
"""
from __future__ import annotations

import importlib
import inspect
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from ..errors import LabError
from ..model import Model

NAMES = ("lm", "shift", "first", "copy", "reverse", "passkey", "flipflop", "direction", "masked", "extension", "translate")


@dataclass(frozen=True)
class Options:
    """What a run was asked for; a part of its identity. scale lists what a task adds."""

    train: int = 32
    test: int = 256
    steps: int = 600
    batch: int = 32
    lr: float = 3e-3
    width: int = 64
    layers: int = 2
    heads: int = 4
    text: str = "licences"
    held_out: str | None = None
    positions: str = "counted"  # randomized: drawn from twice the longest length (Ruoss et al., 2023)
    measure: str = "loss"  # of the task extension: loss or passkey

    def lengths(self) -> list[int]:
        """The trained length, twice it, and so on up to the longest tested."""
        found = [self.train]
        while 2 * found[-1] <= self.test:
            found.append(2 * found[-1])
        return found


class Task(Protocol):
    """vocabulary: how many tokens; causal: a decoder. batch gives x and y, judge what results.jsonl keeps as values."""

    vocabulary: int
    causal: bool

    def batch(self, length: int, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]: ...

    def judge(self, model: Model, seed: int) -> dict[str, Any]: ...


def defaults(task: str) -> dict[str, Any]:
    """The options that a task has by itself."""
    found: dict[str, Any] = getattr(_module(task), "DEFAULTS", {}) if task in NAMES else {"test": 128}
    return found


# Options that not every task reads, and those that do.
_TEXT = ("lm", "masked", "extension", "translate")
_READ_BY = {"text": _TEXT, "held_out": _TEXT[:-1], "measure": ("extension",), "positions": NAMES[:-1]}


def reads(task: str, option: str) -> bool:
    """Whether the task reads the option; one of your own may read any."""
    return task not in NAMES or task in _READ_BY.get(option, NAMES)


def _module(task: str) -> Any:
    return importlib.import_module(f".{task}", __package__)


def make(task: str, options: Options) -> Any:
    """The task of that name, or of a file of one's own."""
    for option in _READ_BY:
        if not reads(task, option) and getattr(options, option) != getattr(Options, option):
            raise LabError(f'--{option.replace("_", "-")} does not belong to {task}, got "{getattr(options, option)}"')
    if task in NAMES:
        return _module(task).make(options)
    if ".py:" not in task:
        raise LabError(f'task must be {", ".join(NAMES)} or FILE.py:Name, got "{task}"')
    from ..positions import load
    from .drawn import Drawn

    kind = load(task, "task")
    if not callable(getattr(kind, "batch", None)):
        raise LabError(f"task of your own must have batch(length, count, generator), {kind.__name__} has not")
    offered = vars(options)
    made = kind(**{n: offered[n] for n in inspect.signature(kind).parameters if n in offered})
    if not isinstance(getattr(made, "vocabulary", None), int) or made.vocabulary < 2:
        raise LabError(f"task of your own must have vocabulary, the number of tokens, 2 or more; {kind.__name__} has "
                       f"{getattr(made, 'vocabulary', 'none')}")
    return Drawn(made.batch, made.vocabulary, bool(getattr(made, "causal", True)), options)
