# SPDX-License-Identifier: Apache-2.0
"""Batches with padding: each layer gets the tokens that are there as one row, and its attention where each sequence begins.

All else in a layer computes token by token, so padding costs nothing. A layer whose parts mix tokens (a convolution) gives other
numbers; the first padded batch of each class is tried both ways on a few tokens, and where they differ the class gets its padding.
Rows of padding are 0 behind a layer: the model's own are numbers without a meaning.
"""
from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.modules.batchnorm import _BatchNorm

from ._inline import asks_more, not_eager
from ._kept import bound, put
from ._lazy import Distances, Lazy, Mask, Row, Zero, is_a

if TYPE_CHECKING:
    from torch import Tensor

# Attention that takes the mask of a row of sequences as it is; others would make it dense. Those of the interface do, too. SEW-D
# makes several frames of each row behind its layers, of rows of padding too.
_IN_PLACE = ("BloomAttention", "MPNetSelfAttention", "DisentangledSelfAttention")
_MOST = 0.9  # of a batch: with more tokens than that there is little to gain
_TRIED = 6  # tokens
_MASKS = 2  # that the layers of a model share, of all tokens and of a window
_EMPTY = ("past_key_values", "layer_past", "past_key_value", "encoder_hidden_states", "encoder_attention_mask", "query_states",
          "encoder_decoder_position_bias", "cache_position", "output_attentions")
_ANY = ("rel_embeddings", "use_cache")
_DIFFERS = "batches keep their padding: the layer gives other numbers without"


class Packing:
    """Of one mask: where the tokens of a batch are, and the mask of one row of them."""

    def __init__(self, mask: Any, visible: Tensor) -> None:
        self.batch, self.tokens = visible.shape
        self.index = visible.flatten().nonzero()[:, 0]
        self.count = int(self.index.shape[0])
        self.places = self.index % self.tokens
        starts = torch.nn.functional.pad(visible.sum(1).cumsum(0), (1, 0))
        causal, window = (mask.what.causal, mask.what.window) if is_a(mask, Mask) else (False, None)
        what = Mask(self.count, self.count, 0, causal, window, None, None, starts)
        self.mask = Lazy.of(what, lambda: _dense(mask, what, starts))

    def rows(self, x: Tensor) -> Tensor:
        """[batch or 1, tokens, ...] as [1, tokens that are there, ...]."""
        return (x[0, self.places] if x.shape[0] == 1 < self.batch else x.flatten(0, 1)[self.index])[None]

    def back(self, x: Tensor) -> Tensor:
        """The inverse, 0 where there is padding."""
        whole = x.new_zeros(self.batch * self.tokens, *x.shape[2:]).index_copy(0, self.index, x[0])
        return whole.view(self.batch, self.tokens, *x.shape[2:])


def _dense(mask: Any, what: Mask, starts: Tensor) -> Tensor:
    """Of all pairs, as the model's own is: for what cannot compute with less."""
    like = mask if not isinstance(mask, Lazy) else mask.full() if mask.full is not None else mask.dense()
    at = torch.arange(what.keys)
    sequence = torch.bucketize(at, starts[1:], right=True)
    seen = sequence[:, None] == sequence
    delta = at[:, None] - at
    if what.causal:
        seen &= delta >= 0
    if what.window is not None:
        seen &= (delta <= what.window[0]) & (-delta <= what.window[1])
    seen = seen[None, None]
    if not like.is_floating_point():
        return seen.to(like.dtype)
    return torch.zeros(seen.shape, dtype=like.dtype).masked_fill(~seen, torch.finfo(like.dtype).min)


def _visible(mask: Any, batch: int, tokens: int) -> Any:
    """[batch, tokens], which tokens are there; None: unknown, or they are not one run in each row."""
    if is_a(mask, Mask):
        what = mask.what
        if (what.queries, what.keys, what.offset) != (tokens, tokens, 0) or what.document is not None or what.starts is not None:
            return None
        visible = what.key_visible
    elif isinstance(mask, torch.Tensor) and not isinstance(mask, Lazy) and mask.shape == (batch, 1, 1, tokens):
        if mask.is_floating_point() and not bool(((mask == 0) | (mask < -1e4)).all()):
            return None
        visible = (mask == 0 if mask.is_floating_point() else mask.bool())[:, 0, 0]
    else:
        return None
    if visible is None or visible.shape != (batch, tokens):
        return None
    begins = torch.nn.functional.pad(visible.int(), (1, 0)).diff(dim=1) > 0
    return visible if bool((begins.sum(1) == 1).all()) else None


def _resized(row: Any, tokens: int) -> Lazy:
    """A bias by distance for another number of tokens; distances that it does not know are of tokens that are no pair."""
    more = tokens - row.what.keys
    what = Row(torch.nn.functional.pad(row.what.row, (more, more)), tokens, tokens)
    return Lazy.of(what, what.dense)


