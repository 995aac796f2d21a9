# SPDX-License-Identifier: Apache-2.0
"""accelerate(attention=True) computes padded batches without their padding: the same numbers where there are tokens, gradients included,
and a layer that mixes tokens keeps its padding."""
import copy
import functools
import pickle

import pytest
import torch
import transformers
from posenc.hf import _packed, _speed

import posenc.hf

transformers.logging.set_verbosity_error()
SMALL = dict(vocab_size=99, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, pad_token_id=0, bos_token_id=1,
             eos_token_id=2, cls_token_id=1, sep_token_id=2, max_position_embeddings=64)
DEBERTA = dict(SMALL, relative_attention=True, pos_att_type=["c2p", "p2c"], position_buckets=8, share_att_key=True, norm_rel_ebd="layer_norm")
CAUSAL = dict(use_cache=False)
# A name: config, words of it, attention, words of the call.
KINDS = {
    "bert": ("bert", SMALL, "sdpa", {}),
    "bert, eager": ("bert", SMALL, "eager", {}),
    "bloom": ("bloom", SMALL, None, CAUSAL),
    "deberta": ("deberta", DEBERTA, None, {}),
    "deberta-v2": ("deberta-v2", DEBERTA, None, {}),
    "esm": ("esm", dict(SMALL, position_embedding_type="rotary", mask_token_id=3), "sdpa", {}),
    "llama": ("llama", dict(SMALL, num_key_value_heads=2), "sdpa", CAUSAL),
    "mistral": ("mistral", dict(SMALL, num_key_value_heads=2, sliding_window=5), "eager", CAUSAL),
    "modernbert": ("modernbert", dict(SMALL, local_attention=6, global_attn_every_n_layers=2), "sdpa", {}),
    "mpnet": ("mpnet", SMALL, None, {}),
    "t5": ("t5", dict(vocab_size=99, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4), None, {}),
}


def build(name):
    kind, words, attention, call = KINDS[name]
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(kind, **words)
    config._attn_implementation = attention
    cls = transformers.T5EncoderModel if kind == "t5" else transformers.AutoModel
    return (cls(config) if kind == "t5" else cls.from_config(config)).eval(), call


def batch(side="right", lengths=(23, 7, 12), tokens=23):
    seen = torch.zeros(len(lengths), tokens, dtype=torch.long)
    for row, n in enumerate(lengths):
        seen[row, slice(0, n) if side == "right" else slice(tokens - n, tokens)] = 1
    return torch.randint(4, 90, seen.shape, generator=torch.Generator().manual_seed(3)), seen


def step(model, ids, seen, call):
    """What is there of the output, and all gradients."""
    model.zero_grad()
    out = model(ids, attention_mask=seen, **call)[0]
    (out * seen[..., None] * torch.linspace(0, 1, out.shape[-1])).sum().backward()
    return [out.detach()[seen.bool()], *(p.grad.clone() for p in model.parameters() if p.grad is not None)]


