# SPDX-License-Identifier: Apache-2.0
"""Sinks and windows of a KeyCache under a distance map: the map applies to the positions of the tokens that are there."""
import copy
import importlib.util
import pathlib

import pytest
import torch

import posenc
from posenc.hf import KeyCache, accelerate

_spec = importlib.util.spec_from_file_location("test_distance_map_steps_shared", pathlib.Path(__file__).with_name("test_distance_map_steps.py"))
steps = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(steps)
tiny_models, prompt, far, Reference, LONG, MAPS = steps.tiny_models, steps.prompt, steps.far, steps.Reference, steps.LONG, steps.MAPS
SINKS, WINDOW = 3, 14


class Kept:
    """A cache of a model of one layer, where a key depends on its own token alone, and by hand: the tokens that are there, and where."""

    def __init__(self, model, ids, **more):
        self.model, self.ids, self.cache = model, ids, KeyCache(model, window=WINDOW, **more)
        self.sinks, self.there, self.at, self.next = self.cache.tokens.sinks, [], [], 0
        self.seen = []  # logits, tokens and positions of each step

    def feed(self, count):
        new = list(range(self.next, self.next + count))
        with torch.no_grad():
            got = self.model(self.ids[:, new], past_key_values=self.cache, position_ids=torch.tensor([new]), use_cache=True).logits
        self.there, self.at, self.next = self.there + new, self.at + new, self.next + count
        at = list(self.at)
        if self.cache.positions == "slots" and len(at) > self.sinks:
            at[:self.sinks] = range(at[self.sinks] - self.sinks, at[self.sinks])
        self.seen.append((got, list(self.there), at))
        while len(self.there) > self.sinks + WINDOW - 1:
            del self.there[self.sinks], self.at[self.sinks]

    def evict(self, start, stop):
        self.cache.evict(start, stop)
        if self.cache.positions == "slots":
            gap = (self.at[stop] if stop < len(self.at) else self.at[-1] + 1) - self.at[start]
            self.at[:start] = [p + gap for p in self.at[:start]]
        del self.there[start:stop], self.at[start:stop]

    def run(self, file):
        """Steps of one token and of several, with all that may happen between them."""
        for count in (9, 1, 1, 5, 3, *[1] * 12):
            self.feed(count)
        assert self.cache.tokens.dropping
        self.evict(6, 10)
        for count in (1, 2, 1, 4, 1):
            self.feed(count)
        self.cache, other = self.cache.fork(), self.cache
        for count in (1, 3, 1):
            self.feed(count)
        with torch.no_grad():  # the other one goes its own way
            self.model(self.ids[:, :2], past_key_values=other, position_ids=torch.tensor([[60, 61]]), use_cache=True)
        self.feed(1)
        self.cache.save(file)
        self.cache = KeyCache.load(file, self.model)
        for count in (1, 1, 2):
            self.feed(count)


@pytest.mark.parametrize("name, sinks, positions, keys", [
    *((n, SINKS, "slots", "rotated") for n in MAPS), *((n, SINKS, "stream", "rotated") for n in ("self_extend", "dual", "late")),
    ("rerope", 0, "slots", "rotated"), ("self_extend", SINKS, "slots", "unrotated"), ("rerope", SINKS, "stream", "unrotated")])
def test_a_window_is_a_forward_over_the_kept_tokens(monkeypatch, tmp_path, name, sinks, positions, keys):
    model = tiny_models.build("llama", num_hidden_layers=1, **LONG)
    plain, (distance_map, distances) = copy.deepcopy(model), MAPS[name]
    accelerate(model, distance_map=distance_map)
    kept = Kept(model, prompt(model, 64), sinks=sinks, positions=positions, keys=keys)
    kept.run(tmp_path / "cache.safetensors")
    reference = Reference(monkeypatch, plain, "llama", distances)
    found = [far(logits, reference.logits(kept.ids[:, tokens], at)[:, -logits.shape[1]:]) for logits, tokens, at in kept.seen]
    assert len(found) == 29 and max(found) < 1e-4
    assert (kept.cache.layers[0].mapped._x.data is None) == (keys == "unrotated" or name == "moving")


@pytest.mark.parametrize("name", ("llama", "mistral", "gpt_oss"))
def test_a_window_of_the_stream_is_a_mask(name):
    """With several layers, beside a call without a cache whose mask hides what the window has dropped."""
    model = tiny_models.build(name, **LONG)
    accelerate(model, distance_map=MAPS["self_extend"][0])
    sequence, logits = steps.shared.generate(model, prompt(model), 40, KeyCache(model, sinks=3, window=9, positions="stream"))
    n = sequence.shape[1]
    t, j = torch.arange(n)[:, None], torch.arange(n)
    seen = (j <= t) & ((t < 12) | (j < 3) | (t - j < 9))
    mask = torch.zeros(1, 1, n, n).masked_fill(~seen, torch.finfo(torch.float32).min)
    with torch.no_grad():
        want = model(sequence, attention_mask=mask, position_ids=j[None], use_cache=False).logits[:, 11:-1]
    assert far(logits, want) < 1e-4


@pytest.mark.parametrize("pads", ((0, 5), (9, 2)))
@pytest.mark.parametrize("name", ("self_extend", "dual"))
def test_rows_have_their_own_sinks(monkeypatch, name, pads):
    """The first visible tokens of each row, which leave the window at different steps."""
    model = tiny_models.build("llama", num_hidden_layers=1, **LONG)
    plain, ids, mask = copy.deepcopy(model), prompt(model, 12, 2), torch.ones(2, 12, dtype=torch.long)
    for row, pad in enumerate(pads):
        mask[row, :pad] = 0
    accelerate(model, distance_map=MAPS[name][0])
    sequence, logits = steps.shared.generate(model, ids, 30, KeyCache(model, sinks=3, window=6), mask)
    reference = Reference(monkeypatch, plain, "llama", MAPS[name][1])
    for row, pad in enumerate(pads):
        own = sequence[row:row + 1, pad:]
        for n in range(12 - pad, 42 - pad):
            there = list(range(n)) if n <= max(12 - pad, 9) else [*range(3), *range(n - 6, n)]
            at = there if n <= max(12 - pad, 9) else list(range(n - 9, n))
            assert far(logits[row, n - 12 + pad], reference.logits(own[:, there], at)[0, -1]) < 1e-4, (row, n)


def test_copies_of_sinks_are_in_the_rotated_copy(monkeypatch):
    """A step rotates the sinks, the new token and the one that leaves a region, and no more."""
    model = tiny_models.build("llama", num_hidden_layers=1, **LONG)
    accelerate(model, distance_map=MAPS["rerope"][0])
    kept, counts = Kept(model, prompt(model, 64), sinks=SINKS), []
    for _ in range(30):
        kept.feed(1)
    rotate = posenc.RotaryPlan.rotate_
    monkeypatch.setattr(posenc.RotaryPlan, "rotate_", lambda self, x, **more: counts.append((more["order"], x.shape[2])) or rotate(self, x, **more))
    kept.feed(1)
    assert sorted(n for order, n in counts if order == "bhtd") == [1, SINKS + 1]
