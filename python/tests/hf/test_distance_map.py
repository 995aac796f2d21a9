# SPDX-License-Identifier: Apache-2.0
"""accelerate(distance_map=): Self-Extend, ReRoPE and dual chunk for whole models, beside models in float64 whose scores are written out."""
import copy
import functools
import importlib.util
import itertools
import pathlib
import pickle
import re
import sys

import pytest
import torch
import transformers
from transformers import AttentionInterface, AttentionMaskInterface, masking_utils

import posenc.hf
from posenc.hf import KeyCache, accelerate, restore

_spec = importlib.util.spec_from_file_location("test_cache_shared", pathlib.Path(__file__).with_name("test_cache.py"))
shared = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(shared)
tiny_models, generate, far, in_float64, prompt, LONG = (
    shared.tiny_models, shared.generate, shared.far, shared.in_float64, shared.prompt, shared.LONG)

SELF_EXTEND = functools.partial(posenc.self_extend, window=7, group=3, ratio="floored")
REROPE = functools.partial(posenc.rerope, window=6)
DUAL = functools.partial(posenc.dual_chunk, chunk_size=9, local_size=3)
LEAKY = functools.partial(posenc.leaky_rerope, window=6, factor=2.0)  # distances that are no whole numbers, as those of the next one
PUBLISHED = functools.partial(posenc.self_extend, window=7, group=3, ratio="real")
DISTANCES = {  # of queries m and keys n, as the papers have them
    SELF_EXTEND: lambda m, n: torch.where(m - n < 7, m - n, m // 3 + 7 - 7 // 3 - n // 3),
    REROPE: lambda m, n: (m - n).clamp(max=6),
    LEAKY: lambda m, n: torch.where(m - n < 6, m - n, 6 + (m - n - 6) / 2),
    PUBLISHED: lambda m, n: torch.where(m - n < 7, m - n, m // 3 + 7 - 7 / 3 - n // 3),
    DUAL: lambda m, n: torch.where(m // 6 == n // 6, m % 6, torch.where(m // 6 - n // 6 == 1, (m % 6 + 6).clamp(max=9), torch.tensor(9))) - n % 6,
}
# Whether the pairs of a head are its halves; whether columns of rows are halves too; where the rotated channels begin.
TYPES = {
    "llama": (True, True, 0), "qwen3": (True, True, 0), "gemma2": (True, True, 0), "gemma3_text": (True, True, 0), "olmo2": (True, True, 0),
    "phi": (True, True, 0), "stablelm": (True, True, 0), "gpt_neox": (True, True, 0), "smollm3": (True, True, 0), "mistral": (True, True, 0),
    "cohere": (False, False, 0), "glm": (False, True, 0), "deepseek_v3": (False, True, 8), "gpt_oss": (True, True, 0),
}


class Reference:
    """A copy in float64 that rotates nothing and whose attention is a dense sum over pairs of channels, by distances."""

    def __init__(self, monkeypatch, model, name, distances):
        self.model, self.distances, self.rows = in_float64(model), distances, []
        self.halves, self.columns, self.offset = TYPES[name]
        self.one_each = name == "gpt_oss"  # a column for each pair, not two
        for cls in {type(m) for m in self.model.modules()}:
            file = sys.modules[cls.__module__]
            for word in [w for w in vars(file) if re.match("apply_rotary", w)]:
                monkeypatch.setattr(file, word, self.kept)
        AttentionInterface.register("reference", self.attention)
        AttentionMaskInterface.register("reference", masking_utils.eager_mask)
        for m in self.model.modules():
            if isinstance(getattr(m, "config", None), transformers.PretrainedConfig):
                m.config._attn_implementation = "reference"

    def kept(self, q, k, cos, sin, *rest, **more):
        self.rows.append((cos.double(), sin.double()))
        return q, k

    def logits(self, ids, positions=None, rows=64):
        self.at = torch.arange(ids.shape[1]) if positions is None else torch.as_tensor(positions)
        with torch.no_grad():
            return self.model(ids, attention_mask=torch.ones_like(ids), position_ids=torch.arange(rows)[None], use_cache=False).logits

    def attention(self, module, q, k, v, mask, scaling=None, softcap=None, s_aux=None, **more):
        groups = q.shape[1] // k.shape[1]
        k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
        score = q @ k.mT
        if self.rows:
            cos, sin = self.rows.pop()
            width = cos.shape[-1] * (2 if self.one_each else 1)
            a, b, half = self.offset, self.offset + width, width // 2
            pairs = (slice(a, a + half), slice(a + half, b)) if self.halves else (slice(a, b, 2), slice(a + 1, b, 2))
            # Rows are of positions 0, 1, ..., whatever the tokens' own are: of a distance.
            table = [(x[0, :, :half] if self.columns or x.shape[-1] == half else x[0, :, ::2]) for x in (cos, sin)]
            d = self.distances(self.at[:, None], self.at).clamp(min=0)  # others are hidden
            gain = float(torch.hypot(table[0][0, 0], table[1][0, 0]))
            if d.is_floating_point():
                angle = d[..., None] * torch.atan2(table[1][1], table[0][1])
                c, s = gain * angle.cos(), gain * angle.sin()
            else:
                c, s = (x[d] for x in table)
            q1, q2, k1, k2 = (x[..., p] for x in (q, k) for p in pairs)
            turned = torch.einsum("bhmp,bhnp,mnp->bhmn", q1, k1, c) + torch.einsum("bhmp,bhnp,mnp->bhmn", q2, k2, c)
            turned += torch.einsum("bhmp,bhnp,mnp->bhmn", q1, k2, s) - torch.einsum("bhmp,bhnp,mnp->bhmn", q2, k1, s)
            score = score - q1 @ k1.mT - q2 @ k2.mT + gain * turned
        score = score * (q.shape[-1] ** -0.5 if scaling is None else scaling)
        if softcap is not None:
            score = softcap * torch.tanh(score / softcap)
        score = score + mask[..., :k.shape[2]]
        sink = getattr(module, "sinks", s_aux)
        if sink is not None:
            score = torch.cat([score, sink.double()[None, :, None, None].expand(*score.shape[:3], 1)], -1)
        return (score.softmax(-1)[..., :v.shape[2]] @ v).transpose(1, 2), None


def rows_of(model, ids, cuts, cache):
    """Logits of a text in pieces."""
    made = []
    with torch.no_grad():
        for a, b in zip([0, *cuts], [*cuts, ids.shape[1]]):
            made.append(model(ids[:, a:b], past_key_values=cache, use_cache=True).logits)
    return torch.cat(made, 1)


@pytest.mark.parametrize("name, distance_map", [
    ("llama", SELF_EXTEND), ("llama", REROPE), ("llama", LEAKY), ("glm", PUBLISHED), *zip(TYPES, itertools.cycle((DUAL, REROPE, SELF_EXTEND)))])
def test_prefill_steps_and_generate_are_the_scores_written_out(monkeypatch, name, distance_map):
    model = tiny_models.build(name, **LONG)
    ids = prompt(model, 40)
    with torch.no_grad():
        plain = model(ids, use_cache=False).logits
    reference = Reference(monkeypatch, model, name, DISTANCES[distance_map])
    want = reference.logits(ids)
    assert far(plain, want) > 1e-3
    monkeypatch.undo()
    report = accelerate(model, distance_map=distance_map)
    with torch.no_grad():
        assert far(model(ids, use_cache=False).logits, want) < 1e-4
    assert report.calls == len(report.rotation) and not report.reasons
    assert far(rows_of(model, ids, (5, 34, *range(35, 40)), transformers.DynamicCache(config=model.config)), want) < 1e-4
    assert far(rows_of(model, ids, (17, 30, 31, 32), KeyCache(model)), want) < 1e-4
    monkeypatch.undo()
    sequence, logits = generate(model, ids[:, :20], 12)
    restore(model)
    reference = Reference(monkeypatch, model, name, DISTANCES[distance_map])
    want = reference.logits(sequence)[:, 19:-1]
    assert torch.equal(want.argmax(-1), sequence[:, 20:]) and far(logits, want) < 1e-4


def test_a_gain_and_leaky_distances(monkeypatch):
    """YaRN's factor on cosine and sine; distances that are those of the tokens."""
    yarn = dict(rope_type="yarn", rope_theta=1e4, factor=4.0, original_max_position_embeddings=16)
    model = tiny_models.build("llama", rope_parameters=yarn, **LONG)
    assert model.model.rotary_emb.attention_scaling > 1.1
    ids = prompt(model, 40)
    want = Reference(monkeypatch, model, "llama", DISTANCES[REROPE]).logits(ids)
    monkeypatch.undo()
    accelerate(model, distance_map=REROPE)
    with torch.no_grad():
        assert far(model(ids, use_cache=False).logits, want) < 1e-4
    restore(model)
    whole = functools.partial(posenc.leaky_rerope, window=6, factor=1.0)  # the distances themselves
    with torch.no_grad():
        want = model(ids, use_cache=False).logits
        accelerate(model, distance_map=whole)
        assert far(model(ids, use_cache=False).logits, want) < 1e-4


@pytest.mark.filterwarnings("error::UserWarning")
@pytest.mark.parametrize("cache", ("dynamic", "key"))
@pytest.mark.parametrize("name", ("llama", "mistral"))
def test_rows_of_a_padded_batch_are_texts_alone(monkeypatch, name, cache):
    """Dual chunk reads positions, not places."""
    model = tiny_models.build(name, **LONG)
    ids = prompt(model, 20, 2)
    mask = torch.ones_like(ids)
    mask[1, :7] = 0
    accelerate(model, distance_map=DUAL)
    sequence, logits = generate(model, ids, 20, KeyCache(model) if cache == "key" else None, mask)
    restore(model)
    for row, pad in ((0, 0), (1, 7)):
        reference = Reference(monkeypatch, model, name, DISTANCES[DUAL])
        assert far(logits[row], reference.logits(sequence[row:row + 1, pad:])[0, -21:-1]) < 1e-4
        monkeypatch.undo()


def test_beams_several_texts_and_tokens_taken_back(monkeypatch):
    model = tiny_models.build("llama", **LONG)
    ids = prompt(model, 20)
    accelerate(model, distance_map=SELF_EXTEND)
    beams, _ = generate(model, ids, 16, num_beams=3)
    again, _ = generate(model, ids, 16, KeyCache(model), num_beams=3)
    assert torch.equal(beams, again)
    cache = transformers.DynamicCache(config=model.config)
    got = rows_of(model, ids, (8, 15), cache)
    cache.crop(-5)
    forked = copy.deepcopy(cache)
    for one in (cache, forked):
        with torch.no_grad():
            assert far(model(ids[:, 15:], past_key_values=one).logits, got[:, 15:]) < 1e-5
    mine = copy.deepcopy(model)
    with torch.no_grad():
        assert torch.equal(mine(ids, use_cache=False).logits, model(ids, use_cache=False).logits)
        own = pickle.loads(pickle.dumps(model))
        restore(own)
    restore(model)
    want = Reference(monkeypatch, model, "llama", DISTANCES[SELF_EXTEND])
    assert far(got, want.logits(ids)) < 1e-4
    monkeypatch.undo()
    with torch.no_grad():
        assert torch.equal(own(ids, use_cache=False).logits, model(ids, use_cache=False).logits)


def test_keys_of_a_key_cache_are_kept_whatever_moves(monkeypatch, tmp_path):
    """One layer, so that a key depends on its own token alone: the tokens that are there, at their positions, count."""
    model = tiny_models.build("llama", num_hidden_layers=1, **LONG)
    ids, plain = prompt(model, 40), copy.deepcopy(model)
    early = KeyCache(model)  # made before the map is set
    accelerate(model, distance_map=SELF_EXTEND)
    run = functools.partial(rows_of, model)

    def last(cache, position):
        with torch.no_grad():
            return model(ids[:, 39:], past_key_values=cache, position_ids=torch.tensor([[position]]), use_cache=True).logits[:, -1]

    run(ids[:, :39], (), early)
    stored = early.layers[0].keys.clone()
    stream, slots, moved = early.fork(), early.fork(), early.fork()
    stream.positions = "stream"
    stream.evict(4, 10)
    slots.evict(4, 10)
    moved.shift(5, 20)
    chunk, joined = KeyCache(model), KeyCache(model)
    run(ids[:, 20:39], (), chunk)
    run(ids[:, :20], (), joined)
    joined.append(chunk, at=30)
    early.save(tmp_path / "cache.safetensors")
    again = KeyCache.load(tmp_path / "cache.safetensors", model)
    there = [*range(4), *range(10, 39)]
    assert torch.equal(stream.layers[0].keys, stored[:, :, there]) and torch.equal(moved.layers[0].keys, stored) and moved.moved == slots.moved == 0
    assert torch.equal(joined.layers[0].keys, stored)
    got = [last(stream, 39), last(slots, 39), last(moved, 44), last(joined, 49), last(again, 39)]
    text = torch.cat([ids[:, there], ids[:, 39:]], 1)
    reference = Reference(monkeypatch, plain, "llama", DISTANCES[SELF_EXTEND])
    want = [reference.logits(text, [*there, 39]), reference.logits(text, [*range(6, 10), *range(10, 40)]),
            reference.logits(ids, [*range(20), *range(25, 45)]), reference.logits(ids, [*range(20), *range(30, 50)]), reference.logits(ids)]
    assert len(got) == 5 and all(far(g, w[:, -1]) < 1e-4 for g, w in zip(got, want))
    restore(model)
    with pytest.raises(ValueError, match="needs a new cache"):
        run(ids[:, 39:], (), early)
    with pytest.raises(ValueError, match="must be of a model with a distance map"):
        KeyCache.load(tmp_path / "cache.safetensors", model)


def test_frequencies_may_change_while_keys_are_cached(tmp_path):
    """With one layer, so that keys do not depend on the frequencies."""
    model = tiny_models.build("llama", num_hidden_layers=1, **LONG)
    ids, mine, theirs = prompt(model, 30), KeyCache(model), transformers.DynamicCache(config=model.config)
    accelerate(model, distance_map=REROPE)
    with torch.no_grad():
        before = model(ids, use_cache=False).logits[:, 20:]
    for cache in (mine, theirs):
        rows_of(model, ids[:, :20], (7, 18, 19), cache)
    mine.save(tmp_path / "cache.safetensors")
    model.model.rotary_emb.inv_freq.mul_(0.25)
    with torch.no_grad():
        want = model(ids, use_cache=False).logits[:, 20:]
    assert far(before, want) > 1e-3
    for cache in (mine, theirs, KeyCache.load(tmp_path / "cache.safetensors", model)):
        assert far(rows_of(model, ids[:, 20:], (1,), cache), want) < 1e-5


@pytest.mark.parametrize("kind, more", (
    ("dynamic", dict(factor=2.0)), ("longrope", dict(short_factor=[1.0] * 4, long_factor=[1.0, 1.5, 2.0, 2.5], original_max_position_embeddings=24))))
def test_frequencies_may_depend_on_the_length(monkeypatch, kind, more):
    """All keys have the frequencies of the present length, as in one forward over the whole text. With one layer, as above."""
    scaled = dict(rope_parameters=dict(rope_type=kind, rope_theta=1e4, **more), max_position_embeddings=24)
    model = tiny_models.build("llama", num_hidden_layers=1, **(LONG | scaled))
    ids, got = prompt(model, 40), {}
    accelerate(model, distance_map=SELF_EXTEND)
    for cache in (transformers.DynamicCache(config=model.config), KeyCache(model)):
        for a, b in ((0, 18), (18, 22), *((n, n + 1) for n in range(22, 37)), (37, 40)):
            got.setdefault(b, []).append(rows_of(model, ids[:, a:b], (), cache)[:, -1])
    restore(model)
    reference = Reference(monkeypatch, model, "llama", DISTANCES[SELF_EXTEND])
    early = reference.logits(ids, rows=23)[:, -1]
    for end, both in got.items():
        want = reference.logits(ids[:, :end], rows=end)[:, -1]
        assert all(far(one, want) < 1e-4 for one in both), end
    assert far(want, early) > 1e-3


@pytest.mark.parametrize("dtype", (torch.bfloat16, torch.float64))
def test_other_types_of_numbers(monkeypatch, dtype):
    model = tiny_models.build("llama", **LONG)
    ids = prompt(model, 40)
    want = Reference(monkeypatch, model, "llama", DISTANCES[REROPE]).logits(ids)
    monkeypatch.undo()
    model = model.to(dtype)
    accelerate(model, distance_map=REROPE)
    assert far(rows_of(model, ids, (30, 31), None if dtype is torch.float64 else KeyCache(model))[:, :30], want[:, :30]) < (1e-5 if dtype is torch.float64 else 0.1)


def test_nan_reaches_the_logits():
    model = tiny_models.build("llama", **LONG)
    accelerate(model, distance_map=REROPE)
    embeds = torch.randn(1, 9, model.config.hidden_size)
    embeds[0, 4] = torch.nan
    with torch.no_grad():
        logits = model(inputs_embeds=embeds, use_cache=False).logits
    assert logits[0, :4].isfinite().all() and logits[0, 4:].isnan().all()


def error(call):
    with pytest.raises(ValueError) as raised:
        call()
    return str(raised.value)


def test_what_a_map_cannot_do_is_refused_by_name():
    llama = tiny_models.build("llama", **LONG)
    ids, before = prompt(llama), set(llama.__dict__)
    assert "distance_map requires attention, but attention=False was given" in error(lambda: accelerate(llama, attention=False, distance_map=REROPE))
    assert 'distance_map must be a function of query and key positions, as functools.partial(posenc.rerope, window=512) is, got "int"' in error(
        lambda: accelerate(llama, distance_map=3))
    assert "[rerope] window must be positive, got 0" in error(lambda: accelerate(llama, distance_map=functools.partial(posenc.rerope, window=0)))
    assert "regions must be those of self_extend" in error(lambda: accelerate(llama, distance_map=lambda q, k: [{}]))
    assert 'distance_map must return a list of regions, as posenc.self_extend does, got "int"' in error(lambda: accelerate(llama, distance_map=lambda q, k: 3))
    for wrong in (lambda q: [], posenc.self_extend):
        assert "distance_map must accept two arguments, query and key positions" in error(lambda: accelerate(llama, distance_map=wrong))
    assert "distance_map must give positions for each region, got \"q and k\"" in error(
        lambda: accelerate(llama, distance_map=lambda q, k: [dict(chunk=1, low=None, high=None, q=ids, k=ids)]))
    assert "distance_map must give at least one region, got \"none\"" in error(lambda: accelerate(llama, distance_map=lambda q, k: iter([])))
    for query, got in (([0, 1, 2], "int64 of shape [3]"), (0, "int64 of shape []"), (["a", "b"], "<U1 of shape [2]")):
        one = dict(chunk=1, low=None, high=None, query=query, key=[0, 1])
        assert f'distance_map must give 2 query positions, which are numbers, in each region, got "{got}"' in error(
            lambda: accelerate(llama, distance_map=lambda q, k: [one]))
    for name, said in (("bloom", "requires a model that rotates q and k by a function that posenc recognises"), ("gpt2", "requires a model that rotates"),
                       ("roformer", "requires a model that rotates"), ("deepseek_v2", "requires a model that rotates"),
                       ("gpt_neox_japanese", "distance_map requires attention that posenc computes"), ("nanochat", "requires a model that rotates"),
                       ("deepseek_v32", "distance_map requires attention that posenc computes")):
        other = tiny_models.build(name, **LONG)
        assert said in error(lambda: accelerate(other, distance_map=REROPE)), name
        accelerate(other)  # nothing was left behind
    assert set(llama.__dict__) == before
    whole = KeyCache(llama)
    with torch.no_grad():
        llama(ids, past_key_values=whole, use_cache=True)
    accelerate(llama, distance_map=REROPE)
    assert "the model must keep its distance map" in error(lambda: rows_of(llama, ids, (), whole))
    assert "distance_map requires attention that posenc computes, got \"attentions as output\"" in error(
        lambda: torch.no_grad()(llama)(ids, output_attentions=True))
    static = transformers.StaticCache(config=llama.config, max_cache_len=32)
    assert "keys in their order" in error(lambda: torch.no_grad()(llama)(ids, past_key_values=static))
    theirs = transformers.DynamicCache(config=llama.config)
    restore(llama)
    torch.no_grad()(llama)(ids, past_key_values=theirs)
    accelerate(llama, distance_map=REROPE)
    assert "all keys of a cache must be of this model with its distance map, got \"12 tokens, of which 0 are\"" in error(
        lambda: torch.no_grad()(llama)(ids, past_key_values=theirs))
    for name, said in (("hunyuan_v1_dense", "q and k as the rotation leaves them"), ("gemma3n_text", "q and k as the rotation leaves them"),
                       ("falcon-alibi", "a model that rotates q and k, got \"FalconForCausalLM, which rotated nothing\"")):
        other = tiny_models.build(name, **LONG)
        accelerate(other, distance_map=REROPE)
        assert f"distance_map requires {said}" in error(lambda: torch.no_grad()(other)(ids)), name


def test_the_distances_themselves_change_nothing():
    """Two calls of the attention in a layer, states beside keys, encoders: types that the references above have not."""
    for name in ("diffllama", "esm", "falcon_h1", "granitemoehybrid", "qwen3_next", "youtu"):
        model = tiny_models.build(name, **LONG)
        given = tiny_models.inputs(model, 1, 24)
        with torch.no_grad():
            want = model(**given).logits
            accelerate(model, distance_map=functools.partial(posenc.leaky_rerope, window=5, factor=1.0))
            assert far(model(**given).logits, want) < 1e-4, name
