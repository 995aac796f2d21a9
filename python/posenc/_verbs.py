# SPDX-License-Identifier: Apache-2.0
"""What the command line's verbs do, as functions."""
from __future__ import annotations

import os

from ._call import Call
from ._model import Finding, Model, read_model

TYPE_CHECKING = False  # the module typing is not imported for its names
if TYPE_CHECKING:
    from typing import Any, Iterable, Mapping, Union

    from ._types import EncodingLike, PositionsLike

    Subject = Union[EncodingLike, Model, "os.PathLike[str]"]


class Picture:
    """A picture: `svg` is its text; notebooks show it."""

    def __init__(self, svg: str) -> None:
        self.svg = svg

    def _repr_svg_(self) -> str:
        return self.svg

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the .svg."""
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.svg)


def explain(path: str | os.PathLike[str] | Model, *, layer: int | None = None) -> str:
    """What positions a model uses and where each value came from, for a person; `read_model` has it as objects."""
    return _model(path).explain(layer=layer)


def doctor(path: str | os.PathLike[str] | Model) -> list[Finding]:
    """What is wrong, risky or ambiguous in a model's positions."""
    return _model(path).doctor()


def _model(path: str | os.PathLike[str] | Model) -> Model:
    return path if isinstance(path, Model) else read_model(path)


def table(
    subject: Subject,
    *,
    what: str | None = None,
    positions: PositionsLike | str | None = None,
    layout: str | None = None,
    precision: str | None = None,
    dtype: str | None = None,
    grid: str | None = None,
    heads: int | None = None,
    input: int | None = None,
    context: int | None = None,
    layer: int | None = None,
    tower: str | None = None,
    parameters: Mapping[str, Any] | None = None,
    start: int | None = None,
) -> Any:
    """A table as `posenc table` makes it: inv_freq, turns, angles, cos, sin, cos_sin, bias or rows.

    >>> import posenc
    >>> x = posenc.Rope(head_dim=8, pairing="half_split")
    >>> posenc.table(x, what="cos_sin", positions=range(4)).shape
    (4, 8)
    """
    with Call("table") as call:
        call.subject(subject)
        call.positions("positions", positions)
        call.options({"what": what or ("inv_freq" if positions is None else None), "layout": layout,
                      "precision": precision, "dtype": dtype, "grid": grid, "heads": heads, "input": input,
                      "context": context, "layer": layer, "tower": tower, "start": start})
        call.arrays("arrays", parameters)
        return _only(call.tensors())


def bias(
    subject: Subject,
    *,
    heads: int,
    positions: PositionsLike | str,
    key_positions: PositionsLike | str | None = None,
    head_dim: int | None = None,
    parameters: Mapping[str, Any] | None = None,
    inputs: Mapping[str, Any] | None = None,
    by_distance: bool = False,
    context: int | None = None,
    layer: int | None = None,
    tower: str | None = None,
    start: int | None = None,
) -> Any:
    """The part of the score that reads neither query nor key: [heads, queries, keys], or [heads, distances].

    >>> import posenc
    >>> posenc.bias(posenc.Alibi(), heads=2, positions=[0, 1, 2], by_distance=True)[0].tolist()
    [0.0, -0.0625, -0.125]
    """
    with Call("bias") as call:
        call.subject(subject)
        call.positions("positions", positions)
        call.positions("key_positions", key_positions)
        call.options({"heads": heads, "head_dim": head_dim, "by_distance": by_distance, "context": context,
                      "layer": layer, "tower": tower, "start": start})
        call.arrays("params", parameters)
        call.inputs(inputs)
        return _only(call.tensors())


