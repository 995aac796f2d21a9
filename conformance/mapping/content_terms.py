# SPDX-License-Identifier: Apache-2.0
"""relative_content: Shaw and its kin, Transformer-XL and its kin."""

import math

from mapping.words import check, words


def yes(flag):
    return True if flag else None


def attend(case, arrays, scheme, names=None, scale=None, **call):
    """q, k, v and the parameters of `scheme` (ours -> the case's), forward and gradient."""
    inputs, names = case["inputs"], dict(names or {})
    q = "q" if "q" in inputs or not arrays.has("q_scaled") else "q_scaled"
    if q == "q_scaled":
        scale = 1
    ins = {"q": q, "k": "k", "v": "v", **names}
    axes = {name: "bhtd" for name in (q, "k", "v", "out")}
    if arrays.has("visible"):
        ins["visible"] = "visible"
        if len(arrays.shape("visible")) == 2:
            axes["visible"] = "qk"
    outs = {ours: theirs for ours, theirs in (
        ("out", "out"), ("scores", "scores"), ("probabilities", "probs")) if arrays.has(theirs)}
    call = {"query_offset": "end", **call}
    if scale is not None:
        call["scale"] = scale
    members = {name: call.pop(name) for name in ("q_positions", "k_positions") if name in call}
    return [check("attend", scheme=scheme, axes=axes, call=call, **members,
                  gradient=gradient(arrays, ins), **{"in": ins, "out": outs})]


def gradient(arrays, ins):
    """Of every input that the peer has a gradient in double of."""
    if not arrays.has("grad_out"):
        return None
    outs = {}
    for ours, theirs in ins.items():
        if isinstance(theirs, list):
            continue
        name = "grad_" + theirs
        plain = name.split("[")[0]
        if arrays.has(plain) and arrays.dtype(plain) == "F64":
            outs[ours] = name
    return {"in": {"out": "grad_out"}, "out": outs}


# Shaw -------------------------------------------------------------------------------------------


def both(distance):
    return dict(left=distance, right=distance)


def scale_of(p):
    return 1 if p.get("scale", "").startswith("none") else None


def shaw(case, arrays):
    p = case["params"]
    if not arrays.has("k"):
        return shaw_encoder(case, arrays)
    if arrays.has("relative_positions_keys"):
        names = {"table_k": "relative_positions_keys", "table_v": "relative_positions_values"}
        return attend(case, arrays, words("shaw", **both(p["options"]["max_relative_position"])),
                      names, scale_of(p))
    if "max_relative_positions" in p:
        scheme = words("shaw", **both(p["max_relative_positions"]), values="shared")
    elif "position_embedding_type" in p:
        return shaw_by_position(case, arrays)
    elif "window_size" in p:
        scheme = words("shaw", **both(p["window_size"]), beyond="zero", groups=1)
        return attend(case, arrays, scheme, {"table_k": "table_k", "table_v": "table_v"})
    elif "left_max_position_embeddings" in p:
        scheme = words("shaw", left=p["left_max_position_embeddings"],
                       right=p["right_max_position_embeddings"], values="none")
    else:
        scheme = words("shaw", **both(p["max_pos_emb"]), sign="query_minus_key", values="none")
    return attend(case, arrays, scheme, {"table": "table"})


