# SPDX-License-Identifier: Apache-2.0
"""relative_bias: numbers by distance. ALiBi, T5, KERPLE, Sandwich, FIRE, DAPE, clipped tables."""

from mapping.attention import attend
from mapping.words import check, words


def places(arrays, queries="q_pos", keys="k_pos"):
    return {"q_positions": queries, "k_positions": keys}


def parameters(arrays, names):
    """Learned arrays by the names of the case; ours may differ."""
    return {ours: theirs for ours, theirs in names.items() if arrays.has(theirs)}


def layer(case, p, arrays, scheme, names=None, call=None, positions=True, outs=None, **more):
    """A whole pass: q, k, v, bias, scores, probabilities, out and every gradient."""
    names = parameters(arrays, names or {})
    ins = dict({"q": "q", "k": "k", "v": "v"}, **names)
    if positions is True:
        positions = places(arrays)
    members = {}
    for key, value in (positions or {}).items():
        if isinstance(value, str) and arrays.has(value):
            ins[key] = value
        elif value is not None:
            members[key] = value
    axes = dict(more.pop("axes", {}))
    masked = more.pop("masked", True)
    if arrays.has("mask") and "visible" not in ins and masked:
        ins["visible"] = "mask"
        if len(arrays.shape("mask")) == 3:
            axes["mask"] = "bqk"
    if outs is None:
        outs = {"out": "out", "probabilities": "probs", "scores": "scores", "position": "bias"}
    gradients = {n: "grad_" + t for n, t in dict({"q": "q", "k": "k", "v": "v"}, **names).items()}
    call = dict({"scale": p.get("scale")}, **(call or {}))
    return [attend(arrays, ins, outs, gradients, {"out": "grad_out"}, axes, call, scheme=scheme,
                   **members, **more)]


def bias(arrays, scheme, heads, queries, keys, out, names=None, call=None, **more):
    ins = parameters(arrays, names or {})
    members = {}
    for key, value in (("q_positions", queries), ("k_positions", keys)):
        if isinstance(value, list) and value and isinstance(value[0], str):
            ins[key] = value
        elif isinstance(value, str) and arrays.has(value.split("[")[0]):
            ins[key] = value
        else:
            members[key] = value
    return check("bias", scheme=scheme, heads=heads, call=call, **members, **more,
                 **{"in": ins or None, "out": {"bias": out}})


# ------------------------------------------------------------------------------------------ ALiBi
def alibi(case, p, arrays):
    name = case["name"]
    if p["kind"] == "slopes":
        return alibi_slopes(case, p, arrays)
    if p["kind"] == "softmax":
        return "the scores are given, not q and k"
    if p["kind"] == "bias":
        return alibi_bias(case, p, arrays)
    if "_flash_" in name:
        return alibi_flash(case, p, arrays)
    if "learned" in name:
        return layer(case, p, arrays, "alibi learned=log_slopes", {"log_slopes": "log_slopes"})
    form = p["form"]
    # A number a key alone: the signed distance from a place that all queries share.
    at = 0 if form == "key_only" else arrays.shape("k_pos")[-1] - 1
    scheme = words("alibi", future="signed_distance", max_bias=p.get("alibi_bias_max"),
                   bias_scale=p["scale"] if p.get("bias_times_scale") else None)
    positions = {"q_positions": [at] * arrays.shape("q")[2], "k_positions": "k_pos"}
    outs = {"out": "out", "probabilities": "probs", "scores": "scores", "position": "bias"}
    if p.get("bias_times_scale"):
        outs.pop("position")
    return layer(case, p, arrays, scheme, positions=positions, outs=outs)


def alibi_slopes(case, p, arrays):
    many = []
    for n in p["num_heads"]:
        for most in p.get("alibi_bias_max", [None]):
            name = "slopes_%d" % n + ("_max%d" % most if most else "")
            many.append(bias(arrays, words("alibi", max_bias=most), n, [1], [0], "-" + name))
        if arrays.has("bias_%d" % n):
            many.append(bias(arrays, "alibi future=signed_distance", n, [0], "k_pos", "bias_%d" % n))
    return many


