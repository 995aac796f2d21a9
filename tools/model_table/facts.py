# SPDX-License-Identifier: Apache-2.0
"""Facts on how transformers 5.23.0 places positions, by model type, that neither layouts.json nor
the defaults of the classes say. Found by reading and running the program (reference: the suite
conformance/rotary_hugging_face and its notes; file and class are those of the model type)."""
import sys

import vision_facts

# The classes whose default rotary obeys partial_rotary_factor (all obey it once scaled).
PARTIAL = """glm glm4 glm4_moe glm4v_text glm4v_moe_text glm_image_text glm_ocr_text glmasr_encoder
gpt_neox minimax_m2 moonshine phi phi3 qwen3_next solar_open dots3_note_audio_encoder glm4_moe_lite
minimax_m3_vl_text moonshine_streaming musicflamingo nemotron3_5_transcribe_asr_audio
nemotron3_5_transcribe_word_timestamp nemotron3_diarization_audio phi4_multimodal qwen3_5_text
qwen3_5_moe_text qwen4_exp_text deepseek_v4 laguna mellum neomme step3p5 zaya diffusion_gemma_text
dots3_note_text mimo_v2_flash efficientloftr gpt_neox_japanese nemotron persimmon recurrent_gemma
bamba stablelm""".split()

SLIDING, FULL, LINEAR = "sliding_attention", "full_attention", "linear_attention"


def every(n, key=None, hit=FULL, other=SLIDING, **more):
    """Layer i is `hit` where (i + 1) % n == 0 (phase last) or i % n == 0 (phase first)."""
    rule = {"rule": "every", "n": n, "hit": hit, "other": other}
    if key:
        rule["key"] = key
    rule.update(more)
    return rule


# How layer types follow when the file has no `layer_types`.
LAYERS = {
    "afmoe": every(4, "global_attn_every_n_layers"),
    "beam": every(6, force_last="unless stated"),
    "cohere2": every(4, "sliding_window_pattern"),
    "cohere2_moe": every(4, "sliding_window_pattern"),
    "cwm": every(4, phase="first"),
    "diffusion_gemma_text": every(6, force_last=True),
    "embedding_gemma2_text": every(6, "sliding_window_pattern", force_last=True),
    "exaone4": every(4, "sliding_window_pattern", zero_without_window=True),
    "exaone_moe": every(4, "sliding_window_pattern", zero_without_window=True),
    "gemma2": every(2),
    "gemma3_text": every(6, "sliding_window_pattern"),
    "gemma3n_text": every(5),
    "gemma4_text": every(6, force_last=True),
    "gemma4_unified_text": every(6, force_last=True),
    "gpt_oss": every(2),
    "granite_swa": every(4, phase="first"),
    "granitemoe_swa": every(4, phase="first"),
    "kolibri1": every(5),
    "minimax": every(2, hit=LINEAR, other=FULL),
    "mimo_v2_flash": every(6, also_first=True),
    "modernbert": every(3, "global_attn_every_n_layers", phase="first"),
    "modernbert-decoder": every(3, "global_attn_every_n_layers", phase="first"),
    "muse_glimmer_text": every(4, phase="from_end"), "muse_spark_text": every(4, phase="from_end"),
    "neomme": every(6, force_last="unless stated"),
    "olmo3": every(4),
    "olmo_hybrid": every(4, other=LINEAR, one_at_least=True),
    "qwen3_next": every(4, "full_attention_interval", other=LINEAR),
    "qwen3_5_text": every(4, "full_attention_interval", other=LINEAR),
    "qwen3_5_moe_text": every(4, "full_attention_interval", other=LINEAR),
    "qwen4_exp_text": every(4, "full_attention_interval", hit="indexed_attention", other=LINEAR),
    "bailing_hybrid": every(6, "layer_group_size", other=LINEAR),
    "t5_gemma_module": every(2),
    "t5gemma2_text": every(6, "sliding_window_pattern"),
    "t5gemma2_decoder": every(6, "sliding_window_pattern"),
    "ultrabert": every(3, windows="attention_windows"),
    "vaultgemma": every(2),
    "jamba": {"rule": "period", "period": "attn_layer_period", "offset": "attn_layer_offset",
              "hit": FULL, "other": LINEAR},
    "qwen2": {"rule": "windows_from"},
    "dots1": {"rule": "windows_from"},
    "smollm3": {"rule": "no_rope_layers", "without": "sliding_if_used", "with": FULL},
    "llama4_text": {"rule": "no_rope_layers", "without": FULL, "with": "chunked_attention",
                    "empty_is_none": True},
    "mistral_large4_text": {"rule": "no_rope_layers", "without": FULL, "with": FULL},
    "ministral": {"rule": "sliding_if_window"},
    "lfm2": {"rule": "listed", "key": "full_attn_idxs", "hit": FULL, "other": "conv"},
    "lfm2_moe": {"rule": "listed", "key": "full_attn_idxs", "hit": FULL, "other": "conv"},
    "mllama_text_model": {"rule": "listed", "key": "cross_attention_layers",
                          "hit": "cross_attention", "other": FULL, "always": True,
                          "default": [3, 8, 13, 18, 23, 28, 33, 38]},
    "nemotron_h": {"rule": "letters", "key": "hybrid_override_pattern", "default": "ME*-",
                   "names": {"M": LINEAR, "*": FULL, "E": "moe", "-": "mlp"}},
    "recurrent_gemma": {"rule": "cycle", "key": "block_types",
                        "default": ["recurrent", "recurrent", "attention"],
                        "names": {"recurrent": LINEAR, "attention": SLIDING}},
    "bamba": {"rule": "listed", "key": "attn_layer_indices", "hit": FULL, "other": LINEAR},
    "falcon_h1": {"rule": "all", "type": "hybrid"},
    "zamba": {"rule": "zamba"},
    "zaya": {"rule": "all", "type": "hybrid"},
    "granitemoehybrid": {"rule": "all", "type": LINEAR},
    "kimi_linear": every(4, phase="first", other=LINEAR, not_first=True),
    "deepseek_v32": {"rule": "all", "type": "indexed_attention"},
    "glm_moe_dsa": {"rule": "all", "type": "indexed_attention"},
    "axk2": {"rule": "all", "type": "indexed_attention"},
    "unlimited_ocr_text": {"rule": "all", "type": "reference_sliding_attention"},
    "deepseek_v4": {"rule": "deepseek_v4"},
    "dots3_note_text": {"rule": "dots3"},
    "muse_glimmer_assistant": {"rule": "all", "type": SLIDING},
    "flint": {"rule": "flint"},
    "lfm3": {"rule": "lfm3"},
    "zamba2": {"rule": "zamba2"},
}
LAYERS["gpt_neo"] = {"rule": "repeated", "key": "attention_types", "default": [[["global", "local"], 12]],
                     "names": {"global": FULL, "local": SLIDING}}
