# SPDX-License-Identifier: Apache-2.0
"""Masks and biases of n x n numbers that are not made unless somebody computes with them.

A model makes its mask once and hands it to every layer. Ours is a tensor that says what it is (`Mask`, `Row`), and
becomes the original's at the first operation that is not ours: whatever a model does with it stays right.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, NamedTuple

import torch
from torch.utils._pytree import tree_map

if TYPE_CHECKING:
    from torch import Tensor


class Lazy(torch.Tensor):
    """What `make` gives, made at the first use. Where that may be None (no mask is needed), `full` gives the tensor that
    the model's own operations need, as they were written for one."""

    what: Any
    make: Callable[[], Any]
    full: Callable[[], Any] | None
    made: Any

    @classmethod
    def of(cls, what: Any, make: Callable[[], Any], full: Callable[[], Any] | None = None) -> Lazy:
        self = torch.empty(0).as_subclass(cls)
        self.what, self.make, self.full, self.made = what, make, full, None
        return self

    def dense(self) -> Any:
        """The original's tensor."""
        if self.made is None:
            self.made = self.make()
        return self.made

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        def dense(x: Any) -> Any:
            if not isinstance(x, Lazy):
                return x
            made = x.dense()
            return x.full() if made is None and x.full is not None else made

        if func is torch.Tensor.to and args[1:] == (torch.bool,) and not kwargs:  # MPT asks for no more than that
            return Lazy.of(Turned(args[0].what), lambda: dense(args[0]).to(torch.bool))
        return func(*tree_map(dense, args), **tree_map(dense, kwargs or {}))

    def __repr__(self, *_: Any, **__: Any) -> str:  # type: ignore[override]
        return f"Lazy({self.what})"

    def __deepcopy__(self, memo: Any) -> Any:
        return self


class Mask(NamedTuple):
    """Who sees whom, as `posenc.torch.attend` takes it; key_visible and document: [batch, tokens] or None. starts: where the
    sequences of one row begin, and its end."""

    queries: int
    keys: int
    offset: int
    causal: bool
    window: tuple[int, int] | None
    key_visible: Tensor | None
    document: Tensor | None
    starts: Tensor | None = None

    def options(self) -> dict[str, Any]:
        """Arguments of `posenc.torch.attend`."""
        given = {"offset": self.offset if self.starts is None else None, "causal": self.causal, "window": self.window, "key_visible": self.key_visible,
                 "query_document": self.document, "key_document": self.document, "query_cu_seqlens": self.starts,
                 "key_cu_seqlens": self.starts}
        return {n: x for n, x in given.items() if x is not None}


class Turned(NamedTuple):
    """`mask.to(torch.bool)` of a mask that is added: True hides."""

    mask: Any


class Row(NamedTuple):
    """A bias by distance: row [1, heads, queries + keys - 1], from the last query and the first key on."""

    row: Tensor
    queries: int
    keys: int

    def options(self) -> dict[str, Any]:
        """The encoding, its table and positions for `posenc.torch.attend`."""
        # The queries are the last of the keys. Column 0 of the row is the first key of the last query, distance keys - 1; a
        # table has one number a distance from clip down to -clip.
        clip = max(self.queries, self.keys) - 1
        before, after = clip - (self.keys - 1), clip - (self.queries - 1)
        row = torch.nn.functional.pad(self.row[0].float(), (before, after)) if before or after else self.row[0].float()
        return {"encodings": f"clipped clip={clip} sign=key_minus_query heads_first=true", "parameters": {"table": row},
                "key_positions": torch.arange(self.keys),
                "query_positions": torch.arange(self.queries) + self.keys - self.queries}

    def dense(self) -> Tensor:
        """[1, heads, queries, keys]."""
        i, j = torch.arange(self.queries)[:, None], torch.arange(self.keys)
        return self.row[..., j - i + self.queries - 1]


class VectorRows(NamedTuple):
    """Vectors by distance for a query: rows [distances, channels], of query minus key from the lowest on."""

    rows: Tensor


class LocalRow(NamedTuple):
    """A bias by distance in a window: row [heads, 2 radius + 1] of key minus query; visible [batch, tokens]; side: the bias of
    summaries, [batch, heads, tokens, summaries] or None."""

    row: Tensor
    visible: Tensor
    side: Tensor | None


class Boxes(NamedTuple):
    """Boxes [batch, tokens, coordinates], whose offsets meet the query by weight [channels, 2 coordinates frequencies]."""

    boxes: Tensor
    weight: Tensor
    frequencies: int


class Distances(NamedTuple):
    """Distances of queries and keys in their order."""


class Zero(NamedTuple):
    """No bias."""


def made(x: Any) -> Any:
    """The original's tensor where x is one of ours, else x."""
    return x.dense() if isinstance(x, Lazy) else x


def mask_options(mask: Any, q: Tensor) -> dict[str, Any]:
    """Arguments of `posenc.torch.attend` for q [batch, queries, ...] and a mask of ours, or one that is added, [batch or 1,
    heads or 1, queries or 1, keys]."""
    if is_a(mask, Mask):
        return mask.what.options()  # type: ignore[no-any-return]
    dense = made(mask)
    return {} if dense is None else {"bias": dense.float().expand(q.shape[0], -1, q.shape[1], -1)}


def is_a(x: Any, kind: type) -> bool:
    return isinstance(x, Lazy) and isinstance(x.what, kind)


class KeepsPadding(Exception):
    """A layer cannot compute a row of sequences: it gets its padded batch."""


def is_packed(x: Any) -> bool:
    """The mask of a row of sequences."""
    return is_a(x, Mask) and x.what.starts is not None
