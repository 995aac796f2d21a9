# SPDX-License-Identifier: Apache-2.0
"""accelerate(model, attention=True, force=True): logits, gradients, generated tokens, what is left alone, and the way back."""
import copy

import pytest
import torch
import transformers
from posenc.hf._attention import replace_attention
from posenc.hf._kept import give_back as undone


class Report:
    """What replace_attention says."""

    def __init__(self):
        self.layers, self.why = {}, {}

    def attention(self, layer, count):
        self.layers[layer] = count

    def left(self, layer, reason):
        self.why[layer] = reason


SMALL = dict(vocab_size=99, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4)
PADS = dict(pad_token_id=0, bos_token_id=1, eos_token_id=None)
T5 = dict(vocab_size=99, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4, relative_attention_num_buckets=8,
          relative_attention_max_distance=12, decoder_start_token_id=0, **{**PADS, "eos_token_id": 98})
CAUSAL = {
    "llama": dict(SMALL, num_key_value_heads=2),
    "qwen3": dict(SMALL, num_key_value_heads=2, head_dim=8),
    "mistral": dict(SMALL, num_key_value_heads=2, sliding_window=6),
    "gemma2": dict(SMALL, num_key_value_heads=2, head_dim=8, sliding_window=6, query_pre_attn_scalar=8),
    "gemma3_text": dict(SMALL, num_key_value_heads=2, head_dim=8, sliding_window=6, query_pre_attn_scalar=8),
    "gpt_neox": SMALL, "phi": SMALL, "olmo2": SMALL, "cohere": dict(SMALL, num_key_value_heads=2),
    "gpt_oss": dict(SMALL, num_key_value_heads=2, head_dim=8, sliding_window=6, num_local_experts=2, num_experts_per_tok=1),
    "gpt2": dict(n_embd=32, n_layer=2, n_head=4, n_positions=64, vocab_size=99, scale_attn_by_inverse_layer_idx=True),
    "opt": dict(SMALL, ffn_dim=48, word_embed_proj_dim=32), "ctrl": dict(n_embd=32, n_layer=2, n_head=4, dff=48, n_positions=64, vocab_size=99),
    "gpt_bigcode": dict(n_embd=32, n_layer=2, n_head=4, n_positions=64, vocab_size=99),
}
NAMED = ("gpt2", "opt", "ctrl", "gpt_bigcode")  # tried with both names
T5S = ["t5", "mt5", "umt5"]


def causal(kind, implementation):
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(kind, **{**PADS, **CAUSAL[kind]})
    config._attn_implementation = implementation
    return transformers.AutoModelForCausalLM.from_config(config).eval()


def batch(padded=True):
    torch.manual_seed(4)
    ids, mask = torch.randint(2, 99, (2, 11)), torch.ones(2, 11, dtype=torch.long)
    if padded:
        mask[1, :3] = 0
    return ids, mask


def results(model, mask, **inputs):
    """Logits of tokens that are there, and every gradient."""
    model.zero_grad()
    logits = model(**inputs).logits
    seen = logits[mask.bool()]
    (seen.sin() * 3).sum().backward()
    return seen.detach(), {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}


def close(before, after):
    assert (before[0] - after[0]).abs().max() < 1e-5 * max(1.0, float(before[0].abs().max()))  # T5's logits are large
    assert before[1].keys() == after[1].keys()
    for name, gradient in before[1].items():
        assert (after[1][name] - gradient).abs().max() <= 1e-5 * max(1.0, float(gradient.abs().max())), name