def alibi_bias(case, p, arrays):
    name, form = case["name"], p["form"]
    if form == "deepmind_offset":
        return [bias(arrays, "alibi past_offset=0.5", h, "0:%d" % q, "0:%d" % k,
                     "bias_%d_%d_%d" % (h, q, k)) for h, q, k in p["shapes_h_q_k"]]
    if p.get("slopes") == "literal":
        return [bias(arrays, "alibi slopes=literal future=signed_distance", h, "q_pos", "k_pos",
                     "bias_%d" % h) for h in p["num_heads"]]
    if "euclidean" in name:
        return "the distance is no sum over the axes"
    if "manhattan" in name:
        axes = ["coords[:, 0]", "coords[:, 1]"]
        return [bias(arrays, ["alibi", "alibi axis=1"], p["attention_heads"], axes, axes, "bias")]
    heads = next(p[k] for k in ("total_heads", "num_attention_heads", "num_heads", "heads", "n_head",
                                "n_heads") if k in p)
    few = p.get("num_attention_heads_alibi", p["heads"] if "total_heads" in p else None)
    most = p.get("alibi_bias_max")
    if form == "asym_half_heads":
        return [bias(arrays, "alibi future=half_heads", heads, "q_pos", "k_pos", "bias")]
    if form.startswith("key_only"):
        causal = {"causal": True} if "inf" in form else None
        if causal:  # a number a key and the signed distance differ by one a row
            scheme = words("alibi", future="signed_distance")
            return [bias(arrays, scheme, heads, [0] * p["max_pos"], "k_pos", "bias", call=causal)]
        return [bias(arrays, "alibi future=signed_distance", heads, [0], "k_pos", "bias")]
    if form == "key_minus_last":
        last = arrays.shape("k_pos")[-1] - 1
        return [bias(arrays, words("alibi", future="signed_distance", max_bias=most), heads, [last],
                     "k_pos", "bias")]
    scheme = words("alibi", max_bias=most, alibi_heads=None if few == heads else few)
    return [bias(arrays, scheme, heads, "q_pos", "k_pos", "bias")]


def alibi_flash(case, p, arrays):
    batch, _, queries, _ = arrays.shape("q")
    keys = arrays.shape("k")[2]
    symmetric = p["form"] == "symmetric"
    scheme = words("alibi", learned="slopes", batch=batch,
                   future=None if symmetric else "signed_distance")
    call = {"query_offset": "end", "causal": True if p["causal"] else None}
    left, right = p.get("window_size", [-1, -1])
    if left >= 0 or right >= 0:
        call["window"] = [None if left < 0 else left, None if right < 0 else right]
    positions = {"q_positions": "%d:%d" % (keys - queries, keys), "k_positions": "0:%d" % keys}
    if not symmetric:
        positions["q_positions"] = [keys - 1] * queries
    extra = {}
    if p.get("query_lengths"):
        positions["q_positions"] = {"batch": [[i + k - q for i in range(queries)] for q, k in
                                              zip(p["query_lengths"], p["key_lengths"])]}
        call["key_length"] = p["key_lengths"]
        extra["axes"] = {}
        call["query_offset"] = None
    outs = {"out": "out", "probabilities": "probs", "scores": "scores", "position": "bias"}
    one = layer(case, p, arrays, scheme, {"slopes": "slopes"}, call, positions, outs, **extra)
    if arrays.has("query_padding_mask"):
        one[0]["in"]["query_visible"] = "query_padding_mask"
        one[0]["in"].update(query_document="query_padding_mask", key_document="key_padding_mask")
    if case["name"].endswith("empty_rows"):
        one[0]["in"].pop("visible", None)
    return one


# --------------------------------------------------------------------------------------------- T5
def t5(case, p, arrays):
    scheme = words("t5", bidirectional=p["bidirectional"], num_buckets=p["num_buckets"],
                   max_distance=p["max_distance"], bias_scale=p.get("bias_scale"))
    if p["kind"] == "buckets":
        one = check("buckets", scheme=scheme, positions=None,
                    **{"in": {"positions": "-relative_position"}, "out": {"bucket": "bucket"}})
        if p.get("departs"):
            one["known_difference"] = 1
        return [one]
    if p["kind"] == "bias":
        return [bias(arrays, scheme, p["num_heads"], "q_pos", "k_pos", "bias", {"table": "table"})]
    return layer(case, p, arrays, scheme, {"table": "table"})


