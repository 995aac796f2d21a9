# SPDX-License-Identifier: Apache-2.0
"""More facts on how transformers 5.23.0 places positions: text, speech, sound and time series without
rotary. Each entry is what the table says of a model type, in its own words (src/model reads them);
found by reading the class and running it (run_text_and_sound.py).

    input            what stands at the input; a word that is no scheme here is named and no more
    scheme           what acts in the score; likewise
    variants         facts that depend on a key: {"key", "of": {value: facts}, "otherwise"}
    refused          why the class is not described
    no_transformer   what carries order where there is no Transformer
"""
import facts as F

FAIRSEQ = {"input": "sinusoidal", "input_text": F.FAIRSEQ, "input_padding": True, "input_odd": "zero_pad"}
SCALED = {"default": True, "published": True}
ENTRY = {}


def learned(names, tensor=None, **more):
    for name in names.split():
        ENTRY[name] = {"scheme": "none", "input": "learned", **more}
        if tensor:
            ENTRY[name]["input_tensor"] = tensor


# Texts.
learned("blip_text_model", bidirectional=True, input_note=(
    "causal as the class says (is_decoder); BlipModel and retrieval call it to see all tokens"))
learned("git", input_note=(
    "tokens of images come before the text, see each other, and count no position of it"))
learned("instructblip_qformer instructblipvideo_qformer", bidirectional=True, input_note=(
    "its learned queries come before the text and count no position"))
ENTRY["blip_2_qformer"] = {
    "scheme": "none", "bidirectional": True,
    "variants": {"key": "use_qformer_text_input", "of": {
        "false": {},
        "true": {"input": "learned", "input_note":
                 "the table is that of Blip2's text, beside the queries, which count no position"}}}}
learned("fnet", bidirectional=True, layers={"rule": "all", "type": "fourier"},
        input_note="layers mix tokens by a Fourier transform of the sequence: nothing attends")
learned("bros", bidirectional=True, scheme="bros", input_note=(
    "the score adds q times a projected sinusoid of the differences of the corners of boxes"))
learned("markuplm", bidirectional=True, input_padding=True, input_any_padding=True,
        input_note="tags and subscripts of the path to a node have tables of their own, added too")
learned("tapas", bidirectional=True, variants={"key": "reset_position_index_per_cell", "of": {
    "true": {"input_beyond": "clamp", "input_note":
             "positions count from 0 in each cell of the table of data (token types 1 and 2 say which "
             "column and row), and stay at the last row; columns, rows and ranks have tables of their own"},
    "false": {"input_note": "columns, rows and ranks of the table of data have tables of their own"}}})
learned("layoutxlm", bidirectional=True, scheme="layoutlm", input_boxes="max_2d_position_embeddings",
        input_box_parts="beside", input_note="regions of the image read the same tables as words")
for name in ("kosmos_2_text_model", "kosmos_2_5_text_model"):
    ENTRY[name] = {"scheme": "none", **FAIRSEQ, "input_scale": SCALED}
ENTRY["kosmos_2_5_text_model"]["input_note"] = "a table of two rows tells tokens of images from the others"
ENTRY["pix2struct_text_model"] = {"scheme": "t5"}
ENTRY["trocr"] = {
    "scheme": "none",
    "variants": {"key": "use_learned_position_embeddings", "of": {
        "true": {"input": "learned", "input_offset": 2, "input_tensor": "embed_positions.weight",
                 "input_scale": {"default": False}},
        "false": {**FAIRSEQ, "input_scale": {"default": False, "published": True}}}}}
ENTRY["pp_formulanet_text"] = {
    "scheme": "none", "input": "learned", "input_offset": 2, "input_tensor": "embed_positions.weight",
    "input_scale": {"default": True}}
ENTRY["glm5_next_text"] = {
    "scheme": "none", "layers": {"rule": "every", "n": 4, "hit": "indexed_attention", "other": F.LINEAR},
    "indexed_full": True, "key_cache_unknown": True}
