# SPDX-License-Identifier: Apache-2.0
"""check: what a live model's buffers hold beside what its config says."""
import pytest
import torch
import transformers

import posenc.hf


def model(dtype=None, **rope):
    given = {"rope_type": "default", "rope_theta": 10000.0, **rope}
    config = transformers.LlamaConfig(
        vocab_size=96, hidden_size=64, intermediate_size=48, num_hidden_layers=1, num_attention_heads=4, max_position_embeddings=64,
        rope_parameters=given)
    made = transformers.AutoModelForCausalLM.from_config(config).eval()
    return made if dtype is None else made.to(dtype)


def codes(m):
    return [(f.severity, f.code) for f in posenc.hf.check(m)]


def test_a_fresh_model_is_well():
    assert codes(model()) == []
    assert codes(model(rope_type="yarn", factor=4.0, original_max_position_embeddings=32)) == []
    assert codes(torch.nn.Linear(2, 2)) == []


def test_frequencies_that_were_cast():
    assert codes(model(torch.bfloat16)) == [("error", "frequencies_cast")]
    assert codes(model(torch.bfloat16).float()) == [("error", "frequencies_cast")]  # and widened again
    found = posenc.hf.check(model(torch.bfloat16))[0]
    assert found.where == "model.rotary_emb.inv_freq" and "bfloat16" in found.message and "position 64" in found.message


def test_frequencies_that_are_stale():
    m = model()
    m.config.rope_parameters["rope_theta"] = 5e5
    assert codes(m) == [("error", "frequencies_stale")]


def test_a_gain_that_is_stale():
    m = model(rope_type="yarn", factor=4.0, original_max_position_embeddings=32)
    m.model.rotary_emb.attention_scaling = 1.0
    assert codes(m) == [("error", "gain_stale")]


@pytest.mark.parametrize("value", [0.0, float("nan")])
def test_frequencies_that_a_load_left_unset(value):
    m = model()
    m.model.rotary_emb.inv_freq.fill_(value)
    assert codes(m) == [("error", "frequencies_unset")]


def test_frequencies_on_the_meta_device():
    m = model()
    m.model.rotary_emb.inv_freq = torch.empty(8, device="meta")
    assert codes(m) == [("error", "frequencies_missing")]


def test_frequencies_of_the_longest_call():
    m = model(rope_type="dynamic", factor=2.0)
    assert codes(m) == []
    with torch.no_grad():
        m(torch.ones(1, 100, dtype=torch.long))
    assert codes(m) == [("warning", "frequencies_held")]
    assert "100 tokens" in posenc.hf.check(m)[0].message


def test_each_layer_type_by_itself():
    config = transformers.Gemma3TextConfig(
        vocab_size=96, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=8)
    m = transformers.AutoModelForCausalLM.from_config(config)
    assert codes(m) == []
    m.model.rotary_emb.sliding_attention_inv_freq.mul_(2)
    assert [f.where for f in posenc.hf.check(m)] == ["model.rotary_emb.sliding_attention_inv_freq"]


def test_refusal():
    with pytest.raises(ValueError, match=r"\[hf check\] model must be a torch.nn.Module"):
        posenc.hf.check("llama")


def test_another_type_in_the_config():
    m = model()
    m.config.rope_parameters = {"rope_type": "linear", "factor": 4.0, "rope_theta": 10000.0}
    assert codes(m) == [("error", "frequencies_stale")]
    m = model(rope_type="linear", factor=4.0)
    m.config.rope_parameters = {"rope_type": "default", "rope_theta": 10000.0}
    assert codes(m) == [("error", "frequencies_stale")]
    m.config.rope_parameters = {"rope_type": "linear", "rope_theta": 10000.0}
    assert codes(m) == [("error", "config_unusable")] and "factor" in posenc.hf.check(m)[0].message
