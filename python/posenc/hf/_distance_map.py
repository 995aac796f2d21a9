# SPDX-License-Identifier: Apache-2.0
"""Attention of a whole model by a distance map: Self-Extend (arXiv:2401.01325), ReRoPE (kexue.fm/archives/9708), dual chunk
(arXiv:2402.17463).

The model's rotations return q and k unchanged, so caches store keys without a rotation. The attention rotates q and k by the
positions of each region. The positions of cached keys are stored with the cache. KeyCache also has a rotated copy of the keys for steps
with few tokens.
"""
from __future__ import annotations

import contextvars
import inspect
from typing import TYPE_CHECKING, Any, Callable, Iterator, NamedTuple

import torch
from transformers import Cache, EncoderDecoderCache
from transformers.cache_utils import DummyLayer

import posenc

from ._cache_rows import Encoding, Rows, arguments, computes, made_of, makes_rows
from ._kept import hook, hook_after, put
from ._map_gradients import Attend
from ._map_regions import DistanceMap, one_axis, refuse, regions_of
from ._map_steps import Steps, orders
from ._probe import Form, Function
from ._report import Calls
from ._rotation import _methods, _wanted

if TYPE_CHECKING:
    from torch import Tensor

    from ._report import Report

MAP = "_posenc_distance_map"  # an attribute of each layer
UNROTATED = "_posenc_unrotated"  # marks functions that return q and k unchanged
_ROTARY = "_posenc_rotary"
SEEN = "_posenc_positions"  # an attribute of a cache


class Rotary:
    """What one rotary module computes now, and plans of it. An attribute of the module."""

    def __init__(self) -> None:
        self.encoding: Encoding | None = None
        self.plans: dict[Any, posenc.RotaryPlan] = {}

    def __deepcopy__(self, memo: Any) -> Rotary:
        return Rotary()

    def __reduce__(self) -> Any:
        return Rotary, ()

    def now(self, module: Any) -> None:
        """Follows a change of the module."""
        if self.encoding is None or not self.encoding.is_of(module):
            self.encoding, self.plans = Encoding(module), {}


class Made(NamedTuple):
    """Rows of one call of a rotary module."""

    module: Any
    cos: Any
    more: tuple[tuple[str, Any], ...]
    positions: Any  # [batch or 1, tokens]
    version: int  # of positions


class Turned(NamedTuple):
    """What a layer would have rotated: [batch, heads, tokens, channels]."""

    x: Any
    cos: Any
    form: Form


class Call:
    """One call of a layer."""

    def __init__(self, module: Any, cache: Any) -> None:
        self.module, self.cache = module, cache
        at = getattr(module, "layer_idx", None) or 0
        own = cache is not None and at < len(cache.layers) and type(cache.layers[at]) is not DummyLayer  # others have the keys of another layer
        self.past = 0 if cache is None else int(cache.get_seq_length(at if own else 0))
        self.own = cache.layers[at] if own else None
        self.turned: dict[str, Turned] = {}  # by role


_call: contextvars.ContextVar[Call | None] = contextvars.ContextVar("posenc_map_call", default=None)
_made: contextvars.ContextVar[tuple[Made, ...]] = contextvars.ContextVar("posenc_map_rows", default=())


def _enter(module: Any, args: Any, given: Any) -> None:
    """Before a layer."""
    caches = (x.self_attention_cache if isinstance(x, EncoderDecoderCache) else x for x in (*args, *given.values()))
    _call.set(Call(module, next((x for x in caches if isinstance(x, Cache)), None)))


def _leave(module: Any, args: Any, given: Any, made: Any) -> None:
    """Behind a layer."""
    _call.set(None)


def _rows(module: Any, args: Any, given: Any, made: Any) -> None:
    """Behind a rotary module."""
    positions, more = arguments(module, args, given)
    if positions is not None and isinstance(made, tuple) and len(made) == 2:
        module.__dict__[_ROTARY].now(module)
        positions = one_axis(positions)
        new = Made(module, made[0], more, positions, 0 if positions.is_inference() else positions._version)
        _made.set((*_made.get()[-3:], new))


