# SPDX-License-Identifier: Apache-2.0
"""Every class of transformers as a small model, and which tokens each token of its layers sees: for run_masks.py."""
import collections
import importlib
import inspect
import json
import pathlib
import warnings

import torch
from transformers import AutoModel, PreTrainedModel
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.utils import logging

from table import model_types

warnings.filterwarnings("ignore")
logging.set_verbosity_error()
root = pathlib.Path(__file__).resolve().parent.parent.parent
TABLE = model_types()
TOKENS = 9
TYPES = [0, 0, 1, 1, 1, 0, 1, 1, 0]  # what --token-types feeds as token_type_ids and mm_token_type_ids
MOST = 40_000_000  # parameters of a model that is built
SMALL = {
    32: "hidden_size d_model n_embd dim embed_dim width embedding_size word_embed_proj_dim encoder_hidden_size decoder_hidden_size "
        "hidden_dim encoder_hidden_dim d_hidden output_dim projection_dim feature_size emb_dim mm_hidden_size out_hidden_size "
        "cross_attention_hidden_size attention_hidden_size intermediate_size ffn_dim d_ff n_inner encoder_ffn_dim "
        "decoder_ffn_dim moe_intermediate_size shared_expert_intermediate_size intermediate_size_mlp ffn_hidden_size expert_ffn_hidden_size "
        "mlp_dim d_inner lru_width mamba_d_ssm vision_dim_projection proj_dim text_embed_dim",
    2: "num_attention_heads n_head num_heads encoder_attention_heads decoder_attention_heads n_heads attention_heads num_query_heads "
       "swa_num_attention_heads linear_num_key_heads linear_num_value_heads num_linear_heads mamba_n_heads "
       "num_experts_per_tok num_experts_per_token moe_topk moe_top_k moe_num_experts_per_tok "
       "num_hidden_layers n_layer num_layers encoder_layers decoder_layers num_decoder_layers n_layers "
       "num_encoder_layers depth encoder_num_hidden_layers decoder_num_hidden_layers num_blocks_per_stage "
       "first_k_dense_replace conv_kernel_size_ encoder_num_attention_heads decoder_num_attention_heads",
    1: "num_key_value_heads num_kv_heads encoder_num_key_value_heads decoder_num_key_value_heads n_group topk_group "
       "swa_num_key_value_heads num_global_key_value_heads topk_group attn_layer_period expert_layer_period",
    0: "pad_token_id num_kv_shared_layers attn_layer_offset hidden_size_per_layer_input",
    16: "head_dim d_kv global_head_dim v_head_dim qk_head_dim_ q_lora_rank kv_lora_rank attention_head_dim head_size d_head swa_head_dim "
        "linear_key_head_dim linear_value_head_dim patch_size vision_patch_size image_patch_size",
    8: "qk_rope_head_dim qk_nope_head_dim rotary_dim",
    4: "num_experts num_local_experts n_routed_experts moe_num_experts num_routed_experts attention_chunk_size",
    64: "vocab_size max_position_embeddings n_positions image_size vision_image_size img_size max_source_positions "
        "max_target_positions encoder_vocab_size decoder_vocab_size text_vocab_size vocab_size_per_layer_input entity_vocab_size",
    3: "sliding_window sliding_window_size",
}
VALUES = {name: size for size, names in SMALL.items() for name in names.split()}
EMPTY = ("sliding_window", "head_dim", "num_key_value_heads")  # set where the class holds null
OWN = {  # what a type needs beside these
    "autoformer": {"prediction_length": 4}, "bamba": {"attn_layer_indices": [0]}, "longformer": {"attention_window": 4},
    "led": {"attention_window": 4}, "longt5": {"local_radius": 3}, "mamba2": {"num_heads": 4, "head_dim": 16},
    "granite_speech5_encoder": {"context_size": 16}, "gpt_neo": {"attention_types": [[["global", "local"], 1]], "window_size": 3},
    "molmo2_adapter": {"vision_feature_layer": [0, 1]}, "esm": {"vocab_size": 33}, "codegen": {"n_head": 4, "n_embd": 64, "rotary_dim": 8}, "bigbird_pegasus": {"block_size": 2},
    "big_bird": {"block_size": 2, "num_random_blocks": 1}, "modernbert": {"local_attention": 4}, "modernvbert": {},
    "reformer": {"axial_pos_shape": [8, 8], "axial_pos_embds_dim": [16, 16]}, "swin": {"embed_dim": 48}, "swinv2": {"embed_dim": 48},
}


