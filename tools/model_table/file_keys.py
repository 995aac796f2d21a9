# SPDX-License-Identifier: Apache-2.0
"""Keys of a config.json that stand at the top of the table: those that speak of positions in the code of some
model, names of other programs, and the layer types of transformers 5.23.0."""

# By these the code of some model changes its positions. Where the class of a file does not read one of them,
# the file was meant for other code.
OF_POSITIONS = """alibi use_alibi dual_chunk_attention_config rope_ratio rope_scaling_layers layer_rope_theta
compress_rope_theta rotary_emb_base rotary_embedding_base rotary_emb_fraction rotary_emb_scale_base
rotary_scaling_factor rotary_pct rotary_percent rope_pct rope_percent rotary_dim use_dynamic_ntk use_logn_attn
use_rotary_embedding use_mem_rope no_rope_layers no_rope_layer_interval rope_interleave rope_interleaved
rotary_emb_interleaved mrope_section mrope_interleaved xdrope_section original_max_position_embeddings
attn_temperature_tuning floor_scale attn_scale llama_4_scaling llama_4_scaling_beta log_scaling_n_floor
attention_types use_sliding_window max_window_layers sliding_window_pattern global_attn_every_n_layers
full_attention_interval position_embedding_type""".split()

# How many tokens a token sees.
WINDOWS = """sliding_window sliding_window_size attention_window attention_window_size attention_chunk_size
local_attention""".split()

# Names of other programs, or of one class, for something that has another name in most.
ALIASES = {
    "theta": "rope_theta", "rope_base": "rope_theta", "rotary_base": "rope_theta", "rope_freq_base": "rope_theta",
    "rope_thetas": "rope_theta by layer", "global_rope_theta": "rope_theta of full layers",
    "rope_local_base_freq": "rope_theta of sliding layers", "local_rope_theta": "rope_theta of sliding layers",
    "swa_rope_theta": "rope_theta of sliding layers", "rope_scale": "factor of rope_scaling",
    "rope_scaling_factor": "factor of rope_scaling", "ntk_alpha": "alpha of rope_scaling",
    "n_ctx": "the length, n_positions or max_position_embeddings", "rope_percentage": "partial_rotary_factor",
    "partial_rotary_fraction": "partial_rotary_factor",
    "rotary_percentage": "partial_rotary_factor", "partial_rotary_factors": "partial_rotary_factor by layer"}

# The second name is the one that counts: old ones are renamed on loading.
OLD_LAYER_TYPES = {"attention": "full_attention", "mamba": "linear_attention",
                   "deepseek_sparse_attention": "indexed_attention", "qwen_sparse_attention": "indexed_attention"}
LAYER_TYPES = """full_attention sliding_attention chunked_attention window_attention indexed_attention
compressed_sparse_attention heavily_compressed_attention minimax_m3_sparse conv moe hybrid hybrid_sliding
reference_sliding_attention linear_attention""".split()

# What a class does with a key, where no other member of the table says so.
USES = {
    # Read for a default of layer_types that the file states, or for masks that are not described.
    "cohere_compass_text": {"sliding_window_pattern": "read"},
    "dots3_note_text": {"use_sliding_window": "read"},
    "mistral_large4_text": {"no_rope_layer_interval": "read"},
    "phimoe": {"original_max_position_embeddings": "read"},
    "led": {"attention_window": "read"},
    "longformer": {"attention_window": "read"},
    "iquestcoder": {"use_sliding_window": "refused"},  # where it is true
    # Handed to FlashAttention and to no other kernel.
    "olmoe": {"sliding_window": "one_kernel"},
    # Set to null by the class, or no class with a key cache.
    "qwen3_vl_moe_text": {"sliding_window": "not_cached"},
    "timesfm2_5": {"sliding_window": "not_cached", "attention_chunk_size": "not_cached"},
    # Held by a class whose model does not look at it.
    "nemotron_h": {"sliding_window": "held_only"},
    "deepseek_v4": {"num_key_value_heads": "held_only"},
    "moshi": {"sliding_window": "held_only"},
    "kyutai_speech_to_text": {"sliding_window": "held_only"},
}

