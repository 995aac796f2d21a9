# SPDX-License-Identifier: Apache-2.0
"""What transformers 5.23.0 adds at the embedding, measured on small models: tests/model's
input_encodings.json.

    pip install transformers==5.23.0 torch
    python run_input.py > ../../tests/model/input_encodings.json

Every case is a config.json. Its model is built with random weights and run on a few tokens. Of every
table of positions: rows, width and the row that the first token reads; of every sinusoid: its rows,
as numbers; of models with a switch for it: the factor on the embedding, solved from what the first
layer receives; of images: the number of rows. Nothing here is posenc's.
"""
import json
import re
import sys
import warnings

import torch
from transformers import AutoModel
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.utils import logging

warnings.filterwarnings("ignore")
logging.set_verbosity_error()
ROWS = [0, 1, 5]  # of sinusoids, what is kept
TOKENS = torch.tensor([[11, 12, 13, 14, 15, 16]])
SMALL = {"hidden_size": 48, "num_attention_heads": 4, "num_hidden_layers": 2, "intermediate_size": 16,
         "vocab_size": 96}
PAIR = {"d_model": 48, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
        "decoder_attention_heads": 4, "encoder_ffn_dim": 16, "decoder_ffn_dim": 16, "vocab_size": 96,
        "max_position_embeddings": 40}
WIDE = {**PAIR, "d_model": 51, "encoder_attention_heads": 3, "decoder_attention_heads": 3}
IMAGE = {"hidden_size": 48, "num_attention_heads": 4, "num_hidden_layers": 2, "intermediate_size": 16}


