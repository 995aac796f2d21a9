# SPDX-License-Identifier: Apache-2.0
"""Steps of a KeyCache under a distance map, which read a rotated copy of the keys, after all that a cache may do, beside a dense sum in float64.

A step has one new token, or several: a chunk of the prompt, a further turn, tokens that another model proposes."""
import copy
import functools
import importlib.util
import pathlib
import random

import pytest
import torch
import transformers

import posenc
from posenc.hf import KeyCache, _map_steps, accelerate, restore

_spec = importlib.util.spec_from_file_location("test_distance_map_shared", pathlib.Path(__file__).with_name("test_distance_map.py"))
shared = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(shared)
tiny_models, prompt, far, rows_of, error, Reference, LONG = (
    shared.tiny_models, shared.prompt, shared.far, shared.rows_of, shared.error, shared.Reference, shared.LONG)


def map_of(*regions):
    """A map of one's own, of (low, high, query position, key position) by query, key and last query."""
    def made(q, k):
        last = q[len(q) - 1]
        return [dict(chunk=1, low=low, high=high, query=[at(m, last) for m in q], key=[of(n, last) for n in k]) for low, high, at, of in regions]
    return made


MOVING = map_of((None, None, lambda m, last: m - last, lambda n, last: n - last))
LATE = map_of((None, None, lambda m, last: m - max(last - 20, 0), lambda n, last: n - max(last - 20, 0)))
PART = map_of((None, 8, lambda m, last: m, lambda n, last: n))
FIRST = map_of((None, 5, lambda m, last: m, lambda n, last: n), (None, None, lambda m, last: 6, lambda n, last: 0))  # both contain near pairs
MAPS = {
    "self_extend": (shared.SELF_EXTEND, shared.DISTANCES[shared.SELF_EXTEND]), "rerope": (shared.REROPE, shared.DISTANCES[shared.REROPE]),
    "leaky": (shared.LEAKY, shared.DISTANCES[shared.LEAKY]), "real": (shared.PUBLISHED, shared.DISTANCES[shared.PUBLISHED]),
    "dual": (shared.DUAL, shared.DISTANCES[shared.DUAL]), "moving": (MOVING, lambda m, n: m - n), "late": (LATE, lambda m, n: m - n),
    "first": (FIRST, shared.DISTANCES[shared.REROPE]), "part": (PART, lambda m, n: torch.where(m - n < 9, m - n, 0)),
}


class Program:
    """Random operations on one cache of a model of one layer, where a key depends on its own token alone, and what the cache must then have."""

    def __init__(self, model, file, seed):
        self.model, self.file, self.random = model, file, random.Random(seed)
        self.cache, self.tokens, self.at = KeyCache(model), [], []
        self.others, self.seen = [], []  # forks; logits, tokens and positions of each step

    def put(self, count):
        ids = [self.random.randrange(1, 60) for _ in range(count)]
        first = max(self.at, default=-1) + 1
        at = list(range(first, first + count))
        with torch.no_grad():
            logits = self.model(torch.tensor([ids]), past_key_values=self.cache, position_ids=torch.tensor([at]), use_cache=True).logits
        self.tokens, self.at = self.tokens + ids, self.at + at
        self.seen.append((logits, self.tokens, self.at))

    def some(self):
        start = self.random.randrange(len(self.at))
        return start, self.random.randrange(start, min(start + 9, len(self.at))) + 1

    def evict(self):
        a, b = self.some()
        self.cache.positions = self.random.choice(("stream", "slots"))
        self.cache.evict(a, b)
        if self.cache.positions == "slots" and a > 0:
            gap = (self.at[b] if b < len(self.at) else self.at[-1] + 1) - self.at[a]
            self.at = [p + gap for p in self.at[:a]] + self.at[a:]
        self.tokens, self.at = self.tokens[:a] + self.tokens[b:], self.at[:a] + self.at[b:]

    def shift(self):
        a, b = self.some()[0], len(self.at)
        self.cache.shift(1, a, b)
        self.at = self.at[:a] + [p + 1 for p in self.at[a:]]

    def crop(self):
        n = self.random.randrange(1, 4)
        self.cache.crop(-n)
        self.tokens, self.at = self.tokens[:-n], self.at[:-n]

    def fork(self):
        self.others.append((self.cache.fork(), self.tokens, self.at))

    def swap(self):
        if self.others:
            self.fork()
            self.cache, self.tokens, self.at = self.others.pop(self.random.randrange(len(self.others)))

    def beams(self):
        self.cache.batch_repeat_interleave(2)
        self.cache.reorder_cache(torch.tensor([1, 0]))
        self.cache.batch_select_indices(torch.tensor([1]))

    def file_of(self):
        self.cache.save(self.file)
        self.cache = KeyCache.load(self.file, self.model)

    def append(self):
        other = Program(self.model, self.file, self.random.random())
        other.put(3)
        other.put(1)
        self.cache.append(other.cache)
        first = max(self.at) + 1
        self.tokens, self.at = self.tokens + other.tokens, self.at + [first + p for p in other.at]

    def run(self, steps):
        self.put(12)
        for _ in range(steps):
            if len(self.at) > 30 or max(self.at) > 44:
                self.cache, self.tokens, self.at = KeyCache(self.model), [], []
                self.put(9)
            if self.random.random() < 0.6:
                self.put(self.random.choice((1, 1, 1, 2, 5)))
                continue
            self.random.choice((self.evict, self.shift, self.crop, self.fork, self.swap, self.beams, self.file_of, self.append, lambda: self.put(3)))()