ENTRY["prophetnet"] = {
    "scheme": "none", "bidirectional": True, "decoder": "num_decoder_layers",
    "input": "learned", "input_padding": True, "input_slots": True, "input_beyond": "clamp",
    "input_tensor": "position_embeddings.weight",
    "decoder_is": {"scheme": "prophetnet", "input_note":
                   "the score adds T5 buckets (num_buckets, relative_max_distance) whose values each "
                   "query projects; the streams that predict further tokens read one row more"}}
ENTRY["tipsv2_text_model"] = {
    "scheme": "none", "bidirectional": True, "input": "sinusoidal", "input_text": F.FAIRSEQ,
    "input_odd": "zero_pad", "input_keeps": "max_position_embeddings",
    "input_scale": {"default": True, "published": True, "key": "scale_sqrt_depth"}}
ENTRY["videoprism_text_model"] = {
    "scheme": "none", "input": "sinusoidal", "input_text": F.PAPER,
    "input_keeps": "max_position_embeddings", "input_scale": {"always": True},
    "input_note": "the class token follows the text and adds no position"}
ENTRY["flava_multimodal_model"] = {"scheme": "none", "bidirectional": True}
ENTRY["moshi_depth"] = {"scheme": "none", "input_note":
                        "each codebook has weights of its own: they tell positions apart"}
ENTRY["cpmant"] = {"refused": (
    "T5 buckets (position_bias_num_buckets, position_bias_max_distance) inside a segment and one "
           "bias for each pair of segments between them")}
ENTRY["reformer"] = {"refused": (
    "its layers attend in chunks of sorted hashes (attn_layers); its input has one learned table "
    "an axis, side by side: learned_axes width=256 shape=[64,64] widths=[64,192] flat=true for "
    "axial_pos_shape [64, 64] and axial_pos_embds_dim [64, 192]")}
ENTRY["perceiver"] = {"refused": (
    "the preprocessor that the model is built with places positions (learned rows or Fourier "
           "features), not the file")}
for name in ("inkling_text", "inkling2_text"):
    ENTRY[name] = {"refused": (
        "a bias of each distance up to an extent, which every token projects from its own state "
               "(rel_logits_proj)")}

# Speech: convolutions at the input.
for name in "unispeech unispeech-sat".split():
    ENTRY[name] = {"scheme": "none", "bidirectional": True, "input": "convolutional"}
STRIDED = ("positions are convolutional with a stride: a kernel of num_conv_pos_embeddings in "
           "num_conv_pos_embedding_groups groups steps by squeeze_factor, and is added to means of as "
           "many frames")
ENTRY["sew"] = {"scheme": "none", "bidirectional": True, "input": "convolution with a stride",
                "input_note": STRIDED}
ENTRY["sew-d"] = {"scheme": "deberta", "bidirectional": True, "input": "convolution with a stride",
                  "input_note": STRIDED, "score_if": ["relative_attention"],
                  "score_terms": {"key": "pos_att_type", "any": ["c2p", "p2c"]}}
ENTRY["data2vec-audio"] = {
    "scheme": "none", "bidirectional": True, "input": "stack of convolutions",
    "input_note": "positions are num_conv_pos_embeddings convolutions in a row (kernel "
                  "conv_pos_kernel_size, num_conv_pos_embedding_groups groups), each normalised; the "
                  "last is added to the frames"}
# ... relative positions in the score.
XL = ("the score has the four terms of Transformer-XL over sinusoids of signed distances whose channels "
      "alternate sine and cosine, each layer with a projection and two vectors of its own")
SHAW = "the score adds q times a learned row of the distance, clamped"
TURNED = ("the rotary rotates the states before q and k are projected from them, not q and k "
          "(position_embeddings_type rotary)")
CONFORMER = {"relative": {"scheme": "transformer_xl", "input_note": XL}, "rotary": {"refused": TURNED},
             "null": {}}
