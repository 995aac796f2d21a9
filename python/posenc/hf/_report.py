# SPDX-License-Identifier: Apache-2.0
"""What was replaced in a model, what was not and why, and how often it ran."""
from __future__ import annotations

from collections import Counter
from typing import Any

import torch


class _Graphs:
    """Compiled graphs, in which no call is counted: they are counted when they are made."""

    def __init__(self) -> None:
        self.graphs: Counter[str] = Counter()  # by the reason why the model's own is in it; "": posenc is

    @torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
    def in_graph(self, why: str) -> int:
        """Runs while a graph is compiled, once for each."""
        self.graphs[why] += 1
        return 0

    def _of_graphs(self) -> str:
        def whose(why: str) -> str:
            return f"by the model's own: {why}" if why else "by posenc"

        return "".join(f"; in {n} compiled graph{'s' * (n > 1)}, whose calls are not counted, {whose(why)}" for why, n in self.graphs.items())


class Calls(_Graphs):
    """Of one function that rotates, counted where it runs."""

    def __init__(self, what: str, in_place: bool) -> None:
        super().__init__()
        self.what = what
        self.in_place = in_place  # where gradients are off
        self.taken = 0
        self.original: Counter[str] = Counter()  # calls that went to the model's own function, by reason

    def __str__(self) -> str:
        own = "".join(f"; {n} by the model's own: {why}" for why, n in self.original.items())
        return f"{self.what}{', in place' if self.in_place else ''}, {self.taken} calls{own}{self._of_graphs()}"


class Count(_Graphs):
    """Of one layer's attention: calls that posenc computed, and those that went to the original, by reason. force: calls for
    which the original is known to be faster are posenc's too."""

    def __init__(self, force: bool = True) -> None:
        super().__init__()
        self.force = force
        self.taken = 0
        self.packed = 0  # of those: of batches whose padding was left out
        self.original: Counter[str] = Counter()

    def ran(self, packed: bool = False) -> None:
        """One call that posenc computed."""
        self.taken += 1
        self.packed += packed

    def left(self, why: str) -> None:
        """One call that went to the original, or a compiled graph of such calls."""
        if torch.compiler.is_compiling():
            self.in_graph(why)
        else:
            self.original[why] += 1

    def __str__(self) -> str:
        packed = f", {self.packed} of them without padding" if self.packed else ""
        return f"{self.taken} calls{packed}" + "".join(f"; {n} by the model's own: {why}" for why, n in self.original.items()) + self._of_graphs()


class Report:
    """The report of `accelerate`: `rotation` and `attentions` by layer, `reasons` for parts that were not replaced."""

    def __init__(self) -> None:
        self.rotation: dict[str, list[Calls]] = {}
        self.attentions: dict[str, Any] = {}
        self.reasons: dict[str, str] = {}
        self.none = ""  # what else was looked for
        self.more = ""  # what another call of accelerate would replace

    def attention(self, layer: str, calls: Any) -> None:
        """The attention of a layer was replaced."""
        self.attentions[layer] = calls

    def left(self, layer: str, reason: str) -> None:
        """Something of a layer stays as it was."""
        self.reasons[layer] = f"{self.reasons[layer]}; {reason}" if layer in self.reasons else reason

    @property
    def calls(self) -> int:
        """How often posenc rotated so far, compiled graphs aside."""
        return sum(c.taken for layer in self.rotation.values() for c in layer)

    def __str__(self) -> str:
        lines = [f"{layer}: rotation by posenc ({', '.join(map(str, what))})" for layer, what in self.rotation.items()]
        lines += [f"{layer}: attention by posenc ({what})" for layer, what in self.attentions.items()]
        lines += [f"{layer}: left as it was: {why}" for layer, why in self.reasons.items()]
        if not lines:
            lines = [f"nothing to replace: no layer of this model calls a function that rotates{self.none}"]
        return "\n".join(lines) + self.more

    __repr__ = __str__
