# SPDX-License-Identifier: Apache-2.0
"""relative_bias, relative_content: biases of images. Windows, class tokens, decomposed axes, index matrices, TUPE."""

from mapping.attention import attend
from mapping.words import check, words

def grid(height, width, step=1, before=0):
    """Rows and columns of the places of a grid, row by row; class tokens first, at 0."""
    ys = [0] * before + [y for y in range(0, height, step) for _ in range(0, width, step)]
    xs = [0] * before + [x for _ in range(0, height, step) for x in range(0, width, step)]
    return [ys, xs]


def whole(p, arrays, scheme, names=(), positions=None, k_positions=None, call=None, **more):
    """A whole pass: q, k, v, bias, scores, probabilities, out and every gradient."""
    names = {ours: theirs for ours, theirs in dict(names).items() if arrays.has(theirs)}
    ins = dict({"q": "q", "k": "k", "v": "v"}, **names)
    members = {"positions": positions}
    if k_positions is not None:
        members = {"q_positions": positions, "k_positions": k_positions}
    outs = {"out": "out", "probabilities": "probs", "scores": "scores", "position": "bias"}
    outs.update(more.pop("outs", {}))
    outs = {k: v for k, v in outs.items() if v}
    gradients = {n: "grad_" + t for n, t in dict({"q": "q", "k": "k", "v": "v"}, **names).items()}
    call = dict({"scale": p.get("scale")}, **(call or {}))
    return [attend(arrays, ins, outs, gradients, {"out": "grad_out"}, more.pop("axes", {}), call,
                   scheme=scheme, **members, **more)]


def resize(p, arrays):
    old, new, method = p["old_window_size"], p["new_window_size"], p["method"]
    how = "bicubic antialias=true" if "antialias" in method else "bicubic"
    if "geometric" in method:
        how = "geometric"
    sizes = ["%dx%d" % tuple(2 * n - 1 for n in window) for window in (old, new)]
    scheme = words("learned", grid=sizes[0], suffix=p["extra_rows"] or None)
    return [check("extend", scheme=scheme, to=sizes[1], how=how,
                  **{"in": {"table": "table"}, "out": {"table": "resized"}})]