ENTRY["wav2vec2-conformer"] = {"scheme": "none", "bidirectional": True, "variants": {
    "key": "position_embeddings_type", "of": CONFORMER, "otherwise": {}}}
ENTRY["wav2vec2-bert"] = {"scheme": "none", "bidirectional": True, "variants": {
    "key": "position_embeddings_type",
    "of": {**CONFORMER, "relative_key": {"scheme": "shaw", "input_note":
           SHAW + " to left_max_position_embeddings before and right_max_position_embeddings behind"}}}}
for name in "parakeet_encoder fastspeech2_conformer".split():
    ENTRY[name] = {"scheme": "transformer_xl", "bidirectional": True, "input_note": XL}
ENTRY["fastspeech2_conformer"]["input_note"] = (
    XL + "; encoder_layers are those of the text, decoder_layers those of the sound, made alike")
ENTRY["nemotron_asr_streaming_encoder"] = {"refused": (
    XL + ", in chunks that see a limited past and future")}
for name in ("granite_speech_encoder", "granite_speech_plus_encoder"):
    ENTRY[name] = {"scheme": "shaw", "bidirectional": True, "layers": {"rule": "all", "type": "chunked_attention"},
                   "input_note": SHAW + " to the block of context_size frames; blocks do not see each other"}
ENTRY["granite_speech5_encoder"] = {
    **ENTRY["granite_speech_encoder"], "input_note": ENTRY["granite_speech_encoder"]["input_note"] +
    "; layers of subsample_layers halve the frames"}
ENTRY["fun_asr_nano_encoder"] = {"refused": (
    "a sinusoid from position 1 (layout=halves spacing=t2t) as wide as num_stacked_frames frames of "
    "num_mel_bins, beside frames times sqrt(hidden_size), and a convolution of the values of each layer")}
ENTRY["moonshine_streaming_encoder"] = {"refused": (
    "no positions, but windows of sliding_windows frames before and behind, one pair a layer")}
ENTRY["vits"] = {"scheme": "shaw", "bidirectional": True, "input_note":
                 "the score adds q times a learned row of the distance up to window_size, nothing beyond "
                 "it, and the output adds such rows too; layers are those of the text encoder, the flow "
                 "is convolutional"}
ENTRY["phi4_multimodal_audio"] = {"refused": (
    "one learned bias a head for each distance up to bias_max_distance (T5 without buckets)")}
for name in "gemma3n_audio gemma4_audio".split():
    ENTRY[name] = {"refused": (
        "projected sinusoids of the distance (Transformer-XL without its vectors) in chunks that "
               "see a limited past and future, behind a soft cap")}
# ... Whisper's sinusoid, stored and frozen; or built.
STORED = ("the rows are stored with the weights and frozen: checkpoints hold Whisper's sinusoid, "
          "layout=halves spacing=t2t")
for name in "qwen2_audio_encoder audioflamingo3_encoder voxtral_encoder moss_transcribe_diarize_audio".split():
    ENTRY[name] = {"scheme": "none", "bidirectional": True, "input": "learned",
                   "input_rows": "max_source_positions", "input_tensor": "embed_positions.weight",
                   "input_note": STORED}
    if name != "moss_transcribe_diarize_audio":
        ENTRY[name]["input_scale"] = {"ignored": True}
BUILT = {"scheme": "none", "bidirectional": True, "input": "sinusoidal", "input_text": F.FAIRSEQ,
         "input_scale": {"ignored": True}}
ENTRY["qwen2_5_omni_audio_encoder"] = {
    **BUILT, "input_keeps": "max_source_positions", "layers": {"rule": "all", "type": "chunked_attention"},
    "input_note": "sound comes in pieces of 2 n_window frames, n_window behind the convolutions: positions "
                  "count from 0 in each, and pieces do not see each other"}
