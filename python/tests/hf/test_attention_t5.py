# SPDX-License-Identifier: Apache-2.0
"""accelerate(model, attention=True, force=True) on T5's family beyond T5 itself: logits, gradients, greedy tokens, the way back."""
import importlib.util
import pathlib

import pytest
import torch
import transformers

_spec = importlib.util.spec_from_file_location("attention_proof", pathlib.Path(__file__).with_name("test_attention.py"))
proof = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(proof)

T5, TARGETS = proof.T5, 7


def proven(config, make, layers, left=None, generates=True, **inputs):
    """A model of these layers; left: the end of the names of those that stay as they were."""
    torch.manual_seed(0)
    model = make(config).eval()
    _, mask = proof.batch()
    targets = torch.randint(2, 98, (2, TARGETS))

    def generate():
        return model.generate(**inputs, attention_mask=mask, max_new_tokens=8, min_new_tokens=8, do_sample=False)

    report = proof.proven(model, torch.ones(2, TARGETS), generate if generates else lambda: torch.zeros(1), left=left, **inputs,
                          attention_mask=mask, decoder_input_ids=targets)
    assert len(report.layers) == layers
    return report


def test_switch_transformers():
    config = transformers.SwitchTransformersConfig(**T5, num_decoder_layers=2, num_sparse_encoder_layers=1, num_sparse_decoder_layers=1,
                                                   num_experts=2)
    proven(config, transformers.SwitchTransformersForConditionalGeneration, 6, input_ids=proof.batch()[0])


@pytest.mark.parametrize("kind", ["local", "transient-global"])
def test_longt5(kind):
    config = transformers.LongT5Config(**T5, encoder_attention_type=kind, local_radius=3, global_block_size=4)
    proven(config, transformers.LongT5ForConditionalGeneration, 6, input_ids=proof.batch()[0])


def test_longt5_without_a_whole_block_is_its_own():
    config = transformers.LongT5Config(**T5, encoder_attention_type="transient-global", local_radius=3, global_block_size=16)
    model = transformers.LongT5EncoderModel(config).eval()
    ids, mask = proof.batch()
    with torch.no_grad():
        before = model(ids, attention_mask=mask).last_hidden_state
        report = proof.Report()
        proof.replace_attention(model, report)
        assert torch.equal(model(ids, attention_mask=mask).last_hidden_state, before)
    proof.undone(model)
    assert [c.original for c in report.layers.values()] == [{"no whole block": 1}] * 2


@pytest.mark.parametrize("kind", ["local", "transient-global"])
def test_longt5_goes_back_inside_a_call(kind):
    """The bias that goes from layer to layer becomes the original's where a layer is asked for its attentions."""
    torch.manual_seed(0)
    config = transformers.LongT5Config(**T5, encoder_attention_type=kind, local_radius=3, global_block_size=4)
    model = transformers.LongT5ForConditionalGeneration(config).eval()
    ids, mask = proof.batch()
    given = dict(input_ids=ids, attention_mask=mask, decoder_input_ids=ids[:, :5])
    with torch.no_grad():
        want = model(**given, output_attentions=True)
        proof.replace_attention(model, proof.Report())
        got = model(**given, output_attentions=True)
        assert all(torch.equal(a, b) for a, b in zip(got.encoder_attentions, want.encoder_attentions)) and len(got.encoder_attentions) == 2
        second = model.encoder.block[1].layer[0]
        reports = [m._posenc_attention for m in model.encoder.modules() if "_posenc_attention" in m.__dict__]
        second._modules[f"{'Local' if kind == 'local' else 'TransientGlobal'}SelfAttention"].dropout = 0.5
        second.train()
        for m in second.modules():
            m.training = "Attention" in type(m).__name__
        torch.manual_seed(3)
        model.encoder(input_ids=ids, attention_mask=mask)
        proof.undone(model)
    assert [c.taken for c in reports] == [1, 0] and reports[1].original["dropout in training"] == 1


def test_pop2piano():
    torch.manual_seed(1)
    proven(transformers.Pop2PianoConfig(**T5), transformers.Pop2PianoForConditionalGeneration, 6, generates=False,
           inputs_embeds=torch.randn(2, 11, 32))


def test_udop():
    torch.manual_seed(1)
    corner = torch.rand(2, 11, 2) / 2
    # Its encoder's tables have the decoder's size and the buckets of their own arguments, 32.
    config = transformers.UdopConfig(**{**T5, "relative_attention_num_buckets": 32}, num_decoder_layers=2, max_2d_position_embeddings=50,
                                     image_size=32, patch_size=16)
    proven(config, transformers.UdopForConditionalGeneration, 6, input_ids=proof.batch()[0], bbox=torch.cat([corner, corner + 0.3], -1),
           pixel_values=torch.randn(2, 3, 32, 32))


def test_pix2struct():
    torch.manual_seed(1)
    text = {"vocab_size": 99, "hidden_size": 32, **{n: x for n, x in T5.items() if n not in ("vocab_size", "d_model")}}
    vision = dict(hidden_size=32, patch_embed_hidden_size=12, d_ff=48, d_kv=8, num_hidden_layers=2, num_attention_heads=4, seq_len=30)
    places = torch.randint(0, 5, (2, 11, 2)).float()
    proven(transformers.Pix2StructConfig(text_config=text, vision_config=vision), transformers.Pix2StructForConditionalGeneration, 6,
           flattened_patches=torch.cat([places, torch.randn(2, 11, 12)], -1))


@pytest.mark.parametrize("kind", ["t5", "umt5"])
def test_a_row_becomes_the_models_bias_where_attentions_are_asked_for(kind):
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(kind, **T5)
    config._attn_implementation = "eager"
    model = transformers.AutoModelForSeq2SeqLM.from_config(config).eval()
    ids, mask = proof.batch()
    with torch.no_grad():
        for name, x in model.named_parameters():
            if "relative_attention_bias" in name:
                x.normal_(std=3.0)
        given = dict(input_ids=ids, attention_mask=mask, decoder_input_ids=ids[:, :7], output_attentions=True)
        want = model(**given)
        proof.replace_attention(model, proof.Report())
        got = model(**given)
        proof.undone(model)
    for part in ("encoder_attentions", "decoder_attentions", "cross_attentions"):
        for a, b in zip(getattr(got, part), getattr(want, part), strict=True):
            torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", ["t5", "umt5"])
def test_a_bias_that_counts_reaches_a_token_behind_a_cache(kind):
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(kind, **T5)
    model = transformers.AutoModelForSeq2SeqLM.from_config(config).eval()
    with torch.no_grad():
        for name, x in model.named_parameters():
            if "relative_attention_bias" in name:
                x.normal_(std=3.0)
        ids, mask = proof.batch()
        tokens = torch.randint(2, 98, (2, 9))
        want = model(input_ids=ids, attention_mask=mask, decoder_input_ids=tokens).logits[:, -1]
        proof.replace_attention(model, proof.Report())
        before = model(input_ids=ids, attention_mask=mask, decoder_input_ids=tokens[:, :-1], use_cache=True)
        got = model(encoder_outputs=(before.encoder_last_hidden_state,), attention_mask=mask, decoder_input_ids=tokens[:, -1:],
                    past_key_values=before.past_key_values).logits[:, -1]
        proof.undone(model)
    assert (got - want).abs().max() <= 1e-5 * max(1.0, float(want.abs().max()))
