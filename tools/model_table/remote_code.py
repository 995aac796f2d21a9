# SPDX-License-Identifier: Apache-2.0
"""Facts on model types whose classes live in the model's own repository (auto_map, "remote code"), and which
transformers 5.23 does not know. `remote` names the published code that is meant and where it was read.

One entry a type, in the words of the table itself (make_table.py writes it as it stands). Releases that share a
type are `cases`: the first whose keys the file states counts, and where none does the file is refused. Reading
rules: src/model/hugging_face/rope_dictionary/own_keys.cpp, src/model/hugging_face/variants.cpp."""

# Linear and dynamic NTK as Llama's first code had them: {"type": ..., "factor": ...} and nothing else.
LLAMA_SCALING = {"key": "rope_scaling", "types": {"linear": "linear", "dynamic": "dynamic"}, "pair": True}

# Keys by which the generations of ChatGLM are told apart.
CHATGLM_2 = """ffn_hidden_size kv_channels multi_query_attention multi_query_group_num original_rope padded_vocab_size
rope_ratio seq_length""".split()
CHATGLM_1 = "inner_hidden_size max_sequence_length position_encoding_2d".split()

ENTRY = {
    # ChatGLM2-6B, ChatGLM3-6B, GLM-4-9B: the first half of the head, neighbouring channels; the first
    # release (ChatGLM-6B) turns both halves, each by a stream of its own, or the whole head.
    # THUDM's modeling_chatglm.py as kept in zhangbo2008/chatglm3_annotated (ChatGLM3), XuRui314/GLM4v-Finetune
    # (GLM-4V: rope_ratio, original_rope, one position for all patches), greensheng/chatglm-6b with its
    # configuration_chatglm.py (ChatGLM-6B), bq-xiao/chatglm2-6b-model (ChatGLM2; its configuration in
    # syjjhl/chatglm2-6b). That ChatGLM2-6B-32K
    # divides positions: alibaba/rtp-llm rtp_llm/models/chat_glm_v2.py beside chat_glm_v3.py, ztxz16/fastllm
    # src/models/chatglm.cpp.
    "chatglm": {
        "class": "ChatGLMConfig",
        "remote": "THUDM's modeling_chatglm.py",
        "scheme": "rope", "pairing": "interleaved", "theta": 10000.0, "partial": True,
        "rope": {"rule": "own_keys", "fixed": True},
        "variants": {
            "cases": [
                {"states": CHATGLM_2, "lacks": CHATGLM_1, "is": {
                    "remote": "THUDM's modeling_chatglm.py of ChatGLM2-6B, ChatGLM3-6B and GLM-4-9B",
                    "fraction": 0.5,
                    "rope": {"rule": "own_keys", "fixed": True, "times": "rope_ratio",
                        "times_name": "_name_or_path", "times_divides": ["chatglm2"],
                        "times_multiplies": ["chatglm3", "glm-4", "glm4"],
                        "times_why": "ChatGLM2-6B-32K divides positions by it, ChatGLM3 and GLM-4 multiply the base by it, "
                               "and only the name in the file tells them apart"},
                    "variants": {"key": "original_rope", "of": {"true": {}, "null": {}, "false": {
                        "refused": "original_rope is false: ChatGLM2 and ChatGLM3 store it and rotate neighbouring "
                                   "channels all the same, GLM-4V's code forms another table",
                        "refused_mend": "--assume /original_rope=true takes the table of ChatGLM3"}}},
                    "names": {"head_dim": "kv_channels", "max_position_embeddings": "seq_length",
                              "num_hidden_layers": "num_layers"},
                    "own_only": ["head_dim", "max_position_embeddings", "num_hidden_layers"],
                    "head_strict": True, "nullable": ["multi_query_attention", "multi_query_group_num"],
                    "remote_note": "cosine and sine are rounded to the dtype of the checkpoint (ChatGLM2 forms angles "
                                   "in it), there is a row for each position below seq_length only, and images "
                                   "(vision_config: GLM-4V gives all patches of one the same position) are not "
                                   "described",
                    "defaults": {"head_dim": 128, "hidden_size": 4096, "max_position_embeddings": 2048,
                                 "multi_query_attention": False, "multi_query_group_num": 1,
                                 "num_attention_heads": 32, "num_hidden_layers": 28}}},
                {"states": CHATGLM_1, "lacks": CHATGLM_2, "is": {
                    "remote": "THUDM's modeling_chatglm.py of ChatGLM-6B",
                    "pairing": "half_split",
                    "variants": {"key": "position_encoding_2d",
                                 "of": {"true": {"axial": "blocks"}, "false": {}, "null": {}}},
                    "names": {"max_position_embeddings": "max_sequence_length", "num_hidden_layers": "num_layers"},
                    "own_only": ["max_position_embeddings", "num_hidden_layers"],
                    "head": "hidden_over_heads", "nullable": ["max_position_embeddings", "position_encoding_2d"],
                    "remote_note": "frequencies and angles are formed in float16; positions of the second stream count "
                                   "behind the start token, the first stays at the mask (positions/glm.h), and tokens "
                                   "before the start token see each other both ways",
                    "defaults": {"hidden_size": 4096, "max_position_embeddings": 2048, "num_attention_heads": 32,
                                 "num_hidden_layers": 28, "position_encoding_2d": True}}}],
            "why": "ChatGLM-6B and ChatGLM2 to GLM-4 share the type and rotate other channels; the file must state keys of "
                   "one of them: inner_hidden_size, max_sequence_length, position_encoding_2d, or kv_channels, "
                   "ffn_hidden_size, seq_length, padded_vocab_size, multi_query_attention, original_rope, rope_ratio",
            "mend": "--assume /inner_hidden_size=16384 takes ChatGLM-6B's code, --assume /ffn_hidden_size=13696 the "
                    "later one; where the file states keys of both, set the others to null"},
        "defaults": {"hidden_size": 4096, "num_attention_heads": 32, "num_hidden_layers": 28}},
    # Qwen-1 (also Qwen-VL's and Qwen-Audio's text): Alibaba's modeling_qwen.py and configuration_qwen.py as kept in
    # zhangningboo/Qwen-7B and camenduru/Qwen-Audio.
    "qwen": {
        "class": "QWenConfig", "remote": "Alibaba's modeling_qwen.py of Qwen-7B",
        "scheme": "rope", "pairing": "half_split", "bfloat16_once": True, "theta": 10000.0, "partial": True,
        "variants": {
            "cases": [{"lacks": ["n_embd", "n_head", "n_layer"], "is": {}}],
            "why": "the file has other names of sizes (n_embd, n_head, n_layer) than the code that is known",
            "mend": "rename them to hidden_size, num_attention_heads and num_hidden_layers if nothing else differs"},
        "keys": {"rope_theta": "rotary_emb_base"},
        "rope": {"rule": "own_keys", "fraction": "rotary_pct",
                 "steps": "use_dynamic_ntk", "steps_length": "seq_length"},
        "temperature": "log_n",
        "names": {"head_dim": "kv_channels"}, "own_only": ["head_dim"], "head_strict": True, "heads_fill": True,
        "nullable": ["max_position_embeddings", "use_dynamic_ntk", "use_logn_attn"],
        "remote_note": "use_dynamic_ntk and use_logn_attn do nothing while the model trains, the table of log-n ends at "
                       "position 32766, and pictures (visual) and sound (audio) are not described",
        "defaults": {"head_dim": 128, "hidden_size": 4096, "max_position_embeddings": 8192,
                     "num_attention_heads": 32, "num_hidden_layers": 32, "rotary_pct": 1.0,
                     "use_dynamic_ntk": True, "use_logn_attn": True}},
    # Baichuan-7B and Baichuan2-7B turn, 13B has ALiBi. Which one the configuration class tells: that of 7B holds
    # max_position_embeddings, that of 13B model_max_length only (vllm-project/vllm
    # vllm/transformers_utils/configs/baichuan.py and baichuan_13b.py, the published classes); vLLM's own rule is
    # hidden_size 4096 or the class BaiChuanForCausalLM. Where the two disagree the file is refused.
    # 13B: modeling_baichuan.py as kept in jrd77/Baichuan2-13B-Chat (v2) and Mrgengli/baichuan_python (v1).
    # 7B: baichuan-inc/Baichuan-7B models/modeling_baichuan.py and models/configuration_baichuan.py.
    "baichuan": {
        "class": "BaichuanConfig", "remote": "Baichuan's modeling_baichuan.py", "scheme": "rope", "theta": 10000.0,
        "head": "hidden_over_heads", "heads_divide": True,
        "variants": {
            "cases": [
                {"states": ["max_position_embeddings"], "equals": {"hidden_size": 4096}, "is": {
                    "remote": "Baichuan's modeling_baichuan.py of Baichuan-7B and Baichuan2-7B",
                    "pairing": "half_split", "rope": {"rule": "own_keys", "fixed": True},
                    "defaults": {"hidden_size": 4096, "num_attention_heads": 32, "num_hidden_layers": 32}}},
                {"lacks": ["max_position_embeddings"], "states": ["model_max_length"],
                 "equals": {"hidden_size": 5120}, "is": {
                    "remote": "Baichuan's modeling_baichuan.py of Baichuan-13B and Baichuan2-13B",
                    "scheme": "alibi",
                    "names": {"max_position_embeddings": "model_max_length"}, "own_only": ["max_position_embeddings"],
                    "defaults": {"hidden_size": 5120, "max_position_embeddings": 4096, "num_attention_heads": 40,
                                 "num_hidden_layers": 40}}}],
            "why": "rotary (7B) and ALiBi (13B) share the type; 7B's files state max_position_embeddings and hidden_size "
                   "4096, 13B's model_max_length alone and hidden_size 5120, and this file does neither",
            "mend": "--assume /max_position_embeddings=4096 with --assume /hidden_size=4096 takes 7B's code; "
                    "--assume model_type=bloom reads ALiBi, model_type=llama the rotary of 7B, for other sizes"},
        "defaults": {"hidden_size": 5120}},
    # InternLM (7B, 20B): InternLM/InternLM tools/transformers/internlm_model/modeling_internlm.py and
    # configuration_internlm.py, which changed their keys: a base of 10000 and none (b9c813a), `rotary` with dynamic
    # scaling for a default (139b754 to 095ebff), rope_theta and rope_scaling (9d400c2 to 09a2b5b). Beyond
    # max_position_embeddings they differ, so that a file without any of these keys is refused.
    "internlm": {
        "class": "InternLMConfig", "remote": "modeling_internlm.py of InternLM-7B and InternLM-20B",
        "scheme": "rope", "pairing": "half_split", "theta": 10000.0, "head": "hidden_over_heads", "heads_divide": True,
        "variants": {
            "cases": [
                {"states": ["rotary"], "lacks": ["rope_theta", "rope_scaling"], "is": {
                    "rope": {"rule": "own_keys", "fixed": True, "scaling": {
                        "key": "rotary", "types": {"origin": "default", "dynamic": "dynamic"}, "base": "base",
                        "factor": "scaling_factor", "factor_default": 1.0}}}},
                {"states": ["rope_theta", "rope_scaling"], "lacks": ["rotary"], "is": {
                    "rope": {"rule": "own_keys", "scaling": {**LLAMA_SCALING, "types": {"dynamic": "dynamic"}}},
                    "defaults": {"hidden_size": 4096, "max_position_embeddings": 2048, "num_attention_heads": 32,
                                 "num_hidden_layers": 32, "num_key_value_heads": None}}}],
            "why": "the releases of InternLM's code read other keys: rotary, or rope_theta and rope_scaling, or none of "
                   "them (a base of 10000 at every length); the file must state those of one",
            "mend": "--assume '/rotary={\"base\": 10000, \"type\": \"dynamic\"}' or --assume /rope_theta=10000 (not "
                    "scaled), as the code beside the weights has it; set the keys of the other to null"},
        "defaults": {"hidden_size": 4096, "max_position_embeddings": 2048, "num_attention_heads": 32,
                     "num_hidden_layers": 32}},
    # InternLM2 and 2.5: OpenGVLab/InternVL internvl_chat/internvl/model/internlm2/modeling_internlm2.py and
    # configuration_internlm2.py (rope_pos_id_version is InternVL's own).
    "internlm2": {
        "class": "InternLM2Config", "remote": "modeling_internlm2.py of InternLM2-7B",
        "scheme": "rope", "pairing": "half_split", "theta": 10000.0, "head": "hidden_over_heads", "heads_divide": True,
        "rope": {"rule": "own_keys", "scaling": LLAMA_SCALING},
        "variants": {"key": "rope_pos_id_version",
                     "of": {"default": {}},
                     "otherwise": {"refused": "V2PE gives the tokens of images fractions of a position "
                                              "(rope_pos_id_version)"}},
        "defaults": {"hidden_size": 4096, "max_position_embeddings": 2048, "num_attention_heads": 32,
                     "num_hidden_layers": 32, "num_key_value_heads": None, "rope_pos_id_version": "default"}},
    # DeepSeek's first mixture of experts (DeepSeek-MoE-16B): ywhijn/moe-project-7101 modeling_deepseek.py, a copy of
    # Llama's first code. (DeepSeek-LLM is of the type llama.) Its configuration class was not at hand: nothing but
    # the base, 10000 as the class documents it, stands in for what a file lacks.
    "deepseek": {
        "class": "DeepseekConfig", "remote": "modeling_deepseek.py of DeepSeek-MoE-16B",
        "scheme": "rope", "pairing": "half_split", "theta": 10000.0, "head": "hidden_over_heads", "heads_divide": True,
        "rope": {"rule": "own_keys",
                 "scaling": {"key": "rope_scaling", "types": {"linear": "linear", "dynamic": "dynamic"}}},
        "defaults": {}},
    # Kimi-K2: "reuses the DeepSeekV3CausalLM architecture", model_type kimi_k2 only tells it apart (MoonshotAI/Kimi-K2
    # docs/deploy_guidance.md). DeepSeek's modeling_deepseek.py and configuration_deepseek.py as kept in
    # 1nl00k/inspectR1 (DeepSeek-R1); transformers' deepseek_v3 differs where mscale or mscale_all_dim is missing.
    "kimi_k2": {
        "class": "DeepseekV3Config", "remote": "modeling_deepseek.py of DeepSeek-V3, which Kimi-K2 brings along",
        "scheme": "rope", "pairing": "interleaved", "output_order": "even_then_odd", "theta": 10000.0,
        "head": "latent", "logit_factor": True,
        "rope": {"rule": "own_keys", "scaling": {
            "key": "rope_scaling", "types": {"linear": "linear", "dynamic": "dynamic", "yarn": "yarn"},
            "reads": {"linear": {"mscale_all_dim": 0}, "dynamic": {"mscale_all_dim": 0}, "yarn": {
                "original_max_position_embeddings": 4096, "beta_fast": 32, "beta_slow": 1, "mscale": 1,
                "mscale_all_dim": 0}}}},
        "defaults": {"hidden_size": 7168, "kv_lora_rank": 512, "max_position_embeddings": 4096,
                     "num_attention_heads": 128, "num_hidden_layers": 61, "num_key_value_heads": 128,
                     "qk_nope_head_dim": 128, "qk_rope_head_dim": 64},
        "nullable": ["num_key_value_heads"]},
    # MiniCPM (1B, 2B: `type`, linear or dynamic) and MiniCPM-4 (`rope_type`, longrope too): wxthu/nas_tuner
    # modeling_minicpm.py and configuration_minicpm.py (MiniCPM-4; the classes of both types of the first generation
    # stand there too, and the check of its `type` is in the configuration).
    "minicpm": {
        "class": "MiniCPMConfig", "remote": "OpenBMB's modeling_minicpm.py of MiniCPM-4",
        "scheme": "rope", "pairing": "half_split", "theta": 10000.0, "head": "hidden_over_heads", "heads_divide": True,
        "rope": {"rule": "own_keys", "table_at_once": True, "scaling": {
            "key": "rope_scaling", "type_keys": ["rope_type", "type"],
            "types": {"linear": "linear", "dynamic": "dynamic", "longrope": "longrope"},
            "reads": {"longrope": {"short_factor": None, "long_factor": None,
                                   "original_max_position_embeddings": None}}}},
        "remote_note": "blocks of keys that sparse_config chooses for a query are not described",
        "defaults": {"hidden_size": 4096, "max_position_embeddings": 2048, "num_attention_heads": 32,
                     "num_hidden_layers": 32, "num_key_value_heads": None}},
    # Phi-3-vision and Phi-3.5-vision: lamm-mit/Cephalo-Phi-3-Vision-MoE Phi_3V_MoE/modeling_phi3_v.py and
    # configuration_phi3_v.py (word for word the rotary of OpenGVLab/InternVL internvl_chat/internvl/model/phi3). Its
    # type yarn is another one, with lists and the gain 0.1 ln(s) + 1; no checkpoint of it is known.
    "phi3_v": {
        "class": "Phi3VConfig", "remote": "Microsoft's modeling_phi3_v.py of Phi-3-vision and Phi-3.5-vision",
        "scheme": "rope", "pairing": "half_split", "theta": 10000.0, "head": "hidden_over_heads", "heads_divide": True,
        "window": {"key": "sliding_window", "on": "all"},
        "rope": {"rule": "own_keys", "scaling": {
            "key": "rope_scaling", "types": {"su": "longrope"}, "fields": 3,
            "reads": {"longrope": {"short_factor": None, "long_factor": None}},
            "outside": {"longrope": ["original_max_position_embeddings"]}}},
        "remote_note": "the encoder of pictures is CLIP's ViT-L/14 at 336 pixels, which the code holds and not the file",
        "defaults": {"hidden_size": 3072, "max_position_embeddings": 4096, "num_attention_heads": 32,
                     "num_hidden_layers": 32, "num_key_value_heads": None,
                     "original_max_position_embeddings": 4096, "sliding_window": None}},
    # InternVL 1.2 to 3.5 (the releases with internvl_chat): OpenGVLab/InternVL
    # internvl_chat/internvl/model/internvl_chat, configuration_internvl_chat.py, configuration_intern_vit.py and
    # modeling_intern_vit.py. Its Phi-3 is the code of phi3_v.
    "internvl_chat": {
        "class": "InternVLChatConfig", "remote": "OpenGVLab's modeling_internvl_chat.py",
        "parts": {"llm_config": {"by_model_type": True, "type": "", "renamed": {"phi3": "phi3_v"}},
                  "vision_config": {"type": "intern_vit_6b"}}},
    "intern_vit_6b": {
        "class": "InternVisionConfig", "remote": "OpenGVLab's modeling_intern_vit.py",
        "scheme": "none", "input": "learned", "input_patches": 1, "input_square": True,
        "input_tensor": "embeddings.position_embedding", "bidirectional": True,
        "defaults": {"hidden_size": 3200, "image_size": 224, "num_attention_heads": 25, "num_hidden_layers": 48,
                     "patch_size": 14}},
    # EXAONE 3.0 and 3.5: the published configuration class as kept in vllm-project/vllm
    # vllm/transformers_utils/configs/exaone.py (0d8caed3604d); turned as in its port, vllm/model_executor/models/exaone.py
    # (0531c2226a6a): halves, the whole head, theta 10000 where none is stated. rotary_pct is not read.
    "exaone": {
        "class": "ExaoneConfig", "remote": "LG's modeling_exaone.py of EXAONE 3.0 and 3.5, as vLLM's port rotates",
        "scheme": "rope", "pairing": "half_split", "theta": 10000.0,
        "names": {"num_hidden_layers": "num_layers"},
        "defaults": {"head_dim": None, "hidden_size": 2048, "max_position_embeddings": 2048,
                     "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": None}},
    # GTE v1.5 and gte-multilingual (encoders): Alibaba-NLP/new-impl modeling.py and configuration.py of 2024.
    "new": {
        "class": "NewConfig", "remote": "Alibaba's modeling.py of new-impl (GTE)",
        "scheme": "rope", "pairing": "half_split", "theta": 10000.0, "head": "hidden_over_heads", "heads_divide": True,
        "bidirectional": True,
        "rope": {"rule": "own_keys", "scaling": {
            "key": "rope_scaling", "types": {"ntk": "ntk"}, "reads": {"ntk": {"mixed_b": None}}}},
        "variants": {"key": "position_embedding_type", "of": {
            "rope": {"variants": {"key": "logn_attention_scale", "of": {
                "false": {}, "null": {},
                "true": {"refused": "its queries grow with the logarithm of the text's length (logn_attention_scale)"}}}},
            "absolute": {"scheme": "none", "input": "learned"}}},
        "defaults": {"hidden_size": 768, "logn_attention_scale": False, "max_position_embeddings": 2048,
                     "num_attention_heads": 12, "num_hidden_layers": 12, "position_embedding_type": "rope"}},
    # Llama-Nemotron Super 49B and Ultra 253B, layers of Llama's kind of which some have no attention:
    # DeltaVector1/Chat-Prompters modeling_decilm.py (d8a2e79269c0), whose configuration class derives from Llama's of
    # transformers 4.44. What llama4_attn_implementation would choose was not at hand.
    "nemotron-nas": {
        "class": "DeciLMConfig", "remote": "NVIDIA's modeling_decilm.py of Llama-Nemotron Super and Ultra",
        "scheme": "rope", "pairing": "half_split", "theta": 10000.0, "head": "hidden_over_heads", "heads_divide": True,
        "layers": {"rule": "blocks", "key": "block_configs"},
        "defaults": {"hidden_size": 4096, "max_position_embeddings": 2048, "num_attention_heads": 32,
                     "num_hidden_layers": 32, "num_key_value_heads": None}},
    # StableLM before transformers knew it (StableLM-3B-4E1T, Stable Code 3B): Zumwaltboi68/stable-code-3b
    # modeling_stablelm_epoch.py and configuration_stablelm_epoch.py.
    "stablelm_epoch": {
        "class": "StableLMEpochConfig", "remote": "Stability's modeling_stablelm_epoch.py",
        "scheme": "rope", "pairing": "half_split", "theta": 10000.0, "partial": True,
        "head": "hidden_over_heads", "heads_divide": True,
        "rope": {"rule": "own_keys", "fraction": "rope_pct"},
        "defaults": {"hidden_size": 2560, "max_position_embeddings": 4096, "num_attention_heads": 32,
                     "num_hidden_layers": 32, "num_key_value_heads": 32, "rope_pct": 0.25}},
    # MiniMax-Text-01 (transformers' minimax is their port, of other keys): zzp1012/nanoGPT
    # utils/model_minimax/modeling_minimax_text_01.py and configuration_minimax_text_01.py.
    "minimax_text_01": {
        "class": "MiniMaxText01Config", "remote": "MiniMax's modeling_minimax_text_01.py",
        "scheme": "rope", "pairing": "half_split", "theta": 1000000.0, "partial": True,
        "rope": {"rule": "own_keys", "width": "rotary_dim"},
        "layers": {"rule": "coded", "key": "attn_type_list", "names": {"0": "linear_attention"},
                   "other": "full_attention"},
        "window": {"key": "sliding_window", "on": "all"},
        "remote_note": "layers of linear attention decay by slopes of their own and are not described",
        "defaults": {"head_dim": None, "hidden_size": 4096, "max_position_embeddings": 131072,
                     "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8,
                     "sliding_window": None}},
}

# MiniMax-M1: the same keys under another name (its configuration_minimax_m1.py, kept with its config.json), run as
# MiniMax-Text-01 by vLLM (model_executor/models/registry.py) and llama.cpp's converter.
ENTRY["minimax_m1"] = {**ENTRY["minimax_text_01"], "class": "MiniMaxM1Config",
                       "remote": "MiniMax's modeling_minimax_m1.py, as MiniMax-Text-01's rotates"}
