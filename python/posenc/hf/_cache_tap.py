# SPDX-License-Identifier: Apache-2.0
"""What a cache sees of a model's forward: the rows of each rotation, what was rotated by them, and where tokens come from.

Hooks and bound methods stand in the instances of one model. Without a KeyCache among the arguments of its forward they do nothing.
"""
from __future__ import annotations

import contextvars
import functools
import inspect
import sys
import types
from collections import deque
from typing import TYPE_CHECKING, Any, Callable, Iterator, NamedTuple

import torch
from transformers import EncoderDecoderCache

from ._cache_rows import Encoding, Place, Rows, TableEncoding, arguments, has_table, in_output_order, made_of, makes_rows
from ._distance_map import UNROTATED
from ._probe import Form, Function, probe
from ._rotation import _methods, _wanted, decorated_again

if TYPE_CHECKING:
    from torch import Tensor

    from ._cache import KeyCache

TAP = "_posenc_tap"
_session: contextvars.ContextVar[Session | None] = contextvars.ContextVar("posenc_session", default=None)


class Made(NamedTuple):
    """Rows that the model has."""

    cos: Any  # None: a layer reads them from its table
    path: str
    more: tuple[tuple[str, Any], ...]
    positions: Any


class Turned(NamedTuple):
    """One rotation: k before and after, [batch, heads, tokens, channels]."""

    before: Any  # None unless the cache keeps it
    after: Any
    cos: Any
    form: Form


class Session:
    """One forward of a model with a cache."""

    def __init__(self, cache: KeyCache, queries: int) -> None:
        self.cache, self.queries = cache, queries
        self.made: list[Made] = []
        self.turned: deque[Turned] = deque(maxlen=4)
        self.rows: dict[Any, Rows] = {}  # made once for all layers
        self.visible: Any = None  # [batch, queries] of a mask of two axes
        self.arrivals: Any = None  # of sinks
        self.written = False
        self.frame: Any = None  # of the call
        self.depth = 0
        self.token: Any = None

    @property
    def positions(self) -> Any:
        """[batch or 1, tokens], [axes, batch or 1, tokens], or None: the model rotates nothing."""
        return self.made[0].positions if self.made else None

    def exact(self, path: str, module: Any, positions: Any, more: tuple[tuple[str, Any], ...], made: Any) -> Any:
        """The rows of a rotary module, with phases in double, in the dtype that it made them in."""
        if positions is None or not isinstance(made, tuple) or len(made) != 2 or not all(isinstance(m, torch.Tensor) for m in made):
            return made
        if "embed_positions" in module._buffers:  # GPT-J and CodeGen of transformers 5.24, sine first
            self.by_table(path, module, positions, made[1])
            return made
        encoding = self.cache.encodings.now(path, module, Encoding)
        if self.cache.encodings.trusted(path, module, more, positions):
            cos, sin = encoding.rows(positions, more)
            made = cos.to(made[0].dtype), sin.to(made[1].dtype)
        self.made.append(Made(made[0], path, more, positions))
        return made

    def by_table(self, path: str, module: Any, positions: Tensor, cos: Any = None) -> None:
        """Rows of a module's own table."""
        self.cache.encodings.now(path, module, TableEncoding)
        self.made.append(Made(cos, path, (), positions))

    def locate(self, key: Tensor, value: Tensor, before: Place | None) -> tuple[Place, Turned] | None:
        """Where the rotated channels are in what a layer hands to the cache, first where they were before; None: nowhere."""
        ways = ((key, False), (value, True)) if before is None or not before.in_values else ((value, True), (key, False))
        for turned in reversed(self.turned):
            if turned.after.shape[2] != key.shape[2] or turned.after.shape[0] != key.shape[0]:
                continue
            found = self._in(turned, *ways[0], before) or self._in(turned, *ways[1], None)
            if found is not None:
                self.turned.clear()
                return found, turned
        return None

    def _in(self, turned: Turned, x: Tensor, in_values: bool, before: Place | None) -> Place | None:
        width = turned.after.shape[-1]
        if width > x.shape[-1] or turned.after.shape[1] not in (1, x.shape[1]) or turned.after.dtype is not x.dtype:
            return None
        for offset in dict.fromkeys(((0,) if before is None else (before.offset, 0)) + (x.shape[-1] - width,)):
            if torch.equal(x[..., offset:offset + width], turned.after.expand(-1, x.shape[1], -1, -1)):
                made = made_of(turned.cos, self.made)
                return None if made is None else Place(in_values, offset, width, turned.form, made.path, made.more)
        return None


