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
        return alibi_softmax(p, arrays)
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


def alibi_softmax(p, arrays):
    """Scores that are given; hidden keys lie after the query."""
    scheme = words("alibi", max_bias=p["max_bias"])
    return [attend(arrays, {"content": "x", "q_positions": "q_pos", "k_positions": "k_pos"},
                   {"probabilities": "probs"}, axes={"x": "htd"}, scheme=scheme,
                   call={"scale": p["scale"], "causal": True, "query_offset": "end"})]


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


# --------------------------------------------------------------- what is made of T5's buckets
def layoutlm(case, p, arrays):
    scaled = p["bias_times_scale"]
    scheme = words("layoutlm", num_buckets=p["rel_pos_bins"], max_distance=p["max_rel_pos"],
                   num_buckets_2d=p["rel_2d_pos_bins"], max_distance_2d=p["max_rel_2d_pos"],
                   scaled=scaled)
    places_ = ["position_ids", "bbox[:, :, 0]", "bbox[:, :, 3]"]
    outs = {"out": "out", "probabilities": "probs", "scores": "scores"}
    one = layer(case, p, arrays, scheme, {n: n for n in ("table_1d", "table_x", "table_y")},
                positions=None, outs=outs, masked=False)
    one[0]["in"].update(q_positions=places_, k_positions=places_)
    if arrays.has("mask"):
        one[0]["in"]["key_visible"] = "mask"
    for name in ("table_1d", "table_x", "table_y"):
        one[0].get("gradient", {}).get("out", {}).pop(name, None)  # the peer has none
    t5_1d = words("t5", bidirectional=True, num_buckets=p["rel_pos_bins"],
                  max_distance=p["max_rel_pos"])
    t5_2d = [words("t5", bidirectional=True, num_buckets=p["rel_2d_pos_bins"],
                   max_distance=p["max_rel_2d_pos"], axis=a) for a in (0, 1)]
    heads = arrays.shape("q")[1]
    boxes = places_[1:]
    both = [bias(arrays, t5_1d, heads, places_[:1], places_[:1], "bias_1d", {"table": "table_1d"})]
    two = bias(arrays, t5_2d, heads, boxes, boxes, "bias_2d")
    two["in"].update({"0.table": "table_x", "1.table": "table_y"})
    return one + both + [two]


def udop(case, p, arrays):
    rules = {}
    for name, part in (("", "1d"), ("horizontal_", "horizontal"), ("vertical_", "vertical")):
        rules[(name + "buckets") if name else "num_buckets"] = p[part]["num_buckets"]
        rules[name + "max_distance"] = p[part]["max_distance"]
    # Sums of the two edges of a box in place of their mean: half as many tokens a unit.
    scheme = words("udop", per_unit=p["horizontal"]["scaling_factor"] / 2, **rules)
    places_ = ["0:%d" % arrays.shape("q")[2], "bbox[:, :, 0]+bbox[:, :, 2]",
               "bbox[:, :, 1]+bbox[:, :, 3]"]
    names = {n: n for n in ("table_1d", "table_horizontal", "table_vertical")}
    one = layer(case, p, arrays, scheme, names, positions=None)
    one[0]["in"].update(q_positions=places_, k_positions=places_)
    return one


def cpmant(case, p, arrays):
    scheme = words("cpmant", num_buckets=p["num_buckets"], max_distance=p["max_distance"],
                   segments=p["segment_types"])
    one = layer(case, p, arrays, scheme, {"table": "table"}, positions=None)
    one[0]["in"].update(query_segment="segment", key_segment="segment")
    return one


def t5_gated(case, p, arrays):
    """q, k and v are products of x there: the gate is compared by tests/relative/wavlm_test.cpp."""
    scheme = words("t5", bidirectional=p["bidirectional"], num_buckets=p["num_buckets"],
                   max_distance=p["max_distance"])
    return [bias(arrays, scheme, p["num_heads"], "q_pos", "k_pos", "bias[%d]" % b,
                 {"table": "table"}) for b in range(arrays.shape("bias")[0])]


def t5_blocks(p, arrays):
    """Blocks of tokens as keys; the last block takes what is left over, padding is before all."""
    scheme = words("t5", bidirectional=p["bidirectional"], num_buckets=p["num_buckets"],
                   max_distance=p["max_distance"])
    rows, tokens = arrays.shape("attention_mask")
    size, columns = p["global_block_size"], arrays.shape("side_bias")[-1]
    mask, many = arrays.integers("attention_mask"), []
    for b in range(rows):
        seen = sum(mask[b * tokens:(b + 1) * tokens])
        blocks = seen // size
        own = [min(t // size, blocks - 1) for t in range(seen)]
        for first, at, keys in ((0, own, (0, blocks)),
                                (seen, [-1] * (tokens - seen), (blocks, columns))):
            if at and keys[0] < keys[1]:
                place = "side_bias[%d, :, %d:%d, %d:%d]" % ((b, first, first + len(at)) + keys)
                many.append(bias(arrays, scheme, p["num_heads"], at, "%d:%d" % keys, place,
                                 {"table": "global_table"}))
    return many


def t5_local(case, p, arrays):
    if p["kind"] == "bias":
        return t5_blocks(p, arrays)
    scheme = words("t5", bidirectional=p["bidirectional"], num_buckets=p["num_buckets"],
                   max_distance=p["max_distance"])
    one = layer(case, p, arrays, scheme, {"table": "table"},
                {"window": [p["local_radius"]] * 2}, positions=None, outs={"out": "out"})
    one[0]["in"]["key_visible"] = "attention_mask"
    block = p["block_len"]
    return one + [bias(arrays, scheme, arrays.shape("q")[1], "%d:%d" % (block, 2 * block),
                       "0:%d" % (3 * block), "bias", {"table": "table"})]


# --------------------------------------------------------------------- functions of the distance
def dynamic_position_bias(case, p, arrays):
    scheme = words("dynamic_position_bias", width=p["dim"], depth=p["depth"],
                   log_distance=p["log_distance"], norm=p["norm"])
    return layer(case, p, arrays, scheme, {n: n for n in p["parameter_names"]})


def projected_distance(case, p, arrays):
    scheme = words("relative_projection", basis=p["num_distance_basis"], max_distance=p["max_dist"],
                   width=arrays.shape("x")[-1])
    names = {"distance_bank": "distance_bank", "w_r": "to_distance_weights_0_weight",
             "b_r": "to_distance_weights_0_bias", "hidden": "x"}
    return layer(case, p, arrays, scheme, names)


SCHEMES = {"layoutlm": layoutlm, "udop": udop, "cpmant": cpmant, "t5_gated": t5_gated,
           "t5_local": t5_local, "dynamic_position_bias": dynamic_position_bias,
           "projected_distance": projected_distance,
           "alibi": alibi, "t5": t5, "kerple": kerple, "sandwich": sandwich, "fire": fire,
           "dape": dape, "clipped": clipped}
RULES = {name: lambda case, arrays, rule=rule: rule(case, case["params"], arrays)
         for name, rule in SCHEMES.items()}
