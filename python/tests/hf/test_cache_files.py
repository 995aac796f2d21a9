# SPDX-License-Identifier: Apache-2.0
"""Files of KeyCache: programs that are killed while they save, damaged and foreign files."""
import importlib.util
import io
import os
import pathlib
import pickle
import random
import signal
import time

import numpy
import pytest
import torch

from posenc.hf import KeyCache

_spec = importlib.util.spec_from_file_location("test_cache_shared", pathlib.Path(__file__).with_name("test_cache.py"))
shared = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(shared)
KILLS, DAMAGES = int(os.environ.get("POSENC_KILLS", "12")), 200


def filled(model, tokens, **more):
    cache = KeyCache(model, **more)
    with torch.no_grad():
        model(shared.prompt(model, tokens), past_key_values=cache, use_cache=True)
    return cache


def numbers(cache):
    """All of a cache that a step reads."""
    strips = [s.view(s.base, cache.tokens.end) for x in cache._own_layers for s in (x._k, x._v, x.raw, cache.tokens.positions) if s.data is not None]
    return [*strips, *(x.sink[n] for x in cache._own_layers for n in sorted(x.sink))]


def equal(a, b):
    a, b = numbers(a), numbers(b)
    return len(a) == len(b) and all(x.shape == y.shape and x.dtype is y.dtype and torch.equal(x, y) for x, y in zip(a, b))


def saved_by_a_child(cache, path, seconds):
    """Whether the save was over when the child was killed, `seconds` after it began; None: not killed."""
    ready, go = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(go, b"a")
            cache.save(path)
            os.write(go, b"b")
            if seconds is not None:
                time.sleep(60)
        finally:
            os._exit(0)
    os.close(go)
    assert os.read(ready, 1) == b"a"
    if seconds is None:
        assert os.read(ready, 1) == b"b"
    else:
        time.sleep(seconds)
        os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    done = os.read(ready, 1)
    os.close(ready)
    return done == b"b"


def test_a_killed_save_leaves_the_old_file_or_the_new_one(tmp_path):
    model, path, draw = shared.tiny_models.build("llama", **shared.LONG), tmp_path / "cache.safetensors", random.Random(1)
    caches = [filled(model, n) for n in (200, 300)]
    begin = time.perf_counter()
    saved_by_a_child(caches[0], path, None)
    longest, killed, old = time.perf_counter() - begin, 0, 0
    while killed < KILLS:
        over = saved_by_a_child(caches[1 - old], path, draw.uniform(0, longest))
        killed += not over
        longest *= 0.8 if over else 1.05
        have = KeyCache.load(path, model)
        new = int(have.tokens.seen == 300)
        assert equal(have, caches[new]) and (new != old or not over)
        old = new
    assert all(name == "cache.safetensors" or name.startswith(".") for name in os.listdir(tmp_path))  # what a killed program left


@pytest.mark.parametrize("more", ({}, dict(sinks=2, window=5), dict(keys="unrotated")), ids=["whole", "window", "unrotated"])
def test_a_damaged_file_is_refused_or_the_same(tmp_path, more):
    """Flipped bits, runs of other bytes, pieces that are missing, doubled or exchanged: refused by file and rule."""
    model, path, draw = shared.tiny_models.build("llama", **shared.LONG), tmp_path / "cache.safetensors", random.Random(2)
    cache = filled(model, 12, **more)
    cache.save(path)
    whole, head = path.read_bytes(), int.from_bytes(path.read_bytes()[:8], "little")
    refused = set()
    for n in range(DAMAGES):
        damaged, at = bytearray(whole), draw.randrange(8 + head if n % 2 else len(whole))
        match n % 5:
            case 0 | 1:
                damaged[at] ^= 1 << draw.randrange(8)
            case 2:
                damaged[at:at + 8] = draw.randbytes(8)
            case 3:
                del damaged[at:at + draw.randrange(1, 40)]
            case 4:
                damaged[at:at] = damaged[at:at + draw.randrange(1, 40)]
        path.write_bytes(damaged)
        try:
            again = KeyCache.load(path, model)
        except ValueError as problem:
            said = str(problem)
            assert said.startswith(f"[hf KeyCache] {path} must "), said
            refused.add(said.removeprefix(f"[hf KeyCache] {path} must ")[:12])
        else:
            assert equal(again, cache) and again.tokens.seen == 12
    assert refused >= {"be a whole .", "have the sum"}


def test_foreign_files_are_refused(tmp_path):
    model, path = shared.tiny_models.build("llama", **shared.LONG), tmp_path / "cache.safetensors"
    array, archive = io.BytesIO(), io.BytesIO()
    numpy.save(array, numpy.ones(9))
    torch.save({"keys": torch.ones(9)}, archive)
    for content in (b"", b"\0" * 64, b"\xff" * 64, b"GGUF\3\0\0\0" + b"\0" * 64, b'{"format": "posenc key cache 1"}', array.getvalue(), archive.getvalue(),
                    pickle.dumps([1, 2]), (2).to_bytes(8, "little") + b"{}", (2**40).to_bytes(8, "little") + b"{}"):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"\[hf KeyCache\] .*cache.safetensors must be a (whole .safetensors file|file that KeyCache.save wrote), got "):
            KeyCache.load(path, model)
    with pytest.raises(FileNotFoundError):
        KeyCache.load(tmp_path / "none", model)
    with pytest.raises(ValueError, match="must be a file, got a folder"):
        KeyCache.load(tmp_path, model)
    for wrong in (tmp_path, tmp_path / "none" / "cache.safetensors"):
        with pytest.raises(ValueError, match=r"\[hf KeyCache\] path must be a file in a folder that exists, got "):
            KeyCache(model).save(wrong)