def small(model_type, depth=0):
    """Keys of a small config.json of this type: those of VALUES that its class holds, and its parts'."""
    held = CONFIG_MAPPING[model_type]()
    out = {}
    names = {**{n: n for n in VALUES}, **{v: k for k, v in getattr(held, "attribute_map", {}).items() if k in VALUES}}
    for name, common in names.items():
        value = vars(held).get(name)
        if isinstance(value, int) and not isinstance(value, bool) or (value is None and common in EMPTY and name in vars(held)):
            out[name] = VALUES.get(name, VALUES.get(common))
    for name in ("embed_dim", "hidden_size"):
        if isinstance(getattr(held, "num_heads", None), (list, tuple)):
            out.pop(name, None)
    rope = getattr(held, "rope_parameters", None)
    if isinstance(rope, dict) and rope.get("mrope_section"):
        out["rope_parameters"] = {**rope, "mrope_section": [4, 2, 2]}
    if "image_size" in out and "patch_size" not in out:
        out.pop("image_size")
    out.update(words_of(model_type, out) if depth else {})
    for part, kind in (getattr(held, "sub_configs", None) or {}).items():
        value = getattr(held, part, None)
        inner = getattr(value, "model_type", "") or getattr(kind, "model_type", "")
        if inner in CONFIG_MAPPING and depth < 3:
            out[part] = {"model_type": inner, **small(inner, depth + 1)}
    return {**out, **OWN.get(model_type, {})}


def words_of(model_type, base, plain=True):
    """A layer for each word of the class's layer types, the full one last; plain: full and sliding ones."""
    entry = TABLE.get(model_type, {})
    words = [w for w in entry.get("type_words", []) if not plain or w in ("full_attention", "sliding_attention")]
    names = [n for n in (entry.get("names", {}).get("num_hidden_layers"), "num_hidden_layers") if n in base]
    if not entry.get("typed") or not words or not names or "layer_types" in entry.get("computed", []):
        return {}
    return {names[0]: len(words), "layer_types": sorted(words, key=lambda w: w == "full_attention")}


def files_of(model_type):
    """Small files of this type, the most telling first: a layer of each of its words, then its own pattern."""
    base = small(model_type)
    yield {**base, **words_of(model_type, base, plain=False)}
    yield {**base, **words_of(model_type, base)}
    yield base
    for count in ("num_hidden_layers", TABLE[model_type].get("names", {}).get("num_hidden_layers")):
        if count in base:
            yield {**base, count: 6}
    for odd in ("head_dim", "num_key_value_heads", "rotary_dim", "qk_rope_head_dim", "window_size", "sliding_window"):
        if odd in base:
            yield {k: v for k, v in base.items() if k != odd}


def classes_of(configuration):
    """Classes that a config of this type may be built as, the base model first."""
    module = importlib.import_module(configuration.__module__.replace("configuration_", "modeling_"))
    found = [c for n, c in inspect.getmembers(module, inspect.isclass)
             if issubclass(c, PreTrainedModel) and getattr(c, "config_class", None) is configuration
             and c.__module__ == module.__name__ and not n.endswith("PreTrainedModel")]
    return sorted(found, key=lambda c: (not c.__name__.endswith(("Model", "Encoder", "Transformer")), "For" in c.__name__, len(c.__name__)))


def models_of(config, kernel):
    options = {"attn_implementation": kernel} if kernel else {}
    makers = [lambda: AutoModel.from_config(config, **options)] if type(config) in AutoModel._model_mapping else []
    makers += [lambda c=c: c._from_config(config, **options) for c in classes_of(type(config))[:3]]
    for make in makers:
        with torch.device("meta"):  # nothing of full size is built
            count = sum(p.numel() for p in make().parameters())
        if count > MOST:
            raise ValueError(f"{count} parameters")
        torch.manual_seed(1)
        model = make().float().eval()
        for p in model.parameters():  # gates and scales that begin at zero
            if p.is_floating_point() and not p.detach().any():
                torch.nn.init.normal_(p, std=0.05)
        yield model


