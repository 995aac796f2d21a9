# SPDX-License-Identifier: Apache-2.0
"""absolute: tables of positions, their resizing, compositions and position ids."""

from mapping.words import all_axes, check, words


def checks(case, arrays):
    rule = RULES.get(case["scheme"])
    return rule(case, case["params"], arrays) if rule else None


def size(value):
    return "x".join(str(n) for n in value) if isinstance(value, list) else str(value)


def extended(old, to, how, prefix=0, axes=None, table="table", out="out", grad=None):
    ins, outs = {"table": table}, {"table": out}
    if grad:
        ins["grad_out"], outs["grad_table"] = grad
    scheme = words("learned", grid=size(old), prefix=prefix or None)
    return [check("extend", scheme=scheme, to=size(to), how=how, axes=axes,
                  **{"in": ins, "out": outs})]


def yes(flag):
    return True if flag else None


def interpolate(case, p, arrays):
    name = case["name"]
    if name.startswith("interp1d_") or name.startswith("interp2d_"):
        return torch_interpolate(p)
    if name.startswith("interp_hf_packed_"):
        return packed(p)
    if name.startswith("interp_timm_"):
        return timm(p, arrays)
    if name.startswith("interp_dinov2_"):
        how = words(p["mode"], offset=p["interpolate_offset"] or None,
                    antialias=yes(p["interpolate_antialias"]))
        return extended(p["old"], p["new"], how, prefix=1, table="pos_embed")
    if name.startswith("interp_hf436_"):
        return extended(p["old"], p["new"], words("bicubic", offset=p["offset"]), prefix=1,
                        table="position_embeddings",
                        grad=("grad_out", "grad_position_embeddings"))
    return vit(p, arrays)


def torch_interpolate(p):
    one = p["mode"] == "linear"
    scale = p.get("scale_factor")
    if scale is not None and p.get("recompute_scale_factor"):
        scale = None
    scales = [scale, None] if one or scale is None else scale
    how = words(p["mode"], align_corners=yes(p["align_corners"]),
                antialias=yes(p.get("antialias")), scale_y=scales[0], scale_x=scales[1])
    letters = "bdt" if one else "bdtt"
    return extended(p["old"], p["new"], how, axes=all_axes(letters, "x", "out", "grad_out", "grad_x"),
                    table="x", grad=("grad_out", "grad_x"))


def packed(p):
    # The peer's own indices and weights rest on sampling points in float32; its rows are compared.
    how = words(p["mode"], align_corners=yes(p["align_corners"]))
    scheme = words("learned", grid=size([p["side"], p["side"]]))
    return [check("extend", scheme=scheme, how=how, merge=p["spatial_merge_size"], **{
        "in": {"table": "table", "grids": "grid_thw"},
        "out": {"rows": "rows"}})]


def timm(p, arrays):
    old = p.get("old_size") or arrays.shape("posemb")[1:3]
    how = words(p["interpolation"], antialias=yes(p["antialias"]))
    return extended(old, p["new_size"], how, prefix=p.get("num_prefix_tokens", 0), table="posemb")