def proven(model, mask, generate, left=None, **inputs):
    """Before, with posenc, and restored. left: layers that stay as they were, and why."""
    before, tokens, state = results(model, mask, **inputs), generate(), copy.copy(model.__dict__)
    configs = {n: m.config for n, m in model.named_modules() if hasattr(m, "config")}
    dicts = {n: dict(m.__dict__) for n, m in model.named_modules()}
    report = Report()
    replace_attention(model, report)
    assert report.layers and report.why == (left or {}), report.why
    close(before, results(model, mask, **inputs))
    assert all(c.taken > 0 and not c.original for c in report.layers.values()), {n: str(c) for n, c in report.layers.items()}
    assert torch.equal(generate(), tokens)
    assert all(not c.original for c in report.layers.values())
    undone(model)
    again = results(model, mask, **inputs)
    assert torch.equal(before[0], again[0]) and all(torch.equal(x, again[1][n]) for n, x in before[1].items())
    assert model.__dict__.keys() == state.keys()
    for name, module in model.named_modules():
        assert module.__dict__.keys() == dicts[name].keys(), name
        assert name not in configs or module.config is configs[name]
    return report


@pytest.mark.parametrize("kind, implementation", [
    *((kind, "eager" if kind in ("gemma2", "gpt_oss") else "sdpa") for kind in CAUSAL), *((kind, "eager") for kind in NAMED)])
def test_causal_models(kind, implementation):
    model = causal(kind, implementation)
    ids, mask = batch()

    def generate():
        return model.generate(ids, attention_mask=mask, max_new_tokens=8, do_sample=False)

    proven(model, mask, generate, input_ids=ids, attention_mask=mask)


@pytest.mark.parametrize("kind", T5S)
def test_t5_and_its_family(kind):
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(kind, **T5)
    model = transformers.AutoModelForSeq2SeqLM.from_config(config).eval()
    ids, mask = batch()
    targets = torch.randint(2, 98, (2, 7))

    def generate():
        return model.generate(ids, attention_mask=mask, max_new_tokens=8, min_new_tokens=8, do_sample=False)

    proven(model, torch.ones(2, 7), generate, input_ids=ids, attention_mask=mask, decoder_input_ids=targets)


@pytest.mark.parametrize("kind", ["bloom", "mpt"])
def test_alibi_computed_in_place(kind):
    torch.manual_seed(0)
    config = (transformers.BloomConfig(vocab_size=99, hidden_size=48, n_layer=2, n_head=6, **PADS) if kind == "bloom"
              else transformers.MptConfig(vocab_size=99, d_model=48, n_layers=2, n_heads=6, max_seq_len=40, **PADS))
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    ids, mask = batch()

    def generate():
        return model.generate(ids, attention_mask=mask, max_new_tokens=8, do_sample=False)

    report = proven(model, mask, generate, input_ids=ids, attention_mask=mask)
    assert len(report.layers) == 2
    with torch.no_grad():
        want = model(ids, attention_mask=mask, output_attentions=True).attentions
        replace_attention(model, Report())
        got = model(ids, attention_mask=mask, output_attentions=True).attentions
    undone(model)
    assert len(got) == 2 and all(torch.equal(a, b) for a, b in zip(got, want))
    hole = torch.ones(2, 11, dtype=torch.long)
    hole[0, 3:5] = 0
    before = results(model, hole, input_ids=ids, attention_mask=hole)
    report = Report()
    replace_attention(model, report)
    close(before, results(model, hole, input_ids=ids, attention_mask=hole))
    assert kind == "mpt" or all(c.original == {"padding between tokens": 1} for c in report.layers.values())
    undone(model)


@pytest.mark.parametrize("kind", ["v3", "v2_own", "v2_c2p"])
def test_deberta_v2(kind):
    torch.manual_seed(0)
    config = transformers.DebertaV2Config(
        vocab_size=99, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48,
        relative_attention=True, position_buckets=4 if kind != "v2_c2p" else -1, max_relative_positions=16,
        share_att_key=kind == "v3", norm_rel_ebd="layer_norm", type_vocab_size=0, position_biased_input=False,
        pos_att_type=["c2p"] if kind == "v2_c2p" else ["p2c", "c2p"], **PADS)
    model = transformers.DebertaV2ForMaskedLM(config).eval()
    ids, mask = batch()
    report = proven(model, mask, lambda: torch.zeros(1), input_ids=ids, attention_mask=mask)
    assert len(report.layers) == 2


