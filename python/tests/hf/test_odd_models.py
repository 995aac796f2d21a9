# SPDX-License-Identifier: Apache-2.0
"""accelerate and restore on models that are wrapped, copied, cast, compiled, shared by threads or odd in other ways: the same
numbers, and the way back."""
import copy
import pickle
import threading

import pytest
import torch
import transformers

import posenc.hf

transformers.logging.set_verbosity_error()
IDS = torch.randint(2, 99, (2, 11), generator=torch.Generator().manual_seed(4))
GPT = dict(n_layer=2, n_head=4, n_embd=32, n_positions=64)
KINDS = {"llama": {}, "gpt2": GPT, "bloom": GPT, "mistral": dict(sliding_window=6), "mpt": dict(d_model=32, n_layers=2, n_heads=4, max_seq_len=40)}


def build(kind="llama", **more):
    torch.manual_seed(0)
    words = dict(vocab_size=99, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                 pad_token_id=0, bos_token_id=1, eos_token_id=None)
    return transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.for_model(kind, **{**words, **KINDS[kind], **more})).eval()


def logits(model, ids=IDS, **more):
    with torch.no_grad():
        return model(ids, **more).logits


def near(a, b, most=1e-5):
    assert float((a - b).abs().max()) < most


def leftovers(model):
    return [n for m in model.modules() for n in m.__dict__ if "posenc" in n]


def taken(report):
    return [c.taken for c in report.attentions.values()]


@pytest.mark.parametrize("kind", KINDS)
def test_a_copy_is_restored_by_itself(kind):
    model = build(kind)
    before, config = logits(model), model.config
    posenc.hf.accelerate(model, attention=True, force=True)
    twin = copy.deepcopy(model)
    near(logits(twin), before)
    with torch.no_grad():
        for p in twin.parameters():
            p.mul_(2)
    near(logits(model), before)  # weights of its own
    hooks = [len(m._forward_pre_hooks) for m in model.modules()]
    posenc.hf.restore(twin)
    assert not leftovers(twin) and "posenc" not in twin.config._attn_implementation and not any(m._forward_pre_hooks for m in twin.modules())
    assert [len(m._forward_pre_hooks) for m in model.modules()] == hooks and model.config is not config
    posenc.hf.restore(model)
    assert not leftovers(model) and model.config is config and torch.equal(logits(model), before)


@pytest.mark.parametrize("kind", [*KINDS, "t5"])
def test_a_pickled_model_computes_the_same_and_is_restored(kind):
    if kind == "t5":
        torch.manual_seed(0)
        model = transformers.T5ForConditionalGeneration(transformers.T5Config(
            vocab_size=99, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4, decoder_start_token_id=0)).eval()
    else:
        model = build(kind)
    given = {"decoder_input_ids": IDS} if kind == "t5" else {}
    before = logits(model, **given)
    posenc.hf.accelerate(model, attention=True, force=True)
    other = pickle.loads(pickle.dumps(model))
    near(logits(other, **given), before, 1e-5 * max(1.0, float(before.abs().max())))
    posenc.hf.restore(other)
    assert not leftovers(other) and torch.equal(logits(other, **given), before)


def test_parts_and_wholes():
    model = build()
    before = logits(model)
    posenc.hf.accelerate(model.model.layers[0], attention=True, force=True)
    with pytest.raises(ValueError, match="restore it first"):
        posenc.hf.accelerate(model, attention=True, force=True)
    near(logits(model), before)
    posenc.hf.restore(model)
    assert not leftovers(model) and torch.equal(logits(model), before)
    posenc.hf.accelerate(model, attention=True, force=True)
    posenc.hf.restore(model.model.layers[0])
    assert not leftovers(model.model.layers[0])
    near(logits(model), before)
    posenc.hf.restore(model)
    assert torch.equal(logits(model), before)


@pytest.mark.parametrize("make", [
    lambda: torch.nn.Sequential(torch.nn.Linear(3, 3)),
    lambda: transformers.MambaForCausalLM(transformers.MambaConfig(vocab_size=99, hidden_size=32, num_hidden_layers=1))], ids=["linear", "mamba"])
def test_without_attention(make):
    model = make()
    report = posenc.hf.accelerate(model, attention=True, force=True)
    assert "nothing to replace" in str(report) and not report.attentions and not report.reasons
    posenc.hf.restore(model)
    assert not leftovers(model)


@pytest.mark.parametrize("dtype, most", [(torch.float16, 1e-2), (torch.bfloat16, 5e-2), (torch.float64, 1e-6)])
@pytest.mark.parametrize("kind", ["llama", "bloom"])
def test_cast_before_and_after(kind, dtype, most):
    first, later = build(kind).to(dtype), build(kind)
    before = logits(first)
    for model in (first, later):
        report = posenc.hf.accelerate(model, attention=True, force=True)
        model.to(dtype)
        got = logits(model)
        assert got.dtype is dtype and taken(report) == [1, 1], report
        near(got, before, most)
        posenc.hf.restore(model)
        near(logits(model), before, most / 10)