def unrotated(found: Function, calls: Calls) -> Callable[..., Any]:
    """A function in place of one that rotates: it returns q and k unchanged and records the call."""
    def kept(*a: Any, **kw: Any) -> Any:
        if torch.compiler.is_compiling() or torch.onnx.is_in_onnx_export():
            refuse("a model with a distance map must run without torch.compile and export", "a graph")
        given, layout = found.read(a, kw)
        xs, cos = {r: given[r] for r in ("q", "k") if r in given}, given["cos"]
        form, call = found.form(given["q"].shape[-1], cos.shape[-1]), _call.get()
        if form is None or call is None or layout not in ("bhtd", "bthd") or any(x.dim() != 4 for x in xs.values()):
            refuse("distance_map requires a rotation of [batch, heads, tokens, channels] inside of the attention layer",
                   f"{calls.what} of {list(given['q'].shape)}")
        for role, x in xs.items():
            role = "k" if role == "q" and "k" not in xs and "q" in call.turned else role  # one after the other
            call.turned[role] = Turned(x if layout == "bhtd" else x.transpose(1, 2), cos, form)
        calls.taken += 1
        return tuple(xs.values()) if "k" in xs else given["q"]

    setattr(kept, UNROTATED, True)
    return kept


class Seen:
    """Positions of all tokens of one cache, [batch or 1, tokens]."""

    def __init__(self) -> None:
        self.data: Any = None
        self.last: Any = None

    def with_new(self, past: int, made: Made) -> Any:
        """Those of `past` tokens and of the new ones, which all layers of one forward share."""
        new, queries = made.positions, made.positions.shape[-1]
        if self.last is not None and self.last[0] is new and self.last[1:] == (made.version, past) and self.data.shape[-1] == past + queries:
            return self.data
        have = 0 if self.data is None else self.data.shape[-1]
        if have < past:
            refuse("all keys of a cache must be of this model with its distance map", f"{past} tokens, of which {have} are")
        new = new.detach().clone()
        if past:
            batch = max(new.shape[0], self.data.shape[0])
            if {new.shape[0], self.data.shape[0]} - {1, batch}:
                refuse(f"a cache must keep its batch of {self.data.shape[0]} under a distance map", new.shape[0])
            new = torch.cat([self.data[:, :past].expand(batch, -1), new.expand(batch, -1)], 1)
        if new.shape[0] > 1 and bool((new == new[:1]).all()):
            new = new[:1]
        self.data, self.last = new, (made.positions, made.version, past)
        return self.data

    def __deepcopy__(self, memo: Any) -> Seen:
        other = Seen()
        other.data = self.data  # never written
        return other


