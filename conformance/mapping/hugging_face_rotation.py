# SPDX-License-Identifier: Apache-2.0
"""rotary_hugging_face, the cases named apply_* and vision_*: functions that turn q and k."""

from mapping.words import all_axes, check, turned, words

ORDERS = {
    "[batch, heads, tokens, head_dim]": "bhtd", "[batch, tokens, heads, head_dim]": "bthd",
    "[batch, heads, tokens, qk_rope_head_dim]": "bhtd", "[tokens, heads, head_dim]": "thd",
    "[heads, tokens, head_dim]": "htd",
}


def turned_both_ways(arrays, about, axes, positions):
    out = []
    for suffix in ("", "_f64"):
        out.append(turned(arrays, about, axes, positions, q=("q", "q_out" + suffix),
                          k=("k", "k_out" + suffix)))
    out.append(turned(arrays, about, axes, positions, q=("grad_q_out", "grad_q"),
                      k=("grad_k_out", "grad_k"), sense="gradient"))
    return out


def table(arrays, about, positions, layout, cos="table_cos", sin="table_sin", **more):
    ins = {"positions": positions} if isinstance(positions, str) else {}
    members = {} if ins else {"positions": positions}
    return check("rows", **about, **members, layout=layout, **more,
                 **{"in": ins, "out": {"cos": cos, "sin": sin}})


def table_layout(arrays, width, pairing, model_type):
    """One column a pair, or two in the order the module writes them."""
    columns = arrays.shape("table_cos")[-1]
    if columns * 2 == width:
        return "half"
    repeated = ("cohere", "cohere2", "ernie4_5_vl_moe_text")
    return "repeated" if model_type in repeated else "duplicated"


def apply(case, arrays):
    p = case["params"]
    name = case["name"]
    if name == "apply_roformer_with_value":
        return roformer(p, arrays)
    axes = {}
    if arrays.has("hidden"):
        return hidden_states(p, arrays)
    letters = ORDERS[p["q_k_layout"]]
    axes = all_axes(letters, "q", "k", "grad_q_out", "grad_k_out")
    config = p["config"]
    about = {"model": "$config"}
    if p.get("layer_type"):
        about["layer_type"] = p["layer_type"]
    if rule_of_length(config):
        about["context"] = max(arrays.integers("position_ids")) + 1
    # The function gets the turned window alone where latent attention splits the head before.
    if "qk_rope_head_dim" in config:
        about["part"] = "rotary"
    out = turned_both_ways(arrays, about, axes, "position_ids")
    if arrays.has("table_cos"):
        width = rotary_width(config, arrays)
        out.append(table(arrays, about, "position_ids",
                         table_layout(arrays, width, p["pairing"], p["model_type"])))
    return out


def rule_of_length(config):
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    return rope.get("rope_type", rope.get("type")) in ("longrope", "su", "dynamic")


def rotary_width(config, arrays):
    """Turned channels: what the table can cover at most twice."""
    columns = arrays.shape("table_cos")[-1]
    head = arrays.shape("q")[-1]
    rope = config.get("rope_parameters") or {}
    fraction = config.get("partial_rotary_factor", rope.get("partial_rotary_factor", 1))
    if rope.get("rope_type") == "proportional" or fraction is None:
        fraction = 1
    width = int(head * fraction)
    return width if width in (columns, 2 * columns) else columns


def roformer(p, arrays):
    """The peer's table is stored as float32: its float32 results are those of that table, the
    double ones are near the exact rotation."""
    about = {"scheme": words("rope", head_dim=p["dim"], base=10000, pairing=p["pairing"])}
    axes = all_axes("bhtd", "q", "k", "v", "grad_q_out", "grad_k_out", "grad_v_out")
    half = p["dim"] // 2
    cos, sin = "table_cos[0,0,:,%d:%d]" % (half, p["dim"]), "table_cos[0,0,:,0:%d]" % half
    out = [table(arrays, about, "position_ids", "half", cos=cos, sin=sin)]
    for ours in ("q", "k", "v"):
        for source, result, sense in ((ours, ours + "_out_f64", None),
                                      ("grad_%s_out" % ours, "grad_" + ours, "gradient")):
            out.append(turned(arrays, about, axes, "position_ids", q=(source, result), k=None,
                              sense=sense))
        out.append(check("rotate_rows", **about, axes=axes,
                         **{"in": {"q": ours, "cos": cos, "sin": sin},
                            "out": {"q": ours + "_out"}}))
    return out


