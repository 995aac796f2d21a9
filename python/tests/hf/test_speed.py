# SPDX-License-Identifier: Apache-2.0
"""accelerate(attention=True) leaves calls to the model for which its own attention is known to be faster, says so, and force=True overrides."""
import pytest
import torch
import transformers
from posenc.hf import _speed

import posenc.hf

SMALL = dict(vocab_size=99, hidden_size=32, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=2, pad_token_id=0, bos_token_id=1,
             eos_token_id=None, max_position_embeddings=1024)
DEBERTA = dict(SMALL, relative_attention=True, pos_att_type=["c2p", "p2c"], position_buckets=8, share_att_key=True)


def build(kind, attention=None, **more):
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(kind, **{**(DEBERTA if kind == "deberta-v2" else SMALL), **more})
    config._attn_implementation = attention
    return transformers.AutoModel.from_config(config).eval()


def calls(model, report, *lengths):
    with torch.no_grad():
        for n in lengths:
            model(torch.arange(n)[None] % 90 + 3)
    (count,) = report.attentions.values()
    return count.taken, dict(count.original)


@pytest.mark.parametrize("kind, attention, least", [("bloom", None, 128), ("llama", "eager", 256), ("llama", "sdpa", 1024), ("deberta-v2", None, 16),
                                                    ("gemma2", "eager", 256)])
def test_short_calls_stay_with_the_model(kind, attention, least):
    model = build(kind, attention, max_position_embeddings=least)
    report = posenc.hf.accelerate(model, attention=True)
    reason = f"fewer than {least} tokens, for which its own is faster; force=True overrides"
    assert calls(model, report, 11) == (0, {reason: 1}) and reason in str(report)
    assert calls(model, report, least - 1, least) == (1, {reason: 2})
    posenc.hf.restore(model)
    report = posenc.hf.accelerate(model, attention=True, force=True)
    assert calls(model, report, 11) == (1, {})


def step(model, keys):
    """One token after a cache of so many keys."""
    config = model.config
    torch.manual_seed(1)
    shape = 1, config.num_key_value_heads, keys, config.hidden_size // config.num_attention_heads
    cache = transformers.DynamicCache(config=config)
    for layer in range(config.num_hidden_layers):
        cache.update(torch.randn(shape, dtype=model.dtype), torch.randn(shape, dtype=model.dtype), layer)
    with torch.no_grad():
        return model(torch.tensor([[5]]), past_key_values=cache).last_hidden_state


def test_decode_steps_stay_with_the_model():
    for kind, attention in (("llama", "eager"), ("llama", "sdpa"), ("bloom", None)):
        model = build(kind, attention, max_position_embeddings=64)
        report = posenc.hf.accelerate(model, attention=True)
        assert calls(model, report, 1) == (0, {_speed.DECODE: 1}) and "one query" in str(report)
        posenc.hf.restore(model)
        report = posenc.hf.accelerate(model, attention=True, force=True)
        assert calls(model, report, 1) == (1, {})


@pytest.mark.parametrize("attention, dtype, shared, least", [
    ("eager", torch.float32, True, 512), ("sdpa", torch.float32, True, 8192), ("sdpa", torch.bfloat16, True, 512),
    ("sdpa", torch.bfloat16, False, 512), ("eager", torch.bfloat16, False, 512), ("sdpa", torch.float16, True, 512)])
def test_decode_steps_of_many_keys(attention, dtype, shared, least):
    model = build("llama", attention, max_position_embeddings=16384, num_attention_heads=4, num_key_value_heads=2 if shared else 4).to(dtype)
    before = step(model, least - 1)
    report = posenc.hf.accelerate(model, pack=False)
    after = step(model, least - 2), step(model, least - 1)  # with the token's own key
    (count,) = report.attentions.values()
    reason = f"one query with fewer than {least} keys, for which its own is faster; force=True overrides"
    assert count.taken == 1 and dict(count.original) == {reason: 1}
    torch.testing.assert_close(after[1], before, atol=3e-2 if dtype != torch.float32 else 1e-5, rtol=0)


def test_fused_attention_stays_unless_windows_are_short():
    model = build("bert", "sdpa").to(torch.bfloat16)
    report = posenc.hf.accelerate(model, pack=False)
    assert not report.attentions and set(report.reasons.values()) == {_speed.FUSED} and "force=True overrides" in str(report)
    model = build("bert", "sdpa")
    report = posenc.hf.accelerate(model, attention=True)
    model.to(torch.bfloat16)  # after it was taken over
    assert calls(model, report, 11) == (0, {_speed.FUSED: 1})
    model = build("bert", "eager").double()
    report = posenc.hf.accelerate(model, attention=True)
    assert calls(model, report, 300) == (0, {"its own is faster or as fast at every length that was measured; force=True overrides": 1})
    model = build("mistral", "sdpa", sliding_window=149, num_key_value_heads=2)
    report = posenc.hf.accelerate(model, attention=True)
    assert calls(model, report, 297, 298) == (1, {"fewer than 298 tokens, for which its own is faster; force=True overrides": 1})


def test_gradients_in_double_stay_with_the_model():
    for kind, reasons in (("deberta-v2", [_speed.GRADIENTS]), ("bloom", [])):
        model = build(kind, max_position_embeddings=2048)
        if reasons:
            model.double()
        report = posenc.hf.accelerate(model, attention=True)
        model(torch.arange(130)[None] % 90 + 3)
        (count,) = report.attentions.values()
        assert list(count.original) == reasons


