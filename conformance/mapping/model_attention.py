# SPDX-License-Identifier: Apache-2.0
"""model_attention: attention layers of whole models, from config.json and model.safetensors."""

from mapping.attention import attend
from mapping.image_bias import classed, grid
from mapping.words import all_axes, check, turned, words

RESULTS = {"out": "out", "probabilities": "probabilities", "scores": "scores", "position": "bias"}


def tensor(p, name):
    return "weights:" + p["tensors"][name]


def call(case, p, arrays, names=None, outs=RESULTS, model=True, more_call=None, **members):
    """One layer. `names`: parameters and inputs, ours -> the case's or a tensor of the model."""
    ins = {"q": "q", "k": "k", "v": "v", "key_visible": "key_visible"}
    if arrays.has("query_visible"):  # rows of padding mean nothing
        ins["query_visible"] = "query_visible"
    if not model and arrays.has("visible"):
        ins["visible"] = "visible"
    if arrays.has("key_positions"):
        ins.update(q_positions="positions", k_positions="key_positions")
    elif case["scheme"] == "rope":
        ins["positions"] = "positions"
    if arrays.has("sink"):
        ins["sink"] = "sink"
    gradients = {n: "grad_" + n for n in ("q", "k", "v", "sink") if n in ins}
    for ours, theirs in (names or {}).items():
        ins[ours] = theirs
        gradients[ours] = "grad_" + ours
    about = {"scale": p["scale"], "softcap": p.get("softcap"), "query_offset": p.get("query_offset")}
    if model:
        members.update(model="$model_dir", layer=p["layer"])
        if p["stack"] == "encoder":  # beside a decoder, whose layers are the model's
            members["tower"] = "encoder"
    one = attend(arrays, {k: v for k, v in ins.items() if not v.startswith("weights:")}, outs,
                 gradients, {"out": "grad_out"}, call=dict(about, **(more_call or {})), **members)
    one["in"].update({k: v for k, v in ins.items() if v.startswith("weights:")})
    return one


def without(*names):
    return {k: v for k, v in RESULTS.items() if k not in names}


def first_visible(arrays):
    """How many tokens of padding are before the first real one, a row."""
    shape, flags = arrays.shape("key_visible"), arrays.bytes("key_visible")
    return [flags[r * shape[1]:(r + 1) * shape[1]].index(1) for r in range(shape[0])]


def none(case, p, arrays):
    return [call(case, p, arrays, model=p["stack"] != "cross")]


def hidden_rotary(case, p, arrays):
    return [call(case, p, arrays, model=False)]  # q and k are made of rotated states


def rope(case, p, arrays):
    members, more = {}, {}
    if p.get("chunk"):
        more["chunk_origin"] = first_visible(arrays)
    if "prefix" in p:  # an image behind tokens that stay where they are
        rows, columns = p["grid"]
        members["positions"] = {"rule": words("patch_centres", rows=rows, columns=columns,
                                              before=p["prefix"])}
    about = {"model": "$model_dir", "layer": p["layer"]}
    many = [call(case, p, arrays, more_call=more, **members)]
    if p.get("chunk") or not arrays.has("q_rotated"):
        return many  # what is multiplied is normed behind the rotation
    axes = all_axes("bhtd", "q", "k", "v")
    places = members.get("positions", "positions" if arrays.has("positions") else
                         "0:%d" % arrays.shape("q")[2])
    if arrays.has("key_positions"):
        many.append(turned(arrays, about, axes, "positions", q=("q", "q_rotated"), k=None))
        for row, first in enumerate(first_visible(arrays)):  # padding was at other places when cached
            part = "[%d:%d, :, %d:]" % (row, row + 1, first)
            places = "key_positions[%d:%d, %d:]" % (row, row + 1, first)
            many.append(check("rotate", **about, axes={"k" + part: "bhtd"},
                              **{"in": {"q": "k" + part, "positions": places},
                                 "out": {"q": "k_rotated" + part}}))
        return many
    many.append(turned(arrays, about, axes, places, q=("q", "q_rotated"), k=("k", "k_rotated")))
    if arrays.has("v_rotated"):
        many.append(turned(arrays, about, axes, places, q=("v", "v_rotated"), k=None))
    return many


def t5(case, p, arrays):
    more = {"window": p["window"]} if "window" in p else None
    return [call(case, p, arrays, {"table": tensor(p, "table")}, more_call=more)]


