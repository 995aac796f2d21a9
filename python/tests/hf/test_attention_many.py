# SPDX-License-Identifier: Apache-2.0
"""accelerate(model, attention=True, force=True) on towers for images and sound, encoders with decoders and layers whose call has position terms:
the same outputs; what is left is left with a reason."""
import importlib

import pytest
import torch
import transformers

import posenc.hf

transformers.logging.set_verbosity_error()
SMALL = dict(vocab_size=96, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=64,
             pad_token_id=0, bos_token_id=1, eos_token_id=2)
SPEECH = dict(SMALL, conv_dim=(16, 16), conv_stride=(5, 2), conv_kernel=(10, 3), num_feat_extract_layers=2, num_conv_pos_embeddings=8,
              num_conv_pos_embedding_groups=4, layerdrop=0.0, apply_spec_augment=False)
VISION = dict(hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, image_size=32, patch_size=8)
PAIR = dict(vocab_size=96, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4,
            encoder_ffn_dim=48, decoder_ffn_dim=48, max_position_embeddings=64, pad_token_id=0, bos_token_id=1, eos_token_id=2,
            decoder_start_token_id=1)
WINDOWS = dict(image_size=32, patch_size=4, embed_dim=16, depths=[2, 2], num_heads=[2, 4], window_size=4)
SEAMLESS = dict(SMALL, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=48,
                decoder_ffn_dim=48, speech_encoder_layers=2, speech_encoder_attention_heads=4, speech_encoder_intermediate_size=48,
                feature_projection_input_dim=24, max_source_positions=64)
WHISPER = dict(PAIR, num_mel_bins=16, max_source_positions=20, max_target_positions=20)


def sound():
    return {"input_values": torch.randn(2, 400)}


def features(size, frames=40, **more):
    return {"input_features": torch.randn(2, frames, size), **more}


def pixels(size=32):
    return {"pixel_values": torch.randn(2, 3, size, size)}


def tokens(**more):
    return {"input_ids": torch.randint(4, 90, (2, 12)), **more}


def both():
    return tokens(decoder_input_ids=torch.randint(4, 90, (2, 7)))


def mel():
    return {"input_features": torch.randn(2, 16, 40), "decoder_input_ids": torch.randint(4, 90, (2, 7))}