@pytest.mark.parametrize("name", MAPS)
def test_steps_after_any_operation(monkeypatch, tmp_path, name):
    model = tiny_models.build("llama", num_hidden_layers=1, **LONG)
    plain, (distance_map, distances) = copy.deepcopy(model), MAPS[name]
    accelerate(model, distance_map=distance_map)
    program = Program(model, tmp_path / "cache.safetensors", 7)
    program.run(90)
    reference = Reference(monkeypatch, plain, "llama", distances)
    worst = max(far(logits, reference.logits(torch.tensor([tokens]), at)[:, -logits.shape[1]:]) for logits, tokens, at in program.seen)
    assert len(program.seen) > 50 and sum(x[0].shape[1] > 1 for x in program.seen) > 12 and worst < 1e-4
    program.put(1)
    program.put(1)
    assert (program.cache.layers[0].mapped._x.data is None) == (name == "moving")


def test_a_step_reads_the_copy(monkeypatch):
    model = tiny_models.build("llama", **LONG)
    accelerate(model, distance_map=shared.REROPE)
    ids, cache, bare = prompt(model, 40), KeyCache(model), KeyCache(model, keys="unrotated")
    for one in (cache, bare):
        rows_of(model, ids[:, :21], (19, 20), one)
    assert all(x.mapped._x.data is None for x in bare._own_layers)
    fork, moved, new = cache.fork(), cache.fork(), ids[:, 21:22]
    before = cache.layers[0].mapped._x.data.clone()
    moved.shift(1)
    rows_of(model, new, (), moved)
    assert torch.equal(cache.layers[0].mapped._x.data, before) and not torch.equal(moved.layers[0].mapped._x.view(0, 21), before)
    cache.layers[1].mapped._x.own()
    cache.layers[1].mapped._x.view(0, 21)[:, :, 3] = torch.nan
    with torch.no_grad():
        assert model(new, past_key_values=cache).logits.isnan().all() and model(new, past_key_values=fork).logits.isfinite().all()
        assert rows_of(model, ids[:, 22:25], (), cache).isnan().all()
        monkeypatch.setattr(_map_steps, "FEW", 2)
        assert rows_of(model, ids[:, 25:28], (), cache).isfinite().all()  # many queries: the call rotates
        assert far(model(ids[:, 21:22], past_key_values=bare).logits, rows_of(model, ids[:, :22], (), None)[:, -1:]) < 1e-5


def test_a_copy_serves_the_keys_of_the_cache_only():
    """Keys that a layer computes anew or views in another way are not those that were rotated."""
    model = tiny_models.build("llama", **LONG)
    accelerate(model, distance_map=shared.REROPE)
    cache = KeyCache(model)
    layer = cache.layers[0]
    assert not layer.holds(torch.zeros(1, 2, 0, 8), 0)  # nothing is there
    rows_of(model, prompt(model, 20), (17, 18), cache)
    keys = layer.keys
    assert layer.holds(keys, 0) and not layer.holds(keys, 1) and not layer.holds(keys[:, :, 1:], 0)
    assert not layer.holds(keys.clone(memory_format=torch.preserve_format), 0)
    other = torch.empty_strided(keys.shape, keys.stride())
    assert not layer.holds(other, 0) and not layer.holds(keys.as_strided(keys.shape, (0, 0, *keys.stride()[2:])), 0)
    assert not layer.holds(keys[..., :-1], 0)


