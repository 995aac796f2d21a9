# SPDX-License-Identifier: Apache-2.0
"""What transformers 5.23.0 adds at the input of text, speech, sound and time series without rotary, measured on small
models: tests/model/text_and_sound.json, in the form of run_input.py.

    pip install transformers==5.23.0 torch
    python run_text_and_sound.py > ../../tests/model/text_and_sound.json

Every case is a config.json, the class that is built from it with random weights, and where its
positions lie. Of a table: rows, width and the row that the first token reads (what torch's embedding
was asked for, or, where rows are added whole, which row the first frame got). Of sinusoids: rows of
positions 0, 1 and 5 as they reach the first layer. Of convolutions: kernel and groups. Nothing here is
posenc's.
"""
import importlib
import json
import sys
import warnings

import torch
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.utils import logging

warnings.filterwarnings("ignore")
logging.set_verbosity_error()
TOKENS = torch.tensor([[11, 12, 13, 14, 15, 16]])
ROWS = [0, 1, 5]
SMALL = {"hidden_size": 48, "num_attention_heads": 4, "num_hidden_layers": 2, "intermediate_size": 16,
         "vocab_size": 96, "max_position_embeddings": 40}
SPEECH = {"hidden_size": 48, "num_attention_heads": 4, "num_hidden_layers": 2, "intermediate_size": 16,
          "conv_dim": [8, 8], "conv_kernel": [4, 4], "conv_stride": [2, 2], "num_feat_extract_layers": 2,
          "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 4}
WHISPER = {"d_model": 48, "encoder_layers": 2, "encoder_attention_heads": 4, "encoder_ffn_dim": 16,
           "num_mel_bins": 8, "max_source_positions": 20}


def built(place, config, **more):
    module, name = place.split(":")
    cls = getattr(importlib.import_module("transformers.models." + module), name)
    torch.manual_seed(1)
    return cls(CONFIG_MAPPING[config["model_type"]].from_dict(dict(config)), **more).eval()


def numbers(rows):
    return [[float(f"{v:.7g}") for v in row] for row in rows.tolist()]


def asked_rows(model, run):
    """Of every embedding the first index asked for, while run() runs."""
    raw, plain = {}, torch.nn.functional.embedding

    def spy(index, weight, *rest, **more):
        raw.setdefault(id(weight), index.detach().clone())
        return plain(index, weight, *rest, **more)
    torch.nn.functional.embedding = spy
    try:
        with torch.no_grad():
            run(model)
    finally:
        torch.nn.functional.embedding = plain
    return raw


def reached(model, layer, run):
    got = []

    def before(module, inputs, named):
        if not got:
            got.append((inputs[0] if inputs else next(iter(named.values()))).detach().clone())
    handle = model.get_submodule(layer).register_forward_pre_hook(before, with_kwargs=True)
    with torch.no_grad():
        run(model)
    handle.remove()
    return got[0]


def difference(model, tensor, layer, run):
    """What reaches the layer with the tensor, less what reaches it where the tensor is zero."""
    whole = reached(model, layer, run)
    owner, _, leaf = tensor.rpartition(".")
    held = getattr(model.get_submodule(owner), leaf)
    kept = held.detach().clone()
    held.data.zero_()
    rest = reached(model, layer, run)
    held.data.copy_(kept)
    return (whole - rest).reshape(-1, whole.shape[-1])


def gain(model, embedding, positions, layer, run):
    """The factor on the embedding: what reaches the layer, less positions, over the embedding."""
    rest = reached(model, layer, run).reshape(-1, positions.shape[-1])[:6] - positions[:6]
    rows = model.get_submodule(embedding).weight[TOKENS[0]].detach()
    value = float((rest * rows).sum() / (rows * rows).sum())
    assert float((rest - value * rows).abs().max()) < 1e-4
    return float(f"{value:.6g}")


LINES = []


def case(config, place, run, layers, tables=(), acts=None, scale=None, **more):
    """tables: (part, kind, where ...) with kind embedding, added, sines or convolution."""
    model = built(place, config, **more)
    if hasattr(model, "segment_emb"):  # Kosmos-2.5: one row for all tokens of a text
        model.segment_emb.weight.data.zero_()
    out = {"config": config, "tables": [], "gain": {}, "layers": len(model.get_submodule(layers)),
           "acts_in_score": any(acts in n for n, _ in model.named_parameters()) if acts else False}
    asked = asked_rows(model, run)
    for part, kind, where, *layer in tables:
        if kind == "embedding":
            weight = model.get_submodule(where).weight
            out["tables"].append({"part": part, "rows": weight.shape[0], "width": weight.shape[1],
                                  "first": int(asked[id(weight)].reshape(-1)[0])})
        elif kind == "added":  # every row is added to its frame
            owner, _, leaf = where.rpartition(".")
            weight = getattr(model.get_submodule(owner), leaf).detach()
            got = difference(model, where, layer[0], run)
            first = min(range(len(weight)), key=lambda i: float((weight[i] - got[0]).abs().max()))
            assert float((weight[first] - got[0]).abs().max()) < 1e-5
            out["tables"].append({"part": part, "rows": weight.shape[0], "width": weight.shape[1],
                                  "first": first})
        elif kind == "sines":
            got = difference(model, where, layer[0], run)
            out["tables"].append({"part": part, "values": numbers(got[ROWS])})
            if scale:
                out["gain"][part] = gain(model, scale, got, layer[0], run)
        else:
            conv = model.get_submodule(where)
            out["tables"].append({"part": part, "kernel": conv.kernel_size[0], "groups": conv.groups})
    LINES.append(json.dumps(out))


def ids(model):
    model(input_ids=TOKENS)


def pair(model):
    model(input_ids=TOKENS, decoder_input_ids=TOKENS)


def texts():
    at = "embeddings.position_embeddings"
    case({"model_type": "blip_text_model", **SMALL, "encoder_hidden_size": 48},
         "blip.modeling_blip_text:BlipTextModel", ids, "encoder.layer", [("model", "embedding", at)])
    case({"model_type": "git", **SMALL}, "git.modeling_git:GitModel", ids, "encoder.layer",
         [("model", "embedding", at)])
    for kind, name in (("instructblip", "InstructBlip"), ("instructblipvideo", "InstructBlipVideo")):
        case({"model_type": kind + "_qformer", **SMALL, "encoder_hidden_size": 48},
             f"{kind}.modeling_{kind}:{name}QFormerModel",
             lambda m: m(input_ids=TOKENS, query_embeds=torch.zeros(1, 2, 48),
                         encoder_hidden_states=torch.zeros(1, 3, 48)),
             "encoder.layer", [("model", "embedding", at)])
    case({"model_type": "fnet", **SMALL}, "fnet.modeling_fnet:FNetModel", ids, "encoder.layer",
         [("model", "embedding", at)])
    boxes = torch.zeros((1, 6, 4), dtype=torch.long)
    case({"model_type": "bros", **SMALL, "hidden_size": 128}, "bros.modeling_bros:BrosModel",
         lambda m: m(input_ids=TOKENS, bbox=boxes.float()), "encoder.layer", [("model", "embedding", at)],
         acts="bbox_projection")
    for pad in (0, 1, 5):
        case({"model_type": "markuplm", **SMALL, "pad_token_id": pad},
             "markuplm.modeling_markuplm:MarkupLMModel", ids, "encoder.layer", [("model", "embedding", at)])
    for on in (True, False):
        case({"model_type": "tapas", **SMALL, "reset_position_index_per_cell": on},
             "tapas.modeling_tapas:TapasModel", ids, "encoder.layer", [("model", "embedding", at)])
    for on in (True, False):
        for pad in (1, 4):
            for kind, name in (("kosmos_2", "kosmos2.modeling_kosmos2:Kosmos2"),
                               ("kosmos_2_5", "kosmos2_5.modeling_kosmos2_5:Kosmos2_5")):
                case({"model_type": kind + "_text_model", "vocab_size": 96, "embed_dim": 48, "layers": 2,
                      "attention_heads": 4, "ffn_dim": 16, "max_position_embeddings": 40,
                      "scale_embedding": on, "pad_token_id": pad}, name + "TextTransformer", ids, "layers",
                     [("model", "sines", "embed_positions.weights", "layers.0")], scale="embed_tokens")
    trocr = {"model_type": "trocr", "d_model": 48, "decoder_layers": 2, "decoder_attention_heads": 4,
             "decoder_ffn_dim": 16, "vocab_size": 96, "max_position_embeddings": 40, "layernorm_embedding": False}
    case(trocr, "trocr.modeling_trocr:TrOCRForCausalLM", ids, "model.decoder.layers",
         [("model", "embedding", "model.decoder.embed_positions")])
    for on in (True, False):
        for pad in (1, 3):
            case({**trocr, "use_learned_position_embeddings": False, "scale_embedding": on, "pad_token_id": pad},
                 "trocr.modeling_trocr:TrOCRForCausalLM", ids, "model.decoder.layers",
                 [("model", "sines", "model.decoder.embed_positions.weights", "model.decoder.layers.0")],
                 scale="model.decoder.embed_tokens")
    for pad in (0, 3):
        case({"model_type": "prophetnet", "hidden_size": 48, "num_encoder_layers": 3, "num_decoder_layers": 2,
              "num_encoder_attention_heads": 4, "num_decoder_attention_heads": 4, "encoder_ffn_dim": 16,
              "decoder_ffn_dim": 16, "vocab_size": 96, "max_position_embeddings": 40, "pad_token_id": pad},
             "prophetnet.modeling_prophetnet:ProphetNetModel", pair, "decoder.layers",
             [("encoder", "embedding", "encoder.position_embeddings"),
              ("model", "embedding", "decoder.position_embeddings")], acts="relative_pos_embeddings")
    for on in (True, False):
        case({"model_type": "pp_formulanet_text", "d_model": 48, "encoder_layers": 3, "decoder_layers": 2,
              "decoder_attention_heads": 4, "decoder_ffn_dim": 16, "vocab_size": 96, "max_position_embeddings": 40,
              "scale_embedding": on}, "pp_formulanet.modeling_pp_formulanet:PPFormulaNetTextModel", ids, "layers",
             [("model", "embedding", "embed_positions")])
    case({"model_type": "pix2struct_text_model", "vocab_size": 96, "hidden_size": 48, "d_kv": 12, "d_ff": 16,
          "num_layers": 2, "num_heads": 4, "initializer_range": 0.02}, "pix2struct.modeling_pix2struct:Pix2StructTextModel",
         lambda m: m(input_ids=TOKENS), "layer", acts="relative_attention_bias")
    for on in (True, False):
        case({"model_type": "tipsv2_text_model", **SMALL, "scale_sqrt_depth": on},
             "tipsv2.modeling_tipsv2:Tipsv2TextModel", ids, "encoder.layers",
             [("model", "sines", "embeddings.position_embedding.weights", "encoder.layers.0")],
             scale="embeddings.token_embedding")
    case({"model_type": "videoprism_text_model", **SMALL}, "videoprism.modeling_videoprism:VideoPrismTextModel",
         ids, "layers", [("model", "sines", "embeddings.position_embedding", "layers.0")],
         scale="embeddings.token_embedding")
    case({"model_type": "flava_multimodal_model", **{k: v for k, v in SMALL.items() if k != "vocab_size"}},
         "flava.modeling_flava:FlavaMultimodalModel", lambda m: m(torch.zeros(1, 6, 48)), "encoder.layer")


def speech():
    for kind, name in (("unispeech", "UniSpeech"), ("unispeech-sat", "UniSpeechSat")):
        file = kind.replace("-", "_")
        case({"model_type": kind, **SPEECH}, f"{file}.modeling_{file}:{name}Model",
             lambda m: m(torch.randn(1, 400)), "encoder.layers",
             [("model", "convolution", "encoder.pos_conv_embed.conv")])
    case({"model_type": "sew", **SPEECH, "squeeze_factor": 2}, "sew.modeling_sew:SEWModel",
         lambda m: m(torch.randn(1, 400)), "encoder.layers")
    case({"model_type": "data2vec-audio", **SPEECH, "num_conv_pos_embeddings": 3, "conv_pos_kernel_size": 5},
         "data2vec.modeling_data2vec_audio:Data2VecAudioModel", lambda m: m(torch.randn(1, 400)), "encoder.layers")
    for on, words in ((True, ["p2c", "c2p"]), (False, ["p2c", "c2p"])):
        case({"model_type": "sew-d", **SPEECH, "squeeze_factor": 2, "relative_attention": on, "pos_att_type": words},
             "sew_d.modeling_sew_d:SEWDModel", lambda m: m(torch.randn(1, 400)), "encoder.encoder.layer",
             acts="rel_embeddings")
    for kind in ("relative", None):
        case({"model_type": "wav2vec2-conformer", **SPEECH, "position_embeddings_type": kind},
             "wav2vec2_conformer.modeling_wav2vec2_conformer:Wav2Vec2ConformerModel",
             lambda m: m(torch.randn(1, 400)), "encoder.layers", acts="linear_pos")
    for kind, acts in (("relative_key", "distance_embedding"), ("relative", "linear_pos"), (None, "distance_embedding")):
        case({"model_type": "wav2vec2-bert", **SPEECH, "feature_projection_input_dim": 16,
              "position_embeddings_type": kind}, "wav2vec2_bert.modeling_wav2vec2_bert:Wav2Vec2BertModel",
             lambda m: m(torch.randn(1, 20, 16)), "encoder.layers", acts=acts)
    case({"model_type": "parakeet_encoder", "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
          "intermediate_size": 16, "num_mel_bins": 16, "subsampling_conv_channels": 8},
         "parakeet.modeling_parakeet:ParakeetEncoder", lambda m: m(torch.randn(1, 80, 16)), "layers",
         acts="relative_k_proj")
    for kind, name in (("granite_speech", "GraniteSpeech"), ("granite_speech_plus", "GraniteSpeechPlus")):
        case({"model_type": kind + "_encoder", "input_dim": 16, "num_layers": 2, "hidden_dim": 48, "num_heads": 4,
              "dim_head": 12, "output_dim": 8, "context_size": 10, "max_pos_emb": 32},
             f"{kind}.modeling_{kind}:{name}CTCEncoder", lambda m: m(torch.randn(1, 25, 16)), "layers",
             acts="rel_pos_emb")
    case({"model_type": "vits", "vocab_size": 96, "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4},
         "vits.modeling_vits:VitsTextEncoder",
         lambda m: m(TOKENS, torch.ones(1, 6, 1), torch.ones(1, 6)), "encoder.layers", acts="emb_rel_k")
    case({"model_type": "granite_speech5_encoder", "hidden_size": 48, "intermediate_size": 16, "num_hidden_layers": 2,
          "num_attention_heads": 4, "head_dim": 12, "num_mel_bins": 8, "context_size": 10, "max_position_embeddings": 32,
          "vocab_size": 96, "subsample_layers": []}, "granite_speech5.modeling_granite_speech5:GraniteSpeech5Encoder",
         lambda m: m(torch.randn(1, 40, 32)), "layers", acts="rel_pos_emb")
    for kind, name in (("qwen2_audio", "qwen2_audio.modeling_qwen2_audio:Qwen2AudioEncoder"),
                       ("audioflamingo3", "audioflamingo3.modeling_audioflamingo3:AudioFlamingo3Encoder"),
                       ("voxtral", "voxtral.modeling_voxtral:VoxtralEncoder"),
                       ("moss_transcribe_diarize", "moss_transcribe_diarize.modeling_moss_transcribe_diarize:"
                                                   "MossTranscribeDiarizeAudioModel")):
        sizes = WHISPER if kind == "qwen2_audio" else {
            "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 16,
            "num_mel_bins": 8, "max_source_positions": 20}
        part = kind + ("_audio" if kind.startswith("moss") else "_encoder")
        sound = torch.randn(1, 8, 40)

        def run(m, kind=kind, sound=sound):
            more = {"input_features_mask": torch.ones(1, 40, dtype=torch.long)} if kind == "audioflamingo3" else {}
            m(sound, **more)
        case({"model_type": part, **sizes}, name, run, "layers",
             [("model", "added", "embed_positions.weight", "layers.0")])
    case({"model_type": "qwen2_5_omni_audio_encoder", **WHISPER, "n_window": 8, "output_dim": 16},
         "qwen2_5_omni.modeling_qwen2_5_omni:Qwen2_5OmniAudioEncoder",
         lambda m: m(torch.randn(8, 40, generator=torch.Generator().manual_seed(1)),
                     feature_lens=torch.tensor([40]), aftercnn_lens=torch.tensor([20])), "layers",
         [("model", "sines", "positional_embedding.positional_embedding", "layers.0")])
    case({"model_type": "qwen3_omni_moe_audio_encoder", **WHISPER, "n_window": 50, "n_window_infer": 400, "output_dim": 16,
          "downsample_hidden_size": 8},
         "qwen3_omni_moe.modeling_qwen3_omni_moe:Qwen3OmniMoeAudioEncoder",
         lambda m: m(torch.randn(8, 200, generator=torch.Generator().manual_seed(1)),
                     feature_lens=torch.tensor([200])), "layers",
         [("model", "sines", "positional_embedding.positional_embedding", "layers.0")])
    case({"model_type": "qwen3_asr_encoder", **{k: v for k, v in WHISPER.items() if k != "max_source_positions"},
          "max_position_embeddings": 13, "n_window": 50, "n_window_infer": 400, "output_dim": 16,
          "downsample_hidden_size": 8}, "qwen3_asr.modeling_qwen3_asr:Qwen3ASREncoder",
         lambda m: m(torch.randn(1, 8, 200, generator=torch.Generator().manual_seed(1)),
                     torch.ones(1, 200, dtype=torch.long)), "layers",
         [("model", "sines", "positional_embedding.positional_embedding", "layers.0")])
    for kind in ("seamless_m4t", "seamless_m4t_v2"):
        name = "SeamlessM4T" + ("v2" if kind.endswith("2") else "")
        for on in (True, False):
            sizes = {"model_type": kind, "vocab_size": 96, "hidden_size": 48, "encoder_layers": 3, "encoder_ffn_dim": 16,
                     "encoder_attention_heads": 4, "decoder_layers": 2, "decoder_ffn_dim": 16, "decoder_attention_heads": 4,
                     "max_position_embeddings": 40, "scale_embedding": on, "pad_token_id": 0, "speech_encoder_layers": 1,
                     "speech_encoder_attention_heads": 4, "speech_encoder_intermediate_size": 16}
            case(sizes, f"{kind}.modeling_{kind}:{name}ForTextToText", pair, "text_decoder.layers",
                 [("model", "sines", "text_decoder.embed_positions.weights", "text_decoder.layers.0")],
                 scale="text_decoder.embed_tokens")
    case({"model_type": "canary_decoder", **SMALL, "num_key_value_heads": 4, "head_dim": 12},
         "canary.modeling_canary:CanaryDecoder",
         lambda m: m(input_ids=TOKENS, encoder_hidden_states=torch.zeros(1, 3, 48)), "layers",
         [("model", "sines", "pos_emb.positional_embedding", "embedding_layernorm")], scale="embed_tokens")
    case({"model_type": "cohere_asr", **SMALL, "num_key_value_heads": 4, "head_dim": 12,
          "encoder_config": {"model_type": "parakeet_encoder", "hidden_size": 48, "num_hidden_layers": 2,
                             "num_attention_heads": 4}},
         "cohere_asr.modeling_cohere_asr:CohereAsrDecoder",
         lambda m: m(input_ids=TOKENS, encoder_hidden_states=torch.zeros(1, 3, 48)), "layers",
         [("model", "embedding", "pos_emb")])


def series():
    for first in (False, True):
        case({"model_type": "patchtst", "d_model": 48, "num_attention_heads": 4, "num_hidden_layers": 2, "ffn_dim": 16,
              "num_input_channels": 1, "context_length": 41, "patch_length": 6, "patch_stride": 4,
              "use_cls_token": first}, "patchtst.modeling_patchtst:PatchTSTModel",
             lambda m: m(torch.randn(1, 41, 1, generator=torch.Generator().manual_seed(1))), "encoder.layers",
             [("model", "added", "encoder.positional_encoder.position_enc", "encoder.layers.0")])
    case({"model_type": "patchtsmixer", "d_model": 48, "num_layers": 2, "num_input_channels": 1,
          "context_length": 41, "patch_length": 6, "patch_stride": 4, "use_positional_encoding": True},
         "patchtsmixer.modeling_patchtsmixer:PatchTSMixerModel",
         lambda m: m(torch.randn(1, 41, 1, generator=torch.Generator().manual_seed(1))),
         "encoder.mlp_mixer_encoder.mixers",
         [("model", "added", "encoder.positional_encoder.position_enc", "encoder.mlp_mixer_encoder.mixers.0")])
    case({"model_type": "patchtsmixer", "d_model": 48, "num_layers": 2, "num_input_channels": 1,
          "context_length": 41, "patch_length": 6, "patch_stride": 4},
         "patchtsmixer.modeling_patchtsmixer:PatchTSMixerModel",
         lambda m: m(torch.randn(1, 41, 1)), "encoder.mlp_mixer_encoder.mixers")
    case({"model_type": "timesfm", "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "head_dim": 12,
          "intermediate_size": 16, "horizon_length": 8, "context_length": 64}, "timesfm.modeling_timesfm:TimesFmModel",
         lambda m: None, "layers")


for part in (texts, speech, series):
    part()
print('{"about": "measured with transformers 5.23.0 by tools/model_table/run_text_and_sound.py",\n "cases": [\n'
      + ",\n".join(LINES) + "\n]}")
