# SPDX-License-Identifier: Apache-2.0
"""KeyCache: tokens that leave, move, are shared, stored, and meet other frequencies; what is rejected."""
import copy
import importlib.util
import os
import pathlib
import re

import pytest
import torch
import transformers

import posenc.hf
from posenc.hf import KeyCache

_spec = importlib.util.spec_from_file_location("test_cache_shared", pathlib.Path(__file__).with_name("test_cache.py"))
shared = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(shared)
tiny_models, generate, far, in_float64, prompt, LONG = (
    shared.tiny_models, shared.generate, shared.far, shared.in_float64, shared.prompt, shared.LONG)
ONE = dict(num_hidden_layers=1, num_layers=1)


def forward(model, ids, cache, **more):
    with torch.no_grad():
        return model(ids, past_key_values=cache, use_cache=True, **more).logits


def alone(model, ids, positions=None):
    """Logits of the last token, of a forward in float64 without a cache; in a model of one layer all that counts is who is there, and where."""
    with torch.no_grad():
        return in_float64(model)(ids, attention_mask=torch.ones_like(ids), position_ids=None if positions is None else torch.tensor([positions]), use_cache=False).logits[:, -1]


@pytest.mark.parametrize("keys", ("rotated", "unrotated"))
@pytest.mark.parametrize("name", ("llama", "glm", "cohere", "deepseek_v3", "gptj", "codegen"))
def test_evicted_tokens_leave_no_gap(name, keys):
    model = tiny_models.build(name, **ONE, **LONG)
    ids = prompt(model, 20)
    cache = KeyCache(model, keys=keys)
    forward(model, ids[:, :19], cache)
    cache.evict(4, 11)
    got = forward(model, ids[:, 19:], cache, position_ids=torch.tensor([[19]]))
    assert far(got[:, -1], alone(model, torch.cat([ids[:, :4], ids[:, 11:]], 1))) < 1e-4
    assert cache.moved == (keys == "rotated")
    assert cache.get_seq_length() == 20


@pytest.mark.parametrize("keys", ("rotated", "unrotated"))
def test_of_the_stream_the_positions_stay(keys):
    model = tiny_models.build("llama", **ONE, **LONG)
    ids = prompt(model, 20)
    cache = KeyCache(model, positions="stream", keys=keys)
    forward(model, ids[:, :19], cache)
    cache.evict(4, 11)
    got = forward(model, ids[:, 19:], cache)
    assert far(got[:, -1], alone(model, torch.cat([ids[:, :4], ids[:, 11:]], 1), [*range(4), *range(11, 20)])) < 1e-4
    assert cache.moved == 0


@pytest.mark.parametrize("keys", ("rotated", "unrotated"))
def test_a_range_moves(keys):
    model = tiny_models.build("qwen3", **ONE, **LONG)
    ids = prompt(model, 12)
    cache = KeyCache(model, keys=keys)
    forward(model, ids[:, :11], cache)
    cache.shift(-3, 4, 7)
    cache.shift(100, 7)
    got = forward(model, ids[:, 11:], cache, position_ids=torch.tensor([[150]]))
    assert far(got[:, -1], alone(model, ids, [0, 1, 2, 3, 1, 2, 3, 107, 108, 109, 110, 150])) < 1e-4


@pytest.mark.parametrize("first,second", [(a, b) for a in ("rotated", "unrotated") for b in ("rotated", "unrotated")])
@pytest.mark.parametrize("name", ("llama", "deepseek_v3", "gemma3_text"))
def test_a_chunk_is_used_at_another_place(name, first, second):
    model = tiny_models.build(name, **ONE, **LONG)
    ids = prompt(model, 20)
    chunk, cache = KeyCache(model, keys=first), KeyCache(model, keys=second)
    forward(model, ids[:, 8:19], chunk)
    forward(model, ids[:, :8], cache)
    cache.append(chunk)
    got = forward(model, ids[:, 19:], cache)
    assert far(got[:, -1], alone(model, ids)) < 1e-4
    assert chunk.tokens.end == 11 and chunk.moved == 0
    empty = KeyCache(model)
    empty.append(chunk, at=40)
    got = forward(model, ids[:, 19:], empty, position_ids=torch.tensor([[51]]))
    assert far(got[:, -1], alone(model, ids[:, 8:])) < 1e-4