def session() -> Session | None:
    """The forward that runs."""
    return _session.get()


def end_stale_session() -> None:
    """Ctrl-C calls no hook: a session whose call is not on the stack is over."""
    running, frame = session(), sys._getframe()
    if running is None:
        return
    while frame is not None and frame is not running.frame:
        frame = frame.f_back  # type: ignore[assignment]
    if frame is None:
        _session.set(None)


def _cache_in(args: tuple[Any, ...], given: dict[str, Any]) -> KeyCache | None:
    from ._cache import KeyCache

    for x in (*args, *given.values()):
        x = x.self_attention_cache if isinstance(x, EncoderDecoderCache) else x
        if isinstance(x, KeyCache):
            return x
    return None


def _begin(module: Any, args: tuple[Any, ...], given: dict[str, Any]) -> Any:
    cache = _cache_in(args, given)
    if cache is None:
        return None
    end_stale_session()
    running = session()
    if running is not None and running.cache is cache:
        running.depth += 1
        return None
    names = list(inspect.signature(type(module).forward).parameters)[1:]
    named = {**dict(zip(names, args)), **given}
    new, named = cache._begin(module, named)
    new.frame, new.token = sys._getframe(1), _session.set(new)
    args = tuple(named.pop(n) for n in names[:len(args)])
    return args, named


def _end(module: Any, args: Any, given: Any, made: Any) -> None:
    running = session()
    if running is None or _cache_in(args, given) is not running.cache:
        return
    if running.depth:
        running.depth -= 1
        return
    _session.reset(running.token)
    running.frame = None
    if made is not None:
        running.cache._commit(running)


def _rows_hook(path: str, module: Any, args: tuple[Any, ...], given: dict[str, Any], made: Any) -> Any:
    running = session()
    if running is None:
        return None
    return running.exact(path, module, *arguments(module, args, given), made)


def _table_hook(path: str, module: Any, args: tuple[Any, ...], given: dict[str, Any]) -> None:
    running = session()
    if running is not None and given.get("position_ids") is not None:
        running.by_table(path, module, given["position_ids"])


def _recorded(function: Callable[..., Any], found: Function) -> Callable[..., Any]:
    """The function, which says to the cache what it rotated."""
    roles = found.roles
    role = "k" if "k" in roles else "q"

    @functools.wraps(function)
    def recorded(*a: Any, **kw: Any) -> Any:
        running = session()
        if running is None or torch.compiler.is_compiling():
            return function(*a, **kw)
        given, layout = found.read(a, kw)
        x, cos = given[role], given["cos"]
        form = found.form(x.shape[-1], cos.shape[-1])
        if form is None or x.dim() != 4 or layout not in ("bhtd", "bthd"):
            return function(*a, **kw)
        before = in_output_order(x, form, cos.shape[-1]).clone() if running.cache.keeps_raw else None
        made = function(*a, **kw)
        after = made[roles.index("k")] if role == "k" else made
        if layout == "bthd":
            before, after = None if before is None else before.transpose(1, 2), after.transpose(1, 2)
        running.turned.append(Turned(before, after, cos, form))
        return made

    return recorded


