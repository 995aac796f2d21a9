# SPDX-License-Identifier: Apache-2.0
"""Tiny random models of transformers by model type, made offline from configs: build(type) in a few milliseconds."""
import transformers

VOCABULARY = 96

# What most configs understand; a config keeps what it does not know as an attribute that nobody reads.
_COMMON = dict(
    vocab_size=VOCABULARY, hidden_size=32, intermediate_size=48, moe_intermediate_size=24, num_hidden_layers=2, num_layers=2,
    num_attention_heads=4, num_heads=4, num_key_value_heads=2, head_dim=8, d_model=32, d_ff=48, d_kv=8,
    max_position_embeddings=64, num_experts=4, num_local_experts=4, n_routed_experts=4, num_experts_per_tok=2,
    pad_token_id=0, bos_token_id=1, eos_token_id=2)
_LATENT = dict(
    num_key_value_heads=4, head_dim=4, q_lora_rank=16, kv_lora_rank=16, qk_rope_head_dim=4, qk_nope_head_dim=8, v_head_dim=8)
_ENCODER_DECODER = dict(
    encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=48, decoder_ffn_dim=48)

# Models that rotate, of every kind: half split, interleaved, part of a head, latent, several bases, with state-space layers.
ROTARY = {
    "apertus": {}, "arcee": {}, "bamba": dict(mamba_n_heads=4, mamba_d_head=16, attn_layer_indices=[1], mamba_d_state=8),
    "bitnet": {}, "codegen": dict(rotary_dim=4, n_ctx=64), "cohere": {}, "cohere2": {}, "cwm": {},
    "deepseek_v3": _LATENT | dict(n_group=2, topk_group=1, first_k_dense_replace=1), "diffllama": {}, "doge": {},
    "deepseek_v32": _LATENT | dict(n_group=2, topk_group=1, first_k_dense_replace=1, index_n_heads=2, index_head_dim=8, index_topk=64),
    "dots1": dict(n_group=2, topk_group=1, n_shared_experts=1, first_k_dense_replace=1), "ernie4_5": {}, "ernie4_5_moe": {},
    "esm": {"position_embedding_type": "rotary", "mask_token_id": 3}, "exaone4": {}, "falcon": {"head_dim": None}, "falcon_h1": {}, "flex_olmo": {}, "gemma": {},
    "gemma2": {}, "gemma3_text": {},
    "gemma3n_text": dict(
        layer_types=["sliding_attention", "full_attention"] * 2, num_hidden_layers=4, num_kv_shared_layers=2, laurel_rank=8,
        hidden_size_per_layer_input=8, vocab_size_per_layer_input=VOCABULARY, intermediate_size=[48] * 4,
        activation_sparsity_pattern=[0.0] * 4),
    "gemma4_text": dict(
        hidden_size_per_layer_input=8, vocab_size_per_layer_input=VOCABULARY, global_head_dim=16,
        layer_types=["sliding_attention", "full_attention"]),
    "glm": {}, "glm4": {}, "glm4_moe": {}, "gpt_neox": {}, "gpt_neox_japanese": {}, "gpt_oss": {}, "gptj": dict(rotary_dim=4),
    "granite": {}, "granitemoe": {},
    "granitemoehybrid": dict(
        layer_types=["attention"] * 2, mamba_n_heads=4, mamba_d_head=16, shared_intermediate_size=16,
        position_embedding_type="rope"),
    "helium": {}, "hunyuan_v1_dense": {}, "hunyuan_v1_moe": {}, "jais2": {}, "jetmoe": {}, "lfm2": {}, "llama": {},
    "minicpm3": _LATENT, "minimax": {}, "ministral": {}, "mistral": {}, "mixtral": {}, "modernbert": {}, "modernbert-decoder": {},
    "nemotron": {}, "olmo": {}, "olmo2": {}, "olmo3": {}, "olmoe": {}, "persimmon": {}, "phi": {}, "phi3": {}, "phimoe": {},
    "qwen2": {}, "qwen2_moe": dict(shared_expert_intermediate_size=16), "qwen3": {}, "qwen3_moe": {},
    "qwen3_next": dict(
        layer_types=["linear_attention", "full_attention"], linear_num_key_heads=2, linear_num_value_heads=2,
        linear_key_head_dim=8, linear_value_head_dim=8, shared_expert_intermediate_size=16),
    "recurrent_gemma": dict(num_hidden_layers=3, block_types=["recurrent", "recurrent", "attention"], lru_width=32),
    "seed_oss": {}, "smollm3": {}, "solar_open": {}, "stablelm": {}, "starcoder2": {}, "vaultgemma": {}, "youtu": _LATENT,
    "zamba2": dict(layers_block_type=["mamba", "hybrid"], mamba_d_state=8, n_mamba_heads=4, use_mem_rope=True),
}
# Models whose rotation is no function of rows that can be replaced: complex numbers, the other sense, code of its own.
LEFT = {
    "deepseek_v2": _LATENT | dict(n_group=2, topk_group=1), "llama4_text": {}, "nanochat": {}, "roformer": dict(embedding_size=32),
}
# Positions in the score.
SCORE = {
    "bloom": {}, "deberta": dict(relative_attention=True, pos_att_type=["c2p", "p2c"]),
    "deberta-v2": dict(relative_attention=True, pos_att_type=["c2p", "p2c"], position_buckets=8, share_att_key=True),
    "falcon-alibi": dict(alibi=True, head_dim=None), "longt5": {}, "mpnet": {}, "mpt": {}, "mt5": {}, "switch_transformers": {}, "t5": {},
    "umt5": {}, "xlnet": dict(max_position_embeddings=None, n_layer=2, n_head=4, d_inner=48),
}
# Positions at the input, or none.
NEITHER = {
    "albert": dict(embedding_size=32), "bart": _ENCODER_DECODER, "bert": {}, "electra": dict(embedding_size=32), "gpt2": {}, "gpt_bigcode": {},
    "gpt_neo": dict(attention_types=[[["global", "local"], 1]]),
    "jamba": dict(attn_layer_period=2, attn_layer_offset=1, mamba_dt_rank=4, use_mamba_kernels=False), "mamba": {},
    "opt": dict(ffn_dim=48, word_embed_proj_dim=32), "roberta": {}, "xglm": dict(ffn_dim=48, attention_heads=4),
}
ALL = ROTARY | LEFT | SCORE | NEITHER


def build(name, **more):
    """A model with weights drawn anew from the same seed, float32, ready for inference."""
    import torch

    given = {k: v for k, v in {**_COMMON, **ALL[name], **more}.items() if v is not None}
    config = transformers.CONFIG_MAPPING[name.removesuffix("-alibi")](**given)
    config._attn_implementation = more.get("attn_implementation", "eager" if name in SCORE else None)
    autos = (transformers.AutoModelForSeq2SeqLM,) if config.is_encoder_decoder else (
        transformers.AutoModelForCausalLM, transformers.AutoModelForMaskedLM)
    auto = next(a for a in autos if type(config) in a._model_mapping.keys())
    torch.manual_seed(0)
    model = auto.from_config(config)
    with torch.no_grad():
        for p in model.parameters():  # the usual 0.02 leaves attention nearly uniform at this width
            if p.dim() > 1:
                p.mul_(4)
    return model.eval()


def inputs(model, batch=2, tokens=12):
    """Tokens that are the same in every call."""
    import torch

    ids = torch.randint(4, VOCABULARY - 2, (batch, tokens), generator=torch.Generator().manual_seed(1))
    return {"input_ids": ids, "decoder_input_ids": ids} if model.config.is_encoder_decoder else {"input_ids": ids}
