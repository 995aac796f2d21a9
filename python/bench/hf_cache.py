# SPDX-License-Identifier: Apache-2.0
"""A decode step of a random Llama (2 layers, 8 heads of 128) after many cached keys: transformers' DynamicCache and posenc's KeyCache in turn.

python hf_cache.py [--threads N] [--rounds N] [--dtype TYPE] [--accelerate] [--moves] [--maps [--new N]] [TOKENS ...]

Prints medians of milliseconds and the ratio of each pair. Keys are random numbers: only time is measured. With --moves evict, shift,
fork and append of half the tokens are timed too. With --accelerate posenc computes the attention of all caches. With --maps a step of
N new tokens under distance maps is timed instead, with a rotated copy of the keys, without one, and with DynamicCache.
"""
from __future__ import annotations

import argparse
import functools
import statistics
import time
from typing import Callable

import torch
import transformers

import posenc
from posenc.hf import KeyCache, accelerate, restore
from posenc.hf._distance_map import SEEN, Seen

transformers.logging.set_verbosity_error()
HEADS, CHANNELS = 8, 128


def model(dtype: torch.dtype) -> torch.nn.Module:
    config = transformers.LlamaConfig(vocab_size=1000, hidden_size=HEADS * CHANNELS, intermediate_size=1024, num_hidden_layers=2,
                                      num_attention_heads=HEADS, num_key_value_heads=HEADS, max_position_embeddings=131072)
    return transformers.AutoModelForCausalLM.from_config(config).to(dtype).eval()


def filled(kind: str, net: torch.nn.Module, tokens: int, dtype: torch.dtype) -> transformers.Cache:
    """A cache of so many random keys."""
    def random() -> torch.Tensor:
        return torch.randn(1, HEADS, tokens, CHANNELS, dtype=dtype)

    if kind == "DynamicCache":
        theirs = transformers.DynamicCache(config=net.config)
        for i in range(2):
            theirs.update(random(), random(), i)
        return theirs
    cache = KeyCache(net, keys="unrotated") if kind == "unrotated" else KeyCache(net)
    for layer in cache._own_layers:
        layer._k.write(0, 0, random())
        layer._v.write(0, 0, random())
        if cache.keeps_raw and not cache.mapped:
            layer.raw.write(0, 0, random())
    cache.tokens.keep(torch.arange(tokens)[None], 1)
    cache.tokens.end = cache.tokens.seen = tokens
    return cache


def timed(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return 1e3 * (time.perf_counter() - start)


MAPS = {"none": None, "Self-Extend": functools.partial(posenc.self_extend, window=1024, group=8, ratio="floored"),
        "ReRoPE": functools.partial(posenc.rerope, window=1024)}


def maps(net: torch.nn.Module, tokens: int, dtype: torch.dtype, rounds: int, new: int) -> None:
    """Prints medians of a step of `new` tokens under each map."""
    ids = torch.ones(1, new, dtype=torch.long)
    for name, distance_map in MAPS.items():
        accelerate(net, distance_map=distance_map)
        said = []
        for kind in ("KeyCache", "unrotated", "DynamicCache") if distance_map else ("KeyCache", "DynamicCache"):
            cache = filled(kind, net, tokens, dtype)
            if kind == "DynamicCache":
                seen = cache.__dict__[SEEN] = Seen()
                seen.data = torch.arange(tokens)[None]
            with torch.no_grad():
                times = [timed(lambda: net(ids, past_key_values=cache, use_cache=True)) for _ in range(rounds + 2)]
            said.append(f"{kind} {statistics.median(times[2:]):.1f} ms (at first {times[0]:.1f}, {times[1]:.1f})")
        restore(net)
        print(f"{tokens} keys, {new} new, {dtype}, {name}: " + ", ".join(said))


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    words.add_argument("tokens", nargs="*", type=int, default=[1024, 4096, 16384])
    words.add_argument("--threads", type=int, default=1)
    words.add_argument("--rounds", type=int, default=7)
    words.add_argument("--dtype", default="float32")
    words.add_argument("--accelerate", action="store_true", help="attention by posenc")
    words.add_argument("--moves", action="store_true", help="evict, shift, fork and append in place of steps")
    words.add_argument("--maps", action="store_true", help="steps under distance maps")
    words.add_argument("--new", type=int, default=1, help="tokens of such a step")
    given = words.parse_args()
    torch.set_num_threads(given.threads)
    dtype = getattr(torch, given.dtype)
    net = model(dtype)
    if given.maps:
        for tokens in given.tokens:
            maps(net, tokens, dtype, given.rounds, given.new)
        return
    if given.accelerate:
        accelerate(net)
    ids = torch.ones(1, 1, dtype=torch.long)
    for tokens in given.tokens:
        caches = {kind: filled(kind, net, tokens, dtype) for kind in ("DynamicCache", "KeyCache", "unrotated")}

        def step(cache: transformers.Cache) -> Callable[[], object]:
            return lambda: net(ids, past_key_values=cache, use_cache=True)

        with torch.no_grad():
            times: dict[str, list[float]] = {kind: [] for kind in caches}
            for kind, cache in caches.items():
                step(cache)()  # rotations are found, buffers have room
            for _ in range(given.rounds):
                for kind, cache in caches.items():
                    times[kind].append(timed(step(cache)))
            medians = {kind: statistics.median(x) for kind, x in times.items()}
            ratio = statistics.median(a / b for a, b in zip(times["DynamicCache"], times["KeyCache"]))
            print(f"{tokens} keys, {given.dtype}: " + ", ".join(f"{k} {x:.1f} ms" for k, x in medians.items()) + f"; DynamicCache / KeyCache {ratio:.2f}")
            if given.moves:
                cache = caches["KeyCache"]
                assert isinstance(cache, KeyCache)
                fork = cache.fork()
                half = tokens // 2
                said = {"fork": timed(cache.fork), "shift half": timed(lambda: fork.shift(3, 0, half)), "shift it again": timed(lambda: fork.shift(3, 0, half)),
                        "append": timed(lambda: fork.append(cache)), "evict half": timed(lambda: fork.evict(half, tokens))}
                print("  " + ", ".join(f"{k} {x:.2f} ms" for k, x in said.items()))


if __name__ == "__main__":
    main()