@pytest.mark.parametrize("kinds", [["c2p", "p2c"], ["c2p", "p2c", "p2p"], ["p2c"]], ids="+".join)
def test_deberta(kinds):
    torch.manual_seed(0)
    config = transformers.DebertaConfig(
        vocab_size=99, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48, relative_attention=True,
        max_relative_positions=6, pos_att_type=kinds, type_vocab_size=0, position_biased_input=False, **PADS)
    model = transformers.DebertaForMaskedLM(config).eval()
    with torch.no_grad():
        for name, x in model.named_parameters():
            if name.endswith(("q_bias", "v_bias")):
                x.normal_(std=0.3)
    ids, mask = batch()
    report = proven(model, mask, lambda: torch.zeros(1), input_ids=ids, attention_mask=mask)
    assert len(report.layers) == 2
    with torch.no_grad():  # back to the original inside a call, its distances made then
        want = model(ids, attention_mask=mask, output_attentions=True)
        replace_attention(model, Report())
        got = model(ids, attention_mask=mask, output_attentions=True)
        undone(model)
    assert (got.logits - want.logits)[mask.bool()].abs().max() < 1e-5 and len(got.attentions) == 2


ENCODERS = {"mpnet": SMALL, "bert": SMALL, "modernbert": dict(SMALL, local_attention=6), "electra": SMALL, "nomic_bert": SMALL}


@pytest.mark.parametrize("kind", ENCODERS)
def test_encoders(kind):
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(kind, **{**PADS, **ENCODERS[kind]})
    config._attn_implementation = "eager" if kind == "mpnet" else "sdpa"
    model = transformers.AutoModelForMaskedLM.from_config(config).eval()
    ids, mask = batch()
    proven(model, mask, lambda: torch.zeros(1), input_ids=ids, attention_mask=mask)


def test_bart_and_its_attention_across():
    torch.manual_seed(0)
    config = transformers.BartConfig(vocab_size=99, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
                                     decoder_attention_heads=4, encoder_ffn_dim=48, decoder_ffn_dim=48, max_position_embeddings=40,
                                     decoder_start_token_id=2, forced_eos_token_id=None, **PADS)
    config._attn_implementation = "sdpa"
    model = transformers.BartForConditionalGeneration(config).eval()
    ids, mask = batch()

    def generate():
        return model.generate(ids, attention_mask=mask, max_new_tokens=8, min_new_tokens=8, do_sample=False)

    proven(model, torch.ones(2, 7), generate, input_ids=ids, attention_mask=mask, decoder_input_ids=ids[:, :7])


@pytest.mark.parametrize("segments", [0, 2, 3])
def test_xlnet(segments):
    torch.manual_seed(0)
    config = transformers.XLNetConfig(vocab_size=99, d_model=32, n_layer=2, n_head=4, d_inner=48, mem_len=5, **PADS)
    model = transformers.XLNetLMHeadModel(config).eval()
    with torch.no_grad():
        for name, x in model.named_parameters():
            if name.endswith(("_bias", "seg_embed")):
                x.normal_(std=0.3)
    ids, mask = batch()
    given = {} if not segments else {"token_type_ids": torch.tensor([0, 0, 0, 1, 1, 1, 1, 0, 1, 1, 2]).clamp(max=segments - 1).expand(2, -1)}
    proven(model, mask, lambda: torch.zeros(1), input_ids=ids, attention_mask=mask, **given)
    with torch.no_grad():  # two streams: the last two tokens predicted in another order; and tokens of the call before
        order = torch.zeros(2, 11, 11)
        order[:, :, -2:] = 1.0
        target = torch.zeros(2, 2, 11)
        target[:, 0, -2] = target[:, 1, -1] = 1.0
        more = dict(given, perm_mask=order, target_mapping=target, mems=model(ids, use_mems=True).mems)
        before = model(ids, **more).logits
        report = Report()
        replace_attention(model, report)
        after = model(ids, **more).logits
        undone(model)
    assert (before - after).abs().max() < 1e-5 and all(c.taken == 2 and not c.original for c in report.layers.values())