for name in """qwen2_vl_text qwen2_5_vl_text qwen2_5_omni_text qwen2_5_omni_talker qwen3
qwen3_omni_moe_talker_code_predictor deepseek_ocr2_encoder""".split():
    LAYERS[name] = {"rule": "windows_from"}
LAYERS["qwen2_moe"] = {"rule": "windows_until"}
for name in "mamba mamba2 falcon_mamba rwkv xlstm".split():  # no softmax attention anywhere
    LAYERS[name] = {"rule": "all", "type": LINEAR}

# Layers counted by another key: LongCat-Flash has two attentions a layer; HRM runs its stacks in
# cycles, and each run has keys of its own.
LAYER_COUNT = {"longcat_flash": {"key": "num_layers", "times": 2, "default": 28},
               "hrm_text": {"cycles": True},
               "swin": {"sum": "depths", "default": [2, 2, 6, 2]},
               "swinv2": {"sum": "depths", "default": [2, 2, 6, 2]},
               "funnel": {"sum": "block_sizes", "default": [4, 4, 4]}}
# Layer types in another key, or in a list that is longer than the model.
TYPES_FROM = {"deepseek_v4": {"compress_ratios": {
    "0": SLIDING, "4": "compressed_sparse_attention", "128": "heavily_compressed_attention"}}}
TYPES_PADDED = {"deepseek_v4": True, "step3p5": "num_nextn_predict_layers"}
INDEXED_FULL = ["dots3_note_text"]  # full_attention becomes indexed_attention

# Windows on every layer (a model with layer types has them on its sliding ones).
WINDOW_ON_ALL = """mistral mixtral ministral3 phi3 phi4_multimodal phimoe starcoder2 minimax olmoe
qwen3_moe voxtral_realtime_text voxtral_realtime_encoder mimi mimi_encoder mimi_decoder recurrent_gemma doge
openai_privacy_filter pocket_tts_audio_tokenizer qwen3_omni_moe_talker_text
blt_patcher blt_local_encoder""".split()
# A window takes effect only with use_sliding_window.
WINDOW_SWITCH = """qwen2 qwen2_moe qwen3 qwen3_moe qwen2_vl_text qwen2_5_vl_text qwen2_5_omni_text
qwen2_5_omni_talker deepseek_ocr2_encoder""".split()
# Windows counted to both sides: key // divide keys each way.
WINDOW_BOTH = {"modernbert": {"key": "local_attention", "divide": 2, "set_by": "sliding_window"},
               "openai_privacy_filter": {"key": "sliding_window", "divide": 1},
               "ultrabert": {"key": "sliding_window", "divide": 1, "listed": "attention_windows"},
               "neomme": {"key": "sliding_window", "divide": 1, "every_second": 1024},
               "embedding_gemma2_text": {"key": "sliding_window", "divide": 1}}
# The causal sibling: a window of local_attention // 2 keys, the query's own among them.
WINDOW_NAMED = {"gpt_neo": {"key": "window_size"}}  # local layers see so many keys, their own included
WINDOW_HALVED = {"modernbert-decoder": {"key": "local_attention", "divide": 2, "set_by": "sliding_window"}}
BIDIRECTIONAL = """modernbert ultrabert openai_privacy_filter eurobert esm esmc nomic_bert roformer gte
jina_embeddings_v3 neomme bert roberta xlm-roberta camembert electra distilbert albert mpnet deberta
deberta-v2 clip_vision_model siglip_vision_model vit deit beit dinov2 dinov3_vit pixtral
llama4_vision_model qwen2_vl_vision qwen2_5_vl_vision qwen3_vl_vision qwen3_vl_moe_vision
qwen3_5_vision qwen3_5_moe_vision gemma4_vision glmasr_encoder lasr_encoder dia_encoder mlcd
wav2vec2 hubert wav2vec2-conformer xlnet layoutlm ernie megatron-bert big_bird data2vec-text
embedding_gemma2_text clvp_encoder vjepa2 eomt_dinov3 xlm-roberta-xl mobilebert squeezebert visual_bert ibert
nystromformer mra yoso dpr lxmert roberta-prelayernorm swin swinv2 beit data2vec-vision rembert roc_bert
canine lilt longformer luke splinter flaubert xlm funnel wavlm vit_mae vit_msn siglip_text_model xmod
cohere_compass_vision dots3_note_vision_encoder lfm3_vl_vision step3p5_vision kimi_k25_vision
inkling2_vision minimax_m3_vl_vision dinov2_with_registers bert-generation layoutlmv2 layoutlmv3
fine_acoustics""".split()

# Layers that turn, when not all with attention do.
ROTARY_ON = {
    "afmoe": "sliding", "cohere2": "sliding", "cohere2_moe": "sliding", "flint": "sliding",
    "exaone4": "sliding_or_no_window", "exaone_moe": "sliding_or_no_window",
    "kolibri1": "sliding_or_no_window",
    "llama4_text": "no_rope_layers", "smollm3": "no_rope_layers",
    "mistral_large4_text": "no_rope_layers",
    "granite_swa": "layer_rope_theta", "granitemoe_swa": "layer_rope_theta",
    "muse_glimmer_text": "layer_rope_theta", "muse_spark_text": "layer_rope_theta",
}
# Rotary only if a key of the file has a value; otherwise the other scheme stands in its place.
ROTARY_IF = {
    "falcon": {"key": "alibi", "equals": False, "otherwise": "alibi"},
    "esm": {"key": "position_embedding_type", "equals": "rotary", "otherwise": "learned",
            "other_equals": "absolute"},
    "granitemoehybrid": {"key": "position_embedding_type", "equals": "rope", "otherwise": "none"},
    "zamba2": {"key": "use_mem_rope", "equals": True, "otherwise": "none"},
    "clvp_encoder": {"key": "use_rotary_embedding", "equals": True, "otherwise": "none"},
}

