# SPDX-License-Identifier: Apache-2.0
"""relative_content, relative_bias: DeBERTa, CoPE, forgetting gates, stick-breaking, relative projection, no encoding."""

import math
import struct

from mapping.attention import usual
from mapping.words import check, words

SCORES = {"probabilities": "probs", "scores": "scores", "content": "score_content_content",
          "query_position": "score_c2p", "position_key": "score_p2c"}


def float32(x):
    return struct.unpack("f", struct.pack("f", x))[0]


def deberta(case, arrays):
    p = case["params"]
    if arrays.has("bucket") or arrays.has("bucket_plus_num_directional_buckets"):
        return deberta_buckets(case, p, arrays)
    call, ins, more = {}, {}, {}
    if p.get("first_query_position"):
        call["query_offset"] = p["first_query_position"]
    if p.get("query_positions"):
        more["q_positions"] = p["query_positions"]
    if arrays.has("visible"):
        ins["visible"] = "visible"
        if "departs" in p:  # rows without a key: the peer's mean, our zeros
            more["empty_rows"] = "skip"
    kinds = p["pos_att_type"]
    fields = {"max_relative_positions": p["max_relative_positions"],
              "position_buckets": max(p.get("position_buckets", 0), 0)}
    if kinds == ["c2p"]:
        fields["p2c"] = False
    if kinds == ["p2c"]:
        fields["c2p"] = False
    if arrays.has("q_scaled") and not arrays.has("q"):
        return deberta_scaled(arrays, call, ins, fields, more)
    microsoft = case["source"]["project"] == "microsoft/DeBERTa"
    if microsoft and fields["position_buckets"]:
        fields["clamp_distance"] = True
    if "att_span" in p and "p2p" in kinds:  # v1 counts what it does not compute
        fields["count"] = 1 + len(kinds)
    if not microsoft and "att_span" not in p:
        root = math.sqrt((1 + len(kinds)) * arrays.shape("q")[-1])
        if float32(root) != root:
            call["scale"] = 1 / float32(root)
    out = []
    if any(arrays.has(n) for n in ("w_pos_k", "w_pos_q", "w_k")):
        out += deberta_projected(arrays, call, ins, fields, more)
    if arrays.has("pos_key" if "c2p" in kinds else "pos_query"):
        out += deberta_tables(arrays, call, ins, fields, more)
    return out


def deberta_buckets(case, p, arrays):
    if arrays.has("bucket"):
        clamp = True if "deberta_ms" in case["name"] else None
        scheme = words("deberta", max_relative_positions=p["max_position"],
                       position_buckets=p["bucket_size"], clamp_distance=clamp)
        # transformers' buckets run on beyond the last row, which only the clamp of rows stops.
        half, most = arrays.shape("bucket")[0] // 2, p["max_position"] - 1
        part = "" if clamp or most >= half else "[%d:%d]" % (half - most, half + most + 1)
        return [check("buckets", scheme=scheme, **{"in": {"positions": "relative_pos" + part},
                                                   "out": {"bucket": "bucket" + part}})]
    size = p["num_directional_buckets"]
    scheme = words("deberta", max_relative_positions=p["max_distance"], position_buckets=size)
    return [check("buckets", scheme=scheme, add=size,
                  **{"in": {"q_positions": "query_position", "k_positions": "key_position"},
                     "out": {"bucket": "bucket_plus_num_directional_buckets"}})]


def deberta_projected(arrays, call, ins, fields, more):
    own = arrays.has("w_pos_k") or arrays.has("w_pos_q")
    names = ["w_pos_k", "b_pos_k", "w_pos_q", "b_pos_q"] if own else ["w_k", "b_k", "w_q", "b_q"]
    given = dict(ins, e_rel="E_rel", norm_weight="norm_weight", norm_bias="norm_bias",
                 **{n: n for n in names})
    given = {k: v for k, v in given.items() if arrays.has(v)}
    # Of shared projections the case has the sum with the content's part.
    back = [n for n in given if n not in ins and (own or n not in names)]
    key_bias = None if not own or arrays.has("b_pos_k") or not arrays.has("w_pos_k") else False
    scheme = words("deberta", **fields, projection="own" if own else "shared", key_bias=key_bias,
                   norm=arrays.has("norm_weight"))
    return usual(arrays, call, given, SCORES, grads=back, scheme=scheme, **more)