def shaw_encoder(case, arrays):
    """An encoder layer without its feed-forward part: x + Attention(LayerNorm(x))."""
    p, width = case["params"], arrays.shape("w_o")[0]
    scheme = words("shaw", **both((arrays.shape("table_k")[0] - 1) // 2))
    layer = {name: {"x": "embeddings", "weight": "w_qkv[%d:%d]" % (n * width, (n + 1) * width),
                    "bias": "b_qkv[%d:%d]" % (n * width, (n + 1) * width)}
             for n, name in enumerate("qkv")}
    layer.update(out={"weight": "w_o", "bias": "b_o"}, heads=p["num_heads"], tokens="ids",
                 residual=True, norm={"gamma": "ln_weight", "beta": "ln_bias",
                                      "epsilon": p["layer_norm_epsilon"]})
    ins = {"table_k": "table_k", "table_v": "table_v", "key_visible": "visible",
           "query_visible": "visible"}
    return [check("attend", scheme=scheme, project=layer,
                  **{"in": ins, "out": {"out": "last_hidden_state"}})]


def shaw_by_position(case, arrays):
    """BERT and ESM: a table of every distance between two positions."""
    p = case["params"]
    key_term = p["position_embedding_type"] == "relative_key_query"
    scheme = words("shaw", **both(p["max_position_embeddings"] - 1), sign="query_minus_key",
                   beyond="refuse", values="none", key_term=yes(key_term),
                   key_scale=1 if "NOT scaled" in p["scale"] else None)
    call = {}
    if "departs" in p and "position of the last key" in p["departs"]:
        call["q_positions"] = [arrays.shape("k")[2] - 1] * arrays.shape("q")[2]
    return attend(case, arrays, scheme, {"table": "table"}, **call)


def music_transformer(case, arrays):
    p = case["params"]
    options = p.get("options", {})
    table = "key_relative_embeddings" if arrays.has("key_relative_embeddings") else "table"
    shape = arrays.shape(table)
    rows = shape[-2]
    after = "key - query" in p["table_row"]
    reach = (rows - 1) // 2 if after else rows - 1
    values = options.get("add_relative_to_values")
    scheme = words("shaw", left=reach, right=reach if after else 0, beyond="zero",
                   values=None if values else "none", groups=shape[0] if len(shape) == 3 else None)
    names = {"table_k": table, "table_v": "value_relative_embeddings"} if values else {"table": table}
    return attend(case, arrays, scheme, names, scale_of(p))


def nezha(case, arrays):
    """The peer gives its float32 table as a row a pair: query `clip` sees every row once, or with
    fewer tokens the last query those of keys before it and the first those of keys after it."""
    clip, tokens = case["params"]["max_relative_position"], arrays.shape("positions_encoding")[0]
    table = "positions_encoding[%d, 0:%d]" % (clip, 2 * clip + 1)
    if tokens < 2 * clip + 1:
        clip = min(clip, tokens - 1)
        table = ["positions_encoding[%d, %d:%d]" % (tokens - 1, tokens - 1 - clip, tokens - 1),
                 "positions_encoding[0, 0:%d]" % (clip + 1)]
    return attend(case, arrays, words("shaw", **both(clip), values="shared"), {"table": table})


# Transformer-XL ---------------------------------------------------------------------------------

XL = {"w_kr": "w_kr", "u": "u", "v_bias": "v_bias"}


def clamp(p):
    return p["clamp_len"] if p.get("clamp_len", -1) > 0 else None


def transformer_xl(case, arrays):
    p = case["params"]
    if "departs" in p:
        return "for keys after the query the peer's shift leaves entries of other rows"
    return attend(case, arrays, words("transformer_xl", d_model=p["d_model"], clamp_len=clamp(p)), XL)


def transformer_xl_learned(case, arrays):
    p = case["params"]
    names = {name: "%s_all_layers[%d]" % (name, p["layer"]) for name in ("r_emb", "r_bias", "u")}
    rows = arrays.shape("r_emb_all_layers")[1]
    return attend(case, arrays, words("transformer_xl_learned", rows=rows, clamp_len=clamp(p)), names)


def xlnet(case, arrays):
    p = case["params"]
    names, call = dict(XL), {}
    segments = arrays.has("seg_embed")
    if segments and not arrays.has("segment_differs"):
        return xlnet_streams(p, arrays)
    queries, keys = arrays.shape("q")[2], arrays.shape("k")[2]
    if segments:
        # Two numbers of segments: as that of the first query, or the other one. The queries are
        # the last keys.
        names.update(s_bias="s_bias", seg_embed="seg_embed",
                     query_segment="segment_differs[:, 0, %d:%d]" % (keys - queries, keys),
                     key_segment="segment_differs[:, 0, :]")
    if p["bi_data"]:
        forward = [1] * (p["batch"] // 2) + [-1] * (p["batch"] - p["batch"] // 2)
        call["q_positions"] = {"batch": [[way * (keys - queries + i) for i in range(queries)]
                                         for way in forward]}
        call["k_positions"] = {"batch": [[way * j for j in range(keys)] for way in forward]}
    scheme = words("xlnet", d_model=p["d_model"], clamp_len=clamp(p),
                   segments=2 if segments else None)
    return attend(case, arrays, scheme, names, **call)


def xlnet_streams(p, arrays):
    """Content and query stream: two calls with other q and masks. Gradients of what both read are sums over both."""
    batch, tokens = arrays.shape("token_type_ids")
    ids = arrays.integers("token_type_ids")
    rows = [ids[b * tokens:(b + 1) * tokens] for b in range(batch)]
    numbers = {"query_segment": rows, "key_segment": [[0] * p["mlen"] + row for row in rows]}
    scheme = words("xlnet", d_model=p["d_model"], clamp_len=clamp(p), segments=max(ids) + 1)
    many = []
    for stream in ("h", "g"):
        ins = {"q": "q_" + stream, "k": "k", "v": "v", "visible": "visible_" + stream,
               "s_bias": "s_bias", "seg_embed": "seg_embed", **XL}
        outs = {"out": "out_" + stream, "scores": "scores_" + stream,
                "probabilities": "probs_" + stream}
        many.append(check("attend", scheme=scheme, inputs=numbers, call={"query_offset": "end"},
                          gradient={"in": {"out": "grad_out_" + stream},
                                    "out": {"q": "grad_q_" + stream}},
                          **{"in": ins, "out": outs}))
    return many


def conformer(case, arrays):
    p = case["params"]
    rows, width = arrays.shape("R")
    if arrays.has("u_peer_shape"):  # stored [head_dim, heads], read as [heads, head_dim]
        names = dict(XL, R="R", u="u_peer_shape", v_bias="v_bias_peer_shape")
        return attend(case, arrays, words("conformer", d_model=width, rows=rows), names,
                      1 / math.sqrt(case["params"]["embed_dim"]))
    if "departs" in p:
        return "the peer's R is of other positions, and keys after the query get what its shift leaves"
    return attend(case, arrays, words("conformer", d_model=width, rows=rows), {"R": "R", **XL})


def conformer_absolute_key(case, arrays):
    rows, width = arrays.shape("P")
    scheme = words("conformer_absolute_key", d_model=width, rows=rows)
    return attend(case, arrays, scheme, {"P": "P", **XL})


def tener(case, arrays):
    scaled = case["params"]["scale"]
    # Not scaled: the scheme asks for scale 1.
    return attend(case, arrays, words("tener", scaled=yes(scaled)), {"u": "u", "v_bias": "v_bias"},
                  None if scaled else 1)


RULES = {
    "shaw": shaw,
    "music_transformer": music_transformer,
    "nezha": nezha,
    "transformer_xl": transformer_xl,
    "transformer_xl_learned": transformer_xl_learned,
    "xlnet": xlnet,
    "conformer": conformer,
    "conformer_absolute_key": conformer_absolute_key,
    "tener": tener,
}
