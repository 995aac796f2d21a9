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

TOP = {"keys_of_positions": OF_POSITIONS, "keys_of_windows": WINDOWS, "aliases": ALIASES,
       "layer_types": LAYER_TYPES, "old_layer_types": OLD_LAYER_TYPES}
