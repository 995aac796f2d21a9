# SPDX-License-Identifier: Apache-2.0
"""model_attention: attention layers of whole models, from config.json and model.safetensors."""

from mapping.attention import attend
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
    one = call(case, p, arrays, names, XL, scheme=words("xlnet", d_model=width, segments=2 if segments else None))
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
    names = {"e_rel": tensor(p, "relative_embedding"), "norm_weight": "weights:deberta.encoder.LayerNorm.weight",
             "norm_bias": "weights:deberta.encoder.LayerNorm.bias"}
    for ours, theirs in (("w_k", "key_proj.weight"), ("b_k", "key_proj.bias"),
                         ("w_q", "query_proj.weight"), ("b_q", "query_proj.bias")):
        names[ours] = "weights:" + at + theirs
    scheme = words("deberta", max_relative_positions=most, position_buckets=max(config["position_buckets"], 0),
                   projection="shared", norm=True, norm_epsilon=config["layer_norm_eps"])
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


RULES = {"none": none, "hidden_rotary": hidden_rotary, "rope": rope, "t5": t5, "t5_local": t5,
         "alibi": alibi, "xlnet": xlnet, "conformer": conformer, "shaw": shaw, "deberta": deberta,
         "prophetnet": prophetnet}


def checks(case, arrays):
    rule = RULES.get(case["scheme"])
    if rule is None:
        return "the scheme %s is not there yet" % case["scheme"]
    return rule(case, case["params"], arrays)