def _distances(relative: Lazy, packing: Packing) -> Lazy:
    def dense() -> Any:
        own, at = relative.dense(), packing.places
        return own[..., at[:, None], at]

    return Lazy.of(relative.what, dense)


def _packed(name: str, x: Any, packing: Packing) -> Any:
    """One argument of a layer. Raises _Stays for what it does not know."""
    batch, tokens = packing.batch, packing.tokens
    if x is None or isinstance(x, (bool, int, float, str)) or name in _ANY or is_a(x, Zero):
        return x
    if name == "attention_mask":
        return packing.mask
    if is_a(x, Row) and x.what.queries == x.what.keys:
        return _resized(x, packing.count)
    if is_a(x, Distances):
        return _distances(x, packing)
    if name == "alibi" and x.dim() == 3 and x.shape[0] % batch == 0 and x.shape[1:] == (1, tokens):
        return x.unflatten(0, (batch, -1))[packing.index // tokens, :, 0, packing.places].t()[:, None]
    if name == "position_embeddings" and isinstance(x, (tuple, list)):
        return type(x)(_packed(name, part, packing) for part in x)
    if name in ("hidden_states", "position_ids", "position_embeddings") and isinstance(x, torch.Tensor) and not isinstance(x, Lazy):
        if x.dim() >= 2 and x.shape[0] in (1, batch) and x.shape[1] == tokens:
            return packing.rows(x)
    raise _Stays(f"the layer has the argument {name}")


class _Stays(Exception):
    """A call keeps its padding."""


def _outputs(out: Any, packing: Packing) -> Any:
    def back(x: Any) -> Any:
        if x is None:
            return x
        if is_a(x, Row):
            return _resized(x, packing.tokens)
        if isinstance(x, torch.Tensor) and x.dim() == 3 and x.shape[:2] == (1, packing.count):
            return packing.back(x)
        raise _Stays("the layer gives more than its rows")

    return back(out) if isinstance(out, torch.Tensor) else tuple(map(back, out))


def _given(module: Any, args: Any, words: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a layer by name."""
    signature = inspect.signature(type(module).forward)
    whole = signature.bind(module, *args, **words).arguments
    given = dict(list(whole.items())[1:])
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD:
            given.update(given.pop(parameter.name, {}))
    return given


def _call(module: Any, given: dict[str, Any], packing: Packing | None) -> Any:
    forward = type(module).forward
    if packing is None:
        return forward(module, **given)
    return _outputs(forward(module, **{n: _packed(n, x, packing) for n, x in given.items()}), packing)


def _slice(name: str, x: Any, packing: Packing, rows: Tensor, columns: slice) -> Any:
    """One argument for some rows and columns of a batch."""
    batch, tokens = packing.batch, packing.tokens
    if is_a(x, Row):
        return _resized(x, columns.stop - columns.start)
    if is_a(x, Distances):
        return Lazy.of(x.what, lambda: x.dense()[..., columns, columns])
    if name == "alibi":
        return x.unflatten(0, (batch, -1))[rows][..., columns].flatten(0, 1)
    if isinstance(x, (tuple, list)):
        return type(x)(_slice(name, part, packing, rows, columns) for part in x)
    if name in ("hidden_states", "position_ids", "position_embeddings") and isinstance(x, torch.Tensor) and x.shape[1] == tokens:
        return x[rows if x.shape[0] == batch else slice(None)][:, columns]
    return x


def _differs(module: Any, given: dict[str, Any], mask: Any, visible: Tensor, packing: Packing) -> str:
    """Why the layer cannot be trusted without padding: it is tried on a few tokens of the longest row and of the shortest."""
    lengths = visible.sum(1)
    rows = torch.stack([lengths.argmin(), lengths.argmax()])
    first, last = (int(x) for x in visible[rows[0]].nonzero()[[0, -1], 0])
    edge = last + 1 if last + 1 < packing.tokens else first  # of the shortest row's padding
    begin = max(0, min(edge - _TRIED // 2, packing.tokens - _TRIED))
    columns = slice(begin, min(packing.tokens, begin + _TRIED))
    some = visible[rows][:, columns].clone()
    count = some.shape[1]
    if is_a(mask, Mask):
        what = mask.what._replace(queries=count, keys=count, key_visible=some)
        few: Any = Lazy.of(what, lambda: _padded(mask, what))
    else:
        few = mask[rows][..., columns]
    part = {n: few if n == "attention_mask" else _slice(n, x, packing, rows, columns) for n, x in given.items()}
    counts = [m._posenc_attention for m in module.modules() if "_posenc_attention" in m.__dict__]
    before = [(c.taken, c.packed, c.original.copy()) for c in counts]
    try:
        with torch.no_grad():
            want, got = (_call(module, part, p) for p in (None, Packing(few, some)))
    finally:
        for c, (taken, packed, original) in zip(counts, before):
            c.taken, c.packed, c.original = taken, packed, original
    want, got = (x if isinstance(x, torch.Tensor) else x[0] for x in (want, got))
    far = float((want - got)[some].abs().max() / want[some].abs().max().clamp_min(1e-30))
    return "" if far <= (1e-4 if want.dtype in (torch.float32, torch.float64) else 0.05) else _DIFFERS


def _padded(mask: Any, what: Mask) -> Tensor:
    """The dense mask of a padded batch."""
    one = _dense(mask, what, torch.tensor([0, what.keys]))
    hidden = ~what.key_visible[:, None, None]  # type: ignore[index]
    least: Any = torch.finfo(one.dtype).min if one.is_floating_point() else 0
    return one.expand(len(hidden), -1, -1, -1).masked_fill(hidden, least)


def _stays(module: Any, given: dict[str, Any]) -> str:
    """Why a call is not looked at: nothing that is worth a word in a report."""
    x, mask = given.get("hidden_states"), given.get("attention_mask")
    if not isinstance(x, torch.Tensor) or x.dim() != 3 or x.shape[1] < 2 or mask is None or not_eager():
        return "no padding"
    if asks_more(module, False) or any(given.get(n) is not None and given[n] is not False for n in _EMPTY):
        return "the call has more than rows"
    if module.training and any(isinstance(m, torch.nn.Dropout) and m.p > 0 for m in module.modules()):
        return "dropout in training"
    return ""


def _forward(self: Any, *args: Any, **words: Any) -> Any:
    given = _given(self, args, words)
    if _stays(self, given):
        return type(self).forward(self, *args, **words)
    mask, x = given["attention_mask"], given["hidden_states"]
    packing = self._posenc_packing.of(mask, x)
    if packing is None:
        return type(self).forward(self, *args, **words)
    try:
        if self._posenc_packing.trusted(self, given, mask, packing):
            return _call(self, given, packing)
    except _Stays as e:
        self._posenc_packing.leave(self, f"batches keep their padding: {e}")
    return type(self).forward(self, *args, **words)


class State:
    """Of one model: the packing of its last mask, and what was found out of its classes of layers."""

    def __init__(self, report: Any) -> None:
        self.report = report
        self.reasons: dict[str, str] = {}
        self.last: list[tuple[Any, Any, Packing | None]] = []  # mask, sizes and version, packing

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "last": []}

    def of(self, mask: Any, x: Tensor) -> Packing | None:
        """None: the batch keeps its padding."""
        now = (x.shape[:2], getattr(mask, "_version", 0))
        for last, then, packing in self.last:
            if last is mask and then == now:
                return packing
        visible = _visible(mask, *x.shape[:2])
        packing = Packing(mask, visible) if visible is not None and int(visible.sum()) <= _MOST * visible.numel() else None
        self.last = [(mask, now, packing), *self.last][:_MASKS]
        return packing

    def trusted(self, module: Any, given: dict[str, Any], mask: Any, packing: Packing) -> bool:
        """Whether the class of the layer gives the same rows without padding."""
        name = type(module).__name__
        if name not in self.reasons:
            for n, x in given.items():
                _packed(n, x, packing)
            self.reasons[name] = _differs(module, given, mask, _visible(mask, packing.batch, packing.tokens), packing)
            if self.reasons[name]:
                self.report.left(name, self.reasons[name])
        return not self.reasons[name]

    def leave(self, module: Any, why: str) -> None:
        """The layers of this class keep their padding from now on."""
        name = type(module).__name__
        if not self.reasons.get(name):
            self.reasons[name] = why
            self.report.left(name, why)


def _layer_of(model: torch.nn.Module, name: str) -> Any:
    """The largest part of a list of modules that has the attention of this name and takes rows and a mask; None: there is none."""
    words = name.split(".")
    for n in range(1, len(words)):
        parent = model.get_submodule(".".join(words[:n]))
        if isinstance(parent, torch.nn.ModuleList):
            layer = model.get_submodule(".".join(words[: n + 1]))
            known = inspect.signature(type(layer).forward).parameters
            if {"hidden_states", "attention_mask"} <= set(known):
                return layer
    return None


def pack_layers(model: torch.nn.Module, taken: dict[str, torch.nn.Module], in_place: set[str], report: Any) -> None:
    """taken: attention that is posenc's, by name; in_place: those of an adapter."""
    state = State(report)
    found: dict[int, tuple[torch.nn.Module, list[str]]] = {}
    for name, module in taken.items():
        layer = _layer_of(model, name)
        known = name not in in_place or type(module).__name__ in _IN_PLACE
        if layer is not None and known and not type(module).__module__.endswith("modeling_sew_d"):
            found.setdefault(id(layer), (layer, []))[1].append(name)
    for layer, names in found.values():
        if len(names) == 1 and not any(isinstance(m, _BatchNorm) for m in layer.modules()):
            put(layer, "_posenc_packing", state)
            bound(layer, "forward", _forward)
