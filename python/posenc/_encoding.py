# SPDX-License-Identifier: Apache-2.0
"""Encodings by value. Each holds its SCHEME text, which the library wrote: texts are equal where encodings are."""
from __future__ import annotations

from . import _posenc

TYPE_CHECKING = False  # the module typing is not imported for its names
if TYPE_CHECKING:
    from typing import Any, ClassVar, Iterable, Mapping

    from typing_extensions import Self

    from ._types import EncodingLike


class _Text:
    __slots__ = ("_text",)
    _text: str

    def __str__(self) -> str:
        return self._text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Text) and self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} does not change: make another one")

    def __reduce__(self) -> tuple[Any, ...]:
        return parse, (self._text,)

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self


class _Part(_Text):
    __slots__ = ()
    _name: ClassVar[str]

    def _set(self, values: Mapping[str, object]) -> None:
        object.__setattr__(self, "_text", _posenc.part_text(self._name, dict(values)))

    @classmethod
    def _of_text(cls, text: str) -> Self:
        self = cls.__new__(cls)
        object.__setattr__(self, "_text", text)
        return self

    @classmethod
    def _of_values(cls, values: Mapping[str, object]) -> Self:
        self = cls.__new__(cls)
        self._set(values)
        return self

    @property
    def fields(self) -> dict[str, object]:
        """Every field with its value."""
        return _posenc.fields(self._text)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> object:
            if not name.startswith("_"):
                fields = _posenc.fields(self._text)
                if name in fields:
                    return fields[name]
            raise AttributeError(f"{type(self).__name__} has no {name}")

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self.fields]

    def __repr__(self) -> str:
        said = (f"{k}={v!r}" for k, v in self.fields.items() if f" {k}=" in self._text)
        return f"posenc.{type(self).__name__}({', '.join(said)})"


class Scaling(_Part):
    """What changes the frequencies of a scheme: the part after a +."""

    __slots__ = ()


class Scheme(_Part):
    """One scheme. `scheme + scaling` is an Encoding."""

    __slots__ = ()

    @property
    def scheme(self) -> Scheme:
        """The scheme itself."""
        return self

    @property
    def scalings(self) -> tuple[Scaling, ...]:
        """None of its own."""
        return ()

    def __add__(self, other: Scaling) -> Encoding:
        return Encoding(self, (other,)) if isinstance(other, Scaling) else NotImplemented


class Encoding(_Text):
    """A scheme with scalings."""

    __slots__ = ("_scheme", "_scalings")
    _scheme: Scheme
    _scalings: tuple[Scaling, ...]

    def __init__(self, scheme: Scheme, scalings: Iterable[Scaling]) -> None:
        chain = tuple(scalings)
        text = _posenc.encoding_text(" + ".join(str(x) for x in (scheme, *chain)))
        for name, value in (("_text", text), ("_scheme", scheme), ("_scalings", chain)):
            object.__setattr__(self, name, value)

    @property
    def scheme(self) -> Scheme:
        """What is scaled."""
        return self._scheme

    @property
    def scalings(self) -> tuple[Scaling, ...]:
        """In the order they act."""
        return self._scalings

    def __add__(self, other: Scaling) -> Encoding:
        return Encoding(self._scheme, (*self._scalings, other)) if isinstance(other, Scaling) else NotImplemented

    def __repr__(self) -> str:
        return " + ".join(repr(x) for x in (self._scheme, *self._scalings))


def parse(text: str) -> Any:
    """The encoding, scheme or scaling that a SCHEME text says; `parse(str(x)) == x`.

    >>> import posenc
    >>> posenc.parse("rope head_dim=128 pairing=half_split base=5e5")
    posenc.Rope(head_dim=128, base=500000.0, pairing='half_split')
    """
    from . import _schemes

    made: list[Any] = []
    for name, part in _posenc.parts(text):
        cls = _by_name(_schemes)[name]
        made.append(cls._of_text(part))
    return made[0] if len(made) == 1 else Encoding(made[0], made[1:])


def schemes() -> dict[str, Any]:
    """Every scheme and scaling with its fields, units, ranges, defaults and presets, as `posenc list --json` prints them.

    >>> import posenc
    >>> alibi = next(x for x in posenc.schemes()["schemes"] if x["name"] == "alibi")
    >>> alibi["family"], alibi["fields"][1]["name"]
    ('relative', 'max_bias')
    """
    import json

    found: dict[str, Any] = json.loads(_posenc.registry_json())
    return found


def complete(
    encoding: EncodingLike,
    *,
    heads: int | None = None,
    head_dim: int | None = None,
    width: int | None = None,
    rows: int | None = None,
    causal: bool | None = None,
) -> Any:
    """The encoding that a SCHEME text says, its missing fields filled in from the sizes of a model.

    head_dim goes to the field of that name, width (by default heads x head_dim) to width and d_model, rows to the rows
    of a learned table of positions; causal decides bidirectional. Fields that the text has stay, and so do defaults. A
    required field that no size gives is a ValueError.

    >>> import posenc
    >>> posenc.complete("rope pairing=half_split", head_dim=64)
    posenc.Rope(head_dim=64, pairing='half_split')
    >>> str(posenc.complete("t5", causal=True))
    't5 bidirectional=false'
    """
    return parse(_posenc.complete_text(str(encoding), heads=heads, head_dim=head_dim, width=width, rows=rows, causal=causal))


_classes: dict[str, Any] = {}


def _by_name(module: Any) -> dict[str, Any]:
    if not _classes:
        _classes.update((getattr(module, n)._name, getattr(module, n)) for n in module.__all__)
    return _classes