class Layers:
    """The distance map of one model."""

    def __init__(self, distance_map: DistanceMap) -> None:
        self.map = distance_map
        self._last: Any = None  # positions, and the regions of them
        self.steps = Steps(distance_map)

    def __deepcopy__(self, memo: Any) -> Layers:
        return Layers(self.map)

    def __reduce__(self) -> Any:
        return Layers, (None,)  # a model that is unpickled has its class's own attention

    def attend(self, module: Any, query: Tensor, key: Tensor, value: Tensor, why: str, options: Callable[[], dict[str, Any]]) -> Tensor | None:
        """The output [batch, tokens, heads, channels]; None: the layer rotates nothing. Tensors are [batch, heads, tokens, channels]; why:
        a reason against posenc's attention; options: makes further arguments of `posenc.attend`."""
        call = _call.get()
        if call is None or call.module is not module or not call.turned:
            return None
        if why:
            refuse("distance_map requires attention that posenc computes", why)
        made, rotation = self._rotation(call, query, key)
        new = made.positions
        places = one_axis(self._positions(call, made)[..., -key.shape[2]:])
        if places.dim() != 2 or new.dim() != 2:
            refuse("distance_map requires positions that are equal on all axes, as those of text are", f"others on {max(new.shape[0], places.shape[0])} axes")
        if places.shape[-1] != key.shape[2]:
            refuse(f"a cache must keep all {places.shape[-1]} keys in order under a distance map", key.shape[2])
        q, k, v = (x.transpose(1, 2) for x in (query, key, value))
        more, regions = options(), self._regions(new, places)
        for name in ("bias", "visible", "key_visible"):
            if torch.is_grad_enabled() and getattr(more.get(name), "requires_grad", False):
                refuse("a mask must not require a gradient under a distance map", name)
        if more.get("causal") and bool((places[:, 1:] <= places[:, :-1]).any()):  # padding, or tokens that moved
            orders(more, query.shape[2], key.shape[2])
        more.update(query_positions=new, key_positions=places)
        if not torch.is_grad_enabled() or not any(x is not None and x.requires_grad for x in (q, k, v, more["sink"])):
            with torch.no_grad():
                out = self.steps.attend(call.own, rotation, regions, (q, k, v), more)
            if out is not None:
                return out
        more["regions"] = [{**r, "rotation": rotation} for r in regions]
        return Attend.apply(more, q, k, v, more.pop("sink"))  # type: ignore[no-any-return]

    def _rotation(self, call: Call, query: Tensor, key: Tensor) -> tuple[Made, posenc.RotaryPlan]:
        """The rows that the layer would have rotated by, and a plan that computes them."""
        asked = call.turned.get("k", call.turned["q"])
        made = made_of(asked.cos, _made.get())
        offsets = [_offset(call.turned[r], x) for r, x in (("q", query), ("k", key[:, :, -query.shape[2]:])) if r in call.turned]
        if made is None or len(offsets) != 2 or offsets[0] is None or offsets[0] != offsets[1]:
            refuse("distance_map requires q and k as the rotation leaves them, keys in their order, and a rotary module that makes the rows",
                   f"others in {type(call.module).__name__}")
        key_of = (made.more, asked.form, query.shape[-1], offsets[0], key.dtype)
        rotary: Rotary = made.module.__dict__[_ROTARY]
        if key_of not in rotary.plans:
            rotary.plans[key_of] = _plan(rotary, made, asked, query.shape[-1], offsets[0], key.dtype)
        return made, rotary.plans[key_of]

    def _positions(self, call: Call, made: Made) -> Tensor:
        from ._cache import KeyCache

        cache = call.cache
        if cache is None:
            return made.positions  # type: ignore[no-any-return]
        if isinstance(cache, KeyCache):
            return cache.tokens.places(made.positions.shape[-1], cache.positions)
        seen: Seen = cache.__dict__.setdefault(SEEN, Seen())
        return seen.with_new(call.past, made)  # type: ignore[no-any-return]

    def _regions(self, new: Tensor, places: Tensor) -> list[dict[str, Any]]:
        """Of the map, with tensors [batch or 1, tokens]; those of the last call are kept for the next layer."""
        last = self._last
        if last is None or last[0].shape != new.shape or last[1].shape != places.shape or not torch.equal(last[0], new) or not torch.equal(last[1], places):
            batch = max(new.shape[0], places.shape[0])
            pairs = list(zip(new.expand(batch, -1).tolist(), places.expand(batch, -1).tolist()))
            last = self._last = (new.clone(), places.clone(), regions_of(self.map, pairs))
        return last[2]  # type: ignore[no-any-return]


def _offset(turned: Turned, x: Tensor) -> int | None:
    """Where the channels of a rotation stand in those of a head; None: nowhere."""
    width = turned.x.shape[-1]
    if turned.x.shape[1] not in (1, x.shape[1]) or turned.x.shape[2] != x.shape[2] or width > x.shape[-1]:
        return None
    want = turned.x.expand(-1, x.shape[1], -1, -1)
    return next((o for o in dict.fromkeys((0, x.shape[-1] - width)) if _same(x[..., o:o + width], want)), None)


def _same(a: Tensor, b: Tensor) -> bool:
    """Equal numbers, or NaN in both."""
    return torch.equal(a, b) or torch.allclose(a, b, rtol=0, atol=0, equal_nan=True)


