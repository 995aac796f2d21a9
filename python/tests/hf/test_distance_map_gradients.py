# SPDX-License-Identifier: Apache-2.0
"""Training under a distance map: gradients beside those of a dense sum in float64."""
import importlib.util
import pathlib

import pytest
import torch
import transformers

from posenc.hf import KeyCache, accelerate

_spec = importlib.util.spec_from_file_location("test_distance_map_shared", pathlib.Path(__file__).with_name("test_distance_map.py"))
shared = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(shared)
tiny_models, prompt, far, Reference, DISTANCES, LONG = (
    shared.tiny_models, shared.prompt, shared.far, shared.Reference, shared.DISTANCES, shared.LONG)


def gradients(model, logits, weights):
    model.zero_grad()
    (logits * weights.to(logits.dtype)).sum().backward()
    return {n: p.grad for n, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("name, distance_map", [
    ("llama", shared.SELF_EXTEND), ("llama", shared.LEAKY), ("gemma2", shared.DUAL), ("glm", shared.PUBLISHED), ("deepseek_v3", shared.DUAL),
    ("gpt_oss", shared.REROPE), ("phi", shared.REROPE)])
def test_gradients_of_all_weights(monkeypatch, name, distance_map):
    model = tiny_models.build(name, **LONG)
    ids = prompt(model, 24, 2)
    reference = Reference(monkeypatch, model, name, DISTANCES[distance_map])
    reference.at = torch.arange(24)
    logits = reference.model(ids, attention_mask=torch.ones_like(ids), position_ids=torch.arange(64)[None], use_cache=False).logits
    weights = torch.randn(logits.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    want = gradients(reference.model, logits, weights)
    monkeypatch.undo()
    accelerate(model, distance_map=distance_map)
    got = gradients(model, model(ids, use_cache=False).logits, weights)
    assert got.keys() == want.keys() and any("q_proj" in n or "Wqkv" in n or "q_b_proj" in n for n in got)
    for n, x in want.items():
        assert far(got[n], x) < 1e-4 * max(1.0, float(x.abs().max())), n
    assert name != "gpt_oss" or all(float(x.abs().max()) > 1e-2 for n, x in want.items() if n.endswith("sinks"))


def test_padding_caches_checkpoints_and_types():
    model = tiny_models.build("llama", **LONG)
    ids = prompt(model, 20, 2)
    mask = torch.ones_like(ids)
    mask[1, :6] = 0
    at = (mask.cumsum(-1) - 1).clamp(min=0)
    weights = torch.randn(2, 20, model.config.vocab_size, dtype=torch.float64) * mask[..., None]
    accelerate(model, distance_map=shared.REROPE)
    given = dict(attention_mask=mask, position_ids=at, use_cache=False)
    want = gradients(model, model(ids, **given).logits, weights)
    alone = gradients(model, model(ids[:1], use_cache=False).logits, weights[:1])
    other = gradients(model, model(ids[1:, 6:], use_cache=False).logits, weights[1:, 6:])
    assert all(far(want[n], alone[n] + other[n]) < 1e-4 for n in want)
    cache = transformers.DynamicCache(config=model.config)
    pieces = [model(ids[:1, a:b], past_key_values=cache, use_cache=True).logits for a, b in ((0, 9), (9, 10), (10, 20))]
    split = gradients(model, torch.cat(pieces, 1), weights[:1])
    assert all(far(split[n], alone[n]) < 1e-4 for n in split)
    model.train()
    model.gradient_checkpointing_enable()
    again = gradients(model, model(ids, **given).logits, weights)
    assert all(far(again[n], want[n]) < 1e-5 for n in want)
    model.gradient_checkpointing_disable()
    half = gradients(model.bfloat16(), model(ids, **given).logits, weights)
    assert all(x.dtype is torch.bfloat16 and far(x, want[n]) < 0.1 * float(want[n].abs().max()) for n, x in half.items())


def test_what_is_refused():
    model = tiny_models.build("llama", **LONG)
    ids = prompt(model, 12)
    accelerate(model, distance_map=shared.REROPE)
    embeds = model.get_input_embeddings()(ids).detach().requires_grad_()
    first, = torch.autograd.grad(model(inputs_embeds=embeds, use_cache=False).logits.square().sum(), embeds, create_graph=True)
    with pytest.raises(RuntimeError, match="differentiate twice"):
        first.sum().backward()
    kept = {}
    model.model.layers[0].self_attn.q_proj.register_forward_hook(lambda module, args, made: kept.update(q=made))
    logits = model(ids, use_cache=False).logits
    with torch.no_grad():
        kept["q"].mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        logits.sum().backward()
    with pytest.raises(ValueError, match="keys must not require a gradient"):
        model(ids, past_key_values=KeyCache(model))
    bias = torch.zeros(1, 1, 12, 12, requires_grad=True)
    with pytest.raises(ValueError, match="a mask must not require a gradient under a distance map, got \"bias\""):
        model(ids, attention_mask=bias, use_cache=False)
    with torch.no_grad():
        assert model(ids, attention_mask=bias, use_cache=False).logits.isfinite().all()
    model.train()
    for layer in model.model.layers:
        layer.self_attn.attention_dropout = 0.1
    with pytest.raises(ValueError, match="distance_map requires attention that posenc computes, got \"dropout in training\""):
        model(ids, use_cache=False)