def test_a_name_that_is_the_originals_too():
    import pickle

    from posenc.hf._name import Name

    name = Name("posenc_sdpa")
    for x in (name, copy.deepcopy(name), pickle.loads(pickle.dumps(name))):
        assert x == "sdpa" and "sdpa" == x and x == "posenc_sdpa" and x in ("eager", "sdpa") and x != "eager" and not x != "sdpa"
        assert {"posenc_sdpa": 1}[x] == 1 and x not in {"sdpa"} and "posenc" in x


def test_whisper_writes_into_its_config():
    torch.manual_seed(0)
    config = transformers.WhisperConfig(vocab_size=99, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4,
                                        encoder_ffn_dim=48, decoder_ffn_dim=48, num_mel_bins=16, max_source_positions=20, max_target_positions=40,
                                        decoder_start_token_id=1, **{**PADS, "eos_token_id": 98})
    model = transformers.WhisperForConditionalGeneration(config).eval()
    assert str(config._attn_implementation) == "sdpa"
    sound = torch.randn(2, 16, 40)
    generate = {"max_new_tokens": 8, "min_new_tokens": 8, "do_sample": False}
    model.generation_config.alignment_heads, model.generation_config.no_timestamps_token_id = [[0, 1], [1, 2]], 97
    want = model.generate(input_features=sound, **generate)
    times = model.generate(input_features=sound, return_token_timestamps=True, **generate)["token_timestamps"]
    model.config._attn_implementation = "sdpa"
    report = Report()
    replace_attention(model, report)
    assert len(report.layers) == 6 and not report.why
    assert torch.equal(model.generate(input_features=sound, **generate), want)
    assert all(c.taken and not c.original for c in report.layers.values())
    again = model.generate(input_features=sound, return_token_timestamps=True, **generate)["token_timestamps"]
    assert torch.allclose(again, times)  # for which it makes its attention eager
    undone(model)
    assert model.config is config and str(config._attn_implementation) == "sdpa"


def test_only_this_model_changes():
    model = causal("llama", "sdpa")
    other = transformers.LlamaForCausalLM(model.config).eval()
    assert other.config is model.config
    replace_attention(model, Report())
    assert str(other.config._attn_implementation) == "sdpa" and str(model.config._attn_implementation) == "posenc_sdpa"
    ids, mask = batch()
    assert not any("_posenc_attention" in m.__dict__ for m in other.modules())
    other.load_state_dict(model.state_dict())
    with torch.no_grad():
        assert (model(ids, attention_mask=mask).logits - other(ids, attention_mask=mask).logits)[mask.bool()].abs().max() < 1e-5
    twin = copy.deepcopy(model)
    with torch.no_grad():
        assert torch.equal(twin(ids, attention_mask=mask).logits, model(ids, attention_mask=mask).logits)
    assert "posenc" not in model.config.to_json_string()
    undone(model)
    assert model.config is other.config


def test_packed_prefix_and_dense_masks():
    model = causal("mistral", "sdpa")
    ids = torch.randint(2, 99, (1, 12))
    places = torch.cat([torch.arange(5), torch.arange(7)])[None]
    seen = torch.ones(12, 12, dtype=torch.bool).tril()
    seen[:4, :4] = True
    for given in ({"position_ids": places}, {"attention_mask": seen[None, None]},
                  {"attention_mask": torch.zeros(1, 1, 12, 12).masked_fill(~seen, torch.finfo(torch.float32).min)}):
        with torch.no_grad():
            before = model(ids, use_cache=False, **given).logits
            report = Report()
            replace_attention(model, report)
            after = model(ids, use_cache=False, **given).logits
        assert (before - after).abs().max() < 1e-5 and all(c.taken == 1 for c in report.layers.values())
        undone(model)