def _pairs(rows: Rows, form: Form) -> Iterator[Tensor]:
    """Cosine and sine [tokens, pairs] of rows [1, tokens, columns]."""
    for x in rows:
        x = x[0, :, : x.shape[-1] // 2] if form.first or form.columns == "duplicated" else x[0]
        yield x[:, ::2] if form.columns == "repeated" else x


def _plan(rotary: Rotary, made: Made, asked: Turned, channels: int, offset: int, dtype: torch.dtype) -> posenc.RotaryPlan:
    """The plan of the module's frequencies, read from its rows and compared with them."""
    assert rotary.encoding is not None
    at = torch.tensor([[0, 1, 2, 5, 77, 4099]])
    try:
        if not computes(rotary.encoding, made.module, made.more, at % 8):
            raise ValueError("its rows are not those of its numbers")
        cos, sin = _pairs(rotary.encoding.rows(at, made.more), asked.form)
        gain, frequency = float(torch.hypot(cos[0], sin[0])[0]), torch.atan2(sin[1], cos[1])
        angle = at[0][:, None] * frequency
        if not torch.allclose(gain * angle.cos(), cos, rtol=0, atol=1e-9) or not torch.allclose(gain * angle.sin(), sin, rtol=0, atol=1e-9):
            raise ValueError("its rows are not cosine and sine of position times frequency")
        rope = posenc.Rope(head_dim=channels, rotary_dim=2 * len(frequency), offset=offset, pairing=asked.form.pairing)  # type: ignore[arg-type]
        return posenc.RotaryPlan(rope, str(dtype).removeprefix("torch.")).with_frequencies(frequency[None, None].numpy(), gain=gain)
    except (TypeError, ValueError, RuntimeError) as problem:
        refuse("distance_map requires a rotary module with one frequency for each pair of channels", f"{type(made.module).__name__}: {problem}")


def check_map(distance_map: Any) -> None:
    """Before the model changes: the map is a function that returns regions."""
    if not callable(distance_map):
        refuse("distance_map must be a function of query and key positions, as functools.partial(posenc.rerope, window=512) is",
               type(distance_map).__name__)
    try:
        regions_of(distance_map, [(range(2), range(2))])
    except TypeError as problem:
        raise ValueError("[hf accelerate] distance_map must accept two arguments, query and key positions, as "
                         f"functools.partial(posenc.rerope, window=512) does, got {type(problem).__name__}: {problem}") from problem


def check_model(model: torch.nn.Module, layers: dict[str, Any], report: Report) -> None:
    """After the replacement: rejects a decoder of which a layer would ignore the map."""
    rotating = [n for n in layers if n in report.rotation]
    if not rotating:
        why = next((f"{n}: {report.reasons[n]}" for n in layers if n in report.reasons), type(model).__name__)
        refuse("distance_map requires a model that rotates q and k by a function that posenc recognises", why)
    for name, module in layers.items():
        why = report.reasons.get(name, "")
        if name in report.rotation and name not in report.attentions:
            refuse("distance_map requires attention that posenc computes", f"{name}: {why or 'it rotates outside of its attention'}")
        if why and any(_wanted(inspect.unwrap(f)) for _, f in _methods(type(module))):
            refuse("distance_map requires rotations that posenc recognises", f"{name}: {why}")
    sources = [m for m in layers.values() if makes_rows(m)]
    if not sources:
        refuse("distance_map requires rotary modules that make cosine and sine from position_ids", type(model).__name__)


class Watch:
    """Behind each forward of a model: a config may say that its layers do not rotate."""

    def __init__(self, report: Report) -> None:
        self.report, self.calls = report, 0

    def __deepcopy__(self, memo: Any) -> Watch:
        return self

    def __call__(self, module: Any, args: Any, given: Any, made: Any) -> None:
        if self.report.calls == self.calls:
            refuse("distance_map requires a model that rotates q and k", f"{type(module).__name__}, which rotated nothing")
        self.calls = self.report.calls


def set_map(model: torch.nn.Module, layers: dict[str, Any], distance_map: DistanceMap, report: Report) -> None:
    """Puts the map into the layers of a decoder."""
    of_model = Layers(distance_map)
    hook_after(model, Watch(report))
    for name, module in layers.items():
        if makes_rows(module):
            put(module, _ROTARY, Rotary())
            hook_after(module, _rows)
        if name in report.rotation:
            put(module, MAP, of_model)
            hook(module, _enter)
            hook_after(module, _leave)
