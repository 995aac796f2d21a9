# SPDX-License-Identifier: Apache-2.0
"""tiny_models: what whole models read and wrote around their positions; logits are a model's, not ours."""

import math

from mapping.attention import attend
from mapping.image_bias import grid
from mapping.words import all_axes, check, words


def checks(case, arrays):
    p, out = case["params"], []
    if case["scheme"] == "conversion":
        return conversion(p, arrays)
    for rule in (rotations, probabilities, spectrum, tables, biases):
        out += rule(case, p, arrays)
    if out:
        return out
    return "hidden states and logits of a whole model alone"


def layers(case, ending):
    """The prefixes of the arrays that end so: layer0, layer1 ..., vision0."""
    return [n[:-len(ending)] for n in case["outputs"] if n.endswith(ending)]


def layer_of(at):
    return {"model": "$model_dir", "layer": int(at.strip("abcdefghijklmnopqrstuvwxyz")),
            "tower": "vision" if at.startswith("vision") else None}


def places(case, p, arrays, at):
    """Where the tokens of a layer are: members of a check, and arrays that it reads."""
    if at.startswith("vision"):
        rule = words("patches", merge=p["config"]["vision_config"]["spatial_merge_size"], axes=2)
        return {"positions": {"rule": rule, "in": {"grids": "image_grid_thw"}}}, {}
    if arrays.has("position_ids"):
        return {}, {"positions": "position_ids"}
    return {"positions": "0:%d" % arrays.shape("input_ids")[1]}, {}


def context(case, arrays):
    rope = case["params"]["config"].get("rope_parameters") or {}
    if rope.get("rope_type") in ("longrope", "dynamic"):
        return arrays.shape("input_ids")[1]
    return None


def head_dim(p):
    c = p["config"].get("text_config") or p["config"]
    return c.get("head_dim") or (c.get("hidden_size") or c["n_embd"]) // (
        c.get("num_attention_heads") or c["n_head"])


def rotations(case, p, arrays):
    many = []
    for at in layers(case, "_rope_query_in"):
        members, ins = places(case, p, arrays, at)
        by_token = p["config"]["model_type"] == "gptj"
        axes = all_axes("bthd" if by_token else "bhtd", at + "_rope_query_in", at + "_rope_key_in")
        if at.startswith("vision"):
            axes = all_axes("thd", *axes)
        whole = at.startswith("vision") or arrays.shape(at + "_rope_query_in")[-1] == head_dim(p)
        split = p["config"].get("kv_lora_rank") or not whole
        many.append(check("rotate", **layer_of(at), **members, axes=axes,
                          context=context(case, arrays), part="rotary" if split else None,
                          **{"in": dict(ins, q=at + "_rope_query_in", k=at + "_rope_key_in"),
                             "out": {"q": at + "_rope_query_out", "k": at + "_rope_key_out"}}))
    return [{k: v for k, v in c.items() if v is not None} for c in many]


def probabilities(case, p, arrays):
    """From what the layer multiplied; with the layer's mask and rotation where it turned whole heads."""
    many, c = [], p["config"]
    if case["scheme"] == "swin":
        return []  # the shift's mask is no array of the case
    for at in layers(case, "_probabilities"):
        q, k = at + "_attention_query", at + "_attention_key"
        members = layer_of(at)
        whole = arrays.has(at + "_rope_query_in") and not at.startswith("vision") and (
            arrays.shape(at + "_rope_query_in") == arrays.shape(q))
        more, ins = places(case, p, arrays, at)
        if whole:
            q, k = at + "_rope_query_in", at + "_rope_key_in"
        else:
            members, more, ins = {"call": {}}, {}, {}
            if case["source"]["symbol"].endswith("CausalLM") or "LMHead" in case["source"]["symbol"]:
                members["call"]["causal"] = True
        if not at.startswith("vision"):
            ins.update(key_visible="attention_mask", query_visible="attention_mask")
        call = members.pop("call", {})
        call["scale"] = p.get("attention_scaling") or scale_of(c)
        one = attend(arrays, dict(ins, q=q, k=k, v=k), {"probabilities": at + "_probabilities"},
                     call=call, context=context(case, arrays) if whole else None, **members, **more)
        if c["model_type"] == "gpt_oss":
            one["in"]["sink"] = "weights:model.layers.%d.self_attn.sinks" % members["layer"]
        many.append(one)
    return many


def scale_of(c):
    if c["model_type"] == "opt":  # scales q before
        return 1
    scalar = c.get("query_pre_attn_scalar")
    return scalar ** -0.5 if scalar else None


def spectrum(case, p, arrays):
    if not arrays.has("inv_freq"):
        return []
    equal = {}
    if arrays.has("attention_factor"):
        equal["/layer/rotary/attention_factor"] = "attention_factor"
    out = [check("frequencies", model="$model_dir", out={"inv_freq": "inv_freq"})]
    if equal:
        out.append(check("explain", model="$model_dir", layer=0, equal=equal))
    return out


