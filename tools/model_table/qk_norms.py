# SPDX-License-Identifier: Apache-2.0
"""How classes of transformers 5.23.0 normalise q and k, by model type: found by reading __init__ and forward of
the attention class of each modeling file. Kind of norm, what it is over, whether it comes before or after the
rotation, which weights it has, where eps comes from, and the switch where there is one.

Not here: norms of a latent before its up-projection (DeepSeek's q_a_layernorm, kv_a_layernorm), of an indexer
that chooses keys, of linear attention, of values."""


def norm(kind, over="head", eps="rms_norm_eps", eps_default=1e-6, **more):
    rule = {"norm": kind, "over": over}
    if eps:
        rule["eps"] = eps
    if eps_default:
        rule["eps_default"] = eps_default
    rule.update(more)
    return rule


def each(names, rule):
    return {name: rule for name in names.split()}


# q_norm and k_norm are RMS norms of head_dim weights, before apply_rotary_pos_emb.
QK_NORM = {
    **each("""beam dots1 doge diffusion_gemma_text embedding_gemma2_text flint gemma3n_text gemma4_text gemma4_vision
              gemma4_unified_text kolibri1 laguna mellum qwen3 qwen3_moe qwen3_omni_moe_text
              qwen3_omni_moe_talker_code_predictor qwen3_omni_moe_talker_text qwen3_vl_text qwen3_vl_moe_text""",
           norm("rms")),
    **each("""afmoe apertus dots3_note_vision_encoder exaone4 exaone_moe glm5_next_vision glm_ocr_vision hy_v3
              muse_glimmer_assistant pe_audio_encoder pe_audio_video_encoder pe_video_encoder""",
           norm("rms", eps_default=1e-5)),
    **each("lfm2 lfm2_moe lfm3 lfm3_vl_vision", norm("rms", eps="norm_eps", eps_default=1e-5)),
    # The class multiplies by 1 + weight.
    **each("""gemma3_text minimax_m3_vl_text qwen3_5_text qwen3_5_moe_text qwen3_next qwen4_exp_text t5gemma2_text
              t5gemma2_decoder""", norm("rms", plus_one=True)),
    "step3p5": norm("rms", eps_default=1e-5, plus_one=True),
    # Glm4MoeAttention and Sapiens2Attention look at use_qk_norm.
    "glm4_moe": norm("rms", eps_default=1e-5, switch="use_qk_norm"),
    "sapiens2": norm("rms", switch="use_qk_norm"),
    # Norms of num_attention_heads * head_dim and num_key_value_heads * head_dim, before the heads are split.
    **each("flex_olmo minimax_m2 olmo_hybrid", norm("rms", "all_heads")),
    **each("olmo2 olmo3 olmoe", norm("rms", "all_heads", eps_default=1e-5)),
    "esmc": norm("layer_norm", "all_heads", eps=None, eps_default=1e-5),
    # InternVLVisionAttention, QianfanOCRVisionAttention: the norm's own eps. InternVisionConfig of OpenGVLab's code:
    # qk_normalization true, layer_norm_eps 1e-6.
    **each("internvl_vision qianfan_ocr_vision", norm("rms", "all_heads", eps=None, switch="use_qk_norm")),
    "intern_vit_6b": norm("rms", "all_heads", eps="layer_norm_eps", switch="qk_normalization"),
    # Molmo2Attention: qk_norm_type olmo is over all heads, qwen3 over each.
    "molmo2_text": norm("rms", over_key="qk_norm_type", over_of={"olmo": "all_heads", "qwen3": "head"}),
    # After the rotation.
    **each("hunyuan_v1_dense hunyuan_v1_moe hunyuan_vl_text", norm("rms", eps_default=1e-5, after=True)),
    "timesfm2_5": norm("rms", after=True),
    "nanochat": norm("rms", after=True, weights="none"),
    # Llama4TextL2Norm divides by the root of the mean of squares: an RMS norm by what it computes.
    "llama4_text": norm("rms", eps_default=1e-5, after=True, weights="none", rotated_only=True, switch="use_qk_norm"),
    # Without weights.
    "neomme": norm("rms", eps="norm_eps", weights="none"),
    **each("muse_glimmer_text muse_spark_text",
           norm("rms", eps_default=1e-5, weights="none", note="then multiply q by qk_scale_factor")),
    # LayerNorm.
    "cohere": norm("layer_norm", eps="layer_norm_eps", eps_default=1e-5, weights="each_head", switch="use_qk_norm"),
    "chameleon": norm("layer_norm", eps=None, eps_default=1e-5, weights="each_head"),
    "stablelm": norm("layer_norm", eps="layer_norm_eps", eps_default=1e-5, weights="each_head", switch="qk_layernorm"),
    **each("phi persimmon", norm("layer_norm", eps="layer_norm_eps", eps_default=1e-5, switch="qk_layernorm")),
    "nemotron3_5_transcribe_asr_audio": norm("layer_norm", eps=None, eps_default=1e-5),
    "nemotron3_5_transcribe_word_timestamp": norm("layer_norm", eps=None, eps_default=1e-5),
    # JanusVisionAttention splits the heads and then calls nn.LayerNorm(embed_dim).
    "janus_vision_model": norm("layer_norm", eps=None, eps_default=1e-5, switch="use_qk_norm",
                               note="transformers 5.23 fails here with more than one head: its norm has hidden_size "
                                    "weights"),
    # DeepseekV4Attention: q_b_norm has no weights, kv_norm has those of the one key head.
    "deepseek_v4": norm("rms", weights="keys"),
    # Dots3NoteTextAttention: k_rope_only_layernorm of the rotated part of the one key head.
    "dots3_note_text": norm("rms", "rotated", eps_default=1e-5, keys_only=True),
    # ZayaQKNorm: eps is that of the dtype.
    "zaya": norm("l2", eps=None, eps_default=None, weights="none",
                 note="then multiply both by sqrt(head_dim), and k by a learned factor of its head; eps is that of "
                      "the dtype"),
    # Cosine attention: nn.functional.normalize.
    **each("swinv2 swin2sr", norm("l2", eps=None, eps_default=1e-12, weights="none",
                                  note="the scale of the scores is exp(min(logit_scale, ln 100)) of the head")),
}
# What the class holds for the switch.
SWITCHES = {"glm4_moe": False, "sapiens2": True, "internvl_vision": False, "qianfan_ocr_vision": False,
            "intern_vit_6b": True, "llama4_text": True, "cohere": False, "stablelm": False, "phi": False,
            "persimmon": True, "janus_vision_model": False}
NULLABLE = {"cohere"}  # the switch may be null