@pytest.mark.parametrize("keys", ("rotated", "unrotated"))
def test_rows_with_padding_count_their_own_tokens(keys):
    """A chunk follows the last token of each row, and a gap closes by as many positions as the row loses."""
    model = tiny_models.build("llama", **ONE, **LONG)
    ids, mask = prompt(model, 20, 2), torch.ones(2, 20, dtype=torch.long)
    mask[1, :3] = 0
    positions = (mask.cumsum(-1) - 1).clamp(min=0)
    cache, chunk = KeyCache(model, keys=keys), KeyCache(model)
    forward(model, ids[:, :12], cache, attention_mask=mask[:, :12], position_ids=positions[:, :12])
    forward(model, ids[:, 12:19], chunk)
    cache.append(chunk)
    cache.evict(2, 6)
    got = forward(model, ids[:, 19:], cache, attention_mask=mask, position_ids=positions[:, 19:])
    for row, kept in enumerate(([0, 1, *range(6, 20)], range(6, 20))):
        assert far(got[row, -1:], alone(model, ids[row:row + 1, list(kept)])) < 1e-4


def test_positions_by_axes_move():
    config = transformers.Qwen2VLTextConfig(
        vocab_size=96, hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_attention_heads=4, num_key_value_heads=2,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [1, 1, 2]}, initializer_range=0.2)
    torch.manual_seed(0)
    model = transformers.models.qwen2_vl.modeling_qwen2_vl.Qwen2VLTextModel(config).eval()
    x, axes = torch.randn(1, 10, 32), torch.tensor([[0, 1, 2, 2, 2, 2, 4, 5, 6, 7], [0, 1, 2, 2, 3, 3, 4, 5, 6, 7], [0, 1, 2, 3, 2, 3, 4, 5, 6, 7]])[:, None]
    moved = axes.clone()
    moved[:, :, 2:6] += torch.tensor([5, 1, -2])[:, None, None]
    cache = KeyCache(model)
    with torch.no_grad():
        model(inputs_embeds=x[:, :9], position_ids=axes[..., :9], past_key_values=cache, use_cache=True)
        cache.shift([5, 1, -2], 2, 6)
        got = model(inputs_embeds=x[:, 9:], position_ids=axes[..., 9:], past_key_values=cache).last_hidden_state
        want = copy.deepcopy(model).double()(inputs_embeds=x.double(), position_ids=moved, use_cache=False).last_hidden_state[:, -1:]
    assert float((got - want).abs().max()) < 1e-4


def test_a_fork_shares_memory_until_one_writes():
    model = tiny_models.build("llama", **LONG)
    ids = prompt(model, 14)
    cache = KeyCache(model)
    forward(model, ids[:, :9], cache)
    forward(model, ids[:, 9:10], cache)  # the buffer has grown, so that there is room for both to write
    other = copy.deepcopy(cache)
    assert cache.layers[0]._k.room >= 14
    assert other.layers[0]._k.data.data_ptr() == cache.layers[0]._k.data.data_ptr()
    one, two = forward(model, ids[:, 10:12], other), forward(model, ids[:, 11:], cache)
    rest = forward(model, ids[:, 12:], other)
    fresh = KeyCache(model)
    forward(model, ids[:, :10], fresh)
    assert far(forward(model, ids[:, 11:], fresh), two) < 1e-5
    assert far(torch.cat([one, rest], 1), forward(model, ids, None)[:, 10:]) < 1e-5


SCALINGS = {
    "dynamic": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 4.0},
    "longrope": {"rope_type": "longrope", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 24,
                 "short_factor": [1.0] * 4, "long_factor": [1.0, 1.5, 2.5, 4.0]},
}


@pytest.mark.parametrize("kind", SCALINGS)
def test_unrotated_keys_follow_the_frequencies(kind):
    """One layer: the same as a forward over the whole text at each step, in float64. Rotated keys are rejected at the change."""
    model = tiny_models.build("llama", **ONE, max_position_embeddings=24, rope_parameters=SCALINGS[kind]).double()
    ids = prompt(model, 40)
    cache = KeyCache(model, keys="unrotated")
    got = [forward(model, ids[:, :20], cache)[:, -1]] + [forward(model, ids[:, t:t + 1], cache)[:, -1] for t in range(20, 40)]
    fresh = copy.deepcopy(model)
    want = [forward(fresh, ids[:, :t], None)[:, -1] for t in range(20, 41)]
    assert far(torch.stack(got), torch.stack(want)) < 1e-6
    stale, rotated = copy.deepcopy(model), KeyCache(model)
    forward(model, ids[:, :20], rotated)
    with pytest.raises(ValueError, match='frequencies of "model.rotary_emb" must not change while rotated keys are in the cache'):
        for t in range(20, 40):
            forward(model, ids[:, t:t + 1], rotated)
    assert rotated.tokens.end == 24
    plain = transformers.DynamicCache(config=stale.config)
    old = [forward(stale, ids[:, :20], plain)[:, -1]] + [forward(stale, ids[:, t:t + 1], plain)[:, -1] for t in range(20, 40)]
    assert far(torch.stack(old), torch.stack(want)) > 0.03  # keys of the earlier frequencies


