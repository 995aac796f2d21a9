# SPDX-License-Identifier: Apache-2.0
"""A cache in a .safetensors file, with what rotated its keys."""
from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import zlib
from typing import TYPE_CHECKING, Any

import safetensors
import torch
from safetensors.torch import save_file

from ._cache_layer import KeyLayer
from ._cache_rows import Encoding, Place, TableEncoding
from ._probe import Form

if TYPE_CHECKING:
    from ._cache import KeyCache

_FORMAT = "posenc key cache 1"


def _weights(model: torch.nn.Module) -> str:
    """A sum over some numbers of each weight: keys are of no use to a model with others."""
    total = hashlib.sha256(type(model).__name__.encode())
    for name, x in sorted(model.named_parameters()):
        flat = x.detach().flatten()
        some = flat[:: max(1, flat.numel() // 8)][:9].to("cpu", torch.float64)
        total.update(f"{name} {list(x.shape)} {x.dtype}".encode() + some.numpy().tobytes())
    return total.hexdigest()


def _sum(said: str, tensors: dict[str, Any]) -> str:
    """Of what a cache is and of all its numbers: a file that was damaged has another."""
    total = zlib.crc32(said.encode())
    for name, x in sorted(tensors.items()):
        total = zlib.crc32(f"{name} {list(x.shape)} {x.dtype}".encode(), total)
        total = zlib.crc32(x.flatten().view(torch.uint8).numpy(), total)
    return f"{total:08x}"


def _layer(layer: KeyLayer) -> dict[str, Any]:
    place = None if layer.place is None else {**layer.place._asdict(), "form": list(layer.place.form)}
    return {"place": place, "unplaced": layer.unplaced, "stale": layer.stale, "base": layer._k.base, "sliding": layer.sliding}


def save(cache: KeyCache, path: str | os.PathLike[str]) -> None:
    """Whole or not at all: it is written beside and renamed."""
    tokens = cache.tokens
    tensors: dict[str, Any] = {}
    for i, layer in enumerate(cache.layers):
        if not isinstance(layer, KeyLayer) or not layer.is_initialized:
            continue
        for name, strip in (("keys", layer._k), ("values", layer._v), ("raw", layer.raw)):
            if strip.data is not None:
                tensors[f"layers.{i}.{name}"] = strip.view(strip.base, tokens.end)
        tensors.update({f"layers.{i}.sink_{n}": x for n, x in layer.sink.items()})
    for n, x in (("index", tokens.index), ("sink_index", tokens.sink_index), ("sink_positions", tokens.sink_positions)):
        if x is not None:
            tensors[f"tokens.{n}"] = x
    if tokens.positions.data is not None:
        tensors["tokens.positions"] = tokens.positions.view(tokens.positions.base, tokens.end)
    paths = sorted(cache.encodings.known)
    for i, name in enumerate(paths):
        tensors.update({f"encodings.{i}.{n}": x for n, x in cache.encodings.known[name].tensors.items()})
    said = {"sinks": tokens.sinks, "window": tokens.window, "positions": cache.positions, "keys": "unrotated" if cache.keeps_raw else "rotated", "mapped": cache.mapped,
            "seen": tokens.seen, "end": tokens.end, "floor": tokens.floor, "base": tokens.positions.base, "moved": cache.moved,
            "layers": [_layer(x) if isinstance(x, KeyLayer) else None for x in cache.layers],
            "encodings": [{"path": p, "table": isinstance(cache.encodings.known[p], TableEncoding), "scalars": cache.encodings.known[p].scalars} for p in paths]}
    tensors = {n: x.detach().contiguous() for n, x in tensors.items()}
    text = json.dumps(said)
    head = {"format": _FORMAT, "model": type(cache.model).__name__, "weights": _weights(cache.model), "cache": text, "sum": _sum(text, tensors)}
    folder = os.path.dirname(os.path.abspath(path))
    if os.path.isdir(path) or not os.path.isdir(folder):
        raise ValueError(f"[hf KeyCache] path must be a file in a folder that exists, got {os.fspath(path)}")
    beside = os.path.join(folder, f".posenc-{secrets.token_hex(8)}")
    try:
        save_file(tensors, beside, head)
        with open(beside, "rb") as file:
            os.fsync(file.fileno())
        os.replace(beside, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(beside)
        raise


def _read(path: str | os.PathLike[str], model: torch.nn.Module) -> tuple[dict[str, Any], dict[str, Any]]:
    who = f"[hf KeyCache] {os.fspath(path)}"
    if os.path.isdir(path):
        raise ValueError(f"{who} must be a file, got a folder")
    try:
        with safetensors.safe_open(os.fspath(path), "pt") as file:
            head = file.metadata() or {}
            if head.get("format") != _FORMAT:
                raise ValueError(f'{who} must be a file that KeyCache.save wrote, got format "{head.get("format")}"')
            if head.get("model") != type(model).__name__:
                raise ValueError(f'{who} must be of the model {type(model).__name__}, got "{head.get("model")}"')
            if head.get("weights") != _weights(model):
                raise ValueError(f"{who} must be of this model's weights, got those of another one")
            tensors = {n: file.get_tensor(n) for n in file.keys()}
            found = _sum(head.get("cache", ""), tensors)
            if head.get("sum") != found:
                raise ValueError(f'{who} must have the sum of its numbers, "{head.get("sum")}", got "{found}": it is damaged')
            return json.loads(head["cache"]), tensors
    except safetensors.SafetensorError as problem:
        raise ValueError(f"{who} must be a whole .safetensors file, got {problem}") from problem


def _encodings(cache: KeyCache, said: Any, tensors: dict[str, Any]) -> None:
    modules = dict(cache.model.named_modules())
    for i, one in enumerate(said["encodings"]):
        module = modules.get(one["path"])
        if module is None:
            raise ValueError(f'[hf KeyCache] the model must have the module "{one["path"]}", which rotated the keys of the file')
        kind = TableEncoding if one["table"] else Encoding
        own = {n.removeprefix(f"encodings.{i}."): x for n, x in tensors.items() if n.startswith(f"encodings.{i}.")}
        now = kind(module)
        then = now.with_values(own, one["scalars"])
        same = then.equals(now)
        if not same and not cache.keeps_raw and not cache.mapped:
            raise ValueError(f'[hf KeyCache] the model must rotate as the file says, but the frequencies of "{one["path"]}" differ; a file of '
                             'keys="unrotated" fits any frequencies')
        cache.encodings.known[one["path"]] = now if same else then


def _strip(strip: Any, x: Any, base: int, end: int) -> None:
    if x is None:
        return
    if x.dim() <= strip.axis or x.shape[strip.axis] != end - base:
        raise TypeError(f"a tensor of {list(x.shape)} for {end - base} tokens")
    strip.data, strip.base = x, base


def load(cls: Any, path: str | os.PathLike[str], model: torch.nn.Module) -> KeyCache:
    """Rejects what does not fit before the cache has any of it."""
    said, tensors = _read(path, model)
    try:
        cache: KeyCache = cls(model, sinks=said["sinks"], window=said["window"], positions=said["positions"], keys=said["keys"])
        if said["mapped"] is not cache.mapped:
            raise ValueError(f"[hf KeyCache] {os.fspath(path)} must be of a model {'without' if said['mapped'] is False else 'with'} a distance map, as its "
                             "keys are")
        _encodings(cache, said, tensors)
        tokens = cache.tokens
        tokens.seen, tokens.end, tokens.floor, cache.moved = said["seen"], said["end"], said["floor"], said["moved"]
        for n in ("index", "sink_index", "sink_positions"):
            setattr(tokens, n, tensors.get(f"tokens.{n}"))
        _strip(tokens.positions, tensors.get("tokens.positions"), said["base"], tokens.end)
        for i, (layer, one) in enumerate(zip(cache.layers, said["layers"], strict=True)):
            if not isinstance(layer, KeyLayer) or one is None:
                continue
            place = one["place"]
            if place is not None:
                layer.place = Place(**{**place, "form": Form(*place["form"]), "more": tuple(tuple(p) for p in place["more"])})
            layer.unplaced, layer.stale = one["unplaced"], one["stale"]
            for name, strip in (("keys", layer._k), ("values", layer._v), ("raw", layer.raw)):
                _strip(strip, tensors.get(f"layers.{i}.{name}"), one["base"], tokens.end)
            layer.sink = {n: tensors[f"layers.{i}.sink_{n}"] for n in ("k", "v", "raw") if f"layers.{i}.sink_{n}" in tensors}
    except (KeyError, TypeError, AttributeError) as problem:
        raise ValueError(f"[hf KeyCache] {os.fspath(path)} must describe a cache of this model, got {type(problem).__name__}: {problem}") from problem
    return cache
