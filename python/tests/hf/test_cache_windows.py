# SPDX-License-Identifier: Apache-2.0
"""Sinks and a window whose tokens are evicted, shifted and joined with others: beside forwards in float64 over the tokens that are kept."""
import importlib.util
import pathlib

import pytest
import torch

from posenc.hf import KeyCache

_spec = importlib.util.spec_from_file_location("test_cache_shared", pathlib.Path(__file__).with_name("test_cache.py"))
shared = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(shared)
tiny_models, far, prompt = shared.tiny_models, shared.far, shared.prompt
SINKS, WINDOW = 3, 8


class Kept:
    """A cache, and by hand: the tokens that are there and their positions, sinks aside."""

    def __init__(self, name, ids, positions, keys, sinks=SINKS):
        # In one layer keys depend on their own token alone.
        self.model = tiny_models.build(name, num_hidden_layers=1, num_layers=1, **shared.LONG)
        self.exact, self.ids, self.mode = shared.in_float64(self.model), ids, positions
        self.cache = KeyCache(self.model, sinks=sinks, window=WINDOW, positions=positions, keys=keys)
        self.sinks, self.there, self.at, self.next = sinks, [], [], 0

    def feed(self, count):
        """New tokens; logits of the last of them and what they should be."""
        new = list(range(self.next, self.next + count))
        with torch.no_grad():
            got = self.model(self.ids[:, new], past_key_values=self.cache, position_ids=torch.tensor([new]), use_cache=True).logits
        self.there += new
        self.at += new
        self.next += count
        at = list(self.at)
        if self.mode == "slots" and len(at) > self.sinks:
            at[:self.sinks] = range(at[self.sinks] - self.sinks, at[self.sinks])
        with torch.no_grad():
            want = self.exact(self.ids[:, self.there], position_ids=torch.tensor([at]), attention_mask=torch.ones(1, len(at)), use_cache=False).logits
        while len(self.there) > self.sinks + WINDOW - 1:
            del self.there[self.sinks], self.at[self.sinks]
        return far(got[:, -1], want[:, -1])

    def evict(self, start, stop):
        self.cache.evict(start, stop)
        if self.mode == "slots":
            gap = (self.at[stop] if stop < len(self.at) else self.at[-1] + 1) - self.at[start]
            self.at[:start] = [p + gap for p in self.at[:start]]
        del self.there[start:stop], self.at[start:stop]


@pytest.mark.parametrize("name,positions,keys", [("llama", p, k) for p in ("slots", "stream") for k in ("rotated", "unrotated")] + [
    ("glm", "slots", "rotated"), ("deepseek_v3", "slots", "rotated"), ("deepseek_v3", "stream", "unrotated")])
def test_evicted_tokens_of_a_window_are_replaced_by_new_ones(name, positions, keys):
    k = Kept(name, prompt(tiny_models.build(name, **shared.LONG), 60), positions, keys)
    assert k.feed(8) < 1e-4
    k.evict(4, 6)  # before the window is full
    assert all(k.feed(1) < 1e-4 for _ in range(9))
    assert k.cache.tokens.dropping
    k.evict(5, 8)  # of a full one
    assert k.cache.tokens.slots == SINKS + WINDOW - 1 - 3
    assert all(k.feed(1) < 1e-4 for _ in range(6))
    k.evict(9, 10)
    k.evict(3, 4)
    forked = k.cache.fork()
    assert all(k.feed(1) < 1e-4 for _ in range(4))
    k.evict(3, 10)  # all of it
    assert k.cache.tokens.slots == SINKS and all(k.feed(1) < 1e-4 for _ in range(10))
    assert forked.tokens.slots == SINKS + WINDOW - 3 and k.cache.get_seq_length() == k.next
    assert (k.cache.moved > 0) == (positions == "slots" and keys == "rotated")


@pytest.mark.parametrize("keys", ("rotated", "unrotated"))
@pytest.mark.parametrize("positions", ("slots", "stream"))
def test_a_window_is_shifted_and_stored(positions, keys, tmp_path):
    k = Kept("llama", prompt(tiny_models.build("llama", **shared.LONG), 60), positions, keys)
    assert k.feed(7) < 1e-4
    k.cache.shift(-1, 5, 7)
    k.at[5:7] = [4, 5]
    assert all(k.feed(1) < 1e-4 for _ in range(9))
    k.cache.shift(-2, 4)
    k.at[4:] = [p - 2 for p in k.at[4:]]
    k.evict(6, 8)
    k.cache.save(tmp_path / "cache.safetensors")
    k.cache = KeyCache.load(tmp_path / "cache.safetensors", k.model)
    assert all(k.feed(1) < 1e-4 for _ in range(9))