def test_on_the_meta_device():
    with torch.device("meta"):
        model = build()
    report = posenc.hf.accelerate(model, attention=True, force=True)
    assert model(IDS.to("meta")).logits.shape == (2, 11, 99)
    assert all(list(c.original) == ["tensors that posenc does not support"] for c in report.attentions.values())
    posenc.hf.restore(model)


class Adapted(torch.nn.Module):
    """A projection with a low-rank part beside it, as adapters have it; or one that keeps what it gave."""

    def __init__(self, base, keeps=False):
        super().__init__()
        self.base_layer, self.keeps = base, keeps
        self.down, self.up = torch.nn.Linear(base.in_features, 2, bias=False), torch.nn.Linear(2, base.out_features, bias=False)

    def forward(self, x):
        y = self.base_layer(x) + self.up(self.down(x))
        if self.keeps:
            self.gave, self.said = y, y.clone()
        return y


class Wrapper(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.base_model = model

    def forward(self, *args, **given):
        return self.base_model(*args, **given)


def test_wrapped_with_adapted_projections():
    model = Wrapper(build())
    for layer in model.base_model.model.layers:
        layer.self_attn.q_proj, layer.self_attn.v_proj = Adapted(layer.self_attn.q_proj), Adapted(layer.self_attn.v_proj)
    before = logits(model)
    report = posenc.hf.accelerate(model, attention=True, force=True)
    near(logits(model), before)
    assert taken(report) == [1, 1] and not any(c.in_place for r in report.rotation.values() for c in r)
    posenc.hf.restore(model)
    assert torch.equal(logits(model), before)


def test_a_projection_that_is_exchanged_later_keeps_what_it_gave():
    model = build()
    report = posenc.hf.accelerate(model)
    assert all(c.in_place for r in report.rotation.values() for c in r)
    attention = model.model.layers[0].self_attn
    attention.q_proj = Adapted(attention.q_proj, keeps=True)
    logits(model)
    assert torch.equal(attention.q_proj.gave, attention.q_proj.said)


@pytest.mark.filterwarnings("ignore")
def test_quantised_projections():
    model = torch.ao.quantization.quantize_dynamic(build(), {torch.nn.Linear}, dtype=torch.qint8)
    before = logits(model)
    report = posenc.hf.accelerate(model, attention=True, force=True)
    near(logits(model), before, 1e-2)
    assert taken(report) == [1, 1]


def test_two_threads():
    model = build()
    want = [logits(model, IDS + i) for i in range(2)]
    report = posenc.hf.accelerate(model, attention=True, force=True)
    wrong = []

    def work(i):
        for _ in range(10):
            got = logits(model, IDS + i)
            if float((got - want[i]).abs().max()) > 1e-5:
                wrong.append(i)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(2)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong and taken(report) == [20, 20]


def test_compiled_first():
    model = build()
    compiled = torch.compile(model, backend="eager")
    before = logits(compiled)
    for one in (model, compiled):
        report = posenc.hf.accelerate(one, attention=True, force=True)
        assert len(report.attentions) == 2
        near(logits(compiled), before)
        posenc.hf.restore(one)
        near(logits(compiled), before)
    torch._dynamo.reset()


@pytest.mark.parametrize("kind", ["llama", "gpt2", "bloom"])
def test_beams_and_an_assistant(kind):
    more = {"num_hidden_layers": 1} if kind == "llama" else {"n_layer": 1}
    model, assistant = build(kind), build(kind, **more)
    words = dict(max_new_tokens=6, do_sample=False)

    def said():
        return model.generate(IDS, num_beams=3, **words), model.generate(IDS[:1], assistant_model=assistant, **words)

    want = said()
    reports = [posenc.hf.accelerate(m, attention=True, force=True) for m in (model, assistant)]
    assert all(torch.equal(a, b) for a, b in zip(said(), want)) and all(min(taken(r)) > 0 for r in reports)


@pytest.mark.parametrize("kind", ["llama", "mistral", "gpt2"])
def test_packed_sequences_and_no_mask(kind):
    model = build(kind)
    places = torch.cat([torch.arange(5), torch.arange(6)])[None]
    calls = [dict(ids=IDS[:1], position_ids=places, use_cache=False), dict(ids=IDS[:1]), dict(ids=IDS[:1, :1])]
    want = [logits(model, **c) for c in calls]
    report = posenc.hf.accelerate(model, attention=True, force=True)
    for c, before in zip(calls, want):
        near(logits(model, **c), before)
    assert taken(report) == [3, 3] and not any(c.original for c in report.attentions.values())


def test_forward_mode_is_the_models_own():
    model = build()
    embedded = model.get_input_embeddings()(IDS).detach()
    tangent = torch.randn_like(embedded)

    def f(x):
        return model(inputs_embeds=x, use_cache=False).logits

    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        want = torch.func.jvp(f, (embedded,), (tangent,))[1]
        report = posenc.hf.accelerate(model, attention=True, force=True)
        near(torch.func.jvp(f, (embedded,), (tangent,))[1], want)
    assert all(c.original == {"a forward-mode derivative": 1} for c in report.attentions.values())


def test_attentions_by_the_config():
    model = build("llama")
    model.set_attn_implementation("eager")
    posenc.hf.accelerate(model, attention=True, force=True)
    model.config.output_attentions = True  # of the config that this model has now
    assert len(model(IDS).attentions) == 2
    posenc.hf.restore(model)
    assert not model.config.output_attentions


class Settings:
    """What a caller may have set when a model is accelerated."""

    meta, autocast = (lambda: torch.device("meta")), (lambda: torch.autocast("cpu", torch.bfloat16))


@pytest.mark.parametrize("setting", ["meta", "autocast", "bfloat16", "float64"])
def test_what_a_caller_has_set_does_not_change_what_is_found(setting):
    from posenc.hf._attention import understood
    from posenc.hf._probe import probe

    model = build("llama")
    model.set_attn_implementation("eager")
    before = logits(model)
    probe.cache_clear()
    understood.cache_clear()
    if setting in ("meta", "autocast"):
        with getattr(Settings, setting)():
            report = posenc.hf.accelerate(model, attention=True, force=True)
    else:
        torch.set_default_dtype(getattr(torch, setting))
        try:
            report = posenc.hf.accelerate(model, attention=True, force=True)
        finally:
            assert torch.get_default_dtype() is getattr(torch, setting)
            torch.set_default_dtype(torch.float32)
    near(logits(model), before)
    assert taken(report) == [1, 1] and report.calls == 2


def test_transforms_of_functions():
    model = build()
    buffers, one = dict(model.named_buffers()), {n: p.detach() for n, p in model.named_parameters()}
    two = {n: torch.stack([p, p * 1.1]) for n, p in one.items()}

    def f(p, ids):
        return torch.func.functional_call(model, (p, buffers), (ids,), {"use_cache": False}).logits

    def both():
        with torch.no_grad():
            several = torch.func.vmap(f, in_dims=(0, None))(two, IDS)
        return several, torch.func.grad(lambda p: f(p, IDS).pow(2).sum())(one)

    want = both()
    for attention in (False, True):
        report = posenc.hf.accelerate(model, attention=attention, force=attention)
        got = both()
        near(got[0], want[0])
        for name, gradient in want[1].items():
            near(got[1][name], gradient, 1e-5 * max(1.0, float(gradient.abs().max())))
        assert report.calls == 4
        posenc.hf.restore(model)


class Logits(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, ids):
        return self.model(ids, use_cache=False).logits


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["llama", "bloom"])
def test_traced_and_exported(kind):
    model = Logits(build(kind)).eval()
    before = model(IDS)
    posenc.hf.accelerate(model, attention=True, force=True)
    with torch.no_grad():
        near(torch.jit.trace(model, (IDS,), check_trace=False)(IDS), before)
        near(torch.export.export(model, (IDS,)).module()(IDS), before)