def test_rope_parameters_change_under_a_live_cache():
    model = tiny_models.build("llama", **ONE, **LONG).double()
    ids = prompt(model, 12)
    cache = KeyCache(model, keys="unrotated")
    forward(model, ids[:, :11], cache)
    model.config.rope_parameters = {"rope_type": "linear", "rope_theta": 1e4, "factor": 4.0}
    model.model.rotary_emb = type(model.model.rotary_emb)(model.config).double()
    assert far(forward(model, ids[:, 11:], cache)[:, -1], forward(copy.deepcopy(model), ids, None)[:, -1]) < 1e-6


def test_far_positions_are_exact():
    """The same tokens at 0 and at a million: only differences of positions count. Rows of float32 phases are off."""
    model = tiny_models.build("llama", **LONG)
    ids = prompt(model, 24)
    near = forward(model, ids, KeyCache(model))
    at = torch.arange(24)[None] + 10**7
    assert far(forward(model, ids, KeyCache(model), position_ids=at), near) < 1e-4
    assert far(forward(model, ids, transformers.DynamicCache(), position_ids=at), near) > 5e-3


@pytest.mark.parametrize("keys", ("rotated", "unrotated"))
@pytest.mark.parametrize("window", (dict(), dict(sinks=3, window=8)))
def test_a_file_has_all_of_it(tmp_path, keys, window):
    model = tiny_models.build("gemma2", **LONG)
    ids = prompt(model, 24)
    cache, path = KeyCache(model, keys=keys, **window), tmp_path / "cache.safetensors"
    forward(model, ids[:, :20], cache)
    forward(model, ids[:, 20:21], cache)
    cache.save(path)
    assert os.listdir(tmp_path) == ["cache.safetensors"]
    again = KeyCache.load(path, model)
    for t in range(21, 24):
        assert torch.equal(forward(model, ids[:, t:t + 1], cache), forward(model, ids[:, t:t + 1], again))


def test_files_that_do_not_fit_are_rejected(tmp_path, monkeypatch):
    model, path = tiny_models.build("llama", **LONG), tmp_path / "cache.safetensors"
    cache = KeyCache(model)
    forward(model, prompt(model), cache)
    cache.save(path)
    whole = path.read_bytes()
    for n in (0, 7, 100, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:n])
        with pytest.raises(ValueError, match=r"must be a whole .safetensors file"):
            KeyCache.load(path, model)
    path.write_bytes(whole)
    with pytest.raises(ValueError, match="must be of the model MistralForCausalLM"):
        KeyCache.load(path, tiny_models.build("mistral", **LONG))
    other = copy.deepcopy(model)
    other.model.layers[0].self_attn.k_proj.weight.data.mul_(1.5)
    with pytest.raises(ValueError, match="must be of this model's weights"):
        KeyCache.load(path, other)
    slower = copy.deepcopy(model)
    slower.model.rotary_emb.inv_freq.mul_(0.5)
    with pytest.raises(ValueError, match="must rotate as the file says"):
        KeyCache.load(path, slower)
    from safetensors.torch import save_file

    save_file({"x": torch.zeros(2)}, path)
    with pytest.raises(ValueError, match="must be a file that KeyCache.save wrote"):
        KeyCache.load(path, model)
    monkeypatch.setattr("posenc.hf._cache_file._sum", lambda said, tensors: "none")  # a program that writes such files itself
    cache.save(path)
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b'\\"seen\\"', b'\\"sEen\\"'))
    with pytest.raises(ValueError, match="must describe a cache of this model"):
        KeyCache.load(path, model)
    path.write_bytes(whole.replace(b'\\"end\\": 12', b'\\"end\\": 11'))
    with pytest.raises(ValueError, match="must describe a cache of this model"):
        KeyCache.load(path, model)


def test_a_save_that_fails_leaves_the_earlier_file(tmp_path, monkeypatch):
    model, path = tiny_models.build("llama", **LONG), tmp_path / "cache.safetensors"
    cache = KeyCache(model)
    forward(model, prompt(model), cache)
    path.write_bytes(b"earlier")
    monkeypatch.setattr(os, "fsync", lambda fd: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        cache.save(path)
    assert path.read_bytes() == b"earlier" and os.listdir(tmp_path) == ["cache.safetensors"]
