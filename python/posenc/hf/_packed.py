# SPDX-License-Identifier: Apache-2.0
"""Batches with padding: each layer gets the tokens that are there as one row, and its attention where each sequence begins.

All else in a layer computes token by token, so padding costs nothing. A layer whose parts mix tokens gives other numbers: each layer
is tried both ways on a few tokens of its first padded batch, and keeps its padding where they differ. Rows of padding are 0 behind a
layer: the model's own are numbers without a meaning. A model with a convolution or a recurrent layer reads them, and keeps its padding.
"""
from __future__ import annotations

import copy
import functools
import inspect
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.modules import batchnorm, conv, pooling

from ._inline import captures_more, not_eager
from ._kept import bound, put
from ._lazy import Distances, KeepsPadding, Lazy, Mask, Row, Zero, is_a
from ._rotation import SAVED

if TYPE_CHECKING:
    from torch import Tensor

# Attention that takes the mask of a row of sequences as it is; others would make it dense. Those of the interface do, too.
_IN_PLACE = ("BloomAttention", "MPNetSelfAttention", "DisentangledSelfAttention")
_MIXES = (conv._ConvNd, torch.nn.RNNBase, batchnorm._BatchNorm, pooling._MaxPoolNd, pooling._AvgPoolNd, pooling._AdaptiveAvgPoolNd,
          pooling._AdaptiveMaxPoolNd)
_MOST = 0.9  # of a batch: with more tokens than that there is little to gain
_TRIED = 6  # tokens
_MASKS = 2  # that the layers of a model share, of all tokens and of a window
_EMPTY = ("past_key_values", "layer_past", "past_key_value", "encoder_hidden_states", "encoder_attention_mask", "query_states",
          "encoder_decoder_position_bias", "cache_position", "output_attentions")
_ANY = ("rel_embeddings", "use_cache", "alibi")  # alibi: posenc's attention makes its own
_DIFFERS = "batches keep their padding: without it the layer gives other numbers"


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


def _packed(name: str, x: Any, packing: Packing) -> Any:
    """One argument of a layer. Raises KeepsPadding for what it does not know."""
    batch, tokens = packing.batch, packing.tokens
    if x is None or isinstance(x, (bool, int, float, str)) or name in _ANY or is_a(x, Zero) or is_a(x, Distances):
        return x
    if name == "attention_mask":
        return packing.mask
    if is_a(x, Row) and x.what.queries == x.what.keys:
        return _resized(x, packing.count)
    if name == "position_embeddings" and isinstance(x, (tuple, list)):
        return tuple(_packed(name, part, packing) for part in x)
    if name in ("hidden_states", "position_ids", "position_embeddings") and isinstance(x, torch.Tensor) and not isinstance(x, Lazy):
        if x.dim() >= 2 and x.shape[0] in (1, batch) and x.shape[1] == tokens:
            return packing.rows(x)
    raise KeepsPadding(f"the layer has the argument {name}")


def _outputs(out: Any, packing: Packing) -> Any:
    def back(x: Any) -> Any:
        if x is None:
            return x
        if is_a(x, Row):
            return _resized(x, packing.tokens)
        if isinstance(x, torch.Tensor) and x.dim() == 3 and x.shape[:2] == (1, packing.count):
            return packing.back(x)
        raise KeepsPadding("the layer gives more than its rows")

    return back(out) if isinstance(out, torch.Tensor) else tuple(map(back, out))


@functools.lru_cache(None)
def _signature(forward: Any) -> inspect.Signature:
    return inspect.signature(forward)