def hidden_states(p, arrays):
    """Hidden states turned head by head before the projections."""
    config = p["config"]
    head = config["hidden_size"] // config["num_attention_heads"]
    about = {"scheme": words("rope", head_dim=head, base=config.get("rotary_embedding_base", 10000),
                             pairing="half_split")}
    axes = all_axes("bt(hd)", "hidden", "grad_hidden_out")
    out = []
    for suffix in ("", "_f64"):
        out.append(turned(arrays, about, axes, "position_ids",
                          q=("hidden", "hidden_out" + suffix), k=None))
    out.append(turned(arrays, about, axes, "position_ids", q=("grad_hidden_out", "grad_hidden"),
                      k=None, sense="gradient"))
    return out


# Vision towers ----------------------------------------------------------------------------------


def vision(case, arrays):
    """The towers' definitions, each said in full: a tower's own configuration is no model file."""
    p = case["params"]
    config = p["config"]
    head = arrays.shape("q")[-1]
    half = head // 2
    kind = p["model_type"]
    where = dict(head_dim=head, axes_dim=[half, half])
    letters = ORDERS[p["q_k_layout"]]
    axes = all_axes(letters, "q", "k", "grad_q_out", "grad_k_out")
    ids, layout = "position_ids", "duplicated"
    if kind == "qwen2_vl_vision":
        scheme = words("axial", **where, base=10000, pairing="half_split")
        axes["position_ids"] = "ta"
    elif kind == "pixtral":
        scheme = words("axial", **where, base=10000, pairing="half_split", spacing="interlaced")
        axes["position_ids"] = "ta"
    elif kind == "llama4_vision_model":
        side = config["image_size"] // config["patch_size"]
        scheme = words("axial", **where, base=10000, pairing="interleaved")
        ids = {"rule": words("grid", shape=[side, side], first=1, swap_xy=True, after=1)}
        layout = "half"
    elif kind == "dinov3_vit":
        return dinov3(p, arrays, where, axes)
    elif kind == "gemma4_vision":
        scheme = words("axial", **where, base=100, pairing="half_split", order="blocks")
        axes["position_ids"] = "bta"
        about = {"scheme": scheme, "axes": axes}
        out = turned_both_ways(arrays, {"scheme": scheme}, axes, ids)
        for block in (0, 1):
            part = "[:,:,%d:%d]" % (block * half, (block + 1) * half)
            out.append(table(arrays, about, ids, layout, cos="table_cos" + part,
                             sin="table_sin" + part, block=block))
        return out
    else:
        raise KeyError(kind)
    about = {"scheme": scheme}
    return turned_both_ways(arrays, about, axes, ids) + [
        table(arrays, dict(about, axes=axes), ids, layout)]


def dinov3(p, arrays, where, axes):
    """The peer's double run keeps the angles in float32: its table lies that far from the exact
    one, and what it turned follows from its table."""
    patch = p["config"]["patch_size"]
    rows, columns = (side // patch for side in p["image"])
    prefix = p["prefix_tokens"]
    tokens = prefix + rows * columns
    about = {"scheme": words("axial", **where, base=100, scale=6.283185307179586,
                             pairing="half_split")}
    centres = words("patch_centres", rows=rows, columns=columns)
    out = [turned(arrays, about, axes, {"rule": centres + " before=%d" % prefix}),
           table(arrays, about, {"rule": centres}, "duplicated", known_difference=1e-7)]
    for pairs, sense in (((("q", "q_out_f64"), ("k", "k_out_f64")), None),
                         ((("grad_q_out", "grad_q"), ("grad_k_out", "grad_k")), "gradient")):
        def part(name, first, last):
            return "%s[:,:,%d:%d,:]" % (name, first, last)

        for first, last in ((0, prefix), (prefix, tokens)):
            ins = {ours: part(source, first, last)
                   for ours, (source, _) in zip(("q", "k"), pairs)}
            outs = {ours: part(result, first, last)
                    for ours, (_, result) in zip(("q", "k"), pairs)}
            letters = {name: "bhtd" for name in ins.values()}
            if first == 0:  # class and register tokens stand still
                still = [[0] * prefix, [0] * prefix]
                out.append(check("rotate", **about, axes=letters, positions=still, sense=sense,
                                 **{"in": ins, "out": outs}))
            else:
                out.append(check("rotate_rows", **about, axes=letters, layout="duplicated",
                                 sense=sense, **{
                                     "in": dict(ins, cos="table_cos", sin="table_sin"),
                                     "out": outs}))
    return out