# Tables at the input ------------------------------------------------------------------------------

TABLES = {"bert": "bert.embeddings.position_embeddings.weight", "gpt2": "transformer.wpe.weight",
          "roberta": "roberta.embeddings.position_embeddings.weight",
          "opt": "model.decoder.embed_positions.weight", "vit": "embeddings.position_embeddings"}


def learned(width, rows, table, out, positions, offset=None):
    ins = {"table": "weights:" + table}
    if positions == "position_ids":
        ins["positions"], positions = positions, None
    return check("encode", scheme=words("learned", width=width, rows=rows, offset=offset),
                 positions=positions, **{"in": ins, "out": {"rows": out}})


def tables(case, p, arrays):
    c, kind = p["config"], p["config"]["model_type"]
    if kind in ("marian", "whisper"):
        return sinusoids(case, p, arrays)
    if kind == "vit" and not arrays.has("position_embedding"):
        return patches(c)
    if kind not in TABLES or not arrays.has("position_embedding"):
        return []
    name, out = TABLES[kind], "position_embedding"
    if kind == "vit":
        sides = [n // c["patch_size"] for n in arrays.shape("pixel_values")[2:]]
        old = c["image_size"] // c["patch_size"]
        return [check("extend", scheme=words("learned", grid="%dx%d" % (old, old), prefix=1),
                      to="%dx%d" % tuple(sides), how="bicubic",
                      **{"in": {"table": "weights:" + name}, "out": {"table": out}})]
    width = c.get("hidden_size") or c["n_embd"]
    rows = c.get("max_position_embeddings") or c["n_positions"]
    if kind == "bert":
        return [learned(width, rows, name, out, "0:%d" % arrays.shape(out)[1])]
    if kind == "gpt2":
        return [learned(width, rows, name, out, "position_ids")]
    if kind == "opt":
        rule = {"rule": words("from_mask", padded=-1), "in": {"mask": "attention_mask"}}
        return [learned(width, rows + 2, name, out, rule, offset=2)]
    rule = words("fairseq", padding_idx=c["pad_token_id"])
    return [check("positions", rule=rule, **{"in": {"tokens": "input_ids"},
                                             "out": {"positions": "position_ids"}}),
            learned(width, rows, name, out, "position_ids")]


def patches(c):
    """Patches behind a class token, and a row of the table each."""
    own = "weights:embeddings."
    rows = 1 + (c["image_size"] // c["patch_size"]) ** 2
    image = {"pixels": "pixel_values", "weight": own + "patch_embeddings.projection.weight",
             "bias": own + "patch_embeddings.projection.bias", "class": own + "cls_token"}
    return [check("embed", parts=[{"patches": image},
                                  {"table": own + "position_embeddings[0]", "ids": "0:%d" % rows}],
                  out={"out": "embedding_output"})]


def sinusoids(case, p, arrays):
    c, many = p["config"], []
    for stack in ("encoder", "decoder"):
        out = stack + "_position_embedding"
        at = "0:%d" % arrays.shape(out)[-2]
        if c["model_type"] == "marian":
            scheme = words("sinusoidal", width=c["d_model"], layout="halves")
            many.append(check("encode", scheme=scheme, positions=at, out={"rows": out}))
        else:
            rows = c["max_source_positions" if stack == "encoder" else "max_target_positions"]
            part = out if len(arrays.shape(out)) == 2 else out + "[0]"
            many.append(learned(c["d_model"], rows, "model.%s.embed_positions.weight" % stack, part, at))
    return many


# Biases -------------------------------------------------------------------------------------------


def biases(case, p, arrays):
    return BIASES.get(case["scheme"], lambda c, q, a: [])(case, p, arrays)


def t5(case, p, arrays):
    c = p["config"]
    return [check("bias", heads=c["num_heads"], q_positions=at, k_positions=at, scheme=words(
        "t5", bidirectional=stack == "encoder", num_buckets=c["relative_attention_num_buckets"],
        max_distance=c["relative_attention_max_distance"]), **{
            "in": {"table": "weights:%s.block.0.layer.0.SelfAttention.relative_attention_bias.weight" % stack},
            "out": {"bias": stack + "_bias[0]"}})
            for stack in ("encoder", "decoder")
            for at in ["0:%d" % arrays.shape(stack + "_bias")[-1]]]


def alibi(case, p, arrays):
    """A number a key: by its count among real tokens (BLOOM, Falcon), or from the last one (MPT)."""
    c = p["config"]
    heads = c.get("n_heads") or c.get("n_head") or c["num_attention_heads"]
    keys = arrays.shape("alibi")[-1]
    scheme = "alibi future=signed_distance"
    if c["model_type"] == "mpt":
        return [check("bias", scheme=scheme, heads=heads, q_positions=[keys - 1],
                      k_positions="0:%d" % keys, out={"bias": "alibi"})]
    mask, many = arrays.integers("attention_mask"), []
    for b in range(arrays.shape("attention_mask")[0]):
        seen, counts = 0, []
        for flag in mask[b * keys:(b + 1) * keys]:
            seen += flag
            counts.append((seen - 1) * flag)
        one = check("bias", scheme=scheme, heads=heads, q_positions=[0], k_positions=counts,
                    out={"bias": "alibi[%d:%d]" % (b * heads, (b + 1) * heads)})
        many.append(rounded_alibi(one, heads, max(counts)) if c["model_type"] == "falcon" else one)
    return many


def bfloat16(x):
    """To the nearest of 8 bits, a half to the even one."""
    step = 2.0 ** (math.floor(math.log2(x)) - 7)
    return round(x / step) * step


def rounded_alibi(one, heads, farthest):
    """Falcon's slopes are bfloat16, given here; its products too, which are off by half a step."""
    n = 2 ** int(math.log2(heads))
    exponents = [8 * (h + 1) / n if h < n else 4 * (2 * (h - n) + 1) / n for h in range(heads)]
    slopes = [bfloat16(2.0 ** -x) for x in exponents]
    largest = max(slopes) * farthest
    return dict(one, scheme="alibi learned=slopes future=signed_distance",
                parameters={"slopes": slopes},
                known_difference=2.0 ** (math.floor(math.log2(largest)) - 8))


def swin(case, p, arrays):
    many, side = [], p["config"]["window_size"]
    for name in (n for n in case["outputs"] if n.startswith("bias_stage")):
        stage, block = name[len("bias_stage"):].split("_block")
        heads = arrays.shape(name)[1]
        table = "encoder.layers.%s.blocks.%s.attention.self.relative_position_bias_table" % (stage, block)
        many.append(check("bias", scheme=words("swin", height=side, width=side), heads=heads,
                          q_positions=grid(side, side), k_positions=grid(side, side),
                          **{"in": {"table": "weights:" + table}, "out": {"bias": name + "[0]"}}))
    return many


def xlnet(case, p, arrays):
    """R, from as many tokens after as there are queries to as many before as there are keys."""
    rows, queries = arrays.shape("relative_encoding")[0], arrays.shape("layer0_query")[0]
    return [check("encode", scheme=words("sinusoidal", width=p["config"]["d_model"], layout="halves"),
                  positions="%d:%d:-1" % (rows - queries, -queries),
                  out={"rows": "relative_encoding[:, %d]" % b})
            for b in range(arrays.shape("relative_encoding")[1])]


def deberta(case, p, arrays):
    """A check a row: batch and heads are one axis there."""
    c, many = p["config"], []
    heads = c["num_attention_heads"]
    most = c["max_relative_positions"]
    if most < 1:
        most = c["max_position_embeddings"]
    scheme = words("deberta", max_relative_positions=most, projection="shared", norm=False,
                   position_buckets=max(c["position_buckets"], 0))
    for layer in range(c["num_hidden_layers"]):
        own = "weights:deberta.encoder.layer.%d.attention.self." % layer
        names = {"w_k": own + "key_proj.weight", "b_k": own + "key_proj.bias",
                 "w_q": own + "query_proj.weight", "b_q": own + "query_proj.bias",
                 "e_rel": "relative_embedding"}
        for b in range(arrays.shape("input_ids")[0]):
            part = "[%d:%d]" % (b * heads, (b + 1) * heads)
            q, k = ("layer%d_%s%s" % (layer, n, part) for n in ("query", "key"))
            many.append(check("attend", scheme=scheme, axes={q: "htd", k: "htd"}, **{
                "in": dict(names, q=q, k=k, v=k),
                "out": {"position": "layer%d_position_bias%s" % (layer, part)}}))
    return many


BIASES = {"t5": t5, "xlnet": xlnet, "deberta": deberta, "alibi": alibi, "swin": swin}


# Conversion ---------------------------------------------------------------------------------------


def conversion(p, arrays):
    """The same rotation with adjacent pairs in Meta's row order and half split in Hugging Face's."""
    m, many = p["meta_params"], []
    for i in range(m["n_layers"]):
        for at, pairing, letters in (("meta", "interleaved", "bthd"), ("hf", "half_split", "bhtd")):
            q, k = ("%s_layer%d_rope_%s_" % (at, i, x) for x in ("query", "key"))
            many.append(check("rotate", positions="0:%d" % arrays.shape("input_ids")[1],
                              scheme=words("rope", head_dim=m["dim"] // m["n_heads"],
                                           base=m["rope_theta"], pairing=pairing),
                              axes=all_axes(letters, q + "in", k + "in"),
                              **{"in": {"q": q + "in", "k": k + "in"},
                                 "out": {"q": q + "out", "k": k + "out"}}))
    return many
