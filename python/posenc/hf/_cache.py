# SPDX-License-Identifier: Apache-2.0
"""A transformers cache whose keys can be dropped, moved, shared and stored, with what rotated them."""
from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Sequence

import torch
from transformers.cache_utils import Cache, DummyLayer, DynamicCache, DynamicLayer, DynamicSlidingWindowLayer

from ._cache_encodings import Encodings
from ._cache_layer import KeyLayer
from ._cache_rows import Place, Rows, between
from ._cache_tap import TAP, Session, Tap, end_stale_session, learned_positions, remove_tap, session, tap_of
from ._cache_tokens import Tokens, whole

if TYPE_CHECKING:
    from torch import Tensor


def _refuse(rule: str, got: Any) -> None:
    raise ValueError(f"[hf KeyCache] {rule}, got " + (f'"{got}"' if isinstance(got, str) else str(got)))


def _layers(cache: KeyCache, model: Any) -> list[Any]:
    """A layer for each one of transformers' own cache."""
    config = model.config.get_text_config(decoder=True)
    kinds = getattr(config, "layer_types", None) or []
    made: list[Any] = []
    for i, theirs in enumerate(DynamicCache(config=model.config).layers):
        kind = kinds[i] if i < len(kinds) else type(theirs).__name__
        if kind == "chunked_attention" and cache.tokens.window is not None:
            _refuse("window must not be given for a model whose layers attend by chunks of positions", f"chunked_attention in layer {i}")
        if type(theirs) is DynamicSlidingWindowLayer:
            made.append(KeyLayer(cache, theirs.sliding_window))
        elif type(theirs) is DynamicLayer:
            made.append(KeyLayer(cache, None))
        elif type(theirs) is DummyLayer:
            made.append(theirs)
        else:
            _refuse("model must have layers with keys and values only, no linear-attention or other states", f"{kind} in layer {i}")
    return made