def test_tokens_without_a_copy_follow_those_with_one(monkeypatch):
    """A long chunk is not copied. Evicted are copied tokens and the first of the chunk."""
    monkeypatch.setattr(_map_steps, "FEW", 1)
    model = tiny_models.build("llama", num_hidden_layers=1, **LONG)
    accelerate(model, distance_map=shared.REROPE)
    ids, said = prompt(model, 34), []
    for keys in ("rotated", "unrotated"):
        cache = KeyCache(model, positions="stream", keys=keys)
        rows_of(model, ids[:, :33], (19, 20, 21), cache)
        cache.evict(10, 22)
        said.append(rows_of(model, ids[:, 33:], (), cache))
    assert far(*said) < 1e-6


def test_windows_of_layers(monkeypatch):
    """A layer drops what leaves its window, and its copy too."""
    model = tiny_models.build("mistral", sliding_window=9, num_hidden_layers=1, **LONG)
    ids = prompt(model, 60)
    accelerate(model, distance_map=shared.SELF_EXTEND)
    cache = KeyCache(model)
    got = rows_of(model, ids, (20, *range(21, 40), 44, *range(45, 60)), cache)
    copied = cache.layers[0].mapped
    assert copied._x.base > 20 and copied._x.room < 30
    cache = KeyCache(model)
    rows_of(model, ids[:, :6], (), cache)
    cache.activate_past_recording()
    rows_of(model, ids[:, 6:39], (20, *range(21, 33)), cache)
    cache.crop(-7)
    again = rows_of(model, ids[:, 32:], range(1, 20), cache)
    monkeypatch.setattr(_map_steps, "FEW", 1)
    short = KeyCache(model)
    rows_of(model, ids[:, :5], (), short)
    short.activate_past_recording()
    rows_of(model, ids[:, 5:12], (5, 6), short)  # its copy begins behind the first tokens
    assert short.layers[0].mapped._x.base > 2
    short.crop(-6)
    short.positions = "stream"
    short.evict(1, 2)
    last = rows_of(model, ids[:, 6:7], (), short)
    restore(model)
    evicted = Reference(monkeypatch, model, "mistral", shared.DISTANCES[shared.SELF_EXTEND])
    kept = [0, *range(2, 7)]
    assert far(last, evicted.logits(ids[:, kept], kept)[:, -1:]) < 1e-4
    monkeypatch.undo()
    want = Reference(monkeypatch, model, "mistral", shared.DISTANCES[shared.SELF_EXTEND]).logits(ids)
    assert far(got, want) < 1e-4 and far(again, want[:, 32:]) < 1e-4


def test_rows_of_a_batch():
    """Beams come from other rows, and a padded row is at other positions."""
    model = tiny_models.build("llama", **LONG)
    ids = prompt(model, 30, 3)
    accelerate(model, distance_map=shared.SELF_EXTEND)
    mask = torch.ones_like(ids)
    mask[2, :9] = 0
    at = (mask.cumsum(-1) - 1).clamp(min=0)
    at[1, 21:] += 4  # a jump: keys of this row alone leave the near region
    cache, order = KeyCache(model), torch.tensor([2, 1, 1])
    with torch.no_grad():
        for a, b in ((0, 20), (20, 21), (21, 22)):
            got = model(ids[:, a:b], past_key_values=cache, attention_mask=mask[:, :b], position_ids=at[:, a:b]).logits
        assert far(got, model(ids[:, :22], attention_mask=mask[:, :22], position_ids=at[:, :22], use_cache=False).logits[:, -1:]) < 1e-5
        cache.reorder_cache(order)
        ids, mask, at = ids[order], mask[order], at[order]
        for a in (22, 23):
            got = model(ids[:, a:a + 1], past_key_values=cache, attention_mask=mask[:, :a + 1], position_ids=at[:, a:a + 1]).logits
            assert far(got, model(ids[:, :a + 1], attention_mask=mask[:, :a + 1], position_ids=at[:, :a + 1], use_cache=False).logits[:, -1:]) < 1e-5


@pytest.mark.parametrize("name, model_name", [*((n, "llama") for n in MAPS), ("self_extend", "mistral"), ("real", "gemma2"), ("rerope", "gpt_oss")])
def test_several_tokens_are_a_call_without_a_cache(name, model_name):
    """Two rows, one of them padded; chunks of all sizes, so that the first query is in another region than the last one."""
    model, cuts = tiny_models.build(model_name, **LONG), (11, 12, 14, 19, 21, 22, 29, 33, 34, 45)
    ids = prompt(model, 50, 2)
    mask = torch.ones_like(ids)
    mask[1, :4] = 0
    at = (mask.cumsum(-1) - 1).clamp(min=0)
    accelerate(model, distance_map=MAPS[name][0])
    with torch.no_grad():
        want = model(ids, attention_mask=mask, position_ids=at, use_cache=False).logits
        got = []
        cache = KeyCache(model)
        for a, b in zip((0, *cuts), (*cuts, 50)):
            got.append(model(ids[:, a:b], past_key_values=cache, attention_mask=mask[:, :b], position_ids=at[:, a:b]).logits)
    far_map = name in ("moving", "late")  # its positions depend on the last query, so a whole text has others
    assert far_map or far(torch.cat(got, 1)[mask.bool()], want[mask.bool()]) < 1e-4
    assert all((x.mapped._x.data is None) == (name == "moving") for x in cache._own_layers)