def deberta_tables(arrays, call, ins, fields, more):
    names = [n for n in ("pos_key", "pos_query") if arrays.has(n)]
    if len(names) < 2 - ("p2c" in fields) - ("c2p" in fields):
        return []  # a table that is given scaled
    given = dict(ins, **{n: n + "[0]" for n in names})
    checks = usual(arrays, call, given, SCORES, scheme=words("deberta", **fields, projection="tables",
                                                             norm=False), **more)
    for check in checks:
        check["gradient"]["out"].update({n: "grad_" + n for n in names})
    return checks


def deberta_scaled(arrays, call, ins, fields, more):
    """The first release scales q and the rows of p2c beforehand."""
    given = dict(ins, q="q_scaled", pos_key="pos_key", pos_query="pos_query_scaled")
    return usual(arrays, dict(call, scale=1), given, SCORES, grads=("pos_key", "pos_query"),
                 scheme=words("deberta", **fields, projection="tables", norm=False), **more)


def deberta_emd(case, arrays):
    """The attention of both steps: queries of another stream, keys and values of the hidden states.
    Gradients are those of the whole decoder, through layers that are not ours."""
    p = case["params"]
    scheme = words("deberta", max_relative_positions=p["max_relative_positions"], position_buckets=0)
    ins = {"e_rel": "E_rel", "norm_weight": "weight_norm_rel", "norm_bias": "bias_norm_rel",
           "w_k": "weight_k", "b_k": "bias_k", "w_q": "weight_q", "b_q": "bias_q",
           "key_visible": "input_mask", "query_visible": "input_mask"}
    many = []
    for step in ("step1_", "step2_"):
        streams = {"q": step + "query_states", "k": "penultimate", "v": "penultimate"}
        layer = {n: {"x": x, "weight": "weight_" + n, "bias": "bias_" + n}
                 for n, x in streams.items()}
        outs = {"out": step + "context", "scores": step + "scores", "probabilities": step + "probs"}
        many.append(check("attend", scheme=scheme,
                          project=dict(layer, heads=p["num_attention_heads"]),
                          **{"in": ins, "out": outs}))
    return many


def cope(case, arrays):
    p = case["params"]
    shape = arrays.shape("pos_emb")
    ins, axes, grads = {"pos_emb": "pos_emb", "visible": "visible"}, {}, ["pos_emb"]
    if len(shape) == 2:
        scheme = words("cope", positions=shape[0], scaling="content", table="rows",
                       gates="mixed" if p["talking_heads"] else None,
                       spread=p["soft_onehot_temp"] if p["soft_onehot"] else None)
        if p["talking_heads"]:
            ins["talking_heads"] = "talking_heads"
            grads.append("talking_heads")
    else:
        gates = "separate" if p["cope_sep_key"] else "values" if p["cope_val_gates"] else None
        scheme = words("cope", positions=shape[2], gates=gates,
                       scaling="content" if p["cope_nodiv"] else None)
    if arrays.has("key_cope"):
        ins["gate_key"] = "key_cope"
        axes["key_cope"] = "bhtd"
        grads.append("gate_key")
    more = {}
    if p.get("pos_emb") == "cope+rel":  # a column for each distance, the longest first
        columns = arrays.shape("rel_emb")[2]
        scheme = [scheme, words("shaw", left=columns - 1, values="none", groups=1)]
        ins["table"] = "rel_emb"
        grads.append("table")
        more["transpose"] = {"table": [0, 2, 1]}
    return usual(arrays, {"query_offset": "end"}, ins, {"probabilities": "probs"}, axes, grads,
                 scheme=scheme, **more)