def test_what_goes_to_the_original_says_why():
    model = causal("llama", "eager")
    ids, mask = batch()
    with torch.no_grad():
        want = model(ids, attention_mask=mask, output_attentions=True)
        report = Report()
        replace_attention(model, report)
        got = model(ids, attention_mask=mask, output_attentions=True)
    assert len(got.attentions) == 2 and all(torch.equal(a, b) for a, b in zip(got.attentions, want.attentions))
    assert all(c.original == {"attentions as output": 1} and not c.taken for c in report.layers.values())
    for layer in model.model.layers:
        layer.self_attn.attention_dropout = 0.1
    model.train()
    torch.manual_seed(1)
    dropped = model(ids, attention_mask=mask).logits
    assert all(c.original["dropout in training"] == 1 for c in report.layers.values())
    undone(model)
    torch.manual_seed(1)
    assert torch.equal(model(ids, attention_mask=mask).logits, dropped)


@pytest.mark.parametrize("kind, says", [("GPT2", "computes its scores in place, in float32"), ("XGLM", "computes attention in its own forward method"),
                                        ("Falcon", "it has no position in the score")])
def test_what_is_not_taken_over_says_why(kind, says):
    config = {
        "GPT2": lambda: transformers.GPT2Config(vocab_size=99, n_embd=32, n_layer=2, n_head=4, n_positions=64, reorder_and_upcast_attn=True,
                                                attn_implementation="eager", **PADS),
        "XGLM": lambda: transformers.XGLMConfig(vocab_size=99, d_model=32, ffn_dim=48, num_layers=2, attention_heads=4, **PADS),
        "Falcon": lambda: transformers.FalconConfig(vocab_size=99, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, **PADS),
    }[kind]()
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    before, report = dict(model.__dict__), Report()
    assert not replace_attention(model, report) and not report.layers and model.__dict__ == before
    assert len(report.why) == 2 and all(says in x for x in report.why.values())


@pytest.mark.parametrize("kind", ["llama", "t5"])
def test_compiled_graphs_have_the_original(kind):
    ids, mask = batch()
    if kind == "llama":
        model, given = causal("llama", "sdpa"), {}
    else:
        torch.manual_seed(0)
        model, given = transformers.T5ForConditionalGeneration(transformers.T5Config(**T5)).eval(), {"decoder_input_ids": ids[:, :5]}
    with torch.no_grad():
        want = model(ids, attention_mask=mask, use_cache=False, **given).logits
        replace_attention(model, Report())
        got = torch.compile(model, backend="eager")(ids, attention_mask=mask, use_cache=False, **given).logits
    rows = mask.bool() if kind == "llama" else slice(None)
    assert (got - want)[rows].abs().max() < 1e-5 * max(1, float(want.abs().max()))
    undone(model)


def test_checkpointing_and_static_cache():
    model = causal("llama", "sdpa")
    ids, mask = batch()
    want = results(model, mask, input_ids=ids, attention_mask=mask, use_cache=False)
    tokens = model.generate(ids, attention_mask=mask, max_new_tokens=8, do_sample=False)
    replace_attention(model, Report())
    assert torch.equal(model.generate(ids, attention_mask=mask, max_new_tokens=8, do_sample=False, cache_implementation="static",
                                      disable_compile=True), tokens)
    model.train()
    model.gradient_checkpointing_enable()
    close(want, results(model, mask, input_ids=ids, attention_mask=mask, use_cache=False))
    undone(model)


def test_accelerate_and_restore_with_rotation():
    import posenc.hf

    model = causal("llama", "sdpa")
    ids, mask = batch()
    before = results(model, mask, input_ids=ids, attention_mask=mask)
    report = posenc.hf.accelerate(model, attention=True, force=True)
    close(before, results(model, mask, input_ids=ids, attention_mask=mask))
    assert list(report.attentions) == ["model.layers.0.self_attn", "model.layers.1.self_attn"]
    assert report.calls == 2 and "model.layers.0.self_attn: attention by posenc (1 calls)" in str(report)
    posenc.hf.restore(model)
    again = results(model, mask, input_ids=ids, attention_mask=mask)
    assert torch.equal(before[0], again[0]) and all(torch.equal(x, again[1][n]) for n, x in before[1].items())
    assert str(model.config._attn_implementation) == "sdpa"