# What the scheme axial has beside head_dim, axes_dim and base in a vision tower: found by running transformers
# 5.23 (cases vision_ of the suite) and reading the rest.
AXIAL_LAYOUTS = {
    "qwen2_vl": {"axes": 2, "fields": " pairing=half_split"},  # h then w, same frequencies
    "pixtral": {"axes": 2, "fields": " pairing=half_split spacing=interlaced"},  # h even, w odd ones
    "llama4": {"axes": 2, "fields": " pairing=interleaved"},  # angles of coordinate + 1
    "gemma4": {"axes": 2, "fields": " pairing=half_split order=blocks"},  # x block, y block
    "dinov3": {"axes": 2, "fields": " pairing=half_split scale=6.283185307179586"},  # in [-1, 1]
    "step3p7": {"axes": 2, "fields": " pairing=half_split stream=[1,0]"},  # w then h
    "inkling2": {"axes": 2, "fields": " pairing=interleaved stream=[1,0]"},  # w then h
    "kimi_k25": {"axes": 2, "fields": " pairing=half_split order=alternate stream=[1,0]"},  # w, h in turn
    "minimax_m3": {"axes": 3, "fields": " pairing=half_split"},  # t, h, w; the channels that are left stay
}

# Members of rope_scaling and rope_parameters, which mean nothing at the top level of a file; and what else stands in
# the dictionary or beside it.
ROPE_MEMBERS = """attention_factor beta_fast beta_slow factor high_freq_factor long_factor long_mscale mscale mrope_section
mscale_all_dim low_freq_factor rope_type short_factor short_mscale truncate""".split()
DICTIONARY_MEMBERS = ROPE_MEMBERS + """original_max_position_embeddings partial_rotary_factor rope_theta type mrope_interleaved""".split()
# Names of other programs for a member that transformers has under another name or not at all.
ROPE_ALIASES = {
    "attn_factor": "vLLM's and the YaRN repository's factor on the gain; here attention_factor, which replaces it",
    "extrapolation_factor": "vLLM's and the YaRN repository's weight of the ramp",
    "yarn_attn_factor": "llama.cpp's name",
    "yarn_ext_factor": "llama.cpp's name",
    "rope_base": "rope_theta",
    "base": "rope_theta",
    "theta": "rope_theta",
    "alpha": "HunYuan's NTK factor, or Mistral's beta_slow",
    "beta": "Mistral's beta_fast",
    "apply_scale": "Mistral's switch of the gain",
    "short_mscale": "Phi-MoE's gain",
    "long_mscale": "Phi-MoE's gain",
    "original_max_position_embedding": "original_max_position_embeddings",
    "scale": "factor",
    "scaling_factor": "factor",
}

# Two keys of one class or file, neither a misspelling of the other: found by comparing all attributes of the
# configuration classes of transformers 5.23, and the keys of published files.
BOTH_LEGAL = [
    ["H_cycles", "L_cycles"], ["L_cycles", "H_cycles"], ["_pad_token_id", "pad_token_id"],
    ["_sliding_window_pattern", "sliding_window_pattern"], ["compress_rates", "compress_ratios"],
    ["d_head", "n_head"], ["decoder", "is_decoder"], ["end_token_id", "pad_token_id"],
    ["eod_token_id", "pad_token_id"], ["global_rope_theta", "local_rope_theta"], ["head_dim", "qk_head_dim"],
    ["local_rope_theta", "global_rope_theta"], ["max_2d_position_embeddings", "max_position_embeddings"],
    ["max_position_embeddings", "max_2d_position_embeddings"], ["max_pos_emb", "max_position_embeddings"],
    ["max_rel_2d_pos", "max_rel_pos"], ["max_rel_pos", "max_rel_2d_pos"], ["min_image_size", "max_image_size"],
    ["min_length", "max_length"], ["model_config", "codec_config"], ["name_or_path", "_name_or_path"],
    ["num_heads", "num_kv_heads"], ["num_labels", "num_layers"], ["patch_sizes", "patch_size"],
    ["pred_token_id", "pad_token_id"], ["q_lora_rank", "kv_lora_rank"], ["r_layers", "l_layers"],
    ["rel_2d_pos_bins", "rel_pos_bins"], ["rel_pos_bins", "rel_2d_pos_bins"], ["v_head_dim", "head_dim"],
    ["v_head_dim", "qk_head_dim"], ["x_layers", "l_layers"], ["xdrope_section", "mrope_section"],
]
# What the loss of a key changes, where no default takes its place.
LOSSES = {
    "rope_scaling": "positions are not scaled",
    "rope_parameters": "positions are not scaled, and the base is the class's",
    "rope_theta": "the base is the class's",
    "layer_types": "the class decides which layers have a window",
    "head_dim": "the width of a head is hidden_size / num_attention_heads",
    "sliding_window": "no layer has the window",
    "text_config": "the whole text model has the defaults of its class",
}