WINDOWS = ("sound comes in pieces of 2 n_window frames, an eighth of them behind the convolutions: positions "
           "count from 0 in each; n_window_infer frames attend among themselves")
for name, key in (("qwen3_omni_moe_audio_encoder", "max_source_positions"),
                  ("qwen3_asr_encoder", "max_position_embeddings")):
    ENTRY[name] = {**BUILT, "input_keeps": key, "input_note": WINDOWS}
ENTRY["speecht5"] = {
    "scheme": "shaw", "bidirectional": True, "decoder": "decoder_layers",
    "input": "sinusoids of its pre-nets",
    "input_note": SHAW + " to encoder_max_relative_position (encoder only). At the input, by the class that is "
                  "built: text of the encoder and speech of the decoder add one learned number times "
                  "sinusoidal width=hidden_size; text of the decoder adds fairseq's sinusoid from "
                  "pad_token_id + 1; speech of the encoder adds a convolution (num_conv_pos_embeddings) "
                  "and then fairseq's sinusoid",
    "decoder_is": {"scheme": "none"}}
for name in ("seamless_m4t", "seamless_m4t_v2"):
    ENTRY[name] = {
        "scheme": "none", "bidirectional": True, "decoder": "decoder_layers", **FAIRSEQ,
        "input_scale": SCALED, "decoder_is": {"own_only": []},
        "input_note": "layers are those of the text decoder and encoder; the speech encoder "
                      "(speech_encoder_layers) has relative positions in its score "
                      "(position_embeddings_type), units have sinusoids of their own"}
ENTRY["canary_decoder"] = {
    "scheme": "none", "input": "sinusoidal", "input_text": F.PAPER, "input_over_root": True,
    "input_keeps": "max_position_embeddings"}
ENTRY["cohere_asr"] = {"scheme": "none", "input": "learned", "input_tensor": "decoder.pos_emb.weight",
                       "input_note": "the rows are stored with the weights: checkpoints hold a sinusoid"}

# Time series.
STORED_SINES = ("the rows are stored with the weights: sinusoids of unit deviation / 10 where "
                "positional_encoding_type is sincos")
ENTRY["patchtst"] = {
    "scheme": "none", "bidirectional": True, "input": "learned",
    "input_segments": {"length": "context_length", "before": "use_cls_token"},
    "input_tensor": "positional_encoder.position_enc", "input_note": STORED_SINES}
ENTRY["patchtsmixer"] = {
    "scheme": "none", "bidirectional": True, "layers": {"rule": "all", "type": "mlp"},
    "variants": {"key": "self_attn", "of": {
        "true": {"refused": "segments attend in a block of their own beside the mixing (self_attn)"},
        "false": {"variants": {"key": "use_positional_encoding", "of": {
            "false": {},
            "true": {"input": "learned", "input_segments": {"length": "context_length"},
                     "input_tensor": "positional_encoder.position_enc", "input_note": STORED_SINES}}}}}}}
ENTRY["timesfm"] = {"scheme": "none", "variants": {"key": "use_positional_embedding", "of": {
    "false": {}, "true": {"refused": "a sinusoid (layout=halves spacing=t2t, min_timescale, max_timescale) "
                                     "shifted by the padded segments of each series"}}}}

# Sound without a Transformer.
CONVOLUTIONS = "convolutions"
for name in """muse_spark_audio univnet speecht5_hifigan fastspeech2_conformer_hifigan dac qwen2_5_omni_bigvgan
        vibevoice_acoustic_tokenizer vibevoice_acoustic_tokenizer_encoder
        vibevoice_acoustic_tokenizer_decoder""".split():
    ENTRY[name] = {"scheme": "none", "no_transformer": CONVOLUTIONS}
ENTRY["encodec"] = {"scheme": "none", "no_transformer": "convolutions and an LSTM"}

