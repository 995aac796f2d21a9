# SPDX-License-Identifier: Apache-2.0
"""The name of posenc's attention in a model's config."""
from __future__ import annotations

from typing import Any

PREFIX = "posenc_"


class Name(str):
    """`posenc_sdpa` or `posenc_eager`, which equals sdpa or eager too: code of a model that asks which of them its attention
    is gets the answer of before, and looks ours up under the whole name."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, str) and str(other) in (str(self), original(self))

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = str.__hash__

    def __reduce__(self) -> tuple[Any, ...]:
        from ._attention import named  # a process that loads it has our attention then

        return named, (str(self),)


def original(name: str) -> str:
    """The name without ours before it."""
    return str.removeprefix(name, PREFIX)
