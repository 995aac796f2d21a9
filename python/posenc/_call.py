# SPDX-License-Identifier: Apache-2.0
"""Reports of the library as calls: words in, data out; arrays that a verb reads are files of a folder that is removed."""
from __future__ import annotations

import os

from . import _posenc

TYPE_CHECKING = False  # the module typing is not imported for its names
if TYPE_CHECKING:
    from typing import Any, Callable, Mapping, TypeVar

    T = TypeVar("T")


# What an argument of the functions is called where it is not the option's own name.
_ARGUMENTS = {"arrays": "parameters", "params": "parameters", "input": "inputs", "gradient": "d_out"}


def _range_text(value: range) -> str:
    """As the command line writes it."""
    return f"{value.start}:{value.stop}:{value.step}"


class Call:
    """The words of one call, and the folder of its arrays while it runs."""

    def __init__(self, verb: str) -> None:
        self.words = [verb]
        self._folder: Any = None

    def __enter__(self) -> Call:
        return self

    def __exit__(self, *_: object) -> None:
        if self._folder is not None:
            self._folder.cleanup()

    def file(self, name: str) -> str:
        """A path for a file of this call."""
        if self._folder is None:
            import tempfile

            self._folder = tempfile.TemporaryDirectory(prefix="posenc-")
        return os.path.join(self._folder.name, name)

    def subject(self, subject: Any) -> None:
        """A model's path, a Model with what it was read with, or an encoding."""
        words = getattr(subject, "_words", None)
        if words is not None:
            self.words += words
        elif hasattr(subject, "_text"):
            self.words.append(str(subject))
        else:
            self.words.append(os.fspath(subject))

    def option(self, name: str, value: object) -> None:
        """--name=value; None is not said, True is the word alone."""
        word = "--" + name.replace("_", "-")
        if value is None or value is False:
            return
        if value is True:
            self.words.append(word)
        elif isinstance(value, (list, tuple)):
            for one in value:
                self.option(name, one)
        else:
            self.words.append(f"{word}={value}")

    def options(self, values: Mapping[str, object]) -> None:
        """Several of them."""
        for name, value in values.items():
            self.option(name, value)

    def positions(self, name: str, value: Any) -> None:
        """A text as the command line has it, a range, a list or an array."""
        if isinstance(value, range):
            value = _range_text(value)
        elif value is not None and not isinstance(value, str):
            path = self.file(f"{name}.npy")
            _posenc.save_positions(path, value)
            value = path
        self.option(name, value)

    def array(self, name: str, value: Any) -> None:
        """One array."""
        if value is not None:
            self.option(name, self._save(name, {name: value}))

    def arrays(self, name: str, values: Mapping[str, Any] | None) -> None:
        """Arrays by name, in one file."""
        if values is not None and not hasattr(values, "items"):
            raise ValueError(f'[posenc] parameters must be a mapping of names to arrays, got "{type(values).__name__}"')
        if values:
            self.option(name, self._save(name, values))

    def inputs(self, values: Mapping[str, Any] | None) -> None:
        """--input NAME=F for each."""
        if values is not None and not hasattr(values, "items"):
            raise ValueError(f'[posenc] inputs must be a mapping of names to arrays, got "{type(values).__name__}"')
        for name, value in (values or {}).items():
            self.option("input", f"{name}={self._save('input-' + name, {name: value})}")

    def value(self, name: str, value: Any) -> None:
        """A number, a text, a flag, a list of numbers, a range, an array, which becomes a file, or a Model with what it was
        read with."""
        if hasattr(value, "_words"):
            value, *read_with = value._words
            self.words += read_with
        if isinstance(value, range):
            value = _range_text(value)
        elif isinstance(value, (list, tuple)) and all(isinstance(x, (int, float)) for x in value):
            value = ",".join(map(repr, value))
        elif value is not None and not isinstance(value, (str, bool, int, float, os.PathLike)):
            if isinstance(value, (list, tuple)):
                import numpy

                value = numpy.asarray(value)
            value = self._save(name, {name: value})
        self.option(name, value)

    def _save(self, name: str, values: Mapping[str, Any]) -> str:
        path = self.file(f"{name}.safetensors")
        _posenc.save_arrays(path, dict(values))
        return path

    def run(self) -> tuple[int, bytes]:
        """The exit code, 0 or 1 (a negative answer), and the text. Remarks become a warning."""
        code, _, data, remarks = self._told(lambda: _posenc.report(self.words))
        self._warn(remarks)
        return code, data

    def write(self) -> bytes:
        """Runs a verb that writes its own file; what it says of it."""
        _, data, remarks = self._told(lambda: _posenc.command(self.words))
        self._warn(remarks)
        return data

    def _told(self, call: Callable[[], T]) -> T:
        """What `call` gives; its problems in the words of the function."""
        try:
            return call()
        except ValueError as problem:
            if type(problem) is ValueError:
                raise ValueError(self._said(str(problem))) from None
            raise

    def _warn(self, remarks: str) -> None:
        if remarks.strip():
            import warnings

            warnings.warn(self._said(remarks.strip()), stacklevel=5)

    def _said(self, message: str) -> str:
        """A message of the command line in the words of the function: arguments in place of options and of files."""
        import re

        if self._folder is not None:
            files = re.escape(self._folder.name + os.sep) + r"(?:input-)?([\w.]+?)\.(?:npy|safetensors)"
            message = re.sub(files, lambda m: _ARGUMENTS.get(m[1], m[1]), message)
        options = r"(?<![\w-])(?<!attend )--([a-z]+(?:-[a-z]+)*)"
        return re.sub(options, lambda m: _ARGUMENTS.get(m[1], m[1].replace("-", "_")), message)

    def tensors(self) -> dict[str, Any]:
        """The arrays that it gives."""
        _, arrays, _, remarks = self._told(lambda: _posenc.report(self.words))
        self._warn(remarks)
        return arrays


def twin(verb: str, places: list[object], values: Mapping[str, object], report: bool = False) -> Any:
    """A verb as a function: its array, its arrays by name where there are several, or the JSON of a report as data."""
    with Call(verb) as call:
        for place in places:
            if place is not None:
                call.subject(place)
        for name, value in values.items():
            call.value(name, value)
        if report:
            import json

            call.words.append("--json")
            return json.loads(call.run()[1])
        arrays = call.tensors()
    return next(iter(arrays.values())) if len(arrays) == 1 else arrays
