# SPDX-License-Identifier: Apache-2.0
"""Tasks of the lab, one file each, whose class Task makes batches and, if not by accuracy, judges a trained model.

A task of one's own is such a class: `batch(length, count, generator) -> (x, y)`, integers [count, length], y -100 where nothing
is asked; `vocabulary`; and, if it is for an encoder, `causal = False`.
"""
from __future__ import annotations

import importlib
import inspect
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..errors import LabError
from ..model import Model, draw

NAMES = ("lm", "shift", "first", "copy", "reverse", "passkey", "flipflop", "direction", "masked", "extension", "translate")


@dataclass(frozen=True)
class Options:
    """What a run was asked for; a part of its identity."""

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
        return [self.train << i for i in range((self.test // self.train).bit_length())]


class Whole:
    """A task as a run sees it: model, loss and judge. corpus: its text, with a digest."""

    vocabulary: int
    causal, segments = True, 0
    corpus: Any = None

    def __init__(self, options: Options) -> None:
        self.options = options
        self.judged_tokens = 256 * sum(options.lengths())

    def batch(self, length: int, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        raise NotImplementedError

    def tested(self, length: int, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """A batch of the tests."""
        return self.batch(length, count, generator)

    def model(self, scheme: str, seed: int) -> Any:
        """With a row for each token of the longest call; drawn positions are those of twice as many."""
        o, drawn = self.options, self.options.positions == "randomized"
        longest = int(self.tested(max(o.lengths()), 1, torch.Generator().manual_seed(0))[0].shape[1])
        made = Model(scheme, self.vocabulary, width=o.width, layers=o.layers, heads=o.heads, rows=2 * longest if drawn else longest, trained=o.train,
                     causal=self.causal, segments=self.segments, seed=seed)
        made.drawn = drawn
        return made

    def loss(self, model: Any, count: int, generator: torch.Generator, at: tuple[int, int] = (0, 0)) -> Tensor:
        """Of a batch in training. at: seed and step, which positions are drawn by."""
        x, y = self.batch(self.options.train, count, generator)
        loss: Tensor = model.loss(x, y, draw(model.scheme.sizes.rows, x.shape[1], *at) if model.drawn else None)
        return loss

    def judge(self, model: Any, seed: int) -> dict[str, Any]:
        """What results.jsonl keeps as values."""
        raise NotImplementedError


# Options that not every task reads, and those that do.
_TEXT = ("lm", "masked", "extension", "translate")
_READ_BY = {"text": _TEXT, "held_out": _TEXT[:-1], "measure": ("extension",), "positions": NAMES[:-1]}


def reads(task: str, option: str) -> bool:
    """Whether the task reads the option; one of your own may read any."""
    return task not in NAMES or task in _READ_BY.get(option, NAMES)


def _kind(task: str) -> Any:
    return importlib.import_module(f".{task}", __package__).Task


def defaults(task: str) -> dict[str, Any]:
    """The options that a task has by itself."""
    found: dict[str, Any] = _kind(task).defaults if task in NAMES else {"test": 128}
    return found


def make(task: str, options: Options) -> Whole:
    """The task of that name, or of a file of one's own."""
    from ..positions import load
    from .drawn import Drawn

    for option in _READ_BY:
        if not reads(task, option) and getattr(options, option) != getattr(Options, option):
            raise LabError(f'--{option.replace("_", "-")} does not belong to {task}, got "{getattr(options, option)}"')
    if task not in NAMES and ".py:" not in task:
        raise LabError(f'task must be {", ".join(NAMES)} or FILE.py:Name, got "{task}"')
    kind = _kind(task) if task in NAMES else load(task, "task")
    if issubclass(kind, Whole):
        whole: Whole = kind(options)
        return whole
    if not callable(getattr(kind, "batch", None)):
        raise LabError(f"task of your own must have batch(length, count, generator), {kind.__name__} has not")
    offered = vars(options)
    made = kind(**{n: offered[n] for n in inspect.signature(kind).parameters if n in offered})
    if not isinstance(getattr(made, "vocabulary", None), int) or made.vocabulary < 2:
        raise LabError(f"task of your own must have vocabulary, the number of tokens, 2 or more; {kind.__name__} has "
                       f"{getattr(made, 'vocabulary', 'none')}")
    return Drawn(made, options)