def far(a, b):
    largest = max(float(x.abs().max()) for x in b[1:]) if len(b) > 1 else 0.0
    return max(float((x - y).abs().max() / max(float(y.abs().max()), 1e-3 * largest, 1e-9)) for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("name", KINDS)
def test_padding_is_not_computed(name, side):
    model, call = build(name)
    ids, seen = batch(side)
    want = step(model, ids, seen, call)
    report = posenc.hf.accelerate(model, attention=True)
    rows = []

    def counted(x, forward):
        rows.append(x.shape[:-1].numel())
        return forward(x)

    for layer in model.modules():  # hooks would keep the padding
        if isinstance(layer, torch.nn.Linear):
            layer.forward = functools.partial(counted, forward=layer.forward)
    assert far(step(model, ids, seen, call), want) < 5e-6
    rows.clear()
    assert far(step(model, ids, seen, call), want) < 5e-6
    assert rows.count(int(seen.sum())) >= 8, rows  # in the layers; poolers and tables of positions have others
    counts = report.attentions.values()
    assert all((c.taken, c.packed) == (2, 2) for c in counts), report
    assert "2 calls, 2 of them without padding" in str(report) and not report.reasons


def test_what_keeps_its_padding():
    model, _ = build("bert")
    report = posenc.hf.accelerate(model, attention=True, force=True)
    with torch.no_grad():
        ids, seen = batch()
        hole = seen.clone()
        hole[0, 5] = 0
        for mask in (torch.ones_like(seen), hole, torch.tensor([[1] * 22 + [0]] * 3), torch.zeros_like(seen)):
            model(ids, attention_mask=mask)
        model(ids, attention_mask=seen, output_attentions=True)
        assert all(c.packed == 0 for c in report.attentions.values())
        posenc.hf.restore(model)
        report = posenc.hf.accelerate(model, attention=True, force=True, pack=False)
        model(ids, attention_mask=seen)
        assert all((c.taken, c.packed) == (1, 0) for c in report.attentions.values())
        decoder, _ = build("llama")
        report = posenc.hf.accelerate(decoder, attention=True, force=True)
        decoder(ids, attention_mask=seen, use_cache=True)
        assert all((c.taken, c.packed) == (1, 0) for c in report.attentions.values())


def test_16_bit_layers_are_packed_although_their_own_attention_is_faster():
    model, _ = build("bert")
    model.to(torch.bfloat16)
    ids, seen = batch()
    with torch.no_grad():
        want = model(ids, attention_mask=seen)[0][seen.bool()]
        report = posenc.hf.accelerate(model)
        got = model(ids, attention_mask=seen)[0][seen.bool()]
        model(ids)
    assert float((got - want).abs().max() / want.abs().max()) < 0.05
    assert [(c.taken, c.packed, dict(c.original)) for c in report.attentions.values()] == [(1, 1, {_speed.FUSED: 1})] * 2


class Mixing(torch.nn.Module):
    """A layer's part that is no function of single tokens."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x + 0.5 * x.roll(1, 1))


def test_layers_that_mix_tokens_keep_their_padding():
    model, call = build("bert")
    for layer in model.encoder.layer:
        layer.intermediate = Mixing(layer.intermediate)
    ids, seen = batch()
    want = step(model, ids, seen, call)
    report = posenc.hf.accelerate(model, attention=True, force=True)
    assert far(step(model, ids, seen, call), want) < 5e-6
    assert report.reasons == {f"encoder.layer.{i}": _packed._DIFFERS for i in range(2)}
    assert all((c.taken, c.packed) == (1, 0) for c in report.attentions.values())
    posenc.hf.restore(model)
    model.encoder.layer[0].intermediate = model.encoder.layer[0].intermediate.inner
    report = posenc.hf.accelerate(model, attention=True, force=True)  # one layer mixes tokens, of the same class
    step(model, ids, seen, call)
    assert [(c.taken, c.packed) for c in report.attentions.values()] == [(1, 1), (1, 0)]


class Shaped(Mixing):
    """One that takes a number of tokens that 3 divides."""

    def forward(self, x):
        return self.inner(x + torch.zeros(x.shape[0] * x.shape[1] // 3 * 3, 1).view(x.shape[0], x.shape[1], 1))


def test_layers_that_take_no_row_keep_their_padding():
    model, call = build("bert")
    model.encoder.layer[1].intermediate = Shaped(model.encoder.layer[1].intermediate)
    ids, seen = batch(lengths=(24, 7, 12), tokens=24)
    want = step(model, ids, seen, call)
    report = posenc.hf.accelerate(model)
    for _ in range(2):
        assert far(step(model, ids, seen, call), want) < 5e-6
    assert [c.packed for c in report.attentions.values()] == [2, 1]  # the second layer was tried once
    assert "RuntimeError" in report.reasons["encoder.layer.1"]


def test_models_that_read_rows_of_padding_keep_it():
    torch.manual_seed(0)
    sizes = dict(hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, output_hidden_size=32)
    convolutions = dict(conv_dim=(16, 16), conv_stride=(5, 2), conv_kernel=(10, 3), num_feat_extract_layers=2, num_conv_pos_embeddings=8,
                        num_conv_pos_embedding_groups=4, add_adapter=True)
    config = transformers.Wav2Vec2Config(**sizes, **convolutions, layerdrop=0.0, apply_spec_augment=False, do_stable_layer_norm=True,
                                         feat_extract_norm="layer")
    model = transformers.Wav2Vec2Model(config).eval()  # a convolution behind its layers
    sound, heard = torch.randn(2, 800), torch.ones(2, 800, dtype=torch.long)
    heard[1, 400:] = 0
    with torch.no_grad():
        want = model(sound, attention_mask=heard).last_hidden_state
        report = posenc.hf.accelerate(model, force=True)
        assert far([model(sound, attention_mask=heard).last_hidden_state], [want]) < 5e-6
    assert all((c.taken, c.packed) == (1, 0) for c in report.attentions.values())


def test_dropout_in_training_keeps_the_padding():
    ids, seen = batch()
    model, _ = build("bert")
    report = posenc.hf.accelerate(model, attention=True)
    model.train()(ids, attention_mask=seen)
    assert all(c.packed == 0 for c in report.attentions.values())
    torch.manual_seed(0)
    config = transformers.LlamaConfig(**SMALL, attention_dropout=0.1)  # no module says so
    model = transformers.LlamaModel(config).train()
    report = posenc.hf.accelerate(model)
    with torch.no_grad():
        model(ids, attention_mask=seen, use_cache=False)
        assert all(dict(c.original) == {"dropout in training": 1} for c in report.attentions.values())
        assert set(report.reasons.values()) == {"batches keep their padding: dropout in training"}
        model.eval()(ids, attention_mask=seen, use_cache=False)
    assert all(c.packed == 1 for c in report.attentions.values())


def test_what_sees_parts_of_layers_sees_the_padded_batch():
    ids, seen = batch()
    model, _ = build("bert")
    posenc.hf.accelerate(model)
    shapes = []
    handle = model.encoder.layer[0].output.dense.register_forward_hook(lambda module, args, out: shapes.append(tuple(out.shape)))
    with torch.no_grad():
        model(ids, attention_mask=seen)
    handle.remove()
    assert shapes == [(3, 23, 32)]
    torch.manual_seed(0)
    model = transformers.MixtralForCausalLM(transformers.MixtralConfig(**SMALL, num_local_experts=4, num_key_value_heads=2)).eval()
    given = dict(attention_mask=seen, use_cache=False, output_router_logits=True)
    with torch.no_grad():
        want = model(ids, **given)
        report = posenc.hf.accelerate(model)
        got = model(ids, **given)
        assert all(c.packed == 0 for c in report.attentions.values())
        assert far([got.aux_loss, got.logits[seen.bool()]], [want.aux_loss, want.logits[seen.bool()]]) < 5e-6
        out = model(ids, attention_mask=seen, use_cache=False, output_hidden_states=True)
    assert all(c.packed == 1 for c in report.attentions.values()) and [x.shape for x in out.hidden_states] == [(3, 23, 32)] * 3
    assert all(c.taken == 2 for layer in report.rotation.values() for c in layer)  # what is tried is not counted


def test_encoders_of_pairs_are_packed_and_their_decoders_are_not():
    torch.manual_seed(0)
    model = transformers.T5Model(transformers.T5Config(vocab_size=99, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4)).eval()
    ids, seen = batch()
    given = dict(attention_mask=seen, decoder_input_ids=ids[:, :9], decoder_attention_mask=seen[:, :9], use_cache=False)
    with torch.no_grad():
        want = model(ids, **given).last_hidden_state
        report = posenc.hf.accelerate(model, attention=True)
        got = model(ids, **given).last_hidden_state
    assert far([got[seen[:, :9].bool()]], [want[seen[:, :9].bool()]]) < 5e-6
    assert {name.split(".")[0]: c.packed for name, c in report.attentions.items() if c.packed} == {"encoder": 1}


def test_copies_restored_models_and_other_masks():
    model, call = build("t5")
    ids, seen = batch()
    with torch.no_grad():
        want = model(ids, attention_mask=seen)[0][seen.bool()]
        posenc.hf.accelerate(model, attention=True)
        for other in (model, copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
            assert far([other(ids, attention_mask=seen)[0][seen.bool()]], [want]) < 5e-6
        ids2, seen2 = batch(lengths=(4, 19, 5), tokens=20)
        got = model(ids2, attention_mask=seen2)[0][seen2.bool()]
        posenc.hf.restore(model)
        assert "forward" not in model.encoder.block[0].__dict__
        assert far([got], [model(ids2, attention_mask=seen2)[0][seen2.bool()]]) < 5e-6