def forgetting(case, arrays):
    p = case["params"]
    call = {"query_offset": "end", "causal": True if p.get("causal", True) else None,
            "scale": p["scale"] if isinstance(p.get("scale"), float) else None}
    if p.get("window_size"):
        call["window"] = [p["window_size"] - 1, None]
    gate = "log_gate" if arrays.has("log_gate") else "log_gates"
    if not arrays.has("hidden") and not arrays.has("x"):
        if p.get("seq_start"):
            return forgetting_left_padded(case, arrays, call)
        return usual(arrays, call, {"log_gate": gate},
                     {"probabilities": "probs", "scores": "scores"}, {gate: "bht"}, ["log_gate"],
                     scheme="forgetting")
    hidden = "hidden" if arrays.has("hidden") else "x"
    w = "w_f" if arrays.has("w_f") else "to_forget_gates_0_weight"
    b = w.replace("w_f", "b_f").replace("weight", "bias")
    columns, width = arrays.shape(w)
    heads = arrays.shape("q")[1]
    form = None if columns == heads else "bidirectional" if arrays.has(b) else "per_row"
    if form == "bidirectional":
        call["causal"] = None
    scheme = words("forgetting", form=form, gates="hidden", width=width,
                   gate_dim=columns // (2 * heads) if form == "per_row" else None,
                   log_scale=p["post_log_scale"] if p.get("post_log_scale", 1) != 1 else None)
    ins = {"hidden": hidden, "w_f": w}
    if arrays.has(b):
        ins["b_f"] = b
    outs = {"probabilities": "probs",
            "position": "bias" if arrays.has("bias") else "score_position"}
    return usual(arrays, call, ins, outs, grads=list(ins), scheme=scheme)


def forgetting_left_padded(case, arrays, call):
    """A check a row: tokens before seq_start are not there."""
    checks = []
    n = arrays.shape("k")[2]
    for row, start in enumerate(case["params"]["seq_start"]):
        at = "[%d:%d, :, %d:%d]" % (row, row + 1, start, n)
        ins = {name: name + at for name in ("q", "k", "v")}
        ins["log_gate"] = "log_gate" + at
        one = usual(arrays, call, ins, {"out": "out" + at}, {"log_gate": "bht"},
                    ["log_gate"], scheme="forgetting")
        one[0]["gradient"]["in"]["out"] = "grad_out" + at
        checks += one
    return checks


def stick_breaking(case, arrays):
    call = {"causal": True, "query_offset": "end"}
    if not case["params"]["attend_current"]:
        call["window"] = [None, -1]
    if isinstance(case["params"]["scale"], float):
        call["scale"] = case["params"]["scale"]
    # A peer that returns what is left does not give it to the token itself.
    scheme = words("stick_breaking", own=None if arrays.has("remainder") else True)
    outs = {"scores": "logits"}
    if arrays.has("remainder"):
        outs["probabilities"] = "weights"
    return usual(arrays, call, {}, outs, scheme=scheme)


def relative_projection(case, arrays):
    basis, most = arrays.shape("distance_bank")
    scheme = words("relative_projection", basis=basis, max_distance=most,
                   width=arrays.shape("w_r")[1])
    names = ["distance_bank", "w_r", "b_r", "hidden"]
    return usual(arrays, {"causal": True, "query_offset": "end"}, {n: n for n in names},
                 {"probabilities": "probs", "position": "score_position"}, grads=names,
                 scheme=scheme)


def nope(case, arrays):
    ins = {"visible": "visible"} if arrays.has("visible") else {}
    return usual(arrays, {"query_offset": "end"}, ins, scheme="nope")


def selective(case, arrays):
    return usual(arrays, {}, {"visible": "visible"}, function="selective")


def path(case, arrays):
    ins = {"w": "w", "beta": "beta", "log_gate": "log_gates"}
    return usual(arrays, {}, ins, grads=list(ins), function="path")


RULES = {
    "deberta": deberta,
    "deberta_emd": deberta_emd,
    "cope": cope,
    "forgetting": forgetting,
    "stick_breaking": stick_breaking,
    "relative_projection": relative_projection,
    "nope": nope,
    "selective": selective,
    "path": path,
}