@pytest.mark.parametrize("keys", ("rotated", "unrotated"))
@pytest.mark.parametrize("positions", ("slots", "stream"))
def test_a_chunk_is_appended_to_a_window(positions, keys):
    k = Kept("llama", prompt(tiny_models.build("llama", **shared.LONG), 60), positions, keys)
    assert k.feed(14) < 1e-4
    chunk = KeyCache(k.model, keys=keys)
    with torch.no_grad():
        k.model(k.ids[:, 14:19], past_key_values=chunk, use_cache=True)
    k.cache.append(chunk)
    k.there += range(14, 19)
    k.at += range(14, 19)
    k.next = 19
    del k.there[SINKS:-WINDOW + 1], k.at[SINKS:-WINDOW + 1]
    assert all(k.feed(1) < 1e-4 for _ in range(9))


@pytest.mark.parametrize("positions", ("slots", "stream"))
def test_rows_with_padding_have_their_own_sinks(positions):
    """Tokens behind the sinks of both rows leave: as in each row alone."""
    model = tiny_models.build("llama", num_hidden_layers=1, **shared.LONG)
    ids, pads = prompt(model, 30, 2), 4
    mask = torch.ones_like(ids)
    mask[1, :pads] = 0
    cache = KeyCache(model, sinks=SINKS, window=WINDOW, positions=positions)
    alone = KeyCache(model, sinks=SINKS, window=WINDOW, positions=positions)
    at = (mask.cumsum(-1) - 1).clamp(min=0)

    def step(start, stop):
        with torch.no_grad():
            both = model(ids[:, start:stop], attention_mask=mask[:, :stop], position_ids=at[:, start:stop], past_key_values=cache, use_cache=True).logits
            one = model(ids[1:, max(start, pads):stop], past_key_values=alone, position_ids=at[1:, max(start, pads):stop], use_cache=True).logits
        return far(both[1, -1], one[0, -1])

    assert step(0, 10) < 1e-5
    cache.evict(8, 9)
    alone.evict(8 - pads, 9 - pads)
    assert all(step(t, t + 1) < 1e-5 for t in range(10, 22))
    cache.evict(5, 7)
    alone.evict(5, 7)
    assert all(step(t, t + 1) < 1e-5 for t in range(22, 30))


def test_what_nobody_can_say_is_refused():
    model = tiny_models.build("llama", **shared.LONG)
    ids = prompt(model, 20)

    def filled(tokens, **more):
        cache = KeyCache(model, sinks=SINKS, window=WINDOW, **more)
        with torch.no_grad():
            model(ids[:, :tokens], past_key_values=cache, use_cache=True)
        return cache

    few, full, chunk = filled(2), filled(20), filled(8)
    for cache, call, said in ((full, lambda: full.evict(0, 4), r"evict must name tokens of the window, from slot 3 on, since sinks stay and follow it, got \"start 0\""),
                              (full, lambda: full.shift(5), "shift must name tokens of the window, from slot 3 on"),
                              (full, lambda: full.evict(5, 11), "evict must name tokens among the 10 in the cache"),
                              (chunk, lambda: chunk.evict(2, 5), r"evict must spare the sinks of each row, and what lies between them, got \"start 2, stop 5\""),
                              (few, lambda: few.append(chunk), r"append requires a cache that has its sinks, got \"2 tokens\""),
                              (full, lambda: full.append(full.fork()), r"append requires another cache that has all its tokens, got \"13 dropped by its window\"")):
        before = [x.clone() for x in (cache.layers[0].keys, cache.tokens.positions.view(cache.tokens.start, cache.tokens.end))]
        with pytest.raises(ValueError, match=said):
            call()
        assert all(torch.equal(a, b) for a, b in zip(before, (cache.layers[0].keys, cache.tokens.positions.view(cache.tokens.start, cache.tokens.end))))