def windows(size, window, shift, images):
    """torchvision: the map padded right and below to whole windows, rolled back by the shift (none on
    an axis that a window covers), windows row by row. Tokens of each window, -1 where padded, and the
    numbers of the regions that the shift brings together."""
    padded = [-(-n // w) * w for n, w in zip(size, window)]
    shift = [0 if w >= n else s for n, w, s in zip(padded, window, shift)]

    def region(place, n, w, s):
        return 0 if s == 0 or place < n - w else 1 if place < n - s else 2

    tokens, regions = [], []
    for image in range(images):
        for top in range(0, padded[0], window[0]):
            for left in range(0, padded[1], window[1]):
                places = [(top + y, left + x) for y in range(window[0]) for x in range(window[1])]
                rolled = [((y + shift[0]) % padded[0], (x + shift[1]) % padded[1])
                          for y, x in places]
                tokens.append([(image * size[0] + y) * size[1] + x
                               if y < size[0] and x < size[1] else -1 for y, x in rolled])
                regions.append([3 * region(y, padded[0], window[0], shift[0]) +
                                region(x, padded[1], window[1], shift[1]) for y, x in places])
    return tokens, regions


def window_layer(p, arrays, scheme, names, scale):
    """A layer of shifted windows: hidden states before their projections; tokens of another region
    get -100."""
    window, heads, width = p["window_size"], p["heads"], arrays.shape("x")[-1]
    tokens, regions = windows(p["map"], window, p["shift_size"], arrays.shape("x")[0])
    kinds = 9
    apart = [[[-100 if i != j else 0] * heads for j in range(kinds)] for i in range(kinds)]
    layer = {name: {"x": "x", "weight": "w_qkv[%d:%d]" % (n * width, (n + 1) * width)}
             for n, name in enumerate("qkv")}
    layer.update(heads=heads, tokens=tokens, out={"weight": "w_proj"})
    grads = {n: "grad_" + t for n, t in names.items()}
    grads.update({"x": "grad_x", "out.weight": "grad_w_proj"})
    grads.update({name + ".weight": "grad_" + layer[name]["weight"] for name in "qkv"})
    return [attend(arrays, names, {"out": "out", "probabilities": "probs", "scores": "scores"}, grads,
                   {"out": "grad_out"}, call={"scale": scale}, project=layer,
                   scheme=[scheme, words("modality_pairs", modalities=kinds)],
                   parameters={"pairs": [x for row in apart for pair in row for x in pair]},
                   inputs={"query_modality": regions, "key_modality": regions},
                   positions=grid(*window))]


def swin(case, p, arrays):
    if p["kind"] == "resize":
        return resize(p, arrays)
    height, width = p["window_size"]
    if p["kind"] == "layer":
        return window_layer(p, arrays, words("swin", height=height, width=width),
                            {"table": "table"}, p["scale"])
    if p["kind"] == "index":  # row r of the table is r
        rows = list(range((2 * height - 1) * (2 * width - 1)))
        places = grid(height, width)
        return [check("bias", scheme=words("swin", height=height, width=width), heads=1,
                      q_positions=places, k_positions=places, parameters={"table": rows},
                      **{"out": {"bias": "index"}})]
    tables = len(arrays.shape("table")) == 3
    scheme = words("swin", height=height, width=width,
                   sign="key_minus_query" if tables else None, table="grid" if tables else None)
    names, axes = {"table": "table"}, {}
    if not arrays.has("window_mask"):
        return whole(p, arrays, scheme, names, grid(height, width), axes=axes)
    # A mask a window; it is a member of the score, not of the bias.
    one = whole(p, arrays, scheme, names, grid(height, width), axes={"window_mask": "bqk"})
    one[0]["in"]["bias"] = "window_mask"
    return one


def swin_v2(case, p, arrays):
    height, width = p["window_size"]
    if p["kind"] == "layer":
        scheme = words("swin_v2", height=height, width=width, hidden=arrays.shape("w1")[0])
        names = {n: n for n in ("logit_scale", "w1", "b1", "w2")}
        return window_layer(p, arrays, scheme, names, 1)
    before = p.get("prefix_tokens", 0)
    names, fields = {"logit_scale": "logit_scale", "w1": "w1", "b1": "b1", "w2": "w2"}, {}
    for start in ("mlp_", "meta_mlp_"):
        if arrays.has(start + "fc1_weight"):
            names.update(w1=start + "fc1_weight", b1=start + "fc1_bias", w2=start + "fc2_weight",
                         b2=start + "fc2_bias")
            fields["form"] = "cr" if arrays.has(start + "fc2_bias") else None
    pretrained = p.get("pretrained_window_size", [0, 0])
    cosine = arrays.has("logit_scale")
    scheme = words("swin_v2", height=height, width=width, pretrained_height=pretrained[0] or None,
                   pretrained_width=pretrained[1] or None, hidden=arrays.shape(names["w1"])[0],
                   cosine=None if cosine else False, class_token=True if before else None, **fields)
    one = whole(p, arrays, scheme, names, grid(height, width, before=before))
    if cosine:
        one[0]["call"] = {"scale": 1}
    return classed(one, before, height * width)


def classed(checks, before, patches, keys=None):
    """Class tokens first; 1 marks them."""
    if before:
        for one in checks:
            one["inputs"] = {"query_class": [1] * before + [0] * patches,
                                 "key_class": [1] * before + [0] * (keys or patches)}
    return checks


def beit(case, p, arrays):
    old = p["window_size"]
    height, width = p.get("used_window_size", old)
    scheme = words("beit", height=height, width=width)
    checks = classed(whole(p, arrays, scheme, {"table": "table"}, grid(height, width, before=1)), 1,
                     height * width)
    if "used_window_size" in p and ([height, width] != old or height != width):
        # transformers reads the grid with height and width exchanged, then resizes it.
        checks[0]["extended"] = {"table": {
            "scheme": words("learned", grid="%dx%d" % (2 * old[1] - 1, 2 * old[0] - 1), suffix=3),
            "to": "%dx%d" % (2 * height - 1, 2 * width - 1), "how": "bilinear"}}
    return checks


def levit(case, p, arrays):
    size = p["resolution"]
    height, width = size if isinstance(size, list) else (size, size)
    scheme = words("levit", height=height, width=width)
    outs = {"position": None} if len(arrays.shape("bias")) == 3 else {}
    return whole(p, arrays, scheme, {"table": "table"}, grid(height, width, p["stride"]),
                 grid(height, width), outs=outs)


def axes_of(sizes, other, before):
    """Places of a grid in row-major order, times what makes both grids of a length."""
    ratios = [max(o / n, 1) for n, o in zip(sizes, other)]
    ratios = [int(r) if r == int(r) else r for r in ratios]
    places = [[]]
    for n in sizes:
        places = [p + [i] for p in places for i in range(n)]
    return [[0] * before + [p[a] * ratios[a] for p in places] for a in range(len(sizes))]


def decomposed(case, p, arrays):
    q = p["q_size"] if "q_size" in p else p["q_size_thw"]
    k = p["k_size"] if "k_size" in p else p["k_size_thw"]
    names = ["rel_pos_t", "rel_pos_h", "rel_pos_w"][3 - len(q):]
    rows = [arrays.shape(n)[0] for n in names]
    usual_rows = [2 * max(a, b) - 1 for a, b in zip(q, k)]
    before = 1 if p.get("has_cls_embed") else 0
    scheme = words("decomposed", size=q, key_size=k if k != q else None,
                   table_rows=rows if rows != usual_rows else None,
                   class_token=True if before else None)
    one = whole(p, arrays, scheme, {n: n for n in names}, axes_of(q, k, before),
                axes_of(k, q, before))
    return classed(one, before, arrays.shape("q")[2] - before, arrays.shape("k")[2] - before)


def irpe(case, p, arrays):
    scheme = words("indexed", rows=arrays.shape("table")[1])
    one = whole(p, arrays, scheme, {"table": "table"})
    one[0]["in"]["index"] = "index"
    before, height, width = p["skip"], p["height"], p["width"]
    own = irpe_scheme(p, "nothing", p["table_shape"][0] == 1, before)
    two = whole(p, arrays, own, {"table": "table"}, grid(height, width, before=before))
    classed(two, before, height * width)
    return one + two + [irpe_buckets(p, own, "index[%d:, %d:]" % (before, before))]


def irpe_scheme(p, meets, shared, before):
    return words("irpe", method=p["method"], meets=meets, alpha=p["alpha"], beta=p["beta"],
                 gamma=p["gamma"], height=p["height"], width=p["width"], shared=shared,
                 class_token=True if before else None)


def irpe_buckets(p, scheme, index):
    """Of patches alone: class tokens are on no grid."""
    places = grid(p["height"], p["width"])
    return check("buckets", scheme=scheme, q_positions=places, k_positions=places,
                 out={"bucket": index})


def irpe_contextual(case, p, arrays):
    ins, schemes, grads = {"q": "q", "k": "k", "v": "v"}, [], {n: "grad_" + n for n in "qkv"}
    # The authors' table for keys meets q, and the one for queries meets k with its index [j, i].
    for table, meets in (("k", "query"), ("q", "key"), ("v", "value")):
        name = "table_" + table
        if not arrays.has(name):
            continue
        n = len(schemes)
        channels = meets != "value"
        schemes.append(words("indexed", rows=arrays.shape(name)[2 if channels else 1],
                             meets=meets, groups=arrays.shape(name)[0],
                             table="channels" if channels else None,
                             content_scale=True if channels else None,
                             key_first=True if meets == "key" else None))
        ins["%d.table" % n], ins["%d.index" % n] = name, "bucket_" + table
        grads["%d.table" % n] = "grad_" + name
    outs = {"out": "out", "probabilities": "probs", "scores": "scores_with_q_and_k_terms",
            "content": "score_content"}
    indexed = attend(arrays, ins, outs, grads, {"out": "grad_out"}, scheme=schemes)
    own = [irpe_scheme(p, meets, p["shared_head"], p["skip"])
           for meets in ("query", "key", "value")]
    ins = {name: array for name, array in ins.items() if not name.endswith("index")}
    places = grid(p["height"], p["width"])
    return [indexed, attend(arrays, ins, outs, grads, {"out": "grad_out"}, scheme=own,
                            positions=places), irpe_buckets(p, own[0], "bucket_k")]


def tupe(case, p, arrays):
    """The first token is the class token; it has position 0 like any first token."""
    rel = p["rel_pos"]
    scheme = words("tupe", positions=arrays.shape("pos_weight")[0] - 1, epsilon=p["layer_norm_eps"],
                   num_buckets=p["rel_pos_bins"] if rel else None,
                   max_distance=p["max_rel_pos"] if rel else None)
    names = {"pos": "pos_weight", "ln_weight": "pos_ln_weight", "ln_bias": "pos_ln_bias",
             "w_q": "pos_q_linear_weight", "b_q": "pos_q_linear_bias",
             "w_k": "pos_k_linear_weight", "b_k": "pos_k_linear_bias",
             "table": "relative_attention_bias_weight"}
    tokens = arrays.shape("q")[2]
    return classed(whole(p, arrays, scheme, names, "0:%d" % tokens), 1, tokens - 1)


SCHEMES = {"swin": swin, "swin_v2": swin_v2, "log_cpb": swin_v2, "beit": beit, "levit": levit,
           "decomposed": decomposed, "irpe": irpe, "tupe": tupe, "irpe_contextual": irpe_contextual}
RULES = {name: lambda case, arrays, rule=rule: rule(case, case["params"], arrays)
         for name, rule in SCHEMES.items()}