# Sizes of a text model that stand at the top level of a composite file, where nobody looks.
TEXT_SIZES = """head_dim hidden_size num_attention_heads num_key_value_heads num_hidden_layers max_position_embeddings
sliding_window layer_types original_max_position_embeddings""".split()
# Keys that say nothing of positions in any file: whole names, and what may stand in one.
OTHER_KEYS = """_name_or_path architectures auto_map dtype hidden_act initializer_range model_type torch_dtype use_bias
use_cache vocab_size""".split()
OTHER_KEYS_WITH = """_token_id 2id bias dropout eps id2 pdrop quantization _version act_fn tie_ _activation""".split()

# What transformers 5.23 is known to get wrong, found by running it (the suite `absolute`).
PEER_BUGS = {
    "vit_mae": {
        "message": "transformers 5.23 leaves the table of positions at zero when a ViTMAE model is made from a "
            "config alone: nothing tells its patches apart until a checkpoint is loaded",
        "fix": "load the table with the weights, or set it: posenc list sinusoidal_nd, preset mae",
    },
    "xglm": {
        "message": "transformers 5.23 makes as many rows as a call has tokens, not as its largest position needs: "
            "explicit position_ids beyond the table raise an IndexError",
        "fix": "keep position_ids below max_position_embeddings, or call once with as many tokens",
    },
    "marian": {
        "message": "transformers' sinusoid has other frequencies than the Marian program: base^(-2m/D) where Marian"
            " has base^(-m/(D/2 - 1)); at D = 512 rows differ by 0.14 at position 100",
        "fix": "the config is read as transformers runs it; spacing=t2t has the program's numbers",
    },
    "qwen2_vl": {
        "message": "transformers 5.23 starts the text behind a long video too early, by up to 15 positions",
        "fix": "compute the positions yourself: positions/mrope.h has both rules",
    },
    "qwen2_5_vl": {
        "message": "transformers 5.23 starts the text behind a long video too early, by up to 15 positions",
        "fix": "compute the positions yourself: positions/mrope.h has both rules",
    },
}