# name: the class, words of its config, inputs, layers that are taken over, layers that stay.
MODELS = {
    "wav2vec2": ("Wav2Vec2Model", SPEECH, sound, 2, 0),
    "wav2vec2_conformer": ("Wav2Vec2ConformerModel", dict(SPEECH, position_embeddings_type="relative"), sound, 2, 0),
    "wav2vec2_conformer_rotary": ("Wav2Vec2ConformerModel", dict(SPEECH, position_embeddings_type="rotary"), sound, 2, 0),
    "wav2vec2_bert": ("Wav2Vec2BertModel", dict(SMALL, feature_projection_input_dim=24), lambda: features(24), 2, 0),
    "wav2vec2_bert_relative": ("Wav2Vec2BertModel", dict(SMALL, feature_projection_input_dim=24, position_embeddings_type="relative"),
                               lambda: features(24), 2, 0),
    "seamless_m4t": ("SeamlessM4TForSpeechToText", SEAMLESS, lambda: features(24, decoder_input_ids=torch.randint(4, 90, (2, 7))), 7, 0),
    "seamless_m4t_v2": ("SeamlessM4Tv2ForSpeechToText", SEAMLESS, lambda: features(24, decoder_input_ids=torch.randint(4, 90, (2, 7))), 7, 0),
    "parakeet": ("ParakeetEncoder", dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48,
                                         subsampling_conv_channels=8, num_mel_bins=24), lambda: features(24), 2, 0),
    "whisper": ("WhisperModel", WHISPER, mel, 6, 0),
    "whisper_that_compares_names": ("WhisperForConditionalGeneration", WHISPER, mel, 6, 0),
    "bart": ("BartForConditionalGeneration", PAIR, both, 6, 0),
    "blenderbot": ("BlenderbotForConditionalGeneration", PAIR, both, 6, 0),
    "marian": ("MarianMTModel", PAIR, both, 6, 0),
    "swin": ("SwinModel", WINDOWS, pixels, 4, 0),
    "donut_swin": ("DonutSwinModel", WINDOWS, pixels, 4, 0),
    "swinv2": ("Swinv2Model", WINDOWS, pixels, 4, 0),
    "clap": ("ClapAudioModel", dict(patch_embeds_hidden_size=16, depths=[2, 2], num_attention_heads=[2, 4], window_size=4, spec_size=64,
                                    num_mel_bins=16, hidden_size=32, patch_size=4, patch_stride=[4, 4], enable_fusion=False),
             lambda: {"input_features": torch.randn(2, 1, 256, 16)}, 4, 0),
    "beit": ("BeitModel", dict(VISION, use_relative_position_bias=True), pixels, 2, 0),
    "beit_shared": ("BeitModel", dict(VISION, use_shared_relative_position_bias=True), pixels, 2, 0),
    "vit": ("ViTModel", VISION, pixels, 2, 0),
    "dinov2": ("Dinov2Model", VISION, pixels, 2, 0),
    "siglip": ("SiglipVisionModel", VISION, pixels, 2, 1),  # its pooling head calls torch.nn.MultiheadAttention
    "sam": ("SamVisionModel", dict(VISION, window_size=2, global_attn_indexes=[1], output_channels=16, mlp_dim=48), pixels, 2, 0),
    "granite_speech5": ("granite_speech5.GraniteSpeech5Encoder", dict(SMALL, num_mel_bins=24, context_size=8, head_dim=8), lambda: features(96), 2, 0),  # four frames in one
    "inkling": ("inkling.InklingTextModel", dict(
        SMALL, num_key_value_heads=2, head_dim=8, swa_num_attention_heads=4, swa_num_key_value_heads=2, swa_head_dim=8,
        sliding_window_size=6, d_rel=4, rel_extent=8, moe_intermediate_size=24, n_routed_experts=4, num_experts_per_tok=2, n_shared_experts=1, local_layer_ids=[0]), tokens, 2, 0),
    "nemotron_asr_streaming": ("nemotron_asr_streaming.NemotronAsrStreamingEncoder", dict(
        SMALL, num_mel_bins=24, subsampling_conv_channels=8, sliding_window=6, default_num_lookahead_tokens=2), lambda: features(24, frames=120), 2, 0),
    "phi4_audio": ("phi4_multimodal.Phi4MultimodalAudioModel", dict(
        hidden_size=32, num_blocks=2, num_attention_heads=4, intermediate_size=48, ext_pw_out_channel=32, depthwise_separable_out_channel=32,
        input_size=24, nemo_conv_channels=8, bias_max_distance=6), lambda: {"hidden_states": torch.randn(2, 80, 24), "mask": None}, 2, 0),
    "falcon": ("FalconForCausalLM", SMALL, tokens, 0, 2),
    "falcon_alibi": ("FalconForCausalLM", dict(SMALL, alibi=True), tokens, 2, 0),
}


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
@pytest.mark.parametrize("name", MODELS)
def test_outputs_are_the_same(name, implementation):
    cls, words, inputs, layers, stay = MODELS[name]
    file, _, cls = cls.rpartition(".")  # of classes that transformers does not show
    cls = getattr(importlib.import_module(f"transformers.models.{file}.modeling_{file}") if file else transformers, cls)
    torch.manual_seed(0)
    config = cls.config_class(**words)
    config._attn_implementation = implementation
    try:
        model = cls(config).eval()
    except ValueError as e:
        assert "scaled_dot_product_attention" in str(e) or "sdpa" in str(e)
        pytest.skip(f"transformers has no {implementation} for it")
    with torch.no_grad():
        for x in model.parameters():
            if x.dim() > 1:
                x.mul_(3)  # else attention is nearly uniform
            if x.abs().max() == 0:
                x.normal_(std=0.3)
        given = inputs()
        before = model(**given)[0]
        report = posenc.hf.accelerate(model, attention=True, force=True)
        after = model(**given)[0]
        posenc.hf.restore(model)
        again = model(**given)[0]
    assert (before - after).abs().max() <= 1e-5 * max(1.0, float(before.abs().max()))
    assert torch.equal(before, again)
    assert len(report.attentions) == layers and all(c.taken and not c.original for c in report.attentions.values()), report
    assert len([x for x in report.reasons.values() if "attention" in x or "position in the score" in x]) == stay, report


LEFT = {
    "funnel": (lambda: transformers.FunnelModel(transformers.FunnelConfig(
        vocab_size=96, block_sizes=[1, 1], num_decoder_layers=1, d_model=32, n_head=4, d_head=8, d_inner=48)), tokens, 3, "FunnelRelMultiheadAttention"),
    "prophetnet": (lambda: transformers.ProphetNetModel(transformers.ProphetNetConfig(
        vocab_size=96, hidden_size=32, encoder_ffn_dim=48, decoder_ffn_dim=48, num_encoder_layers=1, num_decoder_layers=1, num_encoder_attention_heads=4,
        num_decoder_attention_heads=4, max_position_embeddings=64, ngram=2, num_buckets=8)), both, 1, "ProphetNetNgramSelfAttention"),
}


@pytest.mark.parametrize("name", LEFT)
def test_what_is_left_is_left_with_its_reason(name):
    from posenc.hf._left import LEFT as reasons

    make, inputs, layers, cls = LEFT[name]
    torch.manual_seed(0)
    model, given = make().eval(), inputs()
    with torch.no_grad():
        before = model(**given)[0]
        report = posenc.hf.accelerate(model, attention=True, force=True)
        assert torch.equal(model(**given)[0], before)
    said = [why for why in report.reasons.values() if why == reasons[cls]]
    assert len(said) == layers, report