def cases():
    for kind in """bert electra roberta xlm-roberta camembert albert distilbert ernie nystromformer mra yoso
            rembert megatron-bert mpnet ibert roc_bert squeezebert mobilebert longformer luke big_bird
            deberta deberta-v2 lilt layoutlm layoutlmv3 canine esm xmod data2vec-text
            roberta-prelayernorm bert-generation splinter""".split():
        more = {"max_position_embeddings": 64, "pad_token_id": 1}
        if kind == "albert":
            more["embedding_size"] = 24
        if kind == "electra":
            more["embedding_size"] = 24
        if kind == "rembert":
            more["input_embedding_size"] = 24
        if kind == "layoutlmv3":
            more.update(coordinate_size=8, shape_size=8, visual_embed=False)
        if kind == "distilbert":
            more.update(dim=48, n_heads=4, n_layers=2, hidden_dim=16)
        if kind == "squeezebert":
            more["embedding_size"] = 48
        if kind == "esm":
            more.update(position_embedding_type="absolute", token_dropout=False, mask_token_id=5)
        if kind in ("mra", "yoso", "canine", "nystromformer"):
            more["max_position_embeddings"] = 128
        if kind == "longformer":
            more["attention_window"] = 4
        if kind == "luke":
            more.update(entity_vocab_size=9, entity_emb_size=24)
        if kind == "lilt":
            more["max_2d_position_embeddings"] = 32
        if kind == "mobilebert":
            more.update(embedding_size=24, intra_bottleneck_size=24, true_hidden_size=24)
        yield {"model_type": kind, **SMALL, **more}
    for kind in ("roberta", "esm"):
        more = {"position_embedding_type": "absolute", "token_dropout": False} if kind == "esm" else {}
        yield {"model_type": kind, **SMALL, "max_position_embeddings": 64, "pad_token_id": 4, **more}
    for kind in ("deberta", "deberta-v2"):
        for more in ({"relative_attention": True, "pos_att_type": ["c2p", "p2c"],
                      "position_biased_input": False},
                     {"relative_attention": True, "pos_att_type": "c2p|p2c"},
                     {"relative_attention": True}, {"embedding_size": 24}):
            yield {"model_type": kind, **SMALL, "max_position_embeddings": 64, **more}
    for kind in """bart mbart plbart mvp pegasus marian m2m_100 nllb-moe bigbird_pegasus blenderbot
            blenderbot-small pegasus_x fsmt led""".split():
        for on in (True, False) if kind != "led" else (False,):
            more = {"scale_embedding": on} if kind != "led" else {
                "max_encoder_position_embeddings": 72, "max_decoder_position_embeddings": 56,
                "attention_window": 4}
            if kind == "marian":
                more["pad_token_id"] = 1
            if kind == "fsmt":
                more.update(src_vocab_size=96, tgt_vocab_size=96, langs=["en", "de"])
            if kind == "nllb-moe":
                more.update(num_experts=2)
            if kind == "bigbird_pegasus":
                more.update(attention_type="original_full")
            yield {"model_type": kind, **PAIR, **more}
    for kind in "marian pegasus m2m_100".split():
        yield {"model_type": kind, **WIDE, "scale_embedding": False, "pad_token_id": 1}
    yield {"model_type": "m2m_100", **PAIR, "pad_token_id": 4}
    for more in ({}, {"scale_embedding": False}, {"pad_token_id": 5}):
        yield {"model_type": "xglm", "d_model": 48, "attention_heads": 4, "num_layers": 2, "ffn_dim": 16,
               "vocab_size": 96, "max_position_embeddings": 40, **more}
    yield {"model_type": "biogpt", **SMALL, "max_position_embeddings": 40}
    yield {"model_type": "opt", **SMALL, "ffn_dim": 16, "word_embed_proj_dim": 48,
           "max_position_embeddings": 40}
    yield {"model_type": "ctrl", "n_embd": 48, "n_head": 4, "n_layer": 2, "dff": 16, "vocab_size": 96,
           "n_positions": 40}
    yield {"model_type": "gpt2", "n_embd": 48, "n_head": 4, "n_layer": 2, "vocab_size": 96,
           "n_positions": 40}
    for kind in "vit deit dinov2 vit_msn".split():
        for image, patch in ((32, 8), ([32, 48], 8), ([32, 48], [8, 16])):
            yield {"model_type": kind, **IMAGE, "image_size": image, "patch_size": patch}
    for kind in ("clip_vision_model", "siglip_vision_model"):
        yield {"model_type": kind, **IMAGE, "image_size": 32, "patch_size": 8}
    for kind in ("beit", "data2vec-vision"):
        for more in ({}, {"use_absolute_position_embeddings": True}, {"use_relative_position_bias": True},
                     {"use_shared_relative_position_bias": True}):
            yield {"model_type": kind, **IMAGE, "image_size": 32, "patch_size": 8, **more}
    yield {"model_type": "vit_mae", **IMAGE, "image_size": 32, "patch_size": 8}
    for kind, more in (("swin", {}), ("swin", {"use_absolute_embeddings": True}),
                       ("swinv2", {"use_absolute_embeddings": True})):
        yield {"model_type": kind, "embed_dim": 48, "depths": [2, 2], "num_heads": [2, 4],
               "image_size": 32, "patch_size": 4, "window_size": 4, **more}
    for kind in ("wav2vec2", "hubert", "wavlm"):
        yield {"model_type": kind, **SMALL, "num_conv_pos_embeddings": 16,
               "num_conv_pos_embedding_groups": 4, "conv_dim": [8, 8], "conv_kernel": [4, 4],
               "conv_stride": [2, 2], "num_feat_extract_layers": 2}


def part_of(name):
    return "encoder" if re.search(r"(^|\.)encoder\.embed_positions", name) else "model"


def is_position(name):
    leaf = name.split(".")[-1]
    return bool(re.fullmatch(r"(char_)?position_embeddings?|embed_positions|wpe|positions_embed", leaf)
                ) and "layout_embeddings" not in name and "entity" not in name


