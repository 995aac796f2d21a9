# SPDX-License-Identifier: Apache-2.0
"""accelerate(model, attention=True, force=True) on speech models whose file computes in place, vectors by distance: logits, gradients, the way back."""
import importlib.util
import pathlib

import pytest
import torch
import transformers

import posenc.hf

_spec = importlib.util.spec_from_file_location("attention_biased", pathlib.Path(__file__).with_name("test_attention_biased.py"))
biased = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(biased)
proof = biased.proof
SPEECH = dict(conv_dim=(16, 16), conv_stride=(5, 2), conv_kernel=(10, 3), num_feat_extract_layers=2, num_conv_pos_embeddings=8,
              num_conv_pos_embedding_groups=4, apply_spec_augment=False, **proof.PADS)


def sound():
    torch.manual_seed(1)
    heard = torch.ones(2, 400, dtype=torch.long)
    heard[1, 300:] = 0
    return torch.randn(2, 400), heard


def wide(model):
    """Vectors of positions that count."""
    with torch.no_grad():
        for name, x in model.named_parameters():
            if any(n in name for n in ("pe_k", "rel_pos_emb", "pos_bias", "linear_pos", "rel_embeddings", "pos_proj", "relative_k_proj")):
                x.normal_(std=0.5)
    return model


@pytest.mark.parametrize("distance", [6, 160])  # less than the frames, and more
def test_speecht5(distance):
    torch.manual_seed(0)
    config = transformers.SpeechT5Config(
        hidden_size=32, encoder_layers=2, encoder_attention_heads=4, encoder_ffn_dim=48, decoder_layers=1, decoder_attention_heads=4,
        decoder_ffn_dim=48, encoder_max_relative_position=distance, encoder_layerdrop=0.0, decoder_layerdrop=0.0, vocab_size=99,
        max_text_positions=40, **{**SPEECH, "eos_token_id": 98}, decoder_start_token_id=1)
    model = wide(transformers.SpeechT5ForSpeechToText(config)).eval()
    values, heard = sound()
    ids, _ = proof.batch()

    def generate():
        return model.generate(values, attention_mask=heard, max_new_tokens=6, min_new_tokens=6, do_sample=False)

    left = {f"speecht5.decoder.wrapped_decoder.layers.0.{n}": "it has no position in the score" for n in ("self_attn", "encoder_attn")}
    report = proof.proven(model, torch.ones(2, 11), generate, left, input_values=values, attention_mask=heard, decoder_input_ids=ids)
    assert len(report.layers) == 2
    with torch.no_grad():
        given = dict(input_values=values, attention_mask=heard, decoder_input_ids=ids, output_attentions=True)
        want = model(**given).encoder_attentions
        proof.replace_attention(model, report)
        got = model(**given).encoder_attentions
        proof.undone(model)
    assert len(got) == 2 and all(torch.equal(a, b) for a, b in zip(got, want))
    assert all(c.original == {"attentions as output": 1} for c in report.layers.values())


def test_fastspeech2():
    torch.manual_seed(0)
    config = transformers.FastSpeech2ConformerConfig(
        hidden_size=32, vocab_size=99, num_mel_bins=12, encoder_num_attention_heads=4, encoder_layers=2, encoder_linear_units=48,
        decoder_layers=1, decoder_num_attention_heads=4, decoder_linear_units=48, speech_decoder_postnet_layers=1,
        speech_decoder_postnet_units=16, duration_predictor_channels=16, energy_predictor_channels=16, pitch_predictor_channels=16,
        pitch_predictor_layers=2)
    model = wide(transformers.FastSpeech2ConformerModel(config).encoder)
    ids, mask = proof.batch(padded=False)
    mask[1, 8:] = 0
    biased.proven(model, 2, mask, input_tensor=ids, attention_mask=mask[:, None], return_dict=False)


@pytest.mark.parametrize("frames", [3, 8, 21])  # less than a block of 8, one, more than two
@pytest.mark.parametrize("kind", ["GraniteSpeech", "GraniteSpeechPlus"])
def test_granite_speech(kind, frames):
    from transformers.models.granite_speech import modeling_granite_speech
    from transformers.models.granite_speech_plus import modeling_granite_speech_plus

    file = modeling_granite_speech_plus if kind == "GraniteSpeechPlus" else modeling_granite_speech
    torch.manual_seed(0)
    config = getattr(transformers, f"{kind}EncoderConfig")(input_dim=12, num_layers=2, hidden_dim=32, feedforward_mult=2, num_heads=4,
                                                          dim_head=8, output_dim=10, context_size=8, max_pos_emb=10, conv_kernel_size=3)
    model = wide(getattr(file, f"{kind}CTCEncoder")(config))
    biased.proven(model, 2, hidden_states=torch.randn(2, frames, 12))


def heard_of(frames):
    """The last four frames of the second sequence are padding."""
    mask = torch.ones(2, frames)
    mask[1, frames - 4:] = 0
    return mask


GEMMA3N = dict(hidden_size=32, input_feat_size=16, conf_num_attention_heads=4, conf_num_hidden_layers=2, conf_attention_chunk_size=4,
               conf_attention_logit_cap=2.0, conf_reduction_factor=1, sscp_conv_channel_size=(8, 8))