def alibi(case, p, arrays):
    """The peers' number is the key's alone: bias and scores are another number a row away from ours."""
    keys, visible = arrays.shape("k")[2], arrays.bytes("key_visible")
    counts = []
    for row in range(arrays.shape("key_visible")[0]):
        own, seen = [], 0
        for flag in visible[row * keys:(row + 1) * keys]:
            seen += flag
            own.append((seen - 1) * flag)
        counts.append(own)
    # Falcon scales the bias too. It rounds slopes and biases to bfloat16, which changes nothing for
    # powers of two. Its eager path adds them twice.
    scale = p["scale"] if "departs" in p else None
    times = p.get("bias_factor", 1)
    more = {"scheme": words("alibi", bias_scale=scale)} if times == 2 else {}
    by_key = words("alibi", future="signed_distance", bias_scale=scale * times if scale else None)
    return [call(case, p, arrays, outs=without("scores", "position"), **more),
            call(case, p, arrays, model=False, scheme=by_key, q_positions=[0] * arrays.shape("q")[2],
                 k_positions={"batch": counts})]


XL = without("position")  # the peer's bias lacks u . k


def xlnet(case, p, arrays):
    names = {"w_kr": tensor(p, "r"), "u": "u", "v_bias": "v_bias"}
    width = arrays.shape("R")[1]
    segments = arrays.has("same_segment")
    if segments:
        names.update(s_bias="s_bias", seg_embed="seg_embed")
    scheme = words("xlnet", d_model=width, segments=2 if segments else None)
    one = call(case, p, arrays, names, XL, scheme=scheme)
    if segments:  # two numbers of segments: that of the first token, or the other one
        one["in"].update({n: "same_segment[:, 0, :]" for n in ("query_segment", "key_segment")})
    one["gradient"]["out"]["w_kr"] = "grad_r"
    return [one]


def conformer(case, p, arrays):
    rows, width = arrays.shape("R")
    names = {"R": "R", "w_kr": tensor(p, "w_kr"), "u": "u", "v_bias": "v_bias"}
    scheme = words("conformer", d_model=width, rows=rows)
    return [call(case, p, arrays, names, XL, scheme=scheme)]


def shaw(case, p, arrays):
    if "clip" in p:  # a table of 2 clip rows: -clip .. clip - 1
        scheme = words("shaw", left=p["clip"] - 1, right=p["clip"], sign="query_minus_key",
                       values="none")
        one = call(case, p, arrays, {"table": tensor(p, "table_k")}, scheme=scheme)
        one["gradient"]["out"]["table"] = "grad_table_k"
        return [one]
    scheme = words("shaw", left=p["window"], right=p["window"], beyond="zero", groups=1)
    return [call(case, p, arrays, {n: tensor(p, n) for n in ("table_k", "table_v")}, scheme=scheme)]


def deberta(case, p, arrays):
    config = p["config"]
    most = config["max_relative_positions"]
    if most < 1:
        most = config["max_position_embeddings"]
    at = "deberta.encoder.layer.%d.attention.self." % p["layer"]
    names = {"e_rel": tensor(p, "relative_embedding"),
             "norm_weight": "weights:deberta.encoder.LayerNorm.weight",
             "norm_bias": "weights:deberta.encoder.LayerNorm.bias"}
    for ours, theirs in (("w_k", "key_proj.weight"), ("b_k", "key_proj.bias"),
                         ("w_q", "query_proj.weight"), ("b_q", "query_proj.bias")):
        names[ours] = "weights:" + at + theirs
    scheme = words("deberta", max_relative_positions=most, projection="shared", norm=True,
                   position_buckets=max(config["position_buckets"], 0),
                   norm_epsilon=config["layer_norm_eps"])
    one = call(case, p, arrays, names, scheme=scheme)
    one["gradient"]["out"]["e_rel"] = "grad_relative_embedding"
    return [one]


def prophetnet(case, p, arrays):
    config = p["config"]
    scheme = words("prophetnet", d_model=arrays.shape("hidden")[2], num_buckets=config["num_buckets"],
                   max_distance=config["relative_max_distance"])
    names = {n: tensor(p, n) for n in ("bias_weight", "bias_bias")}
    one = call(case, p, arrays, names, scheme=scheme)
    one["in"]["hidden"] = "hidden"
    return [one]


# Images and pages -------------------------------------------------------------------------------


def swin(case, p, arrays):
    height, width = p["window"]
    one = call(case, p, arrays, {"table": tensor(p, "table")}, positions=grid(height, width),
               scheme=words("swin", height=height, width=width))
    if arrays.has("added"):  # -100 between what were no neighbours: in the scores, not in the bias
        one["in"]["bias"] = "added"
    return [one]