# --------------------------------------------------------------------------- KERPLE, Sandwich, FIRE
def kerple_scheme(p):
    if "max_seq_len" in p:
        return "kerple kernel=nemo"
    form = p["pos_emb"]
    learned = {"kerple_power_original": "fixed", "kerple_power_a_x": "slope"}.get(form)
    return words("kerple", kernel="log" if form == "kerple_log" else "power", learned=learned,
                 weighted=True if form.endswith("ap_ap") else None)


KERPLE_NAMES = {n: n for n in ("bias_p", "bias_a", "wei_p", "wei_a", "kerple_a", "kerple_b",
                               "kerple_p")}


def kerple(case, p, arrays):
    scheme = kerple_scheme(p)
    if p["kind"] == "bias":
        return [bias(arrays, scheme, arrays.shape("bias")[1], "q_pos", "k_pos", "bias",
                     KERPLE_NAMES)]
    # NeMo's decoder and the authors' modules write 0 for keys in the future, which are masked.
    outs = {"out": "out", "probabilities": "probs", "scores": "scores", "position": "bias"}
    return layer(case, p, arrays, scheme, KERPLE_NAMES, outs=outs)


def sandwich(case, p, arrays):
    scheme = words("sandwich", width=p["hidden_size"])
    if p["kind"] == "bias":
        return [bias(arrays, scheme, p["num_attention_heads"], "q_pos", "k_pos", "bias")]
    return layer(case, p, arrays, scheme)


MLP = {n: n for n in ("c", "L_multiplier", "mlp_0_weight", "mlp_0_bias", "mlp_2_weight",
                      "mlp_2_bias")}
MLP2 = {n: n for n in ("mlp2_0_weight", "mlp2_0_bias", "mlp2_2_weight", "mlp2_2_bias")}


def fire_scheme(p, slope=None):
    return words("fire", width=p["mlp_width"], initial_length=p.get("init_L_used", p["init_L"]),
                 keep_sign=True if p.get("signed") else None, slope=slope)


def fire(case, p, arrays):
    scheme = fire_scheme(p)
    if p["kind"] == "bias":  # keys after the query count as distance 0 there, and are hidden
        n = arrays.shape("k_pos")[0]
        rows = []
        for r, at in enumerate(arrays.integers("q_pos")):
            rows.append(bias(arrays, scheme, p["num_heads"], [at], "0:%d" % (at + 1),
                             "bias[:, %d:%d, 0:%d]" % (r, r + 1, min(at + 1, n)), MLP))
        return rows
    return layer(case, p, arrays, scheme, MLP)


def dape(case, p, arrays):
    base, names = p.get("base"), dict(MLP2)
    kernel = p.get("kernel")
    if "fire" in case["name"]:
        first = fire_scheme(p, slope=0.01)
        names.update(MLP)
    elif base == "alibi":
        first = "alibi"
    elif base == "kerple_log":
        first = "kerple kernel=log"
        names.update(KERPLE_NAMES)
    else:
        first = None
    own = words("dape", width=p["mlp_width"], kernel=kernel, bias=None if first else False)
    outs = {"out": "out", "probabilities": "probs", "scores": "scores"}
    return layer(case, p, arrays, [first, own] if first else own, names, outs=outs)


def clipped(case, p, arrays):
    scheme = words("clipped", clip=p["position_bins"], sign="key_minus_query", masked_row=True)
    one = layer(case, p, arrays, scheme, {"table": "table"}, masked=False)
    if arrays.has("mask"):
        one[0]["in"].update(query_mask="mask", key_mask="mask")
    return one


SCHEMES = {"alibi": alibi, "t5": t5, "kerple": kerple, "sandwich": sandwich, "fire": fire,
           "dape": dape, "clipped": clipped}
RULES = {name: lambda case, arrays, rule=rule: rule(case, case["params"], arrays)
         for name, rule in SCHEMES.items()}