def test_a_row_of_distances(monkeypatch):
    monkeypatch.setattr(_speed, "_ROW", 16)
    torch.manual_seed(0)
    model = transformers.T5EncoderModel(transformers.T5Config(vocab_size=99, d_model=32, d_kv=8, d_ff=48, num_layers=1, num_heads=4)).eval()
    with torch.no_grad():
        before = model(torch.arange(3, 15)[None]).last_hidden_state
    report = posenc.hf.accelerate(model, attention=True)
    assert calls(model, report, 12, 16)[0] == 1
    with torch.no_grad():
        assert torch.equal(model(torch.arange(3, 15)[None]).last_hidden_state, before)


def test_sizes_of_adapters():
    class XLNetRelativeAttention:
        pass

    class Data2VecVisionSelfAttention:
        pass

    class SamVisionAttention:
        rel_pos_h = torch.zeros(3, 4)

    class BrosSelfAttention:
        pass

    class Gemma4AudioAttention:
        pass

    x = torch.zeros(2, 3, 5, 4)
    assert "256" in _speed.in_place(XLNetRelativeAttention(), (torch.zeros(255, 1, 1, 1),), {})
    assert _speed.in_place(XLNetRelativeAttention(), (torch.zeros(256, 1, 1, 1),), {}) == ""
    trained = torch.zeros(511, 1, 1, 1, requires_grad=True)
    assert "512" in _speed.in_place(XLNetRelativeAttention(), (trained,), {})
    assert _speed.in_place(XLNetRelativeAttention(), (torch.zeros(512, 1, 1, 1, requires_grad=True),), {}) == ""
    double = torch.zeros(2047, 1, 1, 1, dtype=torch.float64)
    assert "2048" in _speed.in_place(XLNetRelativeAttention(), (double,), {})
    assert _speed.in_place(XLNetRelativeAttention(), (double.clone().requires_grad_(),), {}) == _speed.GRADIENTS
    large = torch.zeros(1, 32, 64, 1)
    assert "2048" in _speed.in_place(Data2VecVisionSelfAttention(), (x,), {})
    assert _speed.in_place(Data2VecVisionSelfAttention(), (), {"hidden_states": large}) == ""
    assert "at every length" in _speed.in_place(SamVisionAttention(), (large,), {})
    assert _speed.in_place(BrosSelfAttention(), (x[0],), {}) == ""
    assert "256" in _speed.in_place(BrosSelfAttention(), (x[0].clone().requires_grad_(),), {})
    assert _speed.in_place(Data2VecVisionSelfAttention(), (large.clone().requires_grad_(),), {}) == _speed.GRADIENTS
    assert "at every length" in _speed.in_place(Gemma4AudioAttention(), (torch.zeros(1, 4096, 8),), {})


@pytest.mark.parametrize("name, least, trained", [
    ("SpeechT5Attention", 0, 128), ("GraniteSpeechConformerAttention", 0, 128), ("VitsAttention", 256, 256), ("FastSpeech2ConformerAttention", 256, 512),
    ("CpmAntAttention", 512, 128), ("LayoutLMv3SelfAttention", 512, 1024), ("WavLMAttention", 512, None), ("FalconAttention", None, None)])
def test_lengths_of_adapters(name, least, trained):
    module = type(name, (), {})()
    for limit, gradients in ((least, False), (trained, True)):
        for tokens in (1, 127, 128, 255, 256, 511, 512, 1023, 1024, 4096):
            x = torch.zeros(1, tokens, 1, requires_grad=gradients)
            assert (_speed.in_place(module, (x,), {}) == "") == (limit is not None and tokens >= limit and (tokens > 1 or limit == 0)), (tokens, gradients)
            assert _speed.in_place(module, (x.detach().double().requires_grad_(gradients),), {}) != "" or least == 0 or tokens >= 2048
    assert _speed.in_place(module, (torch.zeros(1, 4096, 1, dtype=torch.float64, requires_grad=True),), {}) != ""


def test_a_model_without_rotation_is_told_of_its_attention():
    assert "without attention=False" in str(posenc.hf.accelerate(build("bert"), attention=False))
    for model in (torch.nn.Linear(2, 2), build("llama")):
        assert "attention=False" not in str(posenc.hf.accelerate(model, attention=False))
    with pytest.raises(ValueError, match=r"\[hf accelerate\] force requires attention, but attention=False was given"):
        posenc.hf.accelerate(build("bert"), attention=False, force=True)
    report = posenc.hf.accelerate(build("llama"))
    assert report.rotation and report.attentions


@pytest.mark.parametrize("kind", ["llama", "deberta-v2"])
def test_compiled_graphs_are_counted(kind):
    model = build(kind, num_hidden_layers=2)
    report = posenc.hf.accelerate(model, attention=True, force=True)
    compiled = torch.compile(model, backend="eager", fullgraph=kind == "llama")
    with torch.no_grad():
        for _ in range(3):
            compiled(torch.arange(3, 15)[None])
    assert all(c.taken == 0 and c.graphs == {"a graph is compiled": 1} for c in report.attentions.values()), report
    assert "in 1 compiled graph, whose calls are not counted, by the model's own: a graph is compiled" in str(report)
    if kind == "llama":
        assert all(c.taken == 0 and c.graphs == {"": 1} for layer in report.rotation.values() for c in layer)
        assert "in 1 compiled graph, whose calls are not counted, by posenc" in str(report)
    torch._dynamo.reset()