def inputs_of(model, types):
    """Inputs that the forward may take, one after the other; types: whether tokens have types."""
    config = model.config
    names = inspect.signature(model.forward).parameters
    text = config.get_text_config()
    vocabulary = min(v for v in (getattr(text, "vocab_size", None), 60) if isinstance(v, int))
    ids = torch.randint(min(5, vocabulary - 1), max(6, vocabulary - 1), (1, TOKENS), generator=torch.Generator().manual_seed(2))
    more = {"decoder_input_ids": ids} if "decoder_input_ids" in names else {}
    size = getattr(config, "image_size", None) or 64
    rows, columns = size if isinstance(size, (list, tuple)) else (size, size)
    channels = getattr(config, "num_channels", None) or getattr(config, "in_channels", None) or 3
    pixels = torch.randn(1, channels, rows, columns)
    mels = getattr(config, "num_mel_bins", None) or getattr(config, "feature_size", None) or 80
    frames = 2 * getattr(config, "max_source_positions", 32)
    width = getattr(config, "hidden_size", None) or getattr(config, "d_model", 32)
    grid = torch.tensor([[1, 4, 4]])
    patch = getattr(config, "patch_size", 16)
    if types:
        more.update((n, torch.tensor([TYPES])) for n in ("token_type_ids", "mm_token_type_ids") if n in names)
    if "use_cache" in names:  # FSMT masks nothing where it caches
        more["use_cache"] = False
    if "query_embeds" in names and "encoder_hidden_states" in names:
        other = getattr(config, "encoder_hidden_size", width)
        yield {"query_embeds": torch.randn(1, TOKENS, width), "encoder_hidden_states": torch.randn(1, 5, other)}
    if "input_ids" in names or model.main_input_name == "input_ids":
        yield {"input_ids": ids, **more}
        yield {"input_ids": ids, "bbox": torch.randint(0, 9, (1, TOKENS, 4))}
    if "inputs_embeds" in names:
        yield {"inputs_embeds": torch.randn(1, TOKENS, width), **({"decoder_inputs_embeds": torch.randn(1, TOKENS, width)} if "decoder_inputs_embeds" in names else {})}
    for name in ("pixel_values", "x", "pixel_values_videos"):
        if name in names:
            yield {name: pixels, **more}
            yield {name: pixels[:, None].repeat(1, getattr(config, "num_frames", 2), 1, 1, 1)}
    if isinstance(patch, int):
        flat = torch.randn(16, channels * getattr(config, "temporal_patch_size", 1) * patch * patch)
        for key in ("grid_thw", "image_grid_thw"):
            for name in ("hidden_states", "pixel_values"):
                if key in names and name in names:
                    yield {name: flat, key: grid}
    if "input_features" in names:
        yield {"input_features": torch.randn(1, mels, frames), **more}
        yield {"input_features": torch.randn(1, 16, mels), **more}
    if "flattened_patches" in names:
        flat = torch.cat([torch.arange(1.0, 9)[:, None].repeat(1, 2), torch.randn(8, channels * patch * patch)], 1)
        yield {"flattened_patches": flat[None]}
    if "pixel_position_ids" in names:
        yield {"pixel_values": torch.randn(1, 16, 3 * patch * patch), "pixel_position_ids": torch.stack([torch.arange(16) % 4, torch.arange(16) // 4], -1)[None]}
    if "num_patches" in names and "inputs_embeds" in names:
        yield {"inputs_embeds": torch.randn(1, TOKENS, width), "num_patches": 4}
    if "input_values" in names:
        yield {"input_values": torch.randn(1, getattr(config, "max_length", 9), mels)}
        yield {"input_values": torch.randn(1, 3200), **more}
        yield {"input_values": torch.randn(1, 1, 3200), **more}
    for name in ("hidden_states", "inputs", "features", "query_embeds", "image_embeds"):
        if name in names:
            yield {name: torch.randn(1, TOKENS, width)}


def first_tensor(values):
    for v in values:
        if isinstance(v, torch.Tensor) and v.is_floating_point() and v.dim() in (2, 3, 4) and v.numel():
            return v
    return None


def stream(args, named):
    found = first_tensor(args)
    return found if found is not None else first_tensor(named.get(n) for n in ("hidden_states", "x", "inputs", "src"))


def output(out, shape):
    for v in [out] if isinstance(out, torch.Tensor) else list(out.values() if hasattr(out, "values") else out if isinstance(out, (list, tuple)) else []):
        if isinstance(v, torch.Tensor) and v.shape == shape:
            return v
    return None


def lists_of(model):
    return {name: m for name, m in model.named_modules() if isinstance(m, (torch.nn.ModuleList, torch.nn.Sequential)) and len(m)}


def stacks_of(model, inputs):
    """Names of the outermost lists of modules that keep the shape of a sequence of tokens."""
    kept = collections.defaultdict(list)
    handles = []
    for name, modules in lists_of(model).items():
        for child in modules:
            def after(module, args, named, out, name=name):
                x = stream(args, named)
                kept[name].append(x is not None and x.shape[-2] * x.shape[0] > 1 and output(out, x.shape) is not None)
            handles.append(child.register_forward_hook(after, with_kwargs=True))
    try:
        with torch.no_grad():
            model(**inputs)
    finally:
        for h in handles:
            h.remove()
    good = [n for n, all_kept in kept.items() if all_kept and all(all_kept)]
    return [n for n in good if not any(n.startswith(o + ".") for o in good)]


def seen_of(x, y):
    """[token, token]: 1 where the output depends on the input."""
    if x.dim() == 4 and x.shape[1] == TOKENS:  # several streams of each token
        y = y.flatten(2)
    elif x.dim() == 4:  # [1, rows, columns, channels] of an image
        y = y.reshape(1, -1, y.shape[-1])
    axis = 0 if x.dim() == 2 or (x.shape[1] == 1 and x.shape[0] > 1) else 1
    n = y.shape[axis]
    weight = torch.randn(y.shape, generator=torch.Generator().manual_seed(3))
    rows = []
    for i in range(n) if n <= 24 else range(0, n, -(-n // 24)):
        g, = torch.autograd.grad((y * weight).select(axis, i).sum(), x, retain_graph=True)
        g = g.abs().reshape(n, -1) if axis == 0 else g[0].abs().reshape(n, -1)
        rows.append((i, (g.sum(-1) > 0).tolist()))
    return rows


def run(model, inputs):
    """{stack: [rows of each call]}."""
    calls, handles = collections.defaultdict(list), []
    named_lists = lists_of(model)
    for name in stacks_of(model, inputs):
        for child in named_lists[name]:
            held = {}

            def before(module, args, named, held=held):
                x = stream(args, named)
                held["x"] = leaf = x.detach().clone().requires_grad_(True)
                swap = lambda v: leaf if v is x else v  # noqa: E731
                return tuple(map(swap, args)), {k: swap(v) for k, v in named.items()}

            def after(module, args, named, out, held=held, name=name):
                y = output(out, held["x"].shape)
                rows = seen_of(held["x"], y) if y.requires_grad else None
                calls[name].append((sum(map(len, calls.values())), rows))
            handles += [child.register_forward_pre_hook(before, with_kwargs=True), child.register_forward_hook(after, with_kwargs=True)]
    try:
        model(**inputs)
    finally:
        for h in handles:
            h.remove()
    return dict(calls)


def measured(model_type, file, kernel, types):
    """-> {stack: ...}, or the texts of what was raised."""
    problems = []
    config = CONFIG_MAPPING[model_type].from_dict(json.loads(json.dumps(file)))
    for model in models_of(config, kernel):
        for inputs in inputs_of(model, types):
            try:
                found = run(model, inputs)
                if found:
                    return found
                problems.append("no stack of layers was found")
            except Exception as problem:
                problems.append(f"{type(problem).__name__}: {problem}".replace("\n", " ")[:120])
    return problems or ["no class"]
