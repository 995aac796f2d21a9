# SPDX-License-Identifier: Apache-2.0
"""model_attention: attention layers of whole models, from config.json and model.safetensors."""

from mapping.attention import attend
from mapping.image_bias import classed, grid
from mapping.words import all_axes, check, turned, words

RESULTS = {"out": "out", "probabilities": "probabilities", "scores": "scores", "position": "bias"}


def call(case, p, arrays, names=None, outs=RESULTS, learned=(), model=True, more_call=None, **members):
    """One layer, its arrays by the names that the reader has. `names`: inputs, ours -> the case's;
    `learned`: parameters with a gradient, or ours -> the case's name of it."""
    ins = {"q": "q", "k": "k", "v": "v", "key_visible": "key_visible"}
    if arrays.has("query_visible"):  # rows of padding mean nothing
        ins["query_visible"] = "query_visible"
    if not model and arrays.has("visible"):
        ins["visible"] = "visible"
    if arrays.has("key_positions"):
        ins.update(q_positions="positions", k_positions="key_positions")
    elif case["scheme"] == "rope":
        ins["positions"] = "positions"
    gradients = {n: "grad_" + n for n in ("q", "k", "v")}
    if arrays.has("sink"):
        gradients["sink"] = "grad_sink"
    ins.update(names or {})
    gradients.update({n: "grad_" + n for n in names or {} if arrays.has("grad_" + n)})
    gradients.update(learned if isinstance(learned, dict) else {n: "grad_" + n for n in learned})
    about = {"query_offset": p.get("query_offset")}
    if model:
        members.update(model="$model_dir", layer=p["layer"])
        if p["stack"] == "encoder":  # beside a decoder, whose layers are the model's
            members["tower"] = "encoder"
    else:
        about["scale"] = p["scale"]
    return attend(arrays, ins, outs, gradients, {"out": "grad_out"},
                  call=dict(about, **(more_call or {})), **members)


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
    return [call(case, p, arrays, learned=["table"])]


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
    more = {"scheme": words("alibi", bias_scale=scale)} if times == 2 else {}  # beside the layer's own
    by_key = words("alibi", future="signed_distance", bias_scale=scale * times if scale else None)
    return [call(case, p, arrays, outs=without("scores", "position"), **more),
            call(case, p, arrays, model=False, scheme=by_key, q_positions=[0] * arrays.shape("q")[2],
                 k_positions={"batch": counts})]


XL = without("position")  # the peer's bias lacks u . k


def xlnet(case, p, arrays):
    learned = {"w_kr": "grad_r", "u": "grad_u", "v_bias": "grad_v_bias"}
    names = {}
    if arrays.has("same_segment"):  # two numbers of segments: that of the first token, or the other one
        names = {n: "same_segment[:, 0, :]" for n in ("query_segment", "key_segment")}
        learned.update(s_bias="grad_s_bias", seg_embed="grad_seg_embed")
    return [call(case, p, arrays, names, XL, learned)]


def funnel(case, p, arrays):
    learned = {n: "grad_" + n for n in ("w_kr", "u", "v_bias", "s_bias", "seg_embed")}
    names = {"q_positions": "positions", "k_positions": "key_positions",
             "query_segment": "query_segment", "key_segment": "key_segment"}
    return [call(case, p, arrays, names, XL, learned)]


def conformer(case, p, arrays):
    if "softcap" in p:  # over the sum of content and position
        outs = dict(without("scores"), capped="scores")
        return [call(case, p, arrays, outs=outs, learned=["w_kr"])]
    return [call(case, p, arrays, outs=XL, learned=["w_kr", "u", "v_bias"])]


def shaw(case, p, arrays):
    if "clip" in p:  # no vectors of values
        return [call(case, p, arrays, learned={"table": "grad_table_k"})]
    return [call(case, p, arrays, learned=["table_k", "table_v"])]


def deberta(case, p, arrays):
    return [call(case, p, arrays, learned={"e_rel": "grad_relative_embedding"})]


def relative_projection(case, p, arrays):
    """Inkling: padding stands on the left, and its distances go by order, as its logarithm does."""
    names = {"hidden": "hidden", "q_positions": "positions", "k_positions": "positions"}
    return [call(case, p, arrays, names, learned=["distance_bank", "w_r"])]


def prophetnet(case, p, arrays):
    return [call(case, p, arrays, {"hidden": "hidden"}, learned=["bias_weight", "bias_bias"])]


# Images and pages -------------------------------------------------------------------------------


def swin(case, p, arrays):
    one = call(case, p, arrays, learned=["table"], positions=grid(*p["window"]))
    if arrays.has("added"):  # -100 between what were no neighbours: in the scores, not in the bias
        one["in"]["bias"] = "added"
    return [one]


def beit(case, p, arrays):
    height, width = p["grid"]
    one = call(case, p, arrays, learned=["table"], positions=grid(height, width, before=p["prefix"]))
    return classed([one], p["prefix"], height * width)


def levit(case, p, arrays):
    height, width = p["grid"]
    return [call(case, p, arrays, learned=["table"], q_positions=grid(height, width, p["query_step"]),
                 k_positions=grid(height, width))]


def decomposed(case, p, arrays):
    learned = {"rel_pos_h": "grad_table_y", "rel_pos_w": "grad_table_x"}
    return [call(case, p, arrays, learned=learned, positions=grid(*p["grid"]))]


def on_page(one, places):
    one["in"].update(q_positions=places, k_positions=places)
    return [one]


def layoutlm(case, p, arrays):
    """The tables are read without a gradient."""
    return on_page(call(case, p, arrays), ["positions", "bbox[:, :, 0]", "bbox[:, :, 3]"])


def udop(case, p, arrays):
    learned = {"table_1d": "grad_table", "table_horizontal": "grad_table_horizontal",
               "table_vertical": "grad_table_vertical"}
    return on_page(call(case, p, arrays, learned=learned),
                   ["0:%d" % arrays.shape("q")[2], "bbox[:, :, 0]|bbox[:, :, 2]",
                    "bbox[:, :, 1]|bbox[:, :, 3]"])


def bros(case, p, arrays):
    return [call(case, p, arrays, {"query_bbox": "bbox", "key_bbox": "bbox"}, learned=["w_bbox"])]


# Words ------------------------------------------------------------------------------------------


def cpmant(case, p, arrays):
    segments = {"query_segment": "query_segment", "key_segment": "key_segment"}
    return [call(case, p, arrays, segments, learned=["table"])]


def wavlm(case, p, arrays):
    return [call(case, p, arrays, {"hidden": "hidden"},
                 learned=["table", "gate_const", "gate_weight", "gate_bias"])]


RULES = {"none": none, "hidden_rotary": hidden_rotary, "rope": rope, "t5": t5, "t5_local": t5,
         "alibi": alibi, "xlnet": xlnet, "funnel": funnel, "conformer": conformer, "shaw": shaw, "deberta": deberta,
         "prophetnet": prophetnet, "relative_projection": relative_projection, "swin": swin, "levit": levit, "beit": beit, "decomposed": decomposed,
         "layoutlm": layoutlm, "udop": udop, "bros": bros, "cpmant": cpmant, "t5_gated": wavlm}


def checks(case, arrays):
    rule = RULES.get(case["scheme"])
    if rule is None:
        return "the scheme %s is not there yet" % case["scheme"]
    return rule(case, case["params"], arrays)