# Where theta and fraction stand outside of rope_parameters, when not rope_theta and
# partial_rotary_factor.
KEYS = {
    "gpt_neox": {"rope_theta": "rotary_emb_base", "partial_rotary_factor": "rotary_pct"},
    "gpt_neox_japanese": {"rope_theta": "rotary_emb_base", "partial_rotary_factor": "rotary_pct"},
}
# Rules for rope_parameters that differ from the common one.
#   by_layer_type  always nested: each type has its theta key and default, flat scaling goes to
#                  some of them and a null entry is filled in
#   as_stated      taken as it stands, or the class default whole; a top-level theta is not read
GEMMA3 = {"rule": "by_layer_type", "scaling_to": [FULL],
          "thetas": {FULL: {"key": "rope_theta", "default": 1000000.0},
                     SLIDING: {"key": "rope_local_base_freq", "default": 10000.0}}}
MODERNBERT = {"rule": "by_layer_type", "scaling_to": [FULL, SLIDING],
              "thetas": {FULL: {"key": "global_rope_theta", "default": 160000.0},
                         SLIDING: {"key": "local_rope_theta", "default": 10000.0}}}
ROPE = {
    "gemma3_text": GEMMA3, "gemma3n_text": GEMMA3, "t5gemma2_text": GEMMA3,
    "t5gemma2_decoder": GEMMA3,
    "modernbert": MODERNBERT, "modernbert-decoder": MODERNBERT,
    # the top-level theta is taken by the first reader, which is full_attention
    "olmo3": {"rule": "by_layer_type", "scaling_to": [FULL],
              "thetas": {FULL: {"key": "rope_theta", "default": 500000.0},
                         SLIDING: {"default": 500000.0}}},
    "gemma4_text": {"rule": "as_stated"}, "gemma4_unified_text": {"rule": "as_stated"},
    "diffusion_gemma_text": {"rule": "as_stated", "fills": ["partial_rotary_factor"]}, "embedding_gemma2_text": {"rule": "as_stated"},
    "beam": {"rule": "as_stated"}, "laguna": {"rule": "as_stated"}, "mellum": {"rule": "as_stated"},
    "mimo_v2_flash": {"rule": "as_stated"}, "zaya": {"rule": "as_stated"},
    "phi3": {"rule": "flat", "rename_late": {"su": "longrope", "yarn": "longrope"},
             "only": ["default", "longrope"], "fixed_original": True},
    "phi4_multimodal": {"rule": "flat", "rename_late": {"su": "longrope", "yarn": "longrope"},
                        "only": ["default", "longrope"], "fixed_original": True},
    "qwen2_vl_text": {"rule": "flat", "rename": {"mrope": "default"}},
    "qwen2_5_vl_text": {"rule": "flat", "rename": {"mrope": "default"}},
    "hunyuan_vl_text": {"rule": "flat", "rename": {"xdrope": "dynamic"},
                        "aliases": {"xdrope_section": "mrope_section"}, "alpha": True},
    "hunyuan_v1_dense": {"rule": "flat", "alpha": True}, "hunyuan_v1_moe": {"rule": "flat", "alpha": True},
    "llama4_text": {"rule": "flat", "step": True},
    "minimax_m2": {"rule": "flat", "partial_from": "rotary_dim"},
    "lfm3": {"rule": "as_stated", "fills": ["rope_theta"]},
    "ultrabert": {"rule": "as_stated", "fills": ["rope_theta"], "fills_from_class": True,
                  "thetas_by_layer": True},
    "ernie4_5_vl_moe_text": {"rule": "flat", "only": ["default"]},
    "cosmos3_edge_text": {"rule": "flat", "only": ["default"]},
    "recurrent_gemma": {"rule": "flat", "only": ["default"]},
    "phimoe": {"rule": "flat", "only": ["default", "longrope"], "mscales": True},
    "bamba": {"rule": "flat", "partial_forced": 0.5},
    "mistral4": {"rule": "flat", "partial_is_mla": True},
    "gptj": {"rule": "fixed_base", "width": "rotary_dim"},
    "codegen": {"rule": "fixed_base", "width": "rotary_dim"},
    "roformer": {"rule": "fixed_base"},
    "clvp_encoder": {"rule": "fixed_base"},
    "esm": {"rule": "top_level"}, "dinov3_vit": {"rule": "top_level"},
    "granite_swa": {"rule": "flat", "theta_list": "layer_rope_theta"},
    "granitemoe_swa": {"rule": "flat", "theta_list": "layer_rope_theta"},
    "muse_glimmer_text": {"rule": "flat", "theta_list": "layer_rope_theta",
                          "theta_zero": "from_end"},
    "muse_spark_text": {"rule": "flat", "theta_list": "layer_rope_theta",
                        "theta_zero": "from_end"},
    "deepseek_v4": {"rule": "main_and_compress"},
    "step3p5": {"rule": "lists_of_layers"},
    "cohere2_moe": {"rule": "flat", "ignores_scaling": True},
    "dots3_note_text": {"rule": "thetas_of_kinds"},
    "neomme": {"rule": "filled_in", "thetas": {FULL: {"default": 1000000.0, "fraction": 0.25},
                                                 SLIDING: {"default": 10000.0, "fraction": 1.0}}},
    "cohere_compass_text": {"rule": "named_types"},
    "molmo2_text": {"rule": "flat", "scaled_layers": "rope_scaling_layers"},
    "efficientloftr": {
        "rule": "refused",
        "why": "an image matcher, whose features are rotated before they are split into heads: pair "
               "p of all hidden_size / 2 follows the row (p even) or the column (p odd), counted "
               "from 1, with theta^(-2 (p // 2) / (hidden_size / 2))",
        "mend": "posenc table \"axial head_dim=256 axes_dim=[128,128] order=alternate "
                "pairing=interleaved\" (hidden_size 256) has those numbers"},
}
# rope_parameters of the class when the file has none.
ROPE_DEFAULT_FROM_CLASS = """apertus cwm gpt_oss higgs_audio_v2 ministral3 mistral4
mistral_large4_text openai_privacy_filter moonshine_streaming cosmos3_edge_text gemma4_text
gemma4_unified_text diffusion_gemma_text embedding_gemma2_text beam laguna mellum mimo_v2_flash zaya
lfm3 ultrabert nemotron3_5_transcribe_asr_audio nemotron3_5_transcribe_word_timestamp
muse_spark_text""".split()

