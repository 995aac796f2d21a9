# SPDX-License-Identifier: Apache-2.0
"""register_scalings: rope_types of the library, with the frequencies of the library."""
import logging
import subprocess
import sys

import pytest
import torch
import transformers

import posenc
import posenc.hf

ROPE = "rope head_dim=16 base=10000 pairing=half_split + "
# One setting of each; head_dim is 16.
SETTINGS = {
    "linear": dict(factor=4.0), "raised_base": dict(base=5e5), "ntk": dict(factor=4.0, formula="alpha"),
    "ntk_by_parts": dict(factor=4.0, original_context=32), "yarn": dict(factor=4.0, original_context=32),
    "llama3": dict(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_context=32),
    "longrope": dict(short_factor=[1.0] * 8, long_factor=[2.0] * 8, original_context=32, switch_rule="always_long", factor=4.0),
    "proportional": dict(fraction=0.5), "dynamic": dict(factor=2.0, trained_length=64, length_rule="held"),
    "qwen_dynamic": dict(trained_length=64, length_rule="held"), "dynamic_linear": dict(trained_length=64, length_rule="held"),
    "dynamic_yarn": dict(original_context=64, length_rule="held"), "dynamic_ntk_by_parts": dict(original_context=64, length_rule="held"),
    "dynamic_longrope": dict(long_factor=[2.0] * 8, factor=4.0, original_context=64, length_rule="held"),
    "fope": dict(trained_length=64), "frequencies": dict(values=[0.5 ** i for i in range(8)], attention_factor=1.5),
    "divisors": dict(values=[2.0 + i for i in range(8)]), "learned_stretch": dict(alpha=[0.5] * 8),
}
LOGITS = {"mscale_logit": dict(factor=4.0, mscale_all_dim=1.0)}


def config(kind, **fields):
    return transformers.LlamaConfig(
        vocab_size=96, hidden_size=64, intermediate_size=48, num_hidden_layers=1, num_attention_heads=4, max_position_embeddings=64,
        rope_parameters={"rope_type": kind, "rope_theta": 10000.0, **fields})


@pytest.fixture(autouse=True)
def registered():
    return posenc.hf.register_scalings()


def test_every_scaling_has_a_setting_here(registered):
    assert sorted(registered) == sorted("posenc_" + n for n in SETTINGS | LOGITS)


@pytest.mark.parametrize("name", SETTINGS)
def test_frequencies_of_a_model_are_the_librarys(name, caplog):
    transformers.logging.get_logger("transformers").propagate = True
    with caplog.at_level(logging.WARNING):
        model = transformers.AutoModelForCausalLM.from_config(config("posenc_" + name, **SETTINGS[name]))
    assert "Missing validation" not in caplog.text and "Unrecognized" not in caplog.text
    part = getattr(posenc, "".join(w.capitalize() for w in name.split("_")))(**SETTINGS[name])
    text = ROPE + str(part)
    rotary = model.model.rotary_emb
    want = torch.from_numpy(posenc.frequencies(text, context=64).copy())
    assert torch.equal(rotary.inv_freq.double(), want.float().double())
    gain = float(posenc.cos_sin(text, [0], dtype="float64", context=64)[0][0, 0])
    assert rotary.attention_scaling == pytest.approx(gain, rel=1e-12)
    assert posenc.hf.check(model) == []


def test_yarn_is_transformers_own():
    ours = transformers.AutoModelForCausalLM.from_config(config("posenc_yarn", factor=4.0, original_context=32))
    theirs = transformers.AutoModelForCausalLM.from_config(config("yarn", factor=4.0, original_max_position_embeddings=32))
    a, b = ours.model.rotary_emb, theirs.model.rotary_emb
    assert torch.allclose(a.inv_freq, b.inv_freq, rtol=1e-6) and a.attention_scaling == pytest.approx(b.attention_scaling)


def test_part_of_a_head():
    from posenc.hf._scalings import _frequencies

    one = config("posenc_linear", factor=4.0, partial_rotary_factor=0.5)
    got, gain = _frequencies(one)
    want = torch.from_numpy(posenc.frequencies("rope head_dim=8 base=10000 pairing=half_split + linear factor=4").copy())
    assert gain == 1 and torch.equal(got, want.float())


def test_a_dynamic_type_grows_with_the_longest_call():
    model = transformers.AutoModelForCausalLM.from_config(config("posenc_dynamic", **SETTINGS["dynamic"])).eval()
    with torch.no_grad():
        model(torch.ones(1, 100, dtype=torch.long))
    part = posenc.Dynamic(**SETTINGS["dynamic"])
    want = torch.from_numpy(posenc.frequencies(ROPE + str(part), context=100).copy()).float()
    assert torch.equal(model.model.rotary_emb.inv_freq, want)
    assert [f.code for f in posenc.hf.check(model)] == ["frequencies_held"]


@pytest.mark.parametrize("kind, fields, said", [
    ("yarn", dict(factor=4.0), "original_context"),
    ("yarn", dict(factor=4.0, original_context=32, speed=3), '[hf posenc_yarn] rope_parameters must have fields of yarn only, got "speed"'),
    ("linear", dict(factor=-1.0), "factor"),
    ("dynamic", dict(factor=2.0, trained_length=64, length_rule="per_call"), '[hf posenc_dynamic] length_rule must be held or declared, got "per_call"'),
])
def test_what_is_wrong_is_refused_when_the_config_is_made(kind, fields, said):
    with pytest.raises(Exception) as problem:
        config("posenc_" + kind, **fields)
    assert said in str(problem.value)


def test_factors_on_the_logits_are_refused():
    with pytest.raises(ValueError, match="must not scale the logits"):
        transformers.AutoModelForCausalLM.from_config(config("posenc_mscale_logit", **LOGITS["mscale_logit"]))


def test_a_saved_model_needs_the_call(tmp_path):
    model = transformers.AutoModelForCausalLM.from_config(config("posenc_yarn", factor=4.0, original_context=32))
    model.save_pretrained(tmp_path)
    load = f"import transformers; transformers.AutoModelForCausalLM.from_pretrained({str(tmp_path)!r})"
    assert subprocess.run([sys.executable, "-c", load], capture_output=True).returncode != 0
    subprocess.run([sys.executable, "-c", "import posenc.hf; posenc.hf.register_scalings(); " + load], check=True)
