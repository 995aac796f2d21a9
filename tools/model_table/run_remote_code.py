# SPDX-License-Identifier: Apache-2.0
"""What the rotary modules of published remote code compute on small configurations: tests/model's
remote_code.json.

    python run_remote_code.py FOLDER > ../../tests/model/remote_code.json
    python run_remote_code.py FOLDER NAME ...    the cases of these functions alone

FOLDER holds the files named in SOURCES, taken from the repositories named there (their texts are not kept
here). Of each file only the functions and classes named are run, in PyTorch on the CPU, on a q of pseudo-random
numbers. Kept: the configuration, q, and q after the turn. Qwen-1 needs einops."""
import __future__
import ast
import functools
import importlib
import json
import math
import pathlib
import random
import sys
import types
import typing

import torch

SOURCES = {
    "chatglm3.py": ("zhangbo2008/chatglm3_annotated", "modeling_chatglm.py", "84fba0f3f9d3"),
    "chatglm6b.py": ("greensheng/chatglm-6b", "modeling_chatglm.py", "b4fe18f"),
    "qwen.py": ("zhangningboo/Qwen-7B", "modeling_qwen.py", "ffe04dd57f85"),
    "baichuan7b.py": ("baichuan-inc/Baichuan-7B", "models/modeling_baichuan.py", "6f3ef4633a90"),
    "baichuan13b.py": ("jrd77/Baichuan2-13B-Chat", "modeling_baichuan.py", "c6f8592"),
    "glm4v.py": ("XuRui314/GLM4v-Finetune", "modeling_chatglm.py", "513b75d"),
    "internlm.py": ("InternLM/InternLM", "tools/transformers/internlm_model/modeling_internlm.py", "095ebff"),
    "internlm_llama.py": ("InternLM/InternLM", "tools/transformers/internlm_model/modeling_internlm.py", "09a2b5b"),
    "internlm2.py": ("OpenGVLab/InternVL", "internvl_chat/internvl/model/internlm2/modeling_internlm2.py",
                     "2410d1dbf208"),
    "deepseek_moe.py": ("ywhijn/moe-project-7101", "modeling_deepseek.py", "ca08f90083b4"),
    "minicpm4.py": ("wxthu/nas_tuner", "modeling_minicpm.py", "316794f27329"),
    "phi3_v.py": ("lamm-mit/Cephalo-Phi-3-Vision-MoE", "Phi_3V_MoE/modeling_phi3_v.py", "29fbb3859ef2"),
    "stablelm_epoch.py": ("Zumwaltboi68/stable-code-3b", "modeling_stablelm_epoch.py", "7c4583da0a36"),
    "minimax_text_01.py": ("zzp1012/nanoGPT", "utils/model_minimax/modeling_minimax_text_01.py", "33331fb7f0c2"),
    "gte_new.py": ("Alibaba-NLP/new-impl", "modeling.py", "its release of 2024"),
    "deepseek_r1.py": ("1nl00k/inspectR1", "modeling_deepseek.py", "a412072b2aad"),
    "deepseek_vl2.py": ("deepseek-ai/DeepSeek-VL2", "deepseek_vl2/models/modeling_deepseek.py", "ef9f91e"),
    "bailing_moe.py": ("inclusionAI/Ling", "models/modeling_bailing_moe.py", "5ccaeae"),
    "moonvit.py": ("vllm-project/vllm", "vllm/model_executor/models/moonvit.py", "0.33.0"),
    "hunyuan.py": ("rvelizs/EjemploCodMenor", "modeling_hunyuan.py", "4d4633e"),
    "codeshell.py": ("wwnaitang/CodeShell-7B-Chat-int4", "modeling_codeshell.py", "a280a3a"),
    "falcon_rw.py": ("Decentralised-AI/falcon-40b", "modelling_RW.py", "6e61c89"),
    "molmo.py": ("reubzdubz/Molmo7B_D_NF4Quant", "modeling_molmo.py", "6afb2ae"),
    "llada.py": ("NVlabs/Fast-dLLM", "llada/model/modeling_llada.py", "24cc59e"),
}
folder = pathlib.Path(sys.argv[1])
HEADS, SEED = 2, 7