# A fraction that the class gives to dictionaries which state none.
FRACTION = {"mimo_v2_flash": 0.334}
# Theta is not part of that default: a top-level one counts.
DEFAULT_WITHOUT_THETA = ["gpt_oss", "openai_privacy_filter"]

# Head sizes. own: head_dim, else hidden_size // num_attention_heads.
HEAD = {name: "hidden_over_heads" for name in """pixtral deepseek_ocr2_text unlimited_ocr_text gptj
codegen roformer esm dots3_note_audio_encoder""".split()}
HEAD["zamba2"] = "zamba2"
for name in """deepseek_v2 deepseek_v3 deepseek_v32 glm4_moe_lite glm_moe_dsa longcat_flash minicpm3
mistral4 mistral_large4_text youtu axk1 axk2 bailing_hybrid hy_v4""".split():
    HEAD[name] = "latent"
HEAD["dots3_note_text"] = "latent_by_kind"
HEAD["hunyuan_v1_dense"] = HEAD["hunyuan_v1_moe"] = "stated"
for name in "gemma4_text gemma4_unified_text diffusion_gemma_text embedding_gemma2_text".split():
    HEAD[name] = "global"  # full layers: global_head_dim, 512
# The attention multiplies its softmax scale by g(factor, mscale_all_dim)^2.
LOGIT_FACTOR = [n for n, rule in HEAD.items() if rule == "latent"]
TEMPERATURE = {"llama4_text": "llama4", "ministral3": "ministral", "mistral4": "ministral"}

MROPE = {
    "qwen2_vl_text": ("chunked", [16, 24, 24]), "qwen2_5_vl_text": ("chunked", [16, 24, 24]),
    "qwen2_5_omni_text": ("chunked", [16, 24, 24]), "paddleocr_vl_text": ("chunked", [16, 24, 24]),
    "qwen2_5_omni_talker": ("chunked", [16, 24, 24]),
    "glm4v_text": ("chunked", [8, 12, 12]), "glm4v_moe_text": ("chunked", [8, 12, 12]),
    "glm_ocr_text": ("chunked", [8, 12, 12]), "glm_image_text": ("chunked", [8, 12, 12]),
    "qwen3_vl_text": ("interleaved", [24, 20, 20]),
    "qwen3_vl_moe_text": ("interleaved", [24, 20, 20]),
    "qwen3_omni_moe_text": ("interleaved", [24, 20, 20]),
    "qwen3_5_text": ("interleaved", [11, 11, 10]), "qwen3_5_moe_text": ("interleaved", [11, 11, 10]),
    "qwen4_exp_text": ("interleaved", [11, 11, 10]),
    "cosmos3_edge_text": ("interleaved", [24, 20, 20]),
    "ernie4_5_vl_moe_text": ("ernie", [22, 22, 20]),
    "cohere_compass_text": ("interleaved", [24, 20, 20]),
    # two axes in turn, row first; sections follow from the width
    "neomme": ("openpangu", None),
}
# The layout where layouts.json could not run the class.
HALF, INTER = "half_split", "interleaved"
PAIRING = {"glm4v_text": INTER, "glm4v_moe_text": HALF, "glm_image_text": HALF, "gptj": INTER,
           "codegen": INTER, "roformer": INTER, "clvp_encoder": HALF,
           "granite4_vision_text": HALF, "higgs_audio_v2": HALF, "internlm3": HALF,
           "iquestcoder": HALF, "hunyuan_vl_text": HALF, "pe_audio_encoder": INTER,
           "pe_audio_video_encoder": INTER, "pe_video_encoder": INTER, "lasr_encoder": HALF,
           "pocket_tts_audio_tokenizer": HALF, "qwen2_5_omni_dit": HALF, "molmo2_text": HALF,
           "cohere_compass_text": HALF, "mistral_large4_text": INTER}
