# SPDX-License-Identifier: Apache-2.0
"""What was replaced in a model, what was not and why, and how often it ran."""
from __future__ import annotations

from collections import Counter
from typing import Any


class Calls:
    """Counted where it runs. In compiled graphs nothing is counted."""

    def __init__(self, what: str, in_place: bool) -> None:
        self.what = what
        self.in_place = in_place  # where gradients are off
        self.taken = 0
        self.original: Counter[str] = Counter()  # calls that went to the model's own function, by reason

    def __str__(self) -> str:
        own = "".join(f"; {n} by the model's own: {why}" for why, n in self.original.items())
        return f"{self.what}{', in place' if self.in_place else ''}, {self.taken} calls{own}"


class Report:
    """What `accelerate` did: `rotation` and `attentions` by layer, `reasons` for what stayed as it was."""

    def __init__(self) -> None:
        self.rotation: dict[str, list[Calls]] = {}
        self.attentions: dict[str, Any] = {}
        self.reasons: dict[str, str] = {}

    def attention(self, layer: str, calls: Any) -> None:
        """The attention of a layer was replaced."""
        self.attentions[layer] = calls

    def left(self, layer: str, reason: str) -> None:
        """Something of a layer stays as it was."""
        self.reasons[layer] = f"{self.reasons[layer]}; {reason}" if layer in self.reasons else reason

    @property
    def calls(self) -> int:
        """How often posenc rotated so far."""
        return sum(c.taken for layer in self.rotation.values() for c in layer)

    def __str__(self) -> str:
        lines = [f"{layer}: rotation by posenc ({', '.join(map(str, what))})" for layer, what in self.rotation.items()]
        lines += [f"{layer}: attention by posenc ({what})" for layer, what in self.attentions.items()]
        lines += [f"{layer}: left as it was: {why}" for layer, why in self.reasons.items()]
        return "\n".join(lines) or "nothing to replace: no layer of this model calls a function that rotates"

    __repr__ = __str__