def measure(config):
    text = CONFIG_MAPPING[config["model_type"]].from_dict(dict(config))
    torch.manual_seed(1)
    model = AutoModel.from_config(text).eval()
    if config["model_type"] == "vit_mae":  # its table is in every checkpoint; from_config leaves 0
        places = model.embeddings
        for one in (places.patch_embeddings.projection, places.position_embeddings):
            one._is_hf_initialized = False
        places.initialize_weights()
    out = {"tables": [], "gain": {}}
    pair = any(n.endswith("encoder.embed_positions") for n, _ in model.named_modules())
    seen = {}

    def on_embedding(name):
        def hook(module, inputs, output):
            index = inputs[0]
            seen.setdefault(name, (index, output))
        return hook

    for name, module in model.named_modules():
        if is_position(name):
            module.register_forward_hook(on_embedding(name))
    raw = {}
    plain = torch.nn.functional.embedding

    def spy(index, weight, *rest, **more):
        raw.setdefault(id(weight), index.detach().clone())
        return plain(index, weight, *rest, **more)

    first = {}
    for name, module in model.named_modules():
        if re.fullmatch(r"(.*\.)?(layernorm_embedding|layers\.0|h\.0)", name):
            side = "encoder" if re.search(r"(^|\.)encoder\.", name) else "model"

            def before(module, inputs, side=side):
                first.setdefault(side, inputs[0].detach() if inputs else None)
            module.register_forward_pre_hook(before)
    torch.nn.functional.embedding = spy
    error = None
    try:
        with torch.no_grad():
            more = {"decoder_input_ids": TOKENS} if pair else {}
            if config["model_type"] in ("layoutlm", "lilt", "layoutlmv3"):
                more["bbox"] = torch.zeros((1, 6, 4), dtype=torch.long)
            if "image_size" not in config and "conv_dim" not in config:
                model(input_ids=TOKENS, **more)
    except Exception as problem:
        error = f"{type(problem).__name__}: {problem}"[:120]
    finally:
        torch.nn.functional.embedding = plain
    for name, module in model.named_modules():
        if not is_position(name):
            continue
        weight = getattr(module, "weight", None)
        fixed = getattr(module, "weights", None)
        entry = {"part": part_of(name) if pair else "model"}
        sines = fixed is not None or "Sinusoid" in type(module).__name__
        if sines:
            rows = seen[name][1]
            entry["values"] = [[float(f"{v:.7g}") for v in r] for r in rows.reshape(-1, rows.shape[-1])[ROWS].tolist()]
        elif weight is not None:
            entry.update(rows=weight.shape[0], width=weight.shape[1])
            index = raw.get(id(weight))
            if index is not None and config["model_type"] != "canine":
                entry["first"] = int(index.reshape(-1)[0])
        out["tables"].append(entry)
    for name, p in model.named_parameters():
        if re.search(r"(^|\.)position_embeddings$", name) and p.ndim == 3:
            entry = {"part": "model", "rows": p.shape[1], "width": p.shape[2]}
            if config["model_type"] == "vit_mae":
                entry = {"part": "model", "values": [[float(f"{v:.7g}") for v in r] for r in p[0][1:7][ROWS].tolist()]}
            out["tables"].append(entry)
    if config["model_type"] == "ctrl":
        out["tables"].append({"part": "model", "values": [
            [float(f"{v:.7g}") for v in r] for r in model.pos_encoding[ROWS].tolist()]})
    # factor on the embedding: what the first layer gets is gain * E[id] + P
    if "scale_embedding" in config or config["model_type"] in ("ctrl", "xglm", "biogpt"):
        for side, x in first.items():
            owner = model.get_submodule(side) if pair and side == "encoder" else (
                model.get_submodule("decoder") if pair else model)
            tokens = getattr(owner, "embed_tokens", getattr(owner, "w", None))
            where = [n for n in seen if (part_of(n) == "encoder") == (side == "encoder" and pair)]
            places = seen[where[0]][1] if where else model.pos_encoding[:6]
            if x is None or tokens is None:
                continue
            if config["model_type"] == "blenderbot-small" and side != "encoder":
                continue  # the embedding is normalised before positions meet it
            rest = (x.reshape(-1, x.shape[-1])[:6] - places.reshape(-1, places.shape[-1])[:6].to(x))
            rows = tokens.weight[TOKENS[0]].detach()
            gain = float((rest * rows).sum() / (rows * rows).sum())
            left = float((rest - gain * rows).abs().max())
            assert left < 1e-4, (config["model_type"], side, left)
            out["gain"][side if pair else "model"] = float(f"{gain:.6g}")
    score = [n for n, _ in model.named_parameters()
             if re.search(r"relative_position_bias_table|pos(_q|_key|_query)?_proj|rel_attn_embed|rel_pos_bias", n)]
    out["acts_in_score"] = bool(score)
    return out, error


lines = []
for config in cases():
    try:
        facts, error = measure(config)
    except Exception as problem:
        print(config["model_type"], repr(problem)[:200], file=sys.stderr)
        continue
    if error:
        print(config["model_type"], "forward:", error, file=sys.stderr)
    lines.append(json.dumps({"config": config, **facts}))
print('{"about": "measured with transformers 5.23.0 by tools/model_table/run_input.py",\n "cases": [\n'
      + ",\n".join(lines) + "\n]}")