# V turned too, or the attention output turned back.
ROTATES_VALUE = {"clvp_encoder": True, "roformer": "rotary_value"}
UNROTATES_OUTPUT = ["deepseek_v4"]
TAIL = ["deepseek_v4"]  # the last channels of the head turn
# Keys are compressed in the cache: how many bytes a token leaves depends on the length.
KEY_CACHE_UNKNOWN = ["deepseek_v4"]
# Has layer types, but one set of rope_parameters: nested ones make its rotary fail (run).
FLAT_ONLY = """afmoe bailing_hybrid cohere2 cohere2_moe cwm deepseek_ocr2_encoder dots1 exaone4
exaone_moe flint gemma2 gpt_oss granite_swa granitemoe_swa kolibri1 lfm2 llama4_text minimax
ministral muse_glimmer_assistant muse_glimmer_text muse_spark_text olmo_hybrid qwen2
qwen2_5_omni_talker qwen2_5_omni_text qwen2_5_vl_text qwen2_moe qwen2_vl_text qwen3 qwen3_5_moe_text
qwen3_5_text qwen3_next qwen3_omni_moe_talker_code_predictor recurrent_gemma smollm3 t5_gemma_module
vaultgemma""".split()
# head_dim must be a number: null is refused on loading (run).
HEAD_STRICT = """axk2 bailing_hybrid beam cohere2_moe cosmos3_edge_text cwm deepseek_v32 deepseek_v4
dia_decoder dia_encoder diffusion_gemma_text dots3_note_text embedding_gemma2_text falcon flint
gemma gemma2 gemma3_text gemma3n_text gemma4_text gemma4_unified_text glm4 glm_moe_dsa gpt_oss
helium hrm_text hy_v3 hy_v4 kolibri1 laguna lfm3 llama4_text longcat_flash mellum mimo_v2_flash
minimax_m2 minimax_m3_vl_text ministral3 mistral_large4_text molmo2_text muse_glimmer_assistant
muse_glimmer_text muse_spark_text neomme neucodec openai_privacy_filter pe_audio_encoder
pe_audio_video_encoder pe_video_encoder qwen2_5_omni_dit qwen2_5_omni_talker qwen3 qwen3_5_moe_text
qwen3_5_text qwen3_next qwen3_omni_moe_talker_code_predictor qwen3_vl_text qwen4_exp_text
solar_open step3p5 t5_gemma_module t5gemma2_decoder t5gemma2_text timesfm2_5 vaultgemma
voxtral_realtime_encoder xcodec2 zaya""".split()
# The attention takes head_dim as it is, null too, and fails (run).
HEAD_NULL_FAILS = """qwen2 qwen3_moe phi3 cohere cohere2 smollm3 glm glm4_moe granite granitemoe olmo olmo2
exaone4 apertus bitnet ministral hunyuan_v1_dense hunyuan_v1_moe""".split()
# hidden_size must be a multiple of num_attention_heads, even beside head_dim (run).
HEADS_DIVIDE = """arcee aria_text cosmos3_edge_text cwm deepseek_ocr2_text deepseek_v2
dots3_note_audio_encoder esmc eurobert gemma2 gemma3_text gemma3n_text gpt_neox gradium_phonon_tts
higgs_audio_v2 hrm_text hyperclovax internlm3 iquestcoder jais2 llama minicpm3 muse_glimmer_text
muse_spark_text nemotron3_5_transcribe_asr_audio nemotron3_5_transcribe_word_timestamp
nemotron3_diarization_audio neucodec pocket_tts t5_gemma_module t5gemma2_decoder t5gemma2_text ultrabert
unlimited_ocr_text vaultgemma xcodec2""".split()
# rope_parameters may hold layer types only (run).
STRICT_LABELS = ["modernbert", "modernbert-decoder", "neomme"]
# Nested rope_parameters count only when the file states layer_types (run).
LABELS_IF_TYPED = "hy_v4 lfm2_moe minimax_m3_vl_text mistral_large4_text mllama_text_model".split()
# Names of keys in older files.
EXTRA_NAMES = {"step3p5": {"num_key_value_heads": "num_attention_groups"},
               "dots3_note_text": {"sliding_window": "sliding_window_size"},
               "mpt": {"max_position_embeddings": "max_seq_len"},
               "led": {"max_position_embeddings": "max_encoder_position_embeddings"},
               "lxmert": {"num_hidden_layers": "l_layers"},
               "bloom": {"hidden_size": "n_embed"}, "falcon": {"hidden_size": "n_embed"}}
# ... which count beside the common name, and those of which the common name is not read (run).
OWN_FIRST = ["step3p5", "bloom", "falcon"]
# ... unless it is null: the common name counts then.
OWN_UNLESS_NULL = ["bloom", "falcon"]
OWN_ONLY = ["mpt", "led", "lxmert"]
# What the class fills in for null.
EXTRA_DEFAULTS = {"dots3_note_text": {"sliding_window": 512}, "mpt": {"max_position_embeddings": 2048},
                  "led": {"max_position_embeddings": 16384, "max_decoder_position_embeddings": 1024},
                  "lxmert": {"num_hidden_layers": 9}, "clvp_encoder": {"use_rotary_embedding": True}}
# A rotary of another part, which the text model does not have.
NOT_THE_TEXT = ["musicflamingo"]
# What these call rotary is no rotation: the two members of a pair get other angles.
NOT_A_ROTATION = {
    "hunyuan_vl_text": "the doubled table is split by section * 2, so that the two members of a "
                       "pair follow different axes and norms change",
    "vjepa2": "angles are tiled for half-split pairs but channels are paired interleaved"}
# What composites do with their parts beyond filling in one that is missing or null with what
# class_facts.json has under "absent" (a part that is stated, if only {}, gets the bare defaults of
# its own class). All read in __post_init__ and run.
# The class's own values stand under those of a stated part, too.
PART_MERGED = """glmasr.text_config voxtral.text_config voxtral_realtime.text_config
pe_audio.text_config pe_audio_video.text_config pe_video.text_config cohere_asr.encoder_config
higgs_audio_v2_tokenizer.acoustic_model_config xcodec.acoustic_model_config
pe_audio_encoder.dac_config pe_video_encoder.vision_config""".split()
# A part without a model_type fails (KeyError).
PART_TYPED = "exaone4_5.text_config musicflamingo.audio_config".split()
# Model types of published files that mean another one here.
PART_RENAMED = {"exaone4_5.text_config": {"exaone4_5_text": "exaone4"},
                "kimi_k25.text_config": {"kimi_k2": "deepseek_v3"}}
# An older key that is read where the part is missing.
PART_OLD_KEY = {"unlimited_ocr.text_config": "language_config", "molmo2.vision_config": "vit_config"}
# A second dictionary, completed by the class's defaults, that overrules the part.
PART_INSTEAD = {f"{name}.{part}_config": f"{part}_config_dict"
                for name in "altclip chinese_clip clip clipseg groupvit metaclip_2 xclip".split()
                for part in ("text", "vision")}
PART_INSTEAD.update({f"flava.{part}_config": f"{part}_config_dict"
                     for part in ("text", "image", "multimodal", "image_codebook")})
# Where the part is missing its keys may stand at the top level: those that are fields of its class
# ("fields"; "fields and names": other names of them too), those that the composite holds itself
# ("absent"), or all.
PART_FLAT = {"qwen2_vl.text_config": "fields", "qwen2_5_vl.text_config": "fields",
             "paddleocr_vl.text_config": "fields", "hunyuan_vl.text_config": "fields and names",
             "fuyu.text_config": "absent", "dots3_note.text_config": "all",
             "glm5_next.text_config": "all"}
# ... and what the composite adds to them.
PART_FLAT_HELD = {"fuyu.text_config": {"partial_rotary_factor": 0.5}}

# Vision towers: axial layouts (reference 8.1).
VISION = {}
for name in """qwen2_vl_vision qwen2_5_vl_vision qwen2_5_omni_vision_encoder qwen3_vl_vision
qwen3_vl_moe_vision qwen3_5_vision qwen3_5_moe_vision qwen3_omni_moe_vision_encoder qwen4_exp_vision
glm4v_vision glm4v_moe_vision glm_ocr_vision paddleocr_vl_vision ernie4_5_vl_moe_vision
exaone4_5_vision video_llama_3_vision mlcd mlcd_vision_model glm5_next_vision
cohere_compass_vision dots3_note_vision_encoder lfm3_vl_vision""".split():
    VISION[name] = "qwen2_vl"
