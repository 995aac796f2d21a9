# SPDX-License-Identifier: Apache-2.0
"""Models as their files describe them: layers, positions, where each value came from, what is wrong."""
from __future__ import annotations

import os

from . import _posenc
from ._call import Call
from ._encoding import parse

TYPE_CHECKING = False  # the module typing is not imported for its names
if TYPE_CHECKING:
    from typing import Any, Mapping

    from ._posenc import RotaryPlan
    from ._types import DTypeLike, PositionsLike


class _Record:
    __slots__: tuple[str, ...] = ()

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and all(getattr(self, n) == getattr(other, n) for n in self.__slots__)

    def __hash__(self) -> int:
        return hash(repr(self))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{n}={getattr(self, n)!r}' for n in self.__slots__)})"


class Value(_Record):
    """A value with where it came from: `source` is stated, class_default, derived or user."""

    __slots__ = ("value", "source", "where")

    def __init__(self, value: Any, source: str, where: str) -> None:
        self.value, self.source, self.where = value, source, where


class Finding(_Record):
    """What the reader or the doctor found; docs/doctor.md has a paragraph on each code."""

    __slots__ = ("severity", "code", "message", "where", "fix", "value")

    def __init__(
        self, severity: str, code: str, message: str, where: str, fix: str, value: float | None = None
    ) -> None:
        self.severity, self.code, self.message = severity, code, message
        self.where, self.fix, self.value = where, fix, value


class Layer:
    """What acts in one layer. `data` is its part of `posenc explain --json`."""

    def __init__(self, data: dict[str, Any]) -> None:
        self.data = data
        self.index: int = data["index"]
        self.scheme: str = data["scheme"]
        self.attention: dict[str, Any] = data["attention"]
        self.rotary: dict[str, Any] | None = data["rotary"]
        self.must_honour: list[dict[str, Any]] = data["must_honour"]

    @property
    def encodings(self) -> tuple[Any, ...]:
        """What acts on q, k or the score, as classes."""
        return tuple(parse(e["text"]) for e in self.data["encodings"])

    @property
    def fields(self) -> dict[str, Value]:
        """Every value with where it came from."""
        return {name: Value(f["value"], f["source"], f["where"]) for name, f in self.data["fields"].items()}

    def __repr__(self) -> str:
        return f"<Layer {self.index}: {', '.join(map(str, self.encodings)) or self.scheme}>"


class Model:
    """A model's positions. Made by `read_model`."""

    def __init__(self, file: _posenc.ModelFile, words: list[str], path: str) -> None:
        self._file = file
        self._words = words
        self.path = path
        self.data = file.explain()
        self.model_type: str = self.data["model_type"]
        self.reader: str = self.data["reader"]
        self.layers = [Layer(x) for x in self.data["layers"]]
        self.towers = {name: [Layer(x) for x in t["layers"]] for name, t in self.data["towers"].items()}
        self.findings = [Finding(**f) for f in self.data["findings"]]

    @property
    def context(self) -> Value | None:
        """The length that length rules were resolved for."""
        c = self.data["context"]
        return None if c is None else Value(c["value"], c["source"], "")

    @property
    def input(self) -> tuple[Any, ...]:
        """What acts at the embedding, as classes."""
        return tuple(parse(e["text"]) for e in self.data["input"])

    def to_dict(self) -> dict[str, Any]:
        """What `posenc explain --json` prints."""
        return self._file.explain()

    def explain(self, *, layer: int | None = None) -> str:
        """A text: the positions that the model uses, and the origin of each value."""
        with Call("explain") as call:
            call.subject(self)
            call.option("layer", layer)
            return call.run()[1].decode(errors="replace")

    def doctor(self) -> list[Finding]:
        """All findings, including those that only the doctor looks for."""
        return [Finding(**f) for f in self._file.doctor()]

    def rotary_plan(self, layer: int = 0, dtype: DTypeLike = "float32", *, outside: str = "refuse") -> RotaryPlan:
        """What rotates q and k of a layer, for the model's context."""
        return self._file.rotary_plan(layer, dtype, outside)

    def attend(
        self, q: Any, k: Any, v: Any, *, layer: int = 0, order: str | None = None,
        positions: PositionsLike | str | None = None, key_positions: PositionsLike | str | None = None,
        mask: str | list[str] | None = None, offset: int | str | None = None, scale: float | None = None,
        parameters: Mapping[str, Any] | None = None, inputs: Mapping[str, Any] | None = None, d_out: Any = None,
        scores: bool = False, terms: bool = False, probabilities: bool = False, tower: str | None = None,
        grid: str | tuple[int, int] | None = None,
    ) -> dict[str, Any]:
        """Attention of that layer with the weights beside the config: arrays by name as `posenc attend` writes them, with
        gradients if d_out is given. `grid` (rows, columns) is that of an image's patches if the layer has a table for
        each axis."""
        with Call("attend") as call:
            call.subject(self)
            for name, value in (("q", q), ("k", k), ("v", v), ("gradient", d_out)):
                call.array(name, value)
            call.positions("positions", positions)
            call.positions("key_positions", key_positions)
            call.options({"layer": layer, "order": order, "mask": mask, "offset": offset, "scale": scale,
                          "scores": scores, "terms": terms, "probabilities": probabilities, "tower": tower,
                          "grid": "x".join(map(str, grid)) if isinstance(grid, tuple) else grid})
            call.arrays("params", parameters)
            call.inputs(inputs)
            return call.tensors()

    def __str__(self) -> str:
        return self.explain().rstrip("\n")

    def __repr__(self) -> str:
        return f"<Model {self.path}: {self.model_type}, {len(self.layers)} layers>"

    def _repr_html_(self) -> str:
        from html import escape

        rows = [("", "layer", "positions", "attention")]
        for name, layers in (("", self.layers), *self.towers.items()):
            rows += [(name, str(x.index), ", ".join(e["text"] for e in x.data["encodings"]) or x.scheme,
                      x.attention["kind"]) for x in layers]
        body = "".join("<tr>" + "".join(f"<td>{escape(c)}</td>" for c in row) + "</tr>" for row in rows)
        found = "".join(f"<li>{escape(f.severity)} <code>{escape(f.code)}</code>: {escape(f.message)}</li>"
                        for f in self.findings)
        title = f"<b>{escape(self.model_type)}</b> {escape(self.path)}"
        return f"{title}<table>{body}</table>" + (f"<ul>{found}</ul>" if found else "")


def read_model(
    path: str | os.PathLike[str],
    context: int | None = None,
    assume: Mapping[str, str] | None = None,
    reader: str | None = None,
) -> Model:
    """Reads a config.json, a folder with one, or a .gguf file. `findings` lists what is wrong; calls that need positions
    that cannot be determined raise ModelError."""
    given = None if assume is None else dict(assume)
    file = _posenc.ModelFile(path, context, given, reader)
    text = os.fspath(path)
    words = [text, *(f"--assume={k}={v}" for k, v in (given or {}).items())]
    words += [] if context is None else [f"--context={context}"]
    words += [] if reader is None else [f"--reader={reader}"]
    return Model(file, words, text)
