# SPDX-License-Identifier: Apache-2.0
"""The keys and values of one layer, in buffers that grow by half and are handed out as views."""
from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import torch
from transformers.cache_utils import CacheLayerMixin

from ._cache_mapped import MappedKeys
from ._cache_rows import Place, Rows, turn
from ._cache_tap import Session, Turned
from ._cache_tokens import Strip

if TYPE_CHECKING:
    from torch import Tensor

    from ._cache import KeyCache


class KeyLayer(CacheLayerMixin):  # type: ignore[no-untyped-call]
    """One layer of a KeyCache. sliding: the window of the layer's own mask."""

    is_compileable = False

    def __init__(self, cache: KeyCache, sliding: int | None) -> None:
        self._owner = weakref.ref(cache)
        self.sliding = sliding
        self.is_sliding = sliding is not None
        self.record_past = False
        self.clear()

    def clear(self) -> None:
        """Drops all keys and what is known of their rotation."""
        self._k, self._v, self.raw = Strip(2), Strip(2), Strip(2)
        self.mapped = MappedKeys()
        self.sink: dict[str, Any] = {}  # originals of the sinks: keys, values, raw [batch, heads, sinks, channels]
        self.place: Place | None = None
        self.unplaced = ""  # why the rotated channels are not known
        self.stale = False  # keys are not those of raw at the present positions and encoding

    @property
    def owner(self) -> KeyCache:
        """The cache."""
        cache = self._owner()
        assert cache is not None
        return cache

    @property
    def is_initialized(self) -> bool:
        """Whether it has memory."""
        return self._k.data is not None

    @is_initialized.setter
    def is_initialized(self, value: bool) -> None:
        pass

    @property
    def keys(self) -> Any:  # type: ignore[override]
        """Of all slots, a view."""
        return self._k.view(self.low, self.owner.tokens.end) if self.is_initialized else None

    @property
    def values(self) -> Any:  # type: ignore[override]
        """Of all slots, a view."""
        return self._v.view(self.low, self.owner.tokens.end) if self.is_initialized else None

    def holds(self, keys: Tensor, queries: int) -> bool:
        """Whether these are the keys that `update` returned for so many new tokens."""
        end = self.owner.tokens.end + queries
        if not self.is_initialized or keys.shape[2] != end - self.low:
            return False
        mine = self._k.view(self.low, end)
        return keys.data_ptr() == mine.data_ptr() and keys.shape == mine.shape and keys.stride() == mine.stride()

    @property
    def low(self) -> int:
        """The first token that the next query sees."""
        tokens = self.owner.tokens
        if tokens.window is not None or self.sliding is None:
            return tokens.start
        return max(0, tokens.end - self.sliding + 1)

    @property
    def dropped(self) -> int:
        """Tokens that a sliding layer no longer has."""
        return max(self.low, self._k.base) if self.owner.tokens.window is None and self.is_initialized else 0

    @property
    def rotated(self) -> Strip:
        """The strip with the rotated channels."""
        return self._v if self.place is not None and self.place.in_values else self._k

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Memory is taken at the first update."""

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Appends the keys and values of new tokens; returns views of those that their queries see."""
        cache = self.owner
        running = cache._running()
        self._check(key_states, value_states)
        turned = self._find(running, key_states, value_states)
        tokens, queries = cache.tokens, key_states.shape[2]
        if queries != running.queries:
            raise ValueError(f"[hf KeyCache] keys must have {running.queries} tokens, as the input of the model, got {queries}")
        cache._arrive(running, key_states.shape[0])
        kept = self._k.base if self.record_past and self.is_initialized else self.low
        self.mapped.cut(tokens.end)
        self._k.write(kept, tokens.end, key_states)
        self._v.write(kept, tokens.end, value_states)
        if cache.keeps_raw and self.place is not None and turned is not None:
            self.raw.write(kept, tokens.end, turned.before.expand(-1, (self._v if self.place.in_values else self._k).data.shape[1], -1, -1))
        if running.arrivals is not None:
            self.copy_sinks(*running.arrivals)
        if self.stale:
            self._turn_all(running)
        if tokens.dropping and tokens.sinks:
            self._write_sinks(running)
        end = tokens.end + queries
        return self._k.view(self.low, end), self._v.view(self.low, end)

    def _check(self, k: Tensor, v: Tensor) -> None:
        if torch.compiler.is_compiling():
            raise ValueError("[hf KeyCache] the model must run without torch.compile")
        if torch.is_grad_enabled() and (k.requires_grad or v.requires_grad):
            raise ValueError("[hf KeyCache] keys must not require a gradient; call the model under torch.no_grad()")
        if k.device.type != "cpu":
            raise ValueError(f"[hf KeyCache] keys must be on the cpu, got {k.device.type}")
        for name, x, strip in (("keys", k, self._k), ("values", v, self._v)):
            have = strip.data
            if have is not None and (x.shape[:2] != have.shape[:2] or x.shape[3] != have.shape[3] or x.dtype is not have.dtype):
                raise ValueError(f"[hf KeyCache] {name} must be {list(have.shape[:2])} of {have.shape[3]} channels of {have.dtype}, as those in the "
                                 f"cache, got {list(x.shape[:2])} of {x.shape[3]} channels of {x.dtype}")

    def _find(self, running: Session, k: Tensor, v: Tensor) -> Turned | None:
        if self.place is None and not any(t.after.shape[0] == k.shape[0] and t.after.shape[2] == k.shape[2] for t in running.turned):
            return None  # nothing is rotated in this layer
        found = running.locate(k, v, self.place)
        if found is None:
            self.unplaced = "the keys are changed after the rotation, or its rows are not those of a rotary module"
            if self.owner._moves:
                raise ValueError(f"[hf KeyCache] {self.owner._moves} requires keys as the rotation leaves them; in layer "
                                 f"{self.owner.layers.index(self)} {self.unplaced}")
            return None
        if self.place is not None and self.place != found[0]:
            raise ValueError(f"[hf KeyCache] layer {self.owner.layers.index(self)} must rotate as before, got {found[0]}")
        self.place = found[0]
        return found[1]

    def copy_sinks(self, index: Tensor, new: Tensor) -> None:
        """Originals of the sinks, of those that are new or changed."""
        for name, strip in (("k", self._k), ("v", self._v), ("raw", self.raw)):
            if strip.data is None:
                continue
            batch, heads, _, channels = strip.data.shape
            at = (index - strip.base).clamp(min=0)[:, None, :, None].expand(batch, heads, -1, channels)
            found = strip.data.gather(2, at)
            self.sink[name] = found if name not in self.sink else torch.where(new[:, None, :, None], found, self.sink[name])

    def _write_sinks(self, running: Session) -> None:
        """Copies of the sinks into the slots before the window, moved so that the window follows them."""
        start, sinks = self.owner.tokens.start, self.owner.tokens.sinks
        self._k.view(start, start + sinks).copy_(self.sink["k"])
        self._v.view(start, start + sinks).copy_(self.sink["v"])
        if self.place is None or (self.owner.positions == "stream" and not self.owner.keeps_raw):
            return
        window = self.window(start, start + sinks)
        if self.owner.keeps_raw:
            window.copy_(self.sink["raw"])
        turn(window, self.owner._sink_rows(running, self.place), self.place.form)

    def window(self, low: int, high: int) -> Tensor:
        """The rotated channels of tokens."""
        assert self.place is not None
        return self.rotated.view(low, high)[..., self.place.offset:self.place.offset + self.place.width]

    def _turn_all(self, running: Session | None) -> None:
        """All keys anew from what they were before the rotation."""
        self.stale = False
        tokens = self.owner.tokens
        low = max(tokens.first_in_window if tokens.dropping else 0, self.low)
        if self.place is None or low == tokens.end:
            return
        self.rotated.own()
        window = self.window(low, tokens.end)
        window.copy_(self.raw.view(low, tokens.end))
        turn(window, self.owner._rows(running, self.place, low), self.place.form)

    def turn(self, low: int, high: int, rows: Rows) -> None:
        """Moves the keys of some tokens."""
        assert self.place is not None
        self.rotated.own()
        turn(self.window(low, high), rows, self.place.form)

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Keys of a call, and the slot of the first."""
        tokens = self.owner.tokens
        return tokens.end - self.low + query_length, self.low - tokens.start

    def get_seq_length(self) -> int:
        """Tokens that were seen."""
        return self.owner.get_seq_length()

    def get_max_length(self) -> int:
        """No limit."""
        return -1

    @property
    def is_croppable(self) -> bool:  # type: ignore[override]
        """Whether the last tokens can be taken back."""
        return self.owner.tokens.window is None and (self.sliding is None or self.record_past)

    def activate_past_recording(self) -> None:
        """A sliding layer keeps what leaves its window until `crop`."""
        self.record_past = self.is_sliding

    def reset(self) -> None:
        """The cache resets all layers."""
        self.clear()

    def offload(self) -> None:
        """Keys are in the memory of the CPU."""

    def prefetch(self, *args: Any) -> None:
        """Keys are in the memory of the CPU."""

    def select(self, rows: Tensor) -> None:
        """Only these sequences of the batch stay, in this order."""
        for strip in (self._k, self._v, self.raw):
            strip.rows(rows, 0)
        self.mapped.select(rows)
        self.sink = {n: x.index_select(0, rows) for n, x in self.sink.items()}

    def fork(self, cache: KeyCache) -> KeyLayer:
        """The same layer of another cache."""
        other = KeyLayer(cache, self.sliding)
        other.sink, other.place, other.unplaced, other.stale = dict(self.sink), self.place, self.unplaced, self.stale
        other.record_past = self.record_past
        other._k, other._v, other.raw, other.mapped = self._k.fork(), self._v.fork(), self.raw.fork(), self.mapped.fork()
        return other