VISION.update({"pixtral": "pixtral", "llama4_vision_model": "llama4", "gemma4_vision": "gemma4",
               "dinov3_vit": "dinov3", "step3p5_vision": "step3p7", "kimi_k25_vision": "kimi_k25",
               "inkling2_vision": "inkling2", "minimax_m3_vl_vision": "minimax_m3"})
# Windows of window_size pixels a side on all layers but fullatt_block_indexes.
VISION_WINDOWS = "qwen2_5_vl_vision qwen2_5_omni_vision_encoder exaone4_5_vision".split()

# Heads are split by the width of the table, so that an odd int(head_dim * fraction) runs (run).
SPLITS_BY_TABLE = """glm glm4 glm4_moe gpt_neox minimax_m2 minimax_m3_vl_text nemotron phi3
phi4_multimodal qwen3_next qwen3_5_text qwen3_5_moe_text recurrent_gemma""".split()
# A head_dim in the file of a class with latent attention: another name of qk_rope_head_dim, or an
# attribute that the table follows and the attention does not (run).
HEAD_DIM_IS = {"glm4_moe_lite": "rope", "deepseek_v3": "table", "longcat_flash": "table",
               "youtu": "table", "axk1": "table"}

# Classes of parts that have no model type of their own in transformers' list.
BARK = {"semantic": "BarkSemanticConfig", "coarse_acoustics": "BarkCoarseConfig",
        "fine_acoustics": "BarkFineConfig"}
OTHER_CLASSES = {name: {
    "class": cls, "is_rope": False,
    "defaults": {"hidden_size": 768, "max_position_embeddings": 1024, "num_attention_heads": 12,
                 "num_hidden_layers": 12},
    "names": {"max_position_embeddings": "block_size", "num_attention_heads": "num_heads",
              "num_hidden_layers": "num_layers"}} for name, cls in BARK.items()}

# Models without rotary: what stands at the input, and what acts in the score.
LEARNED = """gpt2 clvp_decoder bert roberta xlm-roberta camembert electra distilbert albert opt gpt_neo gpt_bigcode
openai-gpt bart mbart blenderbot blenderbot-small plbart led longformer big_bird bigbird_pegasus
biogpt layoutlm ernie megatron-bert roberta-prelayernorm ibert visual_bert gpt-sw3 nystromformer mra
yoso dpr lxmert data2vec-text xlm-roberta-xl mobilebert squeezebert semantic
coarse_acoustics fine_acoustics deberta deberta-v2 layoutlmv2 layoutlmv3
clip_text_model clip_vision_model siglip_text_model siglip_vision_model vit deit dinov2 swin swinv2
beit data2vec-vision vit_msn decision_transformer imagegpt rembert roc_bert flaubert xlm mvp lilt splinter xmod
canine bert-generation luke mpnet dinov2_with_registers""".split()
# Parts of CLIP's kin: texts made like RoBERTa, like BERT and like CLIP (causal) or SigLIP (not), and
# CLIP's tower.
ROBERTA_TEXT = "altclip_text_model bridgetower_text_model clap_text_model".split()
BERT_TEXT = "align_text_model chinese_clip_text_model flava_text_model convbert".split()
CLIP_TEXT = """clipseg_text_model groupvit_text_model metaclip_2_text_model owlvit_text_model
owlv2_text_model xclip_text_model aimv2_text_model siglip2_text_model""".split()
CLIP_VISION = """altclip_vision_model chinese_clip_vision_model clipseg_vision_model
metaclip_2_vision_model xclip_vision_model owlvit_vision_model owlv2_vision_model""".split()
LEARNED += ROBERTA_TEXT + BERT_TEXT + CLIP_TEXT + CLIP_VISION
BIDIRECTIONAL += [*ROBERTA_TEXT, *BERT_TEXT, "siglip2_text_model", *CLIP_VISION]
SINUSOIDAL = """xglm m2m_100 marian pegasus pegasus_x fsmt speech_to_text ctrl musicgen_decoder
musicgen_melody_decoder nllb-moe whisper informer autoformer time_series_transformer""".split()
T5 = "t5 mt5 umt5 longt5 switch_transformers udop pop2piano mpnet".split()
ALIBI = ["bloom", "mpt"]
NONE = """mamba mamba2 falcon_mamba rwkv xlstm jamba nemotron_h zamba kimi_linear""".split()
# Rows that stand before position 0: the table has as many more than max_position_embeddings ...
INPUT_OFFSET = {name: 2 for name in
                "opt bart mbart plbart mvp biogpt mra nystromformer yoso xglm".split()}
# ... or positions start behind pad_token_id, and the table has max_position_embeddings rows.
INPUT_PADDING = """roberta xlm-roberta camembert data2vec-text ibert lilt longformer luke mpnet
roberta-prelayernorm xlm-roberta-xl xmod layoutlmv3 esm fsmt m2m_100 nllb-moe speech_to_text""".split()
INPUT_PADDING += ROBERTA_TEXT
# Positions count the tokens that the mask shows; all others count from the first slot of a row.
INPUT_MASK = "opt biogpt".split()
# The key of the width; of several the first that the file states. All others: hidden_size.
INPUT_WIDTH = {"albert": ["embedding_size"], "electra": ["embedding_size"],
               "squeezebert": ["embedding_size"], "rembert": ["input_embedding_size"],
               "swin": ["embed_dim"], "swinv2": ["embed_dim"],
               "deberta": ["embedding_size", "hidden_size"],
               "deberta-v2": ["embedding_size", "hidden_size"]}
# The key of the number of positions; all others: max_position_embeddings.
INPUT_ROWS = {"canine": "num_hash_buckets", "decision_transformer": "max_ep_len"}
# Schemes other than learned and sinusoidal.
INPUT_KIND = {"wav2vec2": "convolutional", "hubert": "convolutional", "wavlm": "convolutional",
              "vit_mae": "sinusoidal_nd"}