def parts(file, names):
    """The functions and classes of a file by name, without the rest of it."""
    tree = ast.parse((folder / file).read_text())
    tree.body = [n for n in tree.body if getattr(n, "name", None) in names]
    assert len(tree.body) == len(names), (file, names)
    space = {"torch": torch, "nn": torch.nn, "math": math, "F": torch.nn.functional,
             "importlib": importlib, "apply_rotary_emb_func": None, "einsum": torch.einsum,
             "cached_property": functools.cached_property,
             "current_platform": types.SimpleNamespace(device_type="cpu"), "Optional": typing.Optional}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            node.decorator_list = []  # torch.jit.script needs the source's file
    exec(compile(tree, file, "exec", __future__.annotations.compiler_flag), space)
    return [space[name] for name in names]


def numbers(tokens, width, heads=HEADS):
    rng = random.Random(SEED)
    return torch.tensor([[[round(rng.uniform(-1, 1), 3) for _ in range(width)] for _ in range(heads)]
                         for _ in range(tokens)], dtype=torch.float32)


def case(name, file, config, context, positions, q, turned, streams=None):
    repository, path, commit = SOURCES[file]
    out = {"name": name, "source": f"{repository} {path} at {commit}", "config": config, "context": context,
           "positions": positions, "shape": list(q.shape), "q": q.flatten().tolist(),
           "turned": [float(x) for x in turned.float().flatten().tolist()]}
    if streams:
        out["second_stream"] = streams
    return out