@pytest.mark.parametrize("left, right", [(5, 0), (1, 0), (4, 2), (1, 3)])
def test_gemma3n(left, right):
    from transformers.models.gemma3n import modeling_gemma3n

    torch.manual_seed(0)
    config = transformers.Gemma3nAudioConfig(**GEMMA3N, conf_attention_context_left=left, conf_attention_context_right=right)
    model = wide(modeling_gemma3n.Gemma3nAudioEncoder(config))
    mask = torch.zeros(2, 44, dtype=torch.bool)
    mask[1, 28:] = True
    biased.proven(model, 2, heard_of(11), audio_mel=torch.randn(2, 44, 16), audio_mel_mask=mask)


@pytest.mark.parametrize("frames", [3, 4, 11])  # less than a block of 4, one, more than two
def test_gemma3n_in_double(frames, monkeypatch):
    from transformers.models.gemma3n import modeling_gemma3n

    torch.manual_seed(0)
    config = transformers.Gemma3nAudioConfig(**GEMMA3N, conf_attention_context_left=5, conf_attention_context_right=2)
    layer = wide(modeling_gemma3n.Gemma3nAudioAttention(config)).double()
    with torch.no_grad():
        layer.per_dim_scale.normal_()
    x, mask = torch.randn(2, frames, 32, dtype=torch.double), torch.zeros(2, frames, dtype=torch.bool)
    mask[1, 2:] = True
    softmax = torch.nn.functional.softmax
    with monkeypatch.context() as m, torch.no_grad():
        m.setattr(torch.nn.functional, "softmax", lambda x, dim, dtype: softmax(x, dim=dim))  # the class rounds it to float32
        want = layer(x, mask)
    report = posenc.hf.accelerate(layer, attention=True, force=True)
    with torch.no_grad():
        got = layer(x, mask)
    assert [c.taken for c in report.attentions.values()] == [1]
    assert (got - want)[~mask].abs().max() < 1e-13


# The published sizes have chunk + right - (left - 1) = 0; others shift its rows of positions.
@pytest.mark.parametrize("chunk, left, right", [(4, 5, 0), (4, 2, 0), (3, 7, 0), (4, 4, 2), (2, 3, 4)])
@pytest.mark.parametrize("frames", [3, 11])
def test_gemma4(chunk, left, right, frames):
    from transformers.models.gemma4 import modeling_gemma4

    torch.manual_seed(0)
    config = transformers.Gemma4AudioConfig(
        hidden_size=32, num_attention_heads=4, num_hidden_layers=2, attention_chunk_size=chunk, attention_context_left=left,
        attention_context_right=right, attention_logit_cap=2.0, output_proj_dims=24, subsampling_conv_channels=(16, 8))
    model = wide(modeling_gemma4.Gemma4AudioModel(config))
    mask = torch.ones(2, 4 * frames, dtype=torch.bool)
    if frames > 4:
        mask[1, 4 * (frames - 4):] = False
    biased.proven(model, 2, heard_of(frames) if frames > 4 else torch.ones(2, frames), input_features=torch.randn(2, 4 * frames, 16),
                  attention_mask=mask)


def test_gemma4_with_another_mask_is_the_models_own():
    from transformers.models.gemma4 import modeling_gemma4

    config = transformers.Gemma4AudioConfig(hidden_size=32, num_attention_heads=4, num_hidden_layers=1, attention_chunk_size=4,
                                            attention_context_left=5, attention_context_right=0)
    config._attn_implementation = "eager"
    layer = modeling_gemma4.Gemma4AudioAttention(config, 0).eval()
    x, rows, mask = torch.randn(1, 8, 32), torch.randn(1, 5, 32), torch.zeros(1, 1, 2, 4, 8)
    with torch.no_grad():
        want = layer(x, rows, mask)[0]
        report = posenc.hf.accelerate(layer, attention=True, force=True)
        assert torch.equal(layer(x, rows, mask)[0], want)
    assert [c.original for c in report.attentions.values()] == [{"a mask that does not follow the order of the tokens": 1}]


@pytest.mark.parametrize("shared", [True, False])
def test_sew_d(shared):
    torch.manual_seed(0)
    config = transformers.SEWDConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48, squeeze_factor=2,
                                     position_buckets=8, max_position_embeddings=20, share_att_key=shared, layerdrop=0.0, **SPEECH)
    model = wide(transformers.SEWDModel(config))
    values, heard = sound()
    biased.proven(model, 2, input_values=values, attention_mask=heard)
    biased.attentions_are_its_own(model, 2, input_values=values, attention_mask=heard)


def test_dropout_in_training_is_the_models_own():
    config = transformers.SEWDConfig(hidden_size=32, num_hidden_layers=1, num_attention_heads=4, intermediate_size=48, layerdrop=0.0, **SPEECH)
    model = transformers.SEWDModel(config).train()
    report = posenc.hf.accelerate(model, attention=True, force=True)
    model(sound()[0])
    assert [c.original for c in report.attentions.values()] == [{"dropout in training": 1}]