def test_keys_between_two_regions_are_rotated_for_both(monkeypatch):
    """Without the second call such keys would be hidden or at the positions of the last query."""
    model, counts = tiny_models.build("llama", **LONG), []
    accelerate(model, distance_map=shared.REROPE)
    merge = posenc.merge
    monkeypatch.setattr(posenc, "merge", lambda parts, **more: counts.append(parts[1].log_sum_exp.shape) or merge(parts, **more))
    ids, cache = prompt(model, 40), KeyCache(model)
    rows_of(model, ids, (20, 21, 26), cache)
    assert [shape[2] for shape in counts] == [5, 5, 14, 14]


@pytest.mark.parametrize("name", ("self_extend", "rerope", "dual"))
def test_proposed_tokens_are_checked_in_one_step(name):
    """Assisted generation: the tokens are those of greedy decoding, with any cache and with none."""
    model, helper = tiny_models.build("llama", **LONG), tiny_models.build("llama", **LONG)
    for p in helper.parameters():
        p.data += 0.003 * torch.randn(p.shape, generator=torch.Generator().manual_seed(3))
    helper.generation_config.assistant_confidence_threshold = 0.0
    for one in (model, helper):
        accelerate(one, distance_map=MAPS[name][0])
    ids = prompt(model, 20)
    alone = ids
    for _ in range(24):
        with torch.no_grad():
            alone = torch.cat([alone, model(alone, use_cache=False).logits[:, -1:].argmax(-1)], 1)
    greedy = dict(max_new_tokens=24, do_sample=False, eos_token_id=None)
    sizes, inner = [], model.model.register_forward_pre_hook(lambda m, a, given: sizes.append(given["input_ids"].shape[1]), with_kwargs=True)
    for cache in (None, KeyCache(model)):
        for more in ({}, {"assistant_model": helper}):
            sizes.clear()
            cache = None if cache is None else KeyCache(model)
            got = model.generate(ids, **greedy, **more, **({} if cache is None else {"past_key_values": cache}))
            assert torch.equal(got, alone), (type(cache), list(more))
            assert not more or max(sizes[1:]) > 2 and len(sizes) < 24
    inner.remove()


def test_axes_of_text_are_equal():
    """Text in a model with M-RoPE is text in one with RoPE. Pictures are refused."""
    said = dict(vocab_size=96, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                initializer_range=0.2, bos_token_id=1, rope_parameters={"rope_type": "default", "rope_theta": 1e4, "mrope_section": [1, 1, 2]}, eos_token_id=2, rms_norm_eps=1e-6)
    qwen = transformers.models.qwen2_vl.modeling_qwen2_vl
    model = qwen.Qwen2VLTextModel(transformers.Qwen2VLTextConfig(**said)).eval()
    plain = transformers.Qwen2Model(transformers.Qwen2Config(**{**said, "rope_parameters": {"rope_type": "default", "rope_theta": 1e4}})).eval()
    plain.load_state_dict(model.state_dict())
    ids = torch.randint(3, 90, (1, 40), generator=torch.Generator().manual_seed(5))
    for one in (model, plain):
        accelerate(one, distance_map=shared.SELF_EXTEND)
    with torch.no_grad():
        want = plain(ids, use_cache=False).last_hidden_state
        for cache in (transformers.DynamicCache(config=model.config), KeyCache(model)):
            got = [model(ids[:, a:b], past_key_values=cache, use_cache=True).last_hidden_state for a, b in ((0, 30), (30, 31), (31, 32), (32, 40))]
            assert far(torch.cat(got, 1), want) < 1e-4
        cache.shift([0, 1, 0], 3, 6)
        for call in (lambda: model(ids[:, :1], past_key_values=cache),
                     lambda: model(ids[:, :3], position_ids=torch.tensor([[0, 1, 1], [0, 1, 2], [0, 1, 1]])[:, None], use_cache=False)):
            assert 'equal on all axes, as those of text are, got "others on 3 axes"' in error(call)