def vit(p, arrays):
    side = p["image_size"] // p["patch_size"]
    new = [p["height"] // p["patch_size"], p["width"] // p["patch_size"]]
    table = "position_embedding" if arrays.has("position_embedding") else "position_embeddings"
    grad = ("grad_out", "grad_" + table) if arrays.has("grad_out") else None
    return extended([side, side], new, "bicubic", prefix=1, table=table, grad=grad)


def encode(scheme, positions, ins, outs, **more):
    """Positions: a range or list, a rule ({"rule": ..}), or the name of an array (@name)."""
    ins, members = dict(ins), dict(more)
    if isinstance(positions, str) and positions.startswith("@"):
        ins["positions"] = positions[1:]
    else:
        members["positions"] = positions
    return check("encode", scheme=scheme, **members, **{"in": ins, "out": outs})


def rule(text, **members):
    return dict({"rule": text}, **members)


def learned_table(arrays, table, **fields):
    rows, width = arrays.shape(table)
    return words("learned", width=width, rows=rows, **fields)


def learned(case, p, arrays):
    return globals()[case["name"]](p, arrays) if case["name"] in LEARNED else x_transformers(p, arrays)


def learned_fairseq(p, arrays):
    pad, ids = p["padding_idx"], rule(words("fairseq", padding_idx=p["padding_idx"]),
                                      **{"in": {"tokens": "input_ids"}})
    table = learned_table(arrays, "weight", frozen_row=pad)
    step = pad + p["incremental_tokens"]  # pads are counted
    return [encode(table, ids, {"table": "weight", "grad_out": "grad_out"},
                   {"rows": "out", "grad_table": "grad_weight"}),
            encode(table, "%d:%d" % (step, step + 1), {"table": "weight"},
                   {"rows": "out_incremental"})]


def learned_fairseq2(p, arrays):
    table = learned_table(arrays, "weight", offset=1, frozen_row=0)
    tokens = arrays.shape("x")[1]
    inside = [[t if t < n else -1 for t in range(tokens)] for n in p["seq_lens"]]
    ids = {"batch": inside}
    return [encode(table, ids, {"x": "x", "table": "weight", "grad_out": "grad_out"},
                   {"out": "out", "grad_table": "grad_weight"})]


def learned_hf_bart_offset2(p, arrays):
    tokens = arrays.shape("input_ids")[1]
    word = {"table": "word", "in": {"ids": "input_ids"}, "scale": p["embed_scale"],
            "frozen": p["padding_idx"]}

    def call(past):
        return [word, {"table": "position", "ids": "%d:%d" % (past, past + tokens),
                       "offset": p["offset"]}]

    return [check("embed", calls=[call(0), call(5)], **{
        "in": {"grad_out": "grad_out"},
        "out": {"out0": "out_past0", "out1": "out_past5", "grad_word": "grad_word",
                "grad_position": "grad_position"}}),
            encode(learned_table(arrays, "position", offset=p["offset"]),
                   p["explicit_position_ids"], {"table": "position"}, {"rows": "rows_by_ids"})]


def learned_hf_gpt2(p, arrays):
    tokens = arrays.shape("input_ids")[1]

    def call(ids, positions):
        where = {"in": {"ids": positions[1:]}} if positions[0] == "@" else {"ids": positions}
        return [{"table": "wte", "in": {"ids": ids}}, dict({"table": "wpe"}, **where)]

    return [check("embed", calls=[
        call("input_ids", "0:%d" % tokens), call("input_ids", "@position_ids"),
        call("input_ids[:, 3:5]", "3:5")], graded=2, **{
        "in": {"grad_out": "grad_out"},
        "out": {"out0": "h_default", "out1": "h_explicit", "out2": "h_after_cache3",
                "grad_wte": "grad_wte", "grad_wpe": "grad_wpe"}})]


def learned_hf_opt_mask(p, arrays):
    table = learned_table(arrays, "weight", offset=p["offset"])
    mask = {"in": {"mask": "attention_mask"}}
    past = p["past_key_values_length"]
    return [encode(table, rule("from_mask padded=-1", **mask),
                   {"table": "weight", "grad_out": "grad_out"},
                   {"rows": "out", "grad_table": "grad_weight"}),
            encode(table, rule(words("from_mask", padded=-1, drop=past), **mask),
                   {"table": "weight"}, {"rows": "out_past3"})]


def learned_keras_hub(p, arrays):
    table, first = learned_table(arrays, "weight"), p["start_index"]
    return [encode(table, "%d:%d" % (first, first + p["length"]), {"table": "weight"},
                   {"rows": "start3"}),
            encode(table, {"batch": p["positions"]}, {"table": "weight"},
                   {"rows": "by_positions"})]


def learned_opennmt_tf_clamp(p, arrays):
    table = learned_table(arrays, "table", offset=p["first_position"], beyond="clamp")
    tokens, step = arrays.shape("x")[1], p["decode_position"]
    return [encode(table, "0:%d" % tokens, {"x": "x", "table": "table", "grad_out": "grad_out"},
                   {"out": "out", "grad_table": "grad_table"}),
            encode(table, "%d:%d" % (step, step + 1), {"x": "x[:, 0:1]", "table": "table"},
                   {"out": "out_step"})]


def learned_t2t_beyond_end(p, arrays):
    return [encode(learned_table(arrays, "table", beyond="zero"), "0:%d" % p["length"],
                   {"x": "x", "table": "table", "grad_out": "grad_out"},
                   {"out": "out", "grad_table": "grad_table"})]


learned_t2t_short = learned_t2t_beyond_end
LEARNED = {"learned_fairseq", "learned_fairseq2", "learned_hf_bart_offset2", "learned_hf_gpt2",
           "learned_hf_opt_mask", "learned_keras_hub", "learned_opennmt_tf_clamp",
           "learned_t2t_beyond_end", "learned_t2t_short"}


def x_transformers(p, arrays):
    l2norm = p["l2norm_embed"]
    table = learned_table(arrays, "weight", gain=None if l2norm else p["scale"],
                          l2norm=yes(l2norm))
    starts = rule(words("from_starts", count=p["length"]), **{"in": {"starts": "seq_start_pos"}})
    first = p["offset"]
    return [encode(table, starts, {"table": "weight", "grad_out": "grad_out"},
                   {"rows": "out", "grad_table": "grad_weight"}),
            encode(table, "%d:%d" % (first, first + p["length"]), {"table": "weight"},
                   {"rows": "out_offset7"})]


def learned_2d(case, p, arrays):
    if case["name"] == "learned2d_hf_detr":
        width = p["embedding_dim"]
        scheme = words("learned_axes", width=2 * width, shape=[p["rows"], p["rows"]],
                       widths=[width, width], order=[1, 0])
        return [encode(scheme, rule(words("grid", shape=[p["height"], p["width"]])),
                       {"axis0": "row", "axis1": "column", "grad_out": "grad_out"},
                       {"rows": "pos", "grad_axis0": "grad_row", "grad_axis1": "grad_column"},
                       axes=all_axes("bdtt", "pos", "grad_out"))]
    rows = p["max_length"]
    scheme = words("learned_axes", width=p["depth"], shape=[rows, rows], gain=p["gain"],
                   beyond="zero")
    return [encode(scheme, rule(words("grid", shape=p["grid"])),
                   {"x": "x", "axis0": "axis0", "axis1": "axis1"}, {"out": "out"},
                   axes=all_axes("bttd", "x", "out"))]


def axial(case, p, arrays):
    shape = p.get("axial_pos_shape") or p["axial_shape"]
    names = ["axis%d" % a for a in range(len(shape))]
    tables = {n: n for n in names}
    grads = {"grad_" + n: "grad_" + n for n in names}
    if p["combine"] == "sum":
        scheme = words("learned_axes", width=p["dim"], shape=shape, flat=True)
        return [encode(scheme, "0:%d" % p["length"], dict(tables, grad_out="grad_out"),
                       dict(grads, rows="out"))]
    widths = p["axial_pos_embds_dim"]
    scheme = words("learned_axes", width=sum(widths), shape=shape, widths=widths, flat=True)
    return [encode(scheme, "0:%d" % (shape[0] * shape[1]), dict(tables, grad_out="grad_table"),
                   dict(grads, rows="table")),
            encode(scheme, "@position_ids", tables, {"rows": "rows"})]


def fusion(case, p, arrays):
    mode = {"add": None, "mul": "one_plus", "concat": "concat", "zero": None}[p["merge_mode"]]
    if not arrays.has("table"):
        scheme = words("sinusoidal", width=p["output_dim"], layout=p["layout"],
                       spacing=p["spacing"], base=p["base"], compose=mode)
        return [encode(scheme, "0:%d" % arrays.shape("x")[1], {"x": "x"}, {"out": "out"})]
    alpha = p["hierarchical"]
    zero = p["merge_mode"] == "zero"
    scheme = learned_table(arrays, "table", compose=mode, input_gain=0 if zero else None,
                           beyond="extend" if alpha else None, alpha=alpha)
    if arrays.has("position_ids"):
        return [encode(scheme, "@position_ids", {"x": "x", "table": "table"}, {"out": "out"})]
    part = "[0:1]" if zero else ""  # the table alone, once for the batch
    return [encode(scheme, "0:%d" % p["length"],
                   {"x": "x" + part, "table": "table", "grad_out": "grad_out"},
                   {"out": "out", "grad_x": "grad_x" + part, "grad_table": "grad_table"})]


def embedded(parts, p, arrays):
    """Looked-up rows, summed and normed, with all the gradients that the case has."""
    outs = {"out": "out"}
    tables = {t.get("table") or t["rows"] for t in parts} | {"gamma", "beta"}
    for t in sorted(tables):
        if arrays.has("grad_" + t):
            outs["grad_" + t] = "grad_" + t
    ins = {"grad_out": "grad_out"} if arrays.has("grad_out") else {}
    epsilon = p.get("layer_norm_eps", p.get("layernorm_epsilon"))
    return check("embed", parts=parts, norm={"gamma": "gamma", "beta": "beta", "epsilon": epsilon},
                 **{"in": ins, "out": outs})


def part(table, ids, **more):
    """`ids`: an array (@name), a range or a rule."""
    if isinstance(ids, str) and ids.startswith("@"):
        return dict({"table": table, "in": {"ids": ids[1:]}}, **more)
    return dict({"table": table, "ids": ids}, **more)


def compose(case, p, arrays):
    if case["name"] == "compose_hf_vit":
        return [check("embed", parts=[
            {"patches": {"pixels": "pixel_values", "weight": "projection_weight",
                         "bias": "projection_bias", "class": "cls_token"}},
            {"rows": "position_embeddings"}], out={"out": "out"})]
    pad = p["pad_token_id"]
    parts = [part("word", "@input_ids", frozen=pad)]
    if arrays.has("token_type_ids"):
        parts += [part("position", "@positions"), part("type", "@token_type_ids")]
        return [embedded(parts, p, arrays)]
    ids = words("fairseq", padding_idx=pad)
    tokens = {"in": {"tokens": "input_ids"}}
    parts += [part("position", rule(ids, **tokens), frozen=pad), part("type", [0] * arrays.shape("input_ids")[1])]
    return [check("positions", rule=ids, **{"in": {"tokens": "input_ids"},
                                            "out": {"positions": "position_ids"}}),
            embedded(parts, p, arrays)]


def layout(case, p, arrays):
    return {"layout_hf_layoutlm": layoutlm, "layout_hf_layoutlmv3_bias": layoutlm_bias,
            "layout_hf_layoutlmv3_text": layoutlm_v3}.get(case["name"], tapas)(p, arrays)


def corner(k):
    return "@bbox[:, :, %d]" % k


def layoutlm(p, arrays):
    tokens = arrays.shape("input_ids")[1]
    parts = [part("word", "@input_ids", frozen=p["pad_token_id"]),
             part("position", "0:%d" % tokens),
             part("x", corner(0)), part("y", corner(1)), part("x", corner(2)), part("y", corner(3)),
             part("h", corner(3) + "+-bbox[:, :, 1]"), part("w", corner(2) + "+-bbox[:, :, 0]"),
             part("type", [0] * tokens)]
    return [embedded(parts, p, arrays)]


def layoutlm_bias(p, arrays):
    one = words("t5", bidirectional=True, num_buckets=p["rel_pos_bins"],
                max_distance=p["max_rel_pos"])
    two = words("t5", bidirectional=True, num_buckets=p["rel_2d_pos_bins"],
                max_distance=p["max_rel_2d_pos"])
    checks = []
    for b in range(arrays.shape("position_ids")[0]):
        at = {"1d": "position_ids[%d]" % b, "x": "bbox[%d, :, 0]" % b, "y": "bbox[%d, :, 3]" % b}

        def place(axis):
            return {"q_positions": at[axis], "k_positions": at[axis]}

        for axis, scheme in (("1d", one), ("x", two), ("y", two)):
            checks.append(check("buckets", scheme=scheme, **{
                "in": place(axis), "out": {"bucket": "buckets_%s[%d]" % (axis, b)}}))
        for h in range(p["heads"]):
            def table(axis):
                return dict(place(axis), table="weight_%s[%d]" % (axis, h))

            checks.append(check("bias", scheme=one, heads=1, **{
                "in": table("1d"), "out": {"bias": "bias_1d[%d, %d]" % (b, h)}}))
            checks.append(check("bias", heads=1, sum=[
                {"scheme": two, "in": table("x")}, {"scheme": two, "in": table("y")}], **{
                "out": {"bias": "bias_2d[%d, %d]" % (b, h)}}))
    return checks


def layoutlm_v3(p, arrays):
    pad, tokens = p["pad_token_id"], arrays.shape("input_ids")[1]
    ids, named = words("fairseq", padding_idx=pad), {"tokens": "input_ids"}
    boxes = words("boxes", width=p["hidden_size"], rows=p["max_2d_position_embeddings"],
                  coordinate=p["coordinate_size"], shape=p["shape_size"], clip=True)
    tables = {n + "_table": n + "_rows" for n in "xyhw"}
    parts = [part("word", "@input_ids"), part("position", rule(ids, **{"in": named})),
             part("type", [0] * tokens), {"rows": "spatial"}]
    return [check("positions", rule=ids, **{"in": named, "out": {"positions": "position_ids"}}),
            encode(boxes, "@bbox", tables, {"rows": "spatial"}, axes={"bbox": "bta"},
                   rows_at={n + "_table": n + "_ids" for n in "xyhw"}),
            embedded(parts, p, arrays)]


def tapas(p, arrays):
    tokens = arrays.shape("input_ids")[1]
    if p["reset_position_index_per_cell"]:
        text = words("cells", limit=p["max_position_embeddings"] - 1)
        ins = {"column": "token_type_ids[:, :, 1]", "row": "token_type_ids[:, :, 2]"}
    else:
        text, ins = words("arange", count=tokens), {}
    parts = [part("word", "@input_ids"), part("position", rule(text, **{"in": ins}))]
    parts += [part("type%d" % k, "@token_type_ids[:, :, %d]" % k) for k in range(7)]
    return [check("positions", rule=text, **{"in": ins, "out": {"positions": "position_ids"}}),
            embedded(parts, p, arrays)]


def hierarchy(case, p, arrays):
    if arrays.has("word"):
        parts = [part("word", "@input_ids"), part("token", "@token_ids"),
                 part("paragraph", "@paragraph_ids"), part("sentence", "@sentence_ids"),
                 part("type", "@token_type_ids")]
        return [embedded(parts, p, arrays)]
    names = ["token", "sentence", "paragraph"]
    scheme = words("hierarchy", width=p["d_model"], rows=[0, 0, 0], widths=p["widths"],
                   layout="halves", base=p["base"])
    ids = rule("distance_to_largest", ids=[["memory_" + n, n] for n in names],
               axes=all_axes("tb", *(names + ["memory_" + n for n in names])))
    return [encode(scheme, ids, {}, {"rows": "rows"}, axes={"rows": "tbd"})]


def position_ids(case, p, arrays):
    name = case["name"]
    if name == "ids_fairseq":
        return [check("positions", rule=words("fairseq", padding_idx=i), **{
            "in": {"tokens": "input_ids"}, "out": {"positions": "pad%d" % i}})
            for i in p["padding_idx"]]
    if name == "ids_hf_roberta":
        first, shape = p["padding_idx"] + 1, p["inputs_embeds_shape"]
        text = words("fairseq", padding_idx=p["padding_idx"])
        return [positions(text, "past0", tokens="input_ids"),
                positions(text + " past=%d" % p["past_key_values_length"], "past4",
                          tokens="input_ids")] + [
            positions(words("arange", first=first, count=shape[1]), "from_embeds[%d]" % b)
            for b in range(shape[0])]
    if name == "ids_hf_opt_rows":
        text = words("from_mask", padded=1, first=p["offset"])
        return [positions(text, "rows", mask="attention_mask"),
                positions(text + " drop=%d" % p["past_key_values_length"], "rows_past3",
                          mask="attention_mask")]
    if name.startswith("ids_hf") and arrays.has("attention_mask"):
        padded = 1 if "436" in name else 0
        return [positions(words("from_mask", padded=padded), "position_ids",
                          mask="attention_mask")]
    if name == "ids_hf_packing":
        ends = [sum(p["lengths"][:n]) for n in range(len(p["lengths"]) + 1)]
        text = words("packed", cu_seqlens=ends)
        return [positions(text, "position_ids"),
                positions(text + " first=%d" % p["position_ids_start_second"], "position_ids_from2"),
                check("documents", lengths="$lengths", out={
                    "documents": "seq_idx", "cu_seqlens": "cu_seqlens",
                    "max_length": "max_length"})]
    if name == "ids_hf_packing_inverse":
        def documents(where, **out):
            return check("documents", **{"in": {"positions": where}, "out": out})

        return [documents("position_ids", documents="documents"),
                documents("position_ids[0]", cu_seqlens="cu_seqlens_row0",
                          max_length="max_length_row0"),
                documents("position_ids_from2", cu_seqlens="cu_seqlens_from2",
                          max_length="max_length_from2")]
    merges = p["spatial_merge_size"]
    outs = [("yx_merge2", merges[0], 2), ("tyx_merge2", merges[0], 3), ("yx_merge1", merges[1], 2)]
    return [check("positions", rule=words("patches", merge=m, axes=n), axes={out: "ta"}, **{
        "in": {"grids": "grid_thw"}, "out": {"positions": out}}) for out, m, n in outs]


def positions(text, out, **ins):
    return check("positions", rule=text, **{"in": ins, "out": {"positions": out}})


def mrope(case, p, arrays):
    classic = p["masked_positions"] == 1
    text = words("mrope", merge=p["spatial_merge_size"], padded=p["masked_positions"],
                 next_text="after_all_axes" if classic else "after_space",
                 delta_count="all_tokens" if classic else "real_tokens")
    ins = {"token_types": "token_types", "mask": "attention_mask"}
    for ours, theirs in (("image_grid", "image_grid_thw"), ("video_grid", "video_grid_thw")):
        if arrays.has(theirs):
            ins[ours] = theirs
    return [check("positions", rule=text, **{
        "in": ins, "out": {"positions": "position_ids", "delta": "deltas"}})]


RULES = {"interpolate": interpolate, "learned": learned, "learned_2d": learned_2d, "axial": axial,
         "fusion": fusion, "hierarchical": fusion, "compose": compose, "layout": layout,
         "hierarchy": hierarchy, "position_ids": position_ids, "position_ids_mrope": mrope}