class Tap:
    """What was put into one model, and what the cache must know of its layers. It stands in the model."""

    def __init__(self, model: torch.nn.Module) -> None:
        self.unknown: dict[str, str] = {}  # layers that rotate by something else, and why
        self.rotates = False
        self.by_distance = False  # the attention rotates, by a distance map
        self.sources: list[tuple[str, Any]] = []  # modules that make rows, by path
        self.handles: list[Any] = []
        self.bound: list[tuple[Any, str, Any]] = []
        base = getattr(model, "base_model", None)
        for root in {id(m): m for m in (model, base) if isinstance(m, torch.nn.Module)}.values():
            self.handles.append(root.register_forward_pre_hook(_begin, with_kwargs=True))
            self.handles.append(root.register_forward_hook(_end, with_kwargs=True, always_call=True))
        for path, module in decoder_modules(model):
            if makes_rows(module):
                self.sources.append((path, module))
                self.handles.append(module.register_forward_hook(functools.partial(_rows_hook, path), with_kwargs=True, prepend=True))
            if has_table(module):
                self.handles.append(module.register_forward_pre_hook(functools.partial(_table_hook, path), with_kwargs=True))
            for name, method in _methods(type(module)):
                self._bind(path, module, name, method)

    def _bind(self, path: str, module: Any, name: str, method: types.FunctionType) -> None:
        own = module.__dict__.get(name)  # accelerate's, whose globals are its own
        now = getattr(own, "__func__", method)
        if own is not None and not isinstance(own, types.MethodType):
            return
        body = inspect.unwrap(now)
        new: dict[str, Any] = {}
        for g in _wanted(inspect.unwrap(method)):
            if getattr(body.__globals__.get(g), UNROTATED, False):
                self.by_distance = True
                continue
            found = probe(inspect.unwrap(method).__globals__[g])
            if isinstance(found, str):
                self.unknown[path] = f"{g} {found}"
            else:
                new[g] = _recorded(body.__globals__[g], found)
        if not new:
            return
        copied = types.FunctionType(body.__code__, {**body.__globals__, **new}, body.__name__, body.__defaults__, body.__closure__)
        copied.__kwdefaults__ = body.__kwdefaults__
        copied.__dict__.update(body.__dict__)
        copied.__qualname__ = body.__qualname__
        again = decorated_again(now, copied)
        if again is None:
            self.unknown[path] = f"{name} is decorated in another way than torch.no_grad is"
            return
        self.rotates = True
        self.bound.append((module, name, own))
        module.__dict__[name] = types.MethodType(again, module)

    def is_whole(self, model: torch.nn.Module) -> bool:
        """Whether no module that makes rows was replaced since."""
        return model.__dict__.get(TAP) is self and all(model.get_submodule(path) is module for path, module in self.sources)

    def remove(self) -> None:
        """Takes all of it back."""
        for handle in self.handles:
            handle.remove()
        for module, name, own in self.bound:
            if own is None:
                module.__dict__.pop(name, None)
            else:
                module.__dict__[name] = own


def tap_of(model: torch.nn.Module) -> Tap:
    """The tap of a model, put in where there is none."""
    tap: Tap | None = model.__dict__.get(TAP)
    if tap is None:
        tap = model.__dict__[TAP] = Tap(model)
    return tap


def remove_tap(model: torch.nn.Module) -> bool:
    """Takes a tap out. Whether there was one."""
    found = [m for m in model.modules() if TAP in m.__dict__]
    for module in found:
        module.__dict__.pop(TAP).remove()
    return bool(found)


def decoder_modules(model: torch.nn.Module) -> Iterator[tuple[str, Any]]:
    """Modules of the part that generates text, with their paths in the model; towers of images and sound are not among them."""
    get: Any = getattr(model, "get_decoder", None)
    try:
        decoder = get() if get is not None else model
    except (AttributeError, NotImplementedError):
        decoder = model
    top = next((path for path, m in model.named_modules() if m is decoder), "")
    inside = top + "." if top else ""
    return ((path, m) for path, m in model.named_modules() if path == top or path.startswith(inside))


def learned_positions(model: torch.nn.Module) -> Iterator[str]:
    """Paths of modules that add positions to the input."""
    words = ("wpe", "embed_positions", "position_embedding", "position_embeddings", "pos_embed", "positions_embed")
    for path, _ in decoder_modules(model):
        if path.rpartition(".")[2] in words:
            yield path