def beit(case, p, arrays):
    height, width = p["grid"]
    one = call(case, p, arrays, {"table": tensor(p, "table")},
               positions=grid(height, width, before=p["prefix"]),
               scheme=words("beit", height=height, width=width))
    return classed([one], p["prefix"], height * width)


def decomposed(case, p, arrays):
    one = call(case, p, arrays, {"rel_pos_h": tensor(p, "table_y"), "rel_pos_w": tensor(p, "table_x")},
               positions=grid(*p["grid"]), scheme=words("decomposed", size=p["grid"]))
    one["gradient"]["out"].update(rel_pos_h="grad_table_y", rel_pos_w="grad_table_x")
    return [one]


def on_page(one, places):
    one["in"].update(q_positions=places, k_positions=places)
    return [one]


def layoutlm(case, p, arrays):
    """The tables are read without a gradient."""
    c = p["config"]
    scheme = words("layoutlm", num_buckets=c["rel_pos_bins"], max_distance=c["max_rel_pos"],
                   num_buckets_2d=c["rel_2d_pos_bins"], max_distance_2d=c["max_rel_2d_pos"],
                   scaled=True, heads_first=True)
    one = call(case, p, arrays, scheme=scheme)
    one["in"].update(table_1d=tensor(p, "table"), table_x=tensor(p, "table_x"),
                     table_y=tensor(p, "table_y"))
    return on_page(one, ["positions", "bbox[:, :, 0]", "bbox[:, :, 3]"])


def udop(case, p, arrays):
    parts = {a["type"]: a for a in p["config"]["relative_bias_args"]}
    fields = {"per_unit": 50}  # of the sum of two edges; 100 of their mean
    for name, kind, most in (("", "1d", 128), ("horizontal_", "horizontal", 100),
                             ("vertical_", "vertical", 100)):
        part = parts[kind]
        fields[name + "buckets" if name else "num_buckets"] = part.get("relative_attention_num_buckets", 32)
        fields[name + "max_distance"] = part.get("max_distance", most)
    names = {"table_1d": tensor(p, "table"), "table_horizontal": tensor(p, "table_horizontal"),
             "table_vertical": tensor(p, "table_vertical")}
    one = call(case, p, arrays, names, model=False, scheme=words("udop", **fields))
    one["gradient"]["out"]["table_1d"] = "grad_table"
    return on_page(one, ["0:%d" % arrays.shape("q")[2], "bbox[:, :, 0]+bbox[:, :, 2]",
                         "bbox[:, :, 1]+bbox[:, :, 3]"])


def bros(case, p, arrays):
    count = arrays.shape("bbox")[2]
    scheme = words("bros", coordinates=count, frequencies=p["config"]["hidden_size"] // 32 // 2)
    one = call(case, p, arrays, {"w_bbox": tensor(p, "w_bbox")}, scheme=scheme)
    one["in"].update(query_bbox="bbox", key_bbox="bbox")
    return [one]


# Words ------------------------------------------------------------------------------------------


def cpmant(case, p, arrays):
    c = p["config"]
    scheme = words("cpmant", num_buckets=c["position_bias_num_buckets"],
                   max_distance=c["position_bias_max_distance"], segments=c["segment_types"])
    one = call(case, p, arrays, {"table": tensor(p, "table")}, model=False, scheme=scheme)
    one["in"].update(query_segment="query_segment", key_segment="key_segment")
    return [one]


def wavlm(case, p, arrays):
    c = p["config"]
    names = {n: tensor(p, n) for n in ("table", "gate_const", "gate_weight", "gate_bias")}
    scheme = words("wavlm", num_buckets=c["num_buckets"], max_distance=c["max_bucket_distance"])
    one = call(case, p, arrays, names, scheme=scheme)
    one["in"]["hidden"] = "hidden"
    return [one]


RULES = {"none": none, "hidden_rotary": hidden_rotary, "rope": rope, "t5": t5, "t5_local": t5,
         "alibi": alibi, "xlnet": xlnet, "conformer": conformer, "shaw": shaw, "deberta": deberta,
         "prophetnet": prophetnet, "swin": swin, "beit": beit, "decomposed": decomposed,
         "layoutlm": layoutlm, "udop": udop, "bros": bros, "cpmant": cpmant, "t5_gated": wavlm}


def checks(case, arrays):
    rule = RULES.get(case["scheme"])
    if rule is None:
        return "the scheme %s is not there yet" % case["scheme"]
    return rule(case, case["params"], arrays)