def _given(module: Any, args: Any, words: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a layer by name."""
    signature = _signature(type(module).forward)
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
        return tuple(_slice(name, part, packing, rows, columns) for part in x)
    if name in ("hidden_states", "position_ids", "position_embeddings") and isinstance(x, torch.Tensor) and x.shape[1] == tokens:
        return x[rows if x.shape[0] == batch else slice(None)][:, columns]
    return x


def _counts(module: Any) -> list[Any]:
    """Of a layer's attention and rotation."""
    parts = [m.__dict__ for m in module.modules()]
    return [*(p["_posenc_attention"] for p in parts if "_posenc_attention" in p), *(c for p in parts if SAVED in p for c in p[SAVED].calls)]


def _differs(module: Any, given: dict[str, Any], mask: Any, visible: Tensor, packing: Packing) -> str:
    """Why the layer keeps its padding; "": it need not. It is tried on a few tokens of the longest row and of the shortest."""
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
    before = [(c, {n: copy.copy(x) for n, x in vars(c).items()}) for c in _counts(module)]
    try:
        with torch.no_grad():
            want, got = (_call(module, part, p) for p in (None, Packing(few, some)))
    finally:
        for c, values in before:
            vars(c).update(values)
    want, got = (x if isinstance(x, torch.Tensor) else x[0] for x in (want, got))
    far = float((want - got)[some].abs().max() / want[some].abs().max().clamp_min(1e-30))
    return "" if far <= (1e-4 if want.dtype in (torch.float32, torch.float64) else 0.05) else _DIFFERS


def _padded(mask: Any, what: Mask) -> Tensor:
    """The dense mask of a padded batch."""
    one = _dense(mask, what, torch.tensor([0, what.keys]))
    hidden = ~what.key_visible[:, None, None]  # type: ignore[index]
    least: Any = torch.finfo(one.dtype).min if one.is_floating_point() else 0
    return one.expand(len(hidden), -1, -1, -1).masked_fill(hidden, least)


def _watched(module: Any) -> bool:
    """A hook of others than posenc and transformers looks into the layer."""
    def own(function: Any) -> bool:
        return str(getattr(function, "__module__", "")).startswith(("posenc.hf.", "transformers.utils.output_capturing"))

    hooks = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    return any(not own(f) for m in module.modules() if m is not module for n in hooks for f in getattr(m, n).values())


def _stays(module: Any, given: dict[str, Any]) -> bool:
    """A call that is not looked at: it has no padding, or its parts are seen from outside."""
    x, mask = given.get("hidden_states"), given.get("attention_mask")
    if not isinstance(x, torch.Tensor) or x.dim() != 3 or mask is None or not_eager() or captures_more():
        return True
    if any(given.get(n) is not None and given[n] is not False for n in _EMPTY) or _watched(module):
        return True
    return module.training and any(isinstance(m, torch.nn.Dropout) and m.p > 0 for m in module.modules())


def _forward(self: Any, *args: Any, **words: Any) -> Any:
    rows = args[0] if args else words.get("hidden_states")
    if isinstance(rows, torch.Tensor) and rows.dim() == 3 and rows.shape[1] == 1:  # a decode step
        return type(self).forward(self, *args, **words)
    given, layer = _given(self, args, words), self._posenc_packing
    packing = None if _stays(self, given) else layer.masks.of(given["attention_mask"], given["hidden_states"])
    if packing is not None:
        try:
            if layer.trusts(self, given, packing):
                return _call(self, given, packing)
        except KeepsPadding as e:
            layer.leave(self.training, f"batches keep their padding: {e}")
        except Exception as e:  # whatever a part of the layer says of one row; the padded call decides
            layer.leave(self.training, f"batches keep their padding: {type(e).__name__}: {str(e)[:60]}")
    return type(self).forward(self, *args, **words)


class Masks:
    """The packing of the masks that a model's layers share in a call."""

    def __init__(self) -> None:
        self.last: list[tuple[Any, Any, Packing | None]] = []  # mask, sizes and version, packing

    def __getstate__(self) -> dict[str, Any]:
        return {"last": []}

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


class Layer:
    """What was found out of a layer, in training and else."""

    def __init__(self, name: str, masks: Masks, report: Any) -> None:
        self.name, self.masks, self.report = name, masks, report
        self.reasons: dict[bool, str] = {}  # why it keeps its padding; "": it does not

    def trusts(self, module: Any, given: dict[str, Any], packing: Packing) -> bool:
        """Whether the layer gives the same rows without padding."""
        if module.training not in self.reasons:
            for n, x in given.items():
                _packed(n, x, packing)
            mask = given["attention_mask"]
            self.leave(module.training, _differs(module, given, mask, _visible(mask, packing.batch, packing.tokens), packing))
        return not self.reasons[module.training]

    def leave(self, training: bool, why: str) -> None:
        """It keeps its padding from now on, if there is a reason."""
        self.reasons[training] = why
        if why:
            self.report.left(self.name, why)


def _layer_of(model: torch.nn.Module, name: str) -> tuple[str, Any]:
    """The largest part of a list of modules that has the attention of this name and takes rows and a mask, and its name; None:
    there is none."""
    words = name.split(".")
    for n in range(1, len(words)):
        parent = model.get_submodule(".".join(words[:n]))
        if isinstance(parent, torch.nn.ModuleList):
            path = ".".join(words[: n + 1])
            layer = model.get_submodule(path)
            if {"hidden_states", "attention_mask"} <= set(_signature(type(layer).forward).parameters):
                return path, layer
    return "", None


def pack_layers(model: torch.nn.Module, taken: dict[str, torch.nn.Module], in_place: set[str], report: Any) -> None:
    """taken: attention that is posenc's, by name; in_place: those of an adapter."""
    if any(isinstance(m, _MIXES) for m in model.modules()):
        return
    masks = Masks()
    found: dict[str, tuple[Any, list[str]]] = {}
    for name, module in taken.items():
        path, layer = _layer_of(model, name)
        if layer is not None and (name not in in_place or type(module).__name__ in _IN_PLACE):
            found.setdefault(path, (layer, []))[1].append(name)
    for path, (layer, names) in found.items():
        if len(names) == 1:
            put(layer, "_posenc_packing", Layer(path, masks, report))
            bound(layer, "forward", _forward)