def test_pytorchs_causal_flag_sees_the_first_keys():
    model = build()
    layer, x = model.model.layers[0].self_attn, torch.randn(1, 7, 32)
    places = torch.arange(7)[None]

    def call():
        cache = transformers.DynamicCache(config=model.config)
        with torch.no_grad():
            parts = [(x[:, a:b], places[:, a:b]) for a, b in ((0, 4), (4, 7))]
            return [layer(y, position_embeddings=model.model.rotary_emb(y, p), attention_mask=None, past_key_values=cache)[0] for y, p in parts]

    before = call()
    posenc.hf.accelerate(model, attention=True, force=True)
    for a, b in zip(call(), before):
        near(a, b)


@pytest.mark.parametrize("kind", ["llama", "gpt2", "bloom", "mpt"])
def test_another_model_of_an_accelerated_models_config(kind, tmp_path):
    """It has the name of posenc's attention in its config, but layers that nobody took over: it computes its own."""
    model = build(kind)
    before = logits(model)
    posenc.hf.accelerate(model, attention=True, force=True)
    other = type(model)(model.config).eval()
    other.load_state_dict(model.state_dict())
    assert torch.equal(logits(other), before)
    model.save_pretrained(tmp_path)
    loaded = type(model).from_pretrained(tmp_path, config=model.config).eval()
    assert torch.equal(logits(loaded), before) and "posenc" not in (tmp_path / "config.json").read_text()