def extend(
    table: Any,
    *,
    to: int | str,
    how: str,
    grid: str | None = None,
    prefix: int | None = None,
    suffix: int | None = None,
    align_corners: bool = False,
    antialias: bool = False,
    keys: float | None = None,
    border: str | None = None,
    offset: float | None = None,
    scale: str | float | None = None,
    alpha: float | None = None,
    order: str | None = None,
    tensor: str | None = None,
    output: str | os.PathLike[str] | None = None,
) -> Any:
    """A learned table at another size: an array gives an array; the path of a .safetensors file, with `tensor` and
    `output`, a new file.

    >>> import numpy, posenc
    >>> posenc.extend(numpy.arange(4.0).reshape(4, 1), to=8, how="linear")[:, 0].tolist()
    [0.0, 0.25, 0.75, 1.25, 1.75, 2.25, 2.75, 3.0]
    """
    from . import _posenc

    of_file = isinstance(table, (str, os.PathLike))
    with Call("extend") as call:
        made = os.fspath(output) if of_file and output is not None else call.file("extended.safetensors")
        if of_file:
            call.words += [os.fspath(table)]
            call.option("tensor", tensor)
        else:
            path = call.file("table.safetensors")
            _posenc.save_arrays(path, {"table": table})
            call.words += [path, "--tensor=table"]
        call.options({"to": to, "how": how, "grid": grid, "prefix": prefix, "suffix": suffix,
                      "align_corners": align_corners, "antialias": antialias, "keys": keys, "border": border,
                      "offset": offset, "scale": scale, "alpha": alpha, "order": order, "output": made,
                      "json": True})
        call.run()
        if of_file and output is not None:
            return made
        with open(made, "rb") as file:
            arrays = _posenc.arrays_of(file.read())
        return arrays[tensor] if of_file and tensor is not None else arrays["table"]


def plot(
    subject: Subject,
    *,
    kind: str | None = None,
    positions: PositionsLike | str | None = None,
    heads: int | None = None,
    head_dim: int | None = None,
    title: str | None = None,
    context: int | None = None,
    layer: int | None = None,
    tower: str | None = None,
    parameters: Mapping[str, Any] | None = None,
    start: int | None = None,
) -> Picture:
    """A picture as `posenc plot` draws it: wavelengths, scaling, error, decay, rows, bias ..."""
    with Call("plot") as call:
        call.subject(subject)
        call.positions("positions", positions)
        call.options({"kind": kind, "heads": heads, "head_dim": head_dim, "title": title, "context": context,
                      "layer": layer, "tower": tower, "start": start})
        call.arrays("arrays", parameters)
        call.words += ["-o", "-", "--format=svg"]
        return Picture(call.run()[1].decode(errors="replace"))


def emit(
    subject: Subject,
    *,
    output: str | os.PathLike[str],
    kind: str = "onnx",
    positions: PositionsLike | str | None = None,
    key_positions: PositionsLike | str | None = None,
    heads: int | None = None,
    head_dim: int | None = None,
    mask: str | Iterable[str] | None = None,
    offset: int | str | None = None,
    scale: float | None = None,
    dtype: str | None = None,
    context: int | None = None,
    layer: int | None = None,
    tower: str | None = None,
    parameters: Mapping[str, Any] | None = None,
    start: int | None = None,
) -> dict[str, Any]:
    """A rotation as a model of one RotaryEmbedding node of ONNX, what acts in the score as one Attention node: the
    report of posenc.emit/1.

    >>> import os, posenc, tempfile
    >>> x = posenc.Rope(head_dim=8, pairing="half_split")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     posenc.emit(x, positions="0:64", output=os.path.join(folder, "rotary.onnx"))["operator"]
    'RotaryEmbedding'
    """
    import json

    with Call("emit") as call:
        call.words.append(kind)
        call.subject(subject)
        call.positions("positions", positions)
        call.positions("key_positions", key_positions)
        call.options({"heads": heads, "head_dim": head_dim, "offset": offset, "scale": scale, "dtype": dtype,
                      "context": context, "layer": layer, "tower": tower, "start": start, "output": os.fspath(output),
                      "mask": [mask] if isinstance(mask, str) else list(mask or []), "json": True})
        call.arrays("params", parameters)
        report: dict[str, Any] = json.loads(call.run()[1])
        return report


def selftest(
    suite: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    *,
    filter: str | None = None,
) -> dict[str, Any]:
    """Conformance suites, run on this machine: the report of posenc.selftest/1. The suites come with the sources."""
    import json

    with Call("selftest") as call:
        folders = [suite] if isinstance(suite, (str, os.PathLike)) else list(suite)
        call.option("suite", [os.fspath(f) for f in folders])
        call.options({"filter": filter, "json": True})
        report: dict[str, Any] = json.loads(call.run()[1])
        return report


def _only(arrays: dict[str, Any]) -> Any:
    (array,) = arrays.values()
    return array