def chatglm():
    rotary, turn = parts("chatglm3.py", ["RotaryEmbedding", "apply_rotary_pos_emb"])
    config = {"model_type": "chatglm", "kv_channels": 16, "num_attention_heads": HEADS, "hidden_size": 32,
              "num_layers": 1, "seq_length": 64, "original_rope": True}
    at = [0, 1, 5, 63]
    q = numbers(len(at), 16)
    table = rotary(16 // 2, original_impl=True, dtype=torch.float32)(64)
    turned = turn(q[:, None], table[at][:, None])[:, 0]
    out = [case("chatglm3", "chatglm3.py", config, 64, at, q, turned)]
    rotary, turn = parts("glm4v.py", ["RotaryEmbedding", "apply_rotary_pos_emb"])
    config = {**config, "rope_ratio": 50, "_name_or_path": "THUDM/glm-4-9b-chat"}
    table = rotary(16 // 2, rope_ratio=50, original_impl=True, dtype=torch.float32)(64)
    turned = turn(q.transpose(0, 1)[None], table[at][None])[0].transpose(0, 1)
    return out + [case("glm_4_ratio", "glm4v.py", config, 64, at, q, turned)]


def chatglm_6b():
    rotary, halves, turn = parts("chatglm6b.py", ["RotaryEmbedding", "rotate_half", "apply_rotary_pos_emb_index"])
    out = []
    for two in (True, False):
        config = {"model_type": "chatglm", "hidden_size": 32, "num_attention_heads": HEADS, "num_layers": 1,
                  "max_sequence_length": 64, "inner_hidden_size": 64, "position_encoding_2d": two}
        first, second = [0, 1, 2, 2, 2], [0, 0, 0, 1, 2]
        q = numbers(len(first), 16)
        module = rotary(8 if two else 16, precision=torch.float32)
        width = 8 if two else 16
        # the published code keeps the frequencies in float16: here in float32, as the definition has them
        module.inv_freq = 1. / (10000 ** (torch.arange(0, width, 2).float() / width))
        cos, sin = module(q, seq_len=64)
        ids = [torch.tensor(p)[:, None] for p in (first, second)]
        if two:
            a, b = (turn(h[:, None], h[:, None], cos, sin, i)[0][:, 0] for h, i in zip(q.chunk(2, -1), ids))
            turned = torch.cat([a, b], -1)
        else:
            turned = turn(q[:, None], q[:, None], cos, sin, ids[0])[0][:, 0]
        out.append(case("chatglm_6b_" + ("2d" if two else "1d"), "chatglm6b.py", config, 64, first, q, turned,
                        second if two else None))
    return out


def qwen():
    rotary, _, turn = parts("qwen.py", ["RotaryEmbedding", "_rotate_half", "apply_rotary_pos_emb"])
    out = []
    for pct, length, steps in ((1.0, 64, True), (1.0, 200, True), (0.5, 64, True), (0.5, 200, True), (1.0, 513, True), (1.0, 200, False)):
        config = {"model_type": "qwen", "hidden_size": 32, "num_attention_heads": HEADS, "num_hidden_layers": 1,
                  "kv_channels": 16, "rotary_pct": pct, "rotary_emb_base": 10000, "seq_length": 64,
                  "use_dynamic_ntk": steps, "max_position_embeddings": 1024}
        at = [0, 1, 7, length - 1]
        q = numbers(len(at), 16)
        # get_ntk_alpha of the same file
        alpha = max(2 ** math.ceil(math.log(length / 64, 2) + 1) - 1, 1) if steps else 1.0
        cos, sin = rotary(int(16 * pct), base=10000)(length, ntk_alpha=alpha)
        turned = turn(q[None], [cos[:, at], sin[:, at]])[0]
        out.append(case(f"qwen_{pct}_{length}_{steps}", "qwen.py", config, length, at, q, turned))
    return out


def baichuan():
    rotary, _, turn = parts("baichuan7b.py", ["RotaryEmbedding", "rotate_half", "apply_rotary_pos_emb"])
    # the file is told by the size of 7B; the head is small, so that there are many heads
    config = {"model_type": "baichuan", "hidden_size": 4096, "num_attention_heads": 256, "num_hidden_layers": 1,
              "max_position_embeddings": 64}
    at = [0, 1, 9, 63]
    q = numbers(len(at), 16)
    cos, sin = rotary(16, max_position_embeddings=64)(q, seq_len=64)
    x = q.transpose(0, 1)[None]
    turned = turn(x, x, cos, sin, torch.tensor(at)[None])[0][0].transpose(0, 1)
    return [case("baichuan_7b", "baichuan7b.py", config, 64, at, q, turned)]


def moonvit():
    """Rows and columns of Kimi-VL's images: a port of Moonshot's code."""
    rotary, turn, _ = parts("moonvit.py", ["Rope2DPosEmb", "apply_rope", "_apply_rope_input_validation"])
    config = {"model_type": "kimi_vl", "text_config": {"num_hidden_layers": 1}, "vision_config": {
        "model_type": "moonvit", "hidden_size": 32, "num_attention_heads": HEADS, "num_hidden_layers": 1}}
    rows, columns = [0, 0, 1, 5, 7], [0, 1, 0, 3, 8]
    q = numbers(len(rows), 16)
    table = rotary(16, 8, 9, device=torch.device("cpu")).precomputed_freqs_cis[rows, columns]
    return case("moonvit", "moonvit.py", config, 64, rows, q, turn(q, q, table)[0], columns)


def baichuan_13b():
    """The bias of the last of three queries, for every head."""
    _, _, mask = parts("baichuan13b.py", ["_get_interleave", "_fill_with_neg_inf", "_gen_alibi_mask"])
    repository, path, commit = SOURCES["baichuan13b.py"]
    return {"source": f"{repository} {path} at {commit}", "heads": 40,
            "bias": [float(x) for x in mask(None, 40, 3)[:, 2].flatten()],
            "config": {"model_type": "baichuan", "hidden_size": 5120, "num_attention_heads": 40, "num_hidden_layers": 1,
                       "model_max_length": 4096}}


def internlm():
    plain, dynamic, _, turn = parts("internlm.py", [
        "InternLMRotaryEmbedding", "InternLMDynamicNTKScalingRotaryEmbedding", "rotate_half", "apply_rotary_pos_emb"])
    out = []
    for kind, length, factor in (("origin", 200, None), ("dynamic", 64, None), ("dynamic", 200, None),
                                 ("dynamic", 200, 2.0)):
        rotary = {"base": 5000, "type": kind, **({"scaling_factor": factor} if factor else {})}
        config = {"model_type": "internlm", "hidden_size": 32, "num_attention_heads": HEADS, "num_hidden_layers": 1,
                  "max_position_embeddings": 64, "rotary": rotary}
        at = [0, 1, 9, length - 1]
        q = numbers(len(at), 16)
        more = {"scaling_factor": factor or 1.0} if kind == "dynamic" else {}
        module = (dynamic if kind == "dynamic" else plain)(16, max_position_embeddings=64, base=5000, **more)
        cos, sin = module(q, seq_len=length)
        x = torch.zeros(1, HEADS, length, 16)  # the function takes whole rows, whatever position_ids say
        x[0, :, at] = q.transpose(0, 1)
        turned = turn(x, x, cos, sin, torch.arange(length)[None])[0][0][:, at].transpose(0, 1)
        out.append(case(f"internlm_{kind}_{length}_{factor}", "internlm.py", config, length, at, q, turned))
    return out


def llama_like(name, file, prefix, classes):
    """Classes with rope_theta and rope_scaling."""
    scalings = {kind: prefix + middle + "RotaryEmbedding" for kind, middle in classes.items()}
    *modules, _, turn = parts(file, [*scalings.values(), "rotate_half", "apply_rotary_pos_emb"])
    module = dict(zip(scalings, modules))
    out = []
    for kind, length in ((None, 64), ("linear", 128), ("dynamic", 64), ("dynamic", 200)):
        if kind not in module:
            continue
        config = {"model_type": name, "hidden_size": 32, "num_attention_heads": HEADS, "num_hidden_layers": 1,
                  "max_position_embeddings": 64, "rope_theta": 1000000,
                  "rope_scaling": {"type": kind, "factor": 2.0} if kind else None}
        at = [0, 1, 9, length - 1]
        q = numbers(len(at), 16)
        more = {"scaling_factor": 2.0} if kind else {}
        cos, sin = module[kind](16, max_position_embeddings=64, base=1000000, **more)(q, seq_len=length)
        x = q.transpose(0, 1)[None]
        turned = turn(x, x, cos, sin, torch.tensor(at)[None])[0][0].transpose(0, 1)
        out.append(case(f"{name}_theta_{kind}_{length}", file, config, length, at, q, turned))
    return out


def internlm_llama():
    return llama_like("internlm", "internlm_llama.py", "InternLM", {None: "", "dynamic": "DynamicNTKScaling"})


def internlm2():
    return llama_like("internlm2", "internlm2.py", "InternLM2",
                      {None: "", "linear": "LinearScaling", "dynamic": "DynamicNTKScaling"})


def deepseek():
    return llama_like("deepseek", "deepseek_moe.py", "Deepseek",
                      {None: "", "linear": "LinearScaling", "dynamic": "DynamicNTKScaling"})


def with_yarn(name, file, prefix, **sizes):
    """DeepSeek's rotary, and code that took it over."""
    plain, linear, dynamic, yarn, *_, turn = parts(file, [
        *(prefix + kind + "RotaryEmbedding" for kind in ("", "LinearScaling", "DynamicNTKScaling", "Yarn")),
        "yarn_find_correction_dim", "yarn_find_correction_range", "yarn_get_mscale", "yarn_linear_ramp_mask",
        "rotate_half", "apply_rotary_pos_emb"])
    module = {None: plain, "linear": linear, "dynamic": dynamic, "yarn": yarn}
    released = {"beta_fast": 1.0, "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0,
                "original_max_position_embeddings": 4096}
    out = []
    for scaled, kind, length, more in (
            ("plain", None, 64, {}), ("linear", "linear", 128, {}), ("dynamic", "dynamic", 200, {}),
            ("released", "yarn", 64, released), ("yarn", "yarn", 64, {}),
            ("wide", "yarn", 64, {"beta_fast": 32, "beta_slow": 1, "original_max_position_embeddings": 64}),
            ("mscale", "yarn", 64, {"mscale": 0.707}), ("all", "yarn", 64, {"mscale_all_dim": 0.5}),
            ("both", "yarn", 64, {"mscale": 0.707, "mscale_all_dim": 1.5}),
            ("none", "yarn", 64, {"mscale": 0, "mscale_all_dim": 0.5})):
        config = {"model_type": name, "hidden_size": 32, "num_attention_heads": HEADS, "num_hidden_layers": 1,
                  "max_position_embeddings": 64, "rope_theta": 50000, **sizes,
                  "rope_scaling": {"type": kind, "factor": 32.0, **more} if kind else None}
        at = [0, 1, 9, length - 1]
        q = numbers(len(at), 16)
        given = {"scaling_factor": 32.0, **more} if kind else {}
        cos, sin = module[kind](16, max_position_embeddings=64, base=50000, **given)(q, seq_len=length)
        x = q.transpose(0, 1)[None]
        turned = turn(x, x, cos, sin, torch.tensor(at)[None])[0][0].transpose(0, 1)
        out.append(case(f"{name}_{scaled}", file, config, length, at, q, turned))
    return out


def kimi_k2():
    return with_yarn("kimi_k2", "deepseek_r1.py", "DeepseekV3", qk_nope_head_dim=0, qk_rope_head_dim=16)


def deepseek_vl2():
    return with_yarn("deepseek_vl_v2_text", "deepseek_vl2.py", "DeepseekV2", qk_nope_head_dim=0, qk_rope_head_dim=16)


def bailing_moe():
    return with_yarn("bailing_moe", "bailing_moe.py", "BailingMoe")


def of_olmo(name, file, names, **more):
    """Rotary as OLMo's code has it: it asks the configuration itself."""
    rotary, _ = parts(file, ["RotaryEmbedding", "_non_meta_init_device"])
    config = {"model_type": name, **dict(zip(names, (32, HEADS, 1, 64))), "rope_theta": 20000.0, **more}
    at = [0, 1, 9, 63]
    q = numbers(len(at), 16)
    held = types.SimpleNamespace(**{**config, "d_model": 32, "n_heads": HEADS}, rope_full_precision=True,
                                 rope_impl="llama", init_device="cpu")
    x = torch.zeros(1, HEADS, 64, 16)
    x[0, :, at] = q.transpose(0, 1)
    turned = rotary(held, {})(x, x)[0][0][:, at].transpose(0, 1)
    return [case(name, file, config, 64, at, q, turned)]


def llada():
    return of_olmo("llada", "llada.py", ("d_model", "n_heads", "n_layers", "max_sequence_length"), rope=True)


def molmo():
    return of_olmo("molmo", "molmo.py", ("hidden_size", "num_attention_heads", "num_hidden_layers",
                                         "max_position_embeddings"))


def hunyuan():
    # its other classes round the frequencies to bfloat16
    _, alpha, _, turn = parts("hunyuan.py", [
        "HunYuanRotaryEmbedding", "HunYuanDynamicNTKAlphaRotaryEmbedding", "rotate_half", "apply_rotary_pos_emb"])
    config = {"model_type": "hunyuan", "hidden_size": 32, "num_attention_heads": HEADS, "num_hidden_layers": 1,
              "max_position_embeddings": 64, "rope_theta": 20000.0,
              "rope_scaling": {"type": "dynamic", "factor": 1.0, "alpha": 1000.0}}
    at = [0, 1, 9, 199]
    q = numbers(len(at), 16)
    x = q.transpose(0, 1)[None]
    cos, sin = alpha(16, max_position_embeddings=64, base=20000.0, scaling_alpha=1000.0)(x, seq_len=200)
    turned = turn(x, x, cos, sin, torch.tensor(at)[None])[0][0].transpose(0, 1)
    return [case("hunyuan_alpha", "hunyuan.py", config, 200, at, q, turned)]


def codeshell():
    *modules, _, turn = parts("codeshell.py", [
        *(f"CodeShell{kind}RotaryEmbedding" for kind in ("", "LinearScaling", "DynamicNTKScaling")),
        "rotate_half", "apply_rotary_pos_emb"])
    out = []
    for module, kind, length in zip(modules, (None, "linear", "dynamic"), (64, 128, 200)):
        config = {"model_type": "codeshell", "n_embd": 32, "n_head": HEADS, "n_layer": 1, "n_positions": 64,
                  "position_embedding_type": "rope", "rope_scaling": {"type": kind, "factor": 2.0} if kind else None}
        at = [0, 1, 9, length - 1]
        q = numbers(len(at), 16)
        x = q.transpose(0, 1)[None]
        more = {"scaling_factor": 2.0} if kind else {}
        cos, sin = module(16, max_position_embeddings=64, **more)(x, seq_len=length)
        turned = turn(x, x, cos, sin, torch.tensor(at)[None])[0][0].transpose(0, 1)
        out.append(case(f"codeshell_{kind}", "codeshell.py", config, length, at, q, turned))
    return out


def falcon_rw():
    rotary, _ = parts("falcon_rw.py", ["RotaryEmbedding", "rotate_half"])
    config = {"model_type": "RefinedWeb", "hidden_size": 32, "n_head": HEADS, "n_layer": 1, "n_head_kv": 1,
              "alibi": False}
    at = [0, 1, 9, 63]
    q = numbers(len(at), 16)
    x = torch.zeros(HEADS, 64, 16)
    x[:, at] = q.transpose(0, 1)
    module = rotary(16)
    module.cos_sin(64, x.device, torch.float32)  # its own call makes the table in bfloat16
    return [case("falcon_rw", "falcon_rw.py", config, 64, at, q, module(x, x)[0][:, at].transpose(0, 1))]


def minicpm():
    plain, linear, dynamic, longrope, _, turn = parts("minicpm4.py", [
        "MiniCPMRotaryEmbedding", "MiniCPMLinearScalingRotaryEmbedding", "MiniCPMDynamicNTKScalingRotaryEmbedding",
        "MiniCPMLongRoPE", "rotate_half", "apply_rotary_pos_emb"])
    short, long = [1 + i / 8 for i in range(8)], [2 + 3 * i for i in range(8)]
    lists = {"short_factor": short, "long_factor": long}
    out = []
    for name, module, key, kind, longest, length, more in (
            ("plain", plain, None, None, 64, 64, {}), ("first_linear", linear, "type", "linear", 64, 128, {}),
            ("first_dynamic", dynamic, "type", "dynamic", 64, 200, {}),
            ("dynamic", dynamic, "rope_type", "dynamic", 64, 200, {}),
            ("within", longrope, "rope_type", "longrope", 64, 64, {**lists, "original_max_position_embeddings": 64}),
            ("beyond", longrope, "rope_type", "longrope", 64, 128, {**lists, "original_max_position_embeddings": 64}),
            ("over", longrope, "rope_type", "longrope", 256, 64, {**lists, "original_max_position_embeddings": 64}),
            ("under", longrope, "rope_type", "longrope", 32, 48, {**lists, "original_max_position_embeddings": 64})):
        factor = {"factor": 2.0} if kind in ("linear", "dynamic") else {}
        config = {"model_type": "minicpm", "hidden_size": 32, "num_attention_heads": HEADS, "num_hidden_layers": 1,
                  "max_position_embeddings": longest, "rope_theta": 20000,
                  "rope_scaling": {key: kind, **factor, **more} if kind else None}
        at = [0, 1, 9, length - 1]
        q = numbers(len(at), 16)
        given = {"scaling_factor": 2.0} if factor else more
        cos, sin = module(16, max_position_embeddings=longest, base=20000, **given)(q, seq_len=length)
        x = q.transpose(0, 1)[None]
        turned = turn(x, x, cos, sin, torch.tensor(at)[None])[0][0].transpose(0, 1)
        out.append(case("minicpm_" + name, "minicpm4.py", config, length, at, q, turned))
    return out


def phi3_v():
    plain, su, _, turn = parts("phi3_v.py", [
        "Phi3RotaryEmbedding", "Phi3SuScaledRotaryEmbedding", "rotate_half", "apply_rotary_pos_emb"])
    lists = {"short_factor": [1 + i / 8 for i in range(8)], "long_factor": [2 + 3 * i for i in range(8)]}
    out = []
    for name, kind, longest, original, length in (
            ("plain", None, 256, 64, 128), ("within", "su", 256, 64, 64), ("beyond", "su", 256, 64, 128),
            ("not_longer", "su", 64, 64, 64)):
        config = {"model_type": "phi3_v", "hidden_size": 32, "num_attention_heads": HEADS, "num_hidden_layers": 1,
                  "max_position_embeddings": longest, "original_max_position_embeddings": original,
                  "rope_theta": 20000.0, "rope_scaling": {"type": kind, **lists} if kind else None}
        at = [0, 1, 9, length - 1]
        q = numbers(len(at), 16)
        held = types.SimpleNamespace(**config)
        module = su(16, held) if kind else plain(16, max_position_embeddings=longest, base=20000.0)
        x = q.transpose(0, 1)[None]
        turned = turn(x, x, *module(x, torch.tensor(at)[None]))[0][0].transpose(0, 1)
        out.append(case("phi3_v_" + name, "phi3_v.py", config, length, at, q, turned))
    return out


def partial(name, file, rotary, width_key, width):
    """Classes that turn the first channels of a head: of 20."""
    rotary, _, turn = parts(file, [rotary, "rotate_half", "apply_rotary_pos_emb"])
    config = {"model_type": name, "hidden_size": 40, "num_attention_heads": HEADS, "num_hidden_layers": 1,
              "max_position_embeddings": 64, "rope_theta": 20000.0, width_key: width,
              **({"attn_type_list": [1], "head_dim": 20} if name == "minimax_text_01" else {})}
    turns = int(20 * width) if width < 1 else width
    at = [0, 1, 9, 63]
    q = numbers(len(at), 20)
    x = q.transpose(0, 1)[None]
    cos, sin = rotary(turns, max_position_embeddings=64, base=20000.0)(x, seq_len=64)
    first = turn(x[..., :turns], x[..., :turns], cos, sin, torch.tensor(at)[None])[0]
    turned = torch.cat([first, x[..., turns:]], -1)[0].transpose(0, 1)
    return [case(name, file, config, 64, at, q, turned)]


def stablelm_epoch():
    return partial("stablelm_epoch", "stablelm_epoch.py", "RotaryEmbedding", "rope_pct", 0.43)


def minimax_text_01():
    return partial("minimax_text_01", "minimax_text_01.py", "MiniMaxText01RotaryEmbedding", "rotary_dim", 12)


def gte():
    plain, ntk, _, turn = parts("gte_new.py", [
        "RotaryEmbedding", "NTKScalingRotaryEmbedding", "rotate_half", "apply_rotary_pos_emb"])
    out = []
    for name, scaling in (("plain", None), ("fixed", {"type": "ntk", "factor": 2.0}),
                          ("mixed", {"type": "ntk", "factor": 4.0, "mixed_b": 0.625})):
        config = {"model_type": "new", "hidden_size": 32, "num_attention_heads": HEADS, "num_hidden_layers": 1,
                  "max_position_embeddings": 64, "rope_theta": 20000.0, "rope_scaling": scaling}
        at = [0, 1, 9, 100]
        q = numbers(len(at), 16)
        more = {"scaling_factor": scaling["factor"], "mixed_b": scaling.get("mixed_b")} if scaling else {}
        cos, sin = (ntk if scaling else plain)(16, max_position_embeddings=64, base=20000.0, **more)(q, seq_len=101)
        turned = turn(q, q, cos[at][:, None], sin[at][:, None])[0]
        out.append(case("gte_" + name, "gte_new.py", config, 101, at, q, turned))
    return out


ALL = (chatglm, chatglm_6b, qwen, baichuan, internlm, internlm_llama, internlm2, deepseek, kimi_k2, minicpm, phi3_v,
       stablelm_epoch, minimax_text_01, gte, deepseek_vl2, bailing_moe, llada, molmo, hunyuan, codeshell,
       falcon_rw)
cases = [c for make in ALL if make.__name__ in (sys.argv[2:] or [f.__name__ for f in ALL]) for c in make()]
if "moonvit" in sys.argv[2:]:
    cases.append(moonvit())
if sys.argv[2:]:
    print(",\n".join(json.dumps(c) for c in cases))
    sys.exit()
about = (f"rotary modules of published remote code, run by tools/model_table/run_remote_code.py with PyTorch "
         f"{torch.__version__} in float32")
print(f'{{"about": {json.dumps(about)},\n "alibi": {json.dumps(baichuan_13b())},\n '
      f'"vision": {json.dumps(moonvit())},\n "cases": [')
print(",\n".join(json.dumps(c) for c in cases))
print("]}")