# image_size and patch_size are one number: a list cannot be divided (run).
INPUT_SQUARE = ["clip_vision_model", "siglip_vision_model", *CLIP_VISION]
# Rows of images: patches and the tokens before them.
INPUT_PATCHES = {"vit": 1, "deit": 2, "clip_vision_model": 1, "siglip_vision_model": 0, "dinov2": 1,
                 "vit_msn": 1, "vit_mae": 1, "dinov2_with_registers": 1, "beit": 1, "swin": 0,
                 "swinv2": 1}
INPUT_PATCHES.update({name: 1 for name in CLIP_VISION})
# Read only where this key is true.
INPUT_IF = {name: "use_absolute_position_embeddings" for name in ("beit", "data2vec-vision")}
INPUT_IF.update({"deberta": "position_biased_input", "deberta-v2": "position_biased_input",
                 "swin": "use_absolute_embeddings", "swinv2": "use_absolute_embeddings"})
INPUT_PATCHES["data2vec-vision"] = 1
# Boxes of words: rows of each table, the tensors of x, y, height and width.
INPUT_BOXES = {name: "max_2d_position_embeddings" for name in "layoutlm layoutlmv2 layoutlmv3".split()}
# LayoutLM 2 and 3 put them side by side, coordinate_size and shape_size channels each; 3 clips.
INPUT_BOX_PARTS = {"layoutlmv2": "beside", "layoutlmv3": "clipped"}
# How the name of the tensor ends that holds the table; with an encoder and a decoder in one file
# "encoder." or "decoder." stands before it. All others: BERT's.
INPUT_TENSOR = {name: "wpe.weight" for name in
                "gpt2 gpt-sw3 gpt_bigcode gpt_neo imagegpt".split()}
INPUT_TENSOR["decision_transformer"] = "embed_timestep.weight"
INPUT_TENSOR.update({name: "position_embeds_layer.weight" for name in [*BARK, "clvp_decoder"]})
INPUT_TENSOR.update({name: "embed_positions.weight" for name in """bart mbart plbart blenderbot
blenderbot-small led bigbird_pegasus mvp marian pegasus whisper opt biogpt""".split()})
INPUT_TENSOR.update({name: "embeddings.position_embeddings" for name in
                     "vit deit dinov2 dinov2_with_registers vit_msn vit_mae beit data2vec-vision swin swinv2".split()})
INPUT_TENSOR.update({
    "openai-gpt": "positions_embed.weight", "xlm": "position_embeddings.weight",
    "flaubert": "position_embeddings.weight",
    "canine": "char_position_embeddings.weight",
    "clip_text_model": "text_model.embeddings.position_embedding.weight",
    "siglip_text_model": "text_model.embeddings.position_embedding.weight",
    "clip_vision_model": "vision_model.embeddings.position_embedding.weight",
    "siglip_vision_model": "vision_model.embeddings.position_embedding.weight"})
INPUT_TENSOR.update({name: "text_model.embeddings.position_embedding.weight" for name in CLIP_TEXT})
INPUT_TENSOR.update({name: "vision_model.embeddings.position_embedding.weight" for name in CLIP_VISION})
# scale_embedding: what the class holds and, beside a sinusoid, what published checkpoints say;
# ignored: the class has the key and multiplies nothing; always: it multiplies without a key.
INPUT_SCALE = {name: {"default": False} for name in
               "bart blenderbot blenderbot-small mbart mvp".split()}
INPUT_SCALE.update({name: {"default": True} for name in "bigbird_pegasus biogpt plbart".split()})
INPUT_SCALE.update({name: {"default": True, "published": True} for name in
                    "fsmt m2m_100 nllb-moe pegasus_x speech_to_text xglm".split()})
INPUT_SCALE.update({name: {"default": False, "published": True} for name in "marian pegasus".split()})
INPUT_SCALE.update({name: {"ignored": True} for name in
                    "musicgen_decoder musicgen_melody_decoder whisper".split()})
INPUT_SCALE["ctrl"] = {"always": True}
INPUT_SCALE["big_bird"] = {"default": False, "key": "rescale_embeddings"}
# Sinusoids of which the class keeps as many rows as this key says and fails beyond; all others
# make the rows that they need.
INPUT_KEEPS = {name: "max_position_embeddings" for name in "marian pegasus ctrl".split()}
INPUT_KEEPS["whisper"] = "max_source_positions"
# Sinusoids: what an odd width does; all others fail.
INPUT_ODD = {name: "truncate" for name in
             "marian pegasus ctrl informer autoformer time_series_transformer".split()}
INPUT_ODD.update({name: "zero_pad" for name in """xglm m2m_100 fsmt speech_to_text nllb-moe
musicgen_decoder musicgen_melody_decoder""".split()})
# Sinusoids: where sines and cosines stand, the law of the frequencies, the first position.
FAIRSEQ, PAPER = " layout=halves spacing=t2t", " layout=halves"
INPUT_TEXT = {"marian": PAPER, "pegasus": PAPER, "informer": PAPER, "autoformer": PAPER,
              "time_series_transformer": PAPER, "ctrl": PAPER,
              "pegasus_x": " layout=halves spacing=t2t", "whisper": " layout=halves spacing=t2t",
              "musicgen_decoder": " layout=halves_cos_first spacing=t2t",
              "musicgen_melody_decoder": " layout=halves_cos_first spacing=t2t"}
for name in "xglm m2m_100 fsmt speech_to_text nllb-moe".split():
    INPUT_TEXT[name] = FAIRSEQ
# Encoder and decoder in one file: `layers` are the encoder's; the decoder's count stands here.
DECODER = {name: "decoder_layers" for name in """bart mbart plbart blenderbot blenderbot-small led
bigbird_pegasus mvp marian pegasus pegasus_x fsmt m2m_100 nllb-moe whisper speech_to_text""".split()}
DECODER.update({name: "num_decoder_layers" for name in
                "t5 mt5 umt5 longt5 switch_transformers udop pop2piano".split()})
for name in "informer autoformer time_series_transformer".split():
    DECODER[name] = "decoder_layers"
# Decoders whose embedding is normalised before positions meet it: no factor is left (run).
DECODER_UNSCALED = ["blenderbot-small"]
# Whisper: its encoder has sinusoids, its decoder learned rows.
DECODER_INPUT = {"whisper": ("learned", "max_target_positions"),
                 "led": ("learned", "max_decoder_position_embeddings")}