F.EXTRA_NAMES.update({
    "prophetnet": {"num_hidden_layers": "num_encoder_layers"},
    "seamless_m4t": {"num_hidden_layers": "encoder_layers"},
    "seamless_m4t_v2": {"num_hidden_layers": "encoder_layers"},
    "pp_formulanet_text": {"num_hidden_layers": "decoder_layers", "num_attention_heads": "decoder_attention_heads"},
    "granite_speech5_encoder": {"attention_chunk_size": "context_size"},
    "granite_speech_encoder": {"attention_chunk_size": "context_size"},
    "granite_speech_plus_encoder": {"attention_chunk_size": "context_size"},
    "qwen2_5_omni_audio_encoder": {"attention_chunk_size": "n_window"}})
F.OWN_ONLY += [name for name in F.EXTRA_NAMES if name in ENTRY]
F.EXTRA_DEFAULTS.update({
    "blip_2_qformer": {"use_qformer_text_input": False},
    "tapas": {"reset_position_index_per_cell": True},
    "trocr": {"use_learned_position_embeddings": True},
    "prophetnet": {"num_hidden_layers": 12},
    "tipsv2_text_model": {"scale_sqrt_depth": True},
    "sew-d": {"pos_att_type": ["p2c", "c2p"]},
    "seamless_m4t": {"num_hidden_layers": 24, "decoder_layers": 24},
    "seamless_m4t_v2": {"num_hidden_layers": 24, "decoder_layers": 24},
    "pp_formulanet_text": {"num_hidden_layers": 8},
    "granite_speech5_encoder": {"attention_chunk_size": 128},
    "granite_speech_encoder": {"attention_chunk_size": 200},
    "granite_speech_plus_encoder": {"attention_chunk_size": 200},
    "qwen2_5_omni_audio_encoder": {"attention_chunk_size": 100},
    "patchtst": {"context_length": 32, "patch_length": 1, "patch_stride": 1, "use_cls_token": False},
    "patchtsmixer": {"context_length": 32, "patch_length": 8, "patch_stride": 8, "self_attn": False,
                     "use_positional_encoding": False},
    "timesfm": {"use_positional_embedding": False}})
# Which part of a model of sound alone has its positions.
F.PART_MAIN += """fastspeech2_conformer_with_hifigan.model_config nemotron3_diarization.audio_config
nemotron3_5_transcribe_audio.asr_config qwen2_5_omni_token2wav.dit_config""".split()
# Halves of one codec, and a tower: pairs as in the whole (compare.py).
F.PAIRING.update({name: F.HALF for name in """pocket_tts_audio_tokenizer_encoder
pocket_tts_audio_tokenizer_decoder dots3_note_audio_encoder""".split()})
F.BIDIRECTIONAL += """dots3_note_audio_encoder nemotron3_diarization_audio nemotron3_5_transcribe_asr_audio
nemotron3_5_transcribe_word_timestamp neucodec xcodec2 pe_audio_encoder pe_video_encoder
pe_audio_video_encoder""".split()
F.ROPE["qwen2_5_omni_dit"] = {
    "rule": "refused",
    "why": "only the first head of each layer rotates, taken by even and odd channels, and blocks of block_size "
           "frames see themselves, one before in look_backward_layers and one behind in look_ahead_layers",
    "mend": "posenc table \"rope head_dim=64 pairing=half_split\" has the angles of that head"}
F.WINDOW_ON_ALL += ["pocket_tts_audio_tokenizer_encoder", "pocket_tts_audio_tokenizer_decoder"]
# BLT has four rotaries, one a part: the top level has none.
F.NOT_THE_TEXT.append("blt")
# Parts that transformers 5.23 does not declare.
EXTRA_PARTS = {"fastspeech2_conformer_with_hifigan": {
                   "model_config": {"type": "fastspeech2_conformer", "main": True},
                   "vocoder_config": {"type": "fastspeech2_conformer_hifigan"}},
               "rag": {"question_encoder": {"by_model_type": True, "type": ""},
                       "generator": {"by_model_type": True, "type": ""}}}