class KeyCache(Cache):
    """A cache for generate(), on a CPU: `model.generate(ids, past_key_values=KeyCache(model))`; from transformers 5.24 on `cache=`.

    window, sinks: a query sees the last `window` tokens, itself included, and the first `sinks` visible ones of its row.
    positions: "slots" moves copies of the sinks so that the window follows them (StreamingLLM), and `evict` closes its gap;
    "stream" keeps all distances as they were. keys: "rotated" keeps keys as the model rotates them, and rejects a change of the
    model's frequencies; "unrotated" keeps them as they are before the rotation too, and rotates all of them when the frequencies
    change (dynamic scalings, LongRoPE, other rope_parameters).
    Under a distance map keys are always kept as they are before the rotation. "rotated" keeps a copy too, rotated by the map, so that
    a step with few tokens rotates few keys; "unrotated" keeps none and rotates all keys in each step.

    No operation computes keys again: below the first layer, keys come from hidden states that saw other positions.
    """

    def __init__(self, model: torch.nn.Module, *, sinks: int = 0, window: int | None = None, positions: str = "slots",
                 keys: str = "rotated") -> None:
        if not isinstance(model, torch.nn.Module) or not hasattr(model, "config"):
            _refuse("model must be a model of transformers", type(model).__name__)
        for name, n, least in (("sinks", sinks, 0), ("window", window, 1)):
            if not (n is None and name == "window") and (isinstance(n, bool) or not isinstance(n, int) or n < least):
                _refuse(f"{name} must be a whole number of at least {least}", n)
        if sinks and window is None:
            _refuse("sinks must not be given without window", sinks)
        for name, word, words in (("positions", positions, ("slots", "stream")), ("keys", keys, ("rotated", "unrotated"))):
            if word not in words:
                _refuse(f"{name} must be {' or '.join(words)}", word)
        self.model, self.positions, self.keeps_raw = model, positions, keys == "unrotated"
        self.tokens = Tokens(sinks, window)
        self.encodings = Encodings(self)
        self.moved = 0  # the most times that a key was rewritten
        self.tap: Tap = tap_of(model)
        self.learned = next(learned_positions(model), "")
        self.mapped = self.tap.by_distance  # keys are not rotated: a distance map rotates them in the attention
        super().__init__(layers=_layers(self, model))
        self._check_model()

    def _check_model(self) -> None:
        rotates = self.mapped or ((self.tap.rotates or bool(self.tap.unknown)) and not getattr(self.model.config, "alibi", False))
        window = self.tokens.window is not None
        if self._moves and self.tap.unknown:
            layer, why = next(iter(self.tap.unknown.items()))
            _refuse(f"{self._moves} requires a rotation that posenc recognises", f"{layer}: {why}")
        if self.keeps_raw and not rotates:
            _refuse('keys="unrotated" requires a model that rotates its keys', type(self.model).__name__)
        if window and self.positions == "slots" and self.learned:
            _refuse('positions="slots" requires positions in the keys or scores; use positions="stream"', f"positions at the input, {self.learned}")
        if window and self.positions == "stream" and not rotates and not self.learned:
            _refuse('positions must be "slots" for a model whose scores count the keys that are there', "stream")

    @property
    def _moves(self) -> str:
        """The argument that requires to know each layer's rotation; "": none does."""
        if self.keeps_raw:
            return 'keys="unrotated"'
        return 'positions="slots"' if self.tokens.sinks and self.positions == "slots" else ""

    @property
    def _own_layers(self) -> list[KeyLayer]:
        """Layers with keys."""
        return [x for x in self.layers if isinstance(x, KeyLayer)]

    @property
    def _rotates(self) -> bool:
        """Whether any layer's keys were rotated so far."""
        return self.mapped or any(x.place is not None or x.unplaced for x in self._own_layers)

    # One forward of the model

    def _begin(self, module: Any, given: dict[str, Any]) -> tuple[Session, dict[str, Any]]:
        if module is not self.model and module is not getattr(self.model, "base_model", None):
            _refuse("the cache must be used with the model that it was made for", f"another {type(module).__name__}")
        inputs = next((given[n] for n in ("input_ids", "inputs_embeds", "decoder_input_ids", "decoder_inputs_embeds")
                       if given.get(n) is not None and (n.startswith("decoder") or not module.config.is_encoder_decoder)), None)
        if inputs is None:
            _refuse("the model must be called with input_ids or inputs_embeds", "neither")
        if given.get("use_cache") is False or (given.get("use_cache") is None and not getattr(module.config, "use_cache", True)):
            _refuse("use_cache must be True in a call with a cache, and in the model's config unless the call says so", False)
        if not self.tap.is_whole(self.model):
            if self.model.__dict__.get(TAP) is self.tap:
                remove_tap(self.model)
            self.tap = tap_of(self.model)
        if self.mapped is not self.tap.by_distance:
            if self.tokens.end:
                _refuse("the model must keep its distance map, or be without one, while keys are in the cache", "a change")
            self.mapped = self.tap.by_distance
            self._check_model()
        running = Session(self, int(inputs.shape[1]))  # type: ignore[union-attr]
        name = "decoder_attention_mask" if module.config.is_encoder_decoder else "attention_mask"
        mask = given.get(name)
        if mask is None or (isinstance(mask, torch.Tensor) and mask.dim() == 2):
            running.visible = None if mask is None else mask[:, -running.queries:]
            made = self.tokens.mask(mask, running.queries)
            given = given if made is None else {**given, name: made}
        return running, given

    def _running(self) -> Session:
        running = session()
        if running is None or running.cache is not self:
            raise ValueError("[hf KeyCache] the cache must be an argument of its model's forward or generate. A model that was copied, or from "
                             "which restore(model) took posenc, needs a new cache")
        return running

    def _arrive(self, running: Session, batch: int) -> None:
        """Positions and sinks of a forward's tokens, at its first layer."""
        if running.written:
            return
        running.written = True
        if running.positions is None and self.tokens.positions.data is not None:
            _refuse("the model must rotate by the modules that it had before", "none")
        if running.positions is not None:
            if running.positions.shape[-1] != running.queries:
                _refuse(f"position_ids must be {running.queries}, as many as tokens", running.positions.shape[-1])
            self.tokens.keep(running.positions, batch)
        running.arrivals = self.tokens.arrivals(running.visible, batch, running.queries)

    def _commit(self, running: Session) -> None:
        """The forward is done: its tokens are in the cache."""
        if not running.written:
            return
        tokens = self.tokens
        if running.arrivals is not None:
            index, new = running.arrivals
            tokens.sink_index = index
            tokens.place_sinks(new)
        if tokens.index is not None:
            tokens.index = torch.cat([tokens.index, torch.arange(tokens.seen, tokens.seen + running.queries)])
        tokens.add(running.queries, running.queries)

    def _rows(self, running: Session | None, place: Place, low: int) -> Rows:
        """Of all tokens from `low` on, where they are."""
        kept = {} if running is None else running.rows
        key = (place.path, place.more, low)
        if key not in kept:
            kept[key] = self.encodings.rows(place, self.tokens.positions.view(low, self.tokens.end))
        return kept[key]

    def _sink_rows(self, running: Session, place: Place) -> Rows:
        """For the copies of the sinks."""
        key = (place.path, place.more, "sinks")
        if key not in running.rows:
            rows = self.encodings.rows(place, self.tokens.sinks_at(self.positions))
            running.rows[key] = rows if self.keeps_raw else between(self.encodings.rows(place, self.tokens.sink_positions), rows)
        return running.rows[key]

    # What transformers asks

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Tokens that were seen, dropped ones included. During the forward of a model without rotation: keys that are there."""
        if self.tokens.slots == self.tokens.seen or self._rotates or self.learned:
            return self.tokens.seen
        end_stale_session()
        return self.tokens.seen if session() is None else self.tokens.slots

    def get_query_offset(self, layer_idx: int = 0) -> int:
        """The slot of the next token."""
        return self.tokens.slots

    def get_max_length(self, layer_idx: int | None = None) -> int:
        """No limit."""
        return -1

    def crop(self, tokens_to_remove: int) -> None:
        """Takes the last tokens back: -n of them."""
        tokens, n = self.tokens, -whole("tokens_to_remove", tokens_to_remove)
        if n < 0 or n > tokens.end:
            _refuse(f"crop must remove 0 to {tokens.end} tokens, by a number of at most 0", tokens_to_remove)
        if n and tokens.dropping:
            _refuse("crop requires a cache whose window has dropped no token", f"{tokens.start} dropped")
        for layer in self._own_layers:
            if n and layer.is_initialized and layer.sliding is not None and tokens.window is None and layer._k.base > max(0, tokens.end - n - layer.sliding + 1):
                _refuse("crop requires tokens that a sliding layer still has; call activate_past_recording() before", f"layer {self.layers.index(layer)}")
        tokens.end -= n
        tokens.seen -= n
        if tokens.index is not None:
            tokens.index = tokens.index[:tokens.end]
        if n and tokens.sink_index is not None:
            tokens.sink_index = tokens.sink_index.masked_fill(tokens.sink_index >= tokens.end, -1)

    def reset(self) -> None:
        """Empties the cache."""
        self.tokens = Tokens(self.tokens.sinks, self.tokens.window)
        self.encodings, self.moved = Encodings(self), 0
        for layer in self.layers:
            layer.reset()

    def _select(self, rows: Tensor) -> None:
        for layer in self._own_layers:
            layer.select(rows)
        self.tokens.select(rows)

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """The sequences of the next step of a beam search."""
        self._select(beam_idx.to("cpu"))

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Each sequence `repeats` times."""
        batch = next((x._k.data.shape[0] for x in self._own_layers if x.is_initialized), 0)
        self._select(torch.arange(batch).repeat_interleave(repeats))

    def batch_select_indices(self, indices: Tensor) -> None:
        """Only these sequences stay."""
        if indices.dtype is torch.bool:
            indices = indices.nonzero().flatten()
        self._select(indices)

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError("[hf KeyCache] a cache belongs to its model and must not be pickled or copied by copy.copy; use save or fork")

    def __deepcopy__(self, memo: Any) -> KeyCache:
        return self.fork()

    # Keys that move

    def fork(self) -> KeyCache:
        """Another cache with the same tokens. Memory is shared until one of the two writes."""
        other = KeyCache.__new__(KeyCache)
        other.__dict__.update(self.__dict__)
        other.tokens, other.encodings = self.tokens.fork(), self.encodings.fork(other)
        other.layers = [x.fork(other) if isinstance(x, KeyLayer) else x for x in self.layers]
        return other

    def _whole(self, what: str) -> None:
        """An operation on slots needs all layers to have the same ones."""
        end_stale_session()
        if session() is not None:
            _refuse(f"{what} must be called between two calls of the model", "a running one")
        for i, layer in enumerate(self.layers):
            if isinstance(layer, KeyLayer) and layer.dropped:
                _refuse(f"{what} requires layers that have all tokens", f"layer {i}, which slides over {layer.sliding} and has dropped {layer.dropped}")

    def _placed(self, what: str) -> list[KeyLayer]:
        """Layers with rotated keys, all of which posenc knows how to move."""
        if self.tap.unknown:
            layer, why = next(iter(self.tap.unknown.items()))
            _refuse(f"{what} requires a rotation that posenc recognises", f"{layer}: {why}")
        for i, one in enumerate(self.layers):
            if isinstance(one, KeyLayer) and one.unplaced:
                _refuse(f"{what} requires keys as the rotation leaves them", f"layer {i}: {one.unplaced}")
        return [x for x in self._own_layers if x.place is not None]

    def _range(self, what: str, start: int, stop: int | None) -> tuple[int, int]:
        """Numbers of the tokens in slots."""
        tokens = self.tokens
        start, stop = whole("start", start), tokens.slots if stop is None else whole("stop", stop)
        if not 0 <= start < stop <= tokens.slots:
            _refuse(f"{what} must name tokens among the {tokens.slots} in the cache, from start to before stop", f"start {start}, stop {stop}")
        if tokens.dropping and start < tokens.sinks:
            _refuse(f"{what} must name tokens of the window, from slot {tokens.sinks} on, since sinks stay and follow it", f"start {start}")
        return start + tokens.start, stop + tokens.start

    def _copy_sinks(self) -> None:
        """Sinks that are still among the others changed with them."""
        new = self.tokens.sinks_in_memory()
        if new is None or not bool(new.any()):
            return
        for layer in self._own_layers:
            if layer.is_initialized:
                layer.copy_sinks(self.tokens.sink_index, new)
        self.tokens.place_sinks(new)

    def evict(self, start: int, stop: int | None = None) -> None:
        """Drops the tokens in slots start to stop - 1. With positions="slots" the tokens before them are moved, so that no gap
        stays; with "stream" all others keep their positions. Of a cache with a window, slots are the sinks, which cannot be
        dropped, and then the window, which grows again by new tokens."""
        start, stop = self._range("evict", start, stop)
        self._whole("evict")
        if self.tokens.meets_sinks(start, stop):
            _refuse("evict must spare the sinks of each row, and what lies between them", f"start {start}, stop {stop}")
        if self.positions == "slots" and self.learned:
            _refuse('positions="slots" requires positions in the keys or scores; use positions="stream"', f"positions at the input, {self.learned}")
        if self.positions == "stream" and not self._rotates and not self.learned:
            _refuse('positions must be "slots" for a model whose scores count the keys that are there', "stream")
        tokens = self.tokens
        low = tokens.first_in_window if tokens.dropping else 0
        if self.positions == "slots" and start > low and (self._placed("evict") or self.mapped):
            first = tokens.positions.view(start, start + 1)
            after = tokens.positions.view(stop, stop + 1) if stop < tokens.end else tokens.positions.view(tokens.end - 1, tokens.end) + 1
            self._move(low, start, tokens.positions.view(low, start) + (after - first))
        for layer in self._own_layers:
            for strip in (layer._k, layer._v, layer.raw):
                if strip.data is not None:
                    strip.remove(start, stop, tokens.end)
            layer.mapped.remove(start, stop)
        tokens.remove(start, stop)
        self._copy_sinks()

    def shift(self, delta: int | Sequence[int], start: int = 0, stop: int | None = None) -> None:
        """Moves the tokens in slots start to stop - 1 by `delta` positions: one number, or one for each axis. New tokens keep the
        positions that generate or the caller counts."""
        start, stop = self._range("shift", start, stop)
        self._whole("shift")
        if not self._placed("shift") and not self.mapped:
            _refuse("shift requires a model that rotates its keys", type(self.model).__name__)
        axes = self.tokens.positions.data.dim() - 1
        try:
            by = torch.as_tensor(delta)
        except (TypeError, ValueError, RuntimeError, OverflowError):
            by = torch.zeros((), dtype=torch.float64)
        if by.is_floating_point() or by.dim() > 1 or (by.dim() == 1 and (axes == 1 or len(by) != self.tokens.positions.data.shape[0])):
            _refuse("delta must be a whole number, or one for each axis of the positions", delta)
        self._move(start, stop, self.tokens.positions.view(start, stop) + (by[:, None, None] if by.dim() else by))
        self._copy_sinks()

    def _move(self, start: int, stop: int, new: Tensor) -> None:
        """Gives tokens other positions."""
        tokens = self.tokens
        if not 0 <= (most := int(new.abs().max())) <= 2**37:
            _refuse("positions must be at most 2^37", most)
        old = tokens.positions.view(start, stop).clone()
        rows: dict[Any, Rows] = {}
        for layer in self._placed("a move"):
            place = layer.place
            assert place is not None
            if self.keeps_raw:
                layer.stale = True
                continue
            key = (place.path, place.more)
            if key not in rows:
                rows[key] = between(self.encodings.rows(place, old), self.encodings.rows(place, new))
            layer.turn(start, stop, rows[key])
        tokens.positions.own()
        tokens.positions.view(start, stop).copy_(new)
        self.moved += bool(rows)

    def append(self, other: KeyCache, at: int | None = None) -> None:
        """Adds the tokens of another cache of this model behind those that are here, their first at position `at`; by default
        behind the last one. The other cache stays as it is."""
        if not isinstance(other, KeyCache):
            _refuse("other must be a KeyCache", type(other).__name__)
        if len(other.layers) != len(self.layers) or other.tokens.end == 0:
            _refuse(f"other must have tokens in {len(self.layers)} layers", f"{other.tokens.end} in {len(other.layers)}")
        self._whole("append")
        other._whole("append")
        if other.tokens.dropping:
            _refuse("append requires another cache that has all its tokens", f"{other.tokens.floor} dropped by its window")
        if self.tokens.sinks and (self.tokens.sink_index is None or bool((self.tokens.sink_index < 0).any())):
            _refuse("append requires a cache that has its sinks", f"{self.tokens.end} tokens")
        from ._cache_append import append

        append(self, other, at)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes keys, values, positions and what rotated them to a .safetensors file; an earlier file is replaced at the end."""
        from ._cache_file import save

        save(self, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str], model: torch.nn.Module) -> KeyCache:
        """The cache of a file, for the model that computed it. Rejects files of other programs, of other weights and, unless its
        keys are unrotated, of another rotation."""
        from ._cache_file import load

        return load(cls, path, model)