# The score acts only with one of these switches.
SCORE_IF = {"deberta": ["relative_attention"], "deberta-v2": ["relative_attention"],
            "beit": ["use_relative_position_bias", "use_shared_relative_position_bias"],
            "data2vec-vision": ["use_relative_position_bias", "use_shared_relative_position_bias"]}
# ... and only with one of these terms, names joined by | or a list.
SCORE_TERMS = {name: {"pos_att_type": ["c2p", "p2c"]}
               for name in ("deberta", "deberta-v2")}
RELATIVE = {"deberta": "deberta", "deberta-v2": "deberta", "xlnet": "xlnet", "funnel": "funnel",
            "swin": "swin", "swinv2": "log_cpb", "beit": "beit", "data2vec-vision": "beit",
            "wav2vec2": "none", "hubert": "none", "wavlm": "wavlm", "layoutlmv2": "layoutlm",
            "layoutlmv3": "layoutlm"}

# A decoder of patches in the same file, of its own sizes: what its entry says over the model's. (transformers 5.23,
# configuration_vit_mae.py and modeling_vit_mae.py; only ViTMAEForPreTraining has one.)
OWN_DECODER = {"vit_mae": {
    "names": {"hidden_size": "decoder_hidden_size", "num_hidden_layers": "decoder_num_hidden_layers",
              "num_attention_heads": "decoder_num_attention_heads"},
    "own_only": ["hidden_size", "num_hidden_layers", "num_attention_heads"],
    "defaults": {"hidden_size": 512, "num_hidden_layers": 8, "num_attention_heads": 16, "image_size": 224, "patch_size": 16},
    "input_tensor": "decoder.decoder_pos_embed"}}

# What else acts, and has no scheme here.
INPUT_NOTE = {
    "lilt": "the second flow has box tables and positions of its own, joined by a projection",
    "layoutlmv3": "patches of the image have a learned table of their own (pos_embed)",
    "layoutlmv2": "regions of the image read the same tables as words",
    "udop": "the encoder adds tables of the corners of boxes, and its score buckets of boxes",
    "visual_bert": "regions of the image have a second table of the same shape",
    "luke": "entities have a second table of the same shape, averaged over their words",
    "decision_transformer": "the table is read by time steps; the wpe of its GPT-2 gives row 0 to all",
    "wavlm": "the score adds T5 buckets (num_buckets, max_bucket_distance) of the first layer to "
             "every layer, times a gate of each query",
}

# Models of images, video and spectrograms.
INPUT_GRID, INPUT_ALSO, INPUT_INSTEAD = vision_facts.GRID, vision_facts.ALSO, vision_facts.INSTEAD
PART_MAIN, PART_REPLACES = vision_facts.MAIN, vision_facts.REPLACES
INPUT_BASE, VARIANTS, INPUT_AT = vision_facts.BASE, vision_facts.VARIANTS, vision_facts.AT
INPUT_COORDINATES, INPUT_X_FIRST = vision_facts.COORDINATES, vision_facts.X_FIRST
# transformers 5.23 create_sinusoidal_embeddings (modeling_xlm.py, modeling_flaubert.py, modeling_distilbert.py): the
# paper's sinusoid in the table of positions, without a gradient.
_SINES = {"input": "sinusoidal", "input_keeps": "max_position_embeddings", "input_odd": "truncate",
          "input_tensor": "position_embeddings.weight"}
VARIANTS.update({name: {"key": key, "of": {"true": _SINES, "false": {}, "null": {}}} for name, key in {
    "xlm": "sinusoidal_embeddings", "flaubert": "sinusoidal_embeddings", "distilbert": "sinusoidal_pos_embds"}.items()})
INPUT_BESIDE = vision_facts.INPUT_BESIDE  # of towers that turn q and k besides
REFUSED, AROUND = vision_facts.REFUSED, vision_facts.AROUND
OTHER_LAYER_TYPES = vision_facts.OTHER_LAYER_TYPES
INPUT_COLUMNS = {name: "embeddings.column_embedder.weight" for name in vision_facts.AXES}
vision_facts.merge(sys.modules[__name__])

# The bias is divided by sqrt(head_dim), with q.k.
BIAS_SCALED = {"falcon", "layoutlmv3"}
SCORE_NOTE = {"falcon": "the program rounds its slopes and biases to bfloat16; the definition does not"}
# MPT as transformers runs it has ALiBi with 8 as the last exponent, whatever attn_config says.
ALIBI_ALWAYS = {"mpt"}

# Words of layer_types by which the forward of a class picks the mask of a layer: any other one fails there on the
# first token, though the configuration takes all that transformers has.
TYPE_WORDS = {}
for words, names in {
        "full_attention sliding_attention":
            """afmoe beam cohere2 cohere2_moe cohere_compass_text cwm diffusion_gemma_text dots1 embedding_gemma2_text
            exaone4 exaone_moe flint gemma2 gemma3_text gemma3n_text gemma4_text gemma4_unified_text gpt_oss
            granite_swa granitemoe_swa kolibri1 laguna mellum mimo_v2_flash ministral modernbert modernbert-decoder
            muse_glimmer_assistant neomme olmo3 qwen2 qwen2_5_omni_talker qwen2_5_omni_text qwen2_5_vl_text qwen2_moe
            qwen2_vl_text qwen3 qwen3_omni_moe_talker_code_predictor smollm3 step3p5 t5_gemma_module t5gemma2_decoder
            t5gemma2_text vaultgemma""",
        "full_attention linear_attention":
            """bailing_hybrid granitemoehybrid jamba kimi_linear minimax olmo_hybrid qwen3_5_moe_text qwen3_5_text
            qwen3_next""",
        "indexed_attention linear_attention": "glm5_next_text",
        "full_attention conv": "lfm2 lfm2_moe",
        "full_attention sliding_attention conv": "lfm3",
        "full_attention chunked_attention": "llama4_text",
        "full_attention sliding_attention window_attention": "muse_glimmer_text muse_spark_text",
        "full_attention reference_sliding_attention": "unlimited_ocr_text",
        "conv hybrid hybrid_sliding": "zaya",
}.items():
    for name in names.split():
        TYPE_WORDS[name] = words.split()