# Values of a field of a layer ("base"), or of any scaling (".factor"), beyond which no published model has one; text:
# not of an image's rows and columns; full_size: not of the tiny models that tests are made of.
USUAL_SOURCE = "published configs: the class defaults of transformers 5.23 and the conformance suites"
USUAL_VALUES = [
    {"field": "base", "low": 100, "high": 1000000000000.0, "where": "text", "usual": "10000 to 1e9", "hint": "state theta itself: neither its logarithm nor its inverse"},
    {"field": "base", "low": 10, "high": 1000000000000.0, "usual": "50 to 10000 in images", "hint": "state theta itself: neither its logarithm nor its inverse"},
    {"field": "attention_factor", "low": 0.25, "high": 4, "usual": "0.8 to 2", "hint": "leave it out: the scaling computes it"},
    {"field": "logit_factor", "low": 0.25, "high": 4, "usual": "1 to 2.3", "hint": "state mscale_all_dim of the model"},
    {"field": "head_dim", "low": 1, "high": 1024, "usual": "32 to 576", "hint": "state the channels of one head"},
    {"field": "window", "low": 2, "high": 1000000000.0, "usual": "128 to 262144", "hint": "state how many tokens a token sees"},
    {"field": "window", "low": 8, "high": 1000000000.0, "where": "full_size", "usual": "128 to 262144", "hint": "state it in tokens, not in thousands"},
    {"field": "chunk", "low": 16, "high": 1000000000.0, "where": "full_size", "usual": "8192", "hint": "state it in tokens, not in thousands"},
    {"field": ".factor", "low": 1, "high": 4096, "usual": "1 to 128, with few up to 2048", "hint": "state new length / trained length"},
    {"field": ".original_context", "low": 64, "high": 100000000.0, "where": "full_size", "usual": "2048 to 262144", "hint": "state the trained length in tokens"},
    {"field": ".trained_length", "low": 64, "high": 100000000.0, "where": "full_size", "usual": "2048 to 262144", "hint": "state the trained length in tokens"},
    {"field": ".low_freq_factor", "low": 0.1, "high": 16, "usual": "1", "hint": "state 1"},
    {"field": ".high_freq_factor", "low": 0.25, "high": 64, "usual": "4", "hint": "state 4"},
    {"field": ".beta_fast", "low": 1, "high": 256, "usual": "32", "hint": "state 32"},
    {"field": ".beta_slow", "low": 0.1, "high": 64, "usual": "1", "hint": "state 1"},
    {"field": ".attention_factor", "low": 0.25, "high": 4, "usual": "0.8 to 2", "hint": "leave it out: the scaling computes it"},
    {"field": ".mscale_all_dim", "low": 0.1, "high": 4, "usual": "0.7 to 1", "hint": "state the value of the model"},
    {"field": ".mscale", "low": 0.1, "high": 10, "usual": "0.7 to 1", "hint": "state the value of the model"},
    {"field": "max_bias", "low": 0.5, "high": 64, "usual": "8", "hint": "state 8"},
    {"field": "query_temperature.beta", "low": 0, "high": 2, "usual": "0.1 to 0.4", "hint": "state the value of the model"},
]
# Sizes of a file that fit together in every published model; with: only where this key is on; without: only where
# that one is not stated; least: smaller values are those of tests.
USUAL_SIZES = [
    {"key": "image_size", "rule": "at_least", "other": "patch_size", "message": "no patch fits into the image"},
    {"key": "relative_attention_max_distance", "rule": "above", "other": "relative_attention_num_buckets", "least": 16, "message": "no bucket is left for distances on the logarithmic scale"},
    {"key": "image_size", "rule": "divides", "other": "patch_size", "least": 128, "message": "the image is no whole number of patches: what is left at its edges is dropped"},
    {"key": "hidden_size", "rule": "divides", "other": "num_attention_heads", "message": "the width is no whole number of heads"},
    {"key": "max_window_layers", "rule": "below", "other": "num_hidden_layers", "with": "use_sliding_window", "without": "layer_types", "message": "no layer has the window that use_sliding_window asks for"},
    {"key": "sliding_window_pattern", "rule": "not_above", "other": "num_hidden_layers", "without": "layer_types", "message": "no layer sees everything"},
    {"key": "global_attn_every_n_layers", "rule": "not_above", "other": "num_hidden_layers", "without": "layer_types", "message": "only the first layer sees everything"},
]

# Names that other programs have for a base.
NAMES_OF_THETA = """theta rope_base rotary_base rope_freq_base rotary_emb_base rotary_embedding_base global_rope_theta
local_rope_theta swa_rope_theta rope_local_base_freq""".split()
# Which part of a composite file holds the text: the first of these.
TEXT_PARTS = """text_config decoder llm_config language_config thinker_config decoder_config talker_config semantic_config
vlm_config generator encoder_config semantic_model_config""".split()
# A key with one of these says something of positions: no NaN may stand under it.
WORDS_OF_POSITIONS = "rope rotary position alibi theta attention layer head yarn mscale".split()

TOP = {"keys_of_positions": OF_POSITIONS, "keys_of_windows": WINDOWS, "aliases": ALIASES,
       "layer_types": LAYER_TYPES, "old_layer_types": OLD_LAYER_TYPES, "axial_layouts": AXIAL_LAYOUTS,
       "rope_members": ROPE_MEMBERS, "dictionary_members": DICTIONARY_MEMBERS, "rope_aliases": ROPE_ALIASES,
       "both_legal": BOTH_LEGAL, "losses": LOSSES, "text_sizes": TEXT_SIZES, "other_keys": OTHER_KEYS,
       "other_keys_with": OTHER_KEYS_WITH, "peer_bugs": PEER_BUGS,
       "usual_source": USUAL_SOURCE, "usual_values": USUAL_VALUES, "usual_sizes": USUAL_SIZES,
       "names_of_theta": NAMES_OF_THETA, "text_parts": TEXT_PARTS, "words_of_positions": WORDS_OF_POSITIONS}
