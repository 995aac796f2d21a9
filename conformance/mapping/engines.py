# SPDX-License-Identifier: Apache-2.0
"""rotary_engines: ggml, ONNX and onnxruntime, rotary-embedding-torch, x-transformers."""

from mapping.timm import timm
from mapping.vllm import vllm
from mapping.words import PAIRINGS, all_axes, chain, check, turned, words


def checks(case, arrays):
    name = case["name"]
    for prefix, rule in (
        ("ggml_", ggml), ("onnx_", onnx), ("ort_mrope", onnx_mrope), ("ort", onnx),
        ("vllm_", vllm), ("lr_", lucidrains), ("xt_", x_transformers), ("timm_", timm),
    ):
        if name.startswith(prefix):
            return rule(case, arrays)
    raise KeyError(name)


# ggml ------------------------------------------------------------------------------------------


def ggml_scheme(p):
    """What ggml_rope_ext's arguments say (ggml.h)."""
    head, n = p["head_dim"], p["n_dims"]
    mode = p["mode"]
    where = dict(head_dim=head, rotary_dim=n, offset=p["n_offs"] or None, base=p["freq_base"])
    if mode in ("NORMAL", "NEOX"):
        scheme = words("rope", **where, pairing=PAIRINGS[mode == "NEOX"])
    elif mode == "VISION":
        # Two streams (y, x) of four, n_dims channels each, pairs half a head apart.
        scheme = words("axial", head_dim=head, axes_dim=[n, n], base=p["freq_base"],
                       pairing="half_split", streams=4)
    else:
        scheme = words("mrope", **where, pairing="half_split", sections=p["sections"],
                       layout={"MROPE": "ggml_mrope", "IMROPE": "ggml_imrope"}[mode])
    divisors = scaling = None
    amplitude = p["attn_factor"] if p["attn_factor"] != 1 else None
    if p["freq_factors"]:
        divisors = words("divisors", values="@freq_factors",
                         attention_factor=amplitude if p["ext_factor"] == 0 else None)
    if p["ext_factor"] != 0:
        scaling = words("yarn", factor=1 / p["freq_scale"], original_context=p["n_ctx_orig"],
                        beta_fast=p["beta_fast"], beta_slow=p["beta_slow"],
                        extrapolation=p["ext_factor"], attn_factor=amplitude,
                        reversed_range="step")
    elif p["freq_scale"] != 1:
        scaling = words("linear", factor=1 / p["freq_scale"])
    return chain(scheme, divisors, scaling)


def ggml(case, arrays):
    p = case["params"]
    if case["name"] == "ggml_corr_dims":
        return [check("correction_range", rows="$rows", out={"range": "corr_dims"})]
    about = {"scheme": ggml_scheme(p)}
    if case["scheme"] == "rope_shift":
        return ggml_shift(about)
    axes = {"positions": "at"} if len(arrays.shape("positions")) == 2 else None
    out = []
    for precision in ({}, {"precision": "ggml", "tolerance": "compat"}):
        out.append(turned(arrays, about, axes, "positions", q=("x", "out"), **precision))
        out.append(turned(arrays, about, axes, "positions", q=("grad_out", "grad_x"),
                          sense="gradient", **precision))
    return out


def ggml_shift(about):
    def rotate(source, positions, result, **more):
        return check("rotate", **about, **more,
                     **{"in": {"q": source, "positions": positions}, "out": {"q": result}})

    return [
        rotate("k", "positions", "cached"),
        rotate("k", "positions+delta", "direct"),
        # The peer turns the cache by the very operator that made it, amplitude and all ...
        rotate("cached", "delta", "shifted"),
        # ... a shift must not have it.
        rotate("cached", "delta", "pure", sense="shift"),
        rotate("cached", "delta", "direct", sense="shift"),
        check("shift", **about, **{
            "in": {"k": "cached", "positions": "positions", "new_positions": "positions+delta"},
            "out": {"k": "direct"}}),
    ]


# ONNX, onnxruntime -----------------------------------------------------------------------------


def onnx(case, arrays):
    p = case["params"]
    x, y = ("input", "output") if arrays.has("input") else ("X", "Y")
    shape = arrays.shape(x)
    attributes = p["attributes"]
    letters, head = "bhtd", shape[-1]
    if len(shape) == 3:
        letters, head = "bt(hd)", shape[-1] // attributes["num_heads"]
    width = attributes.get("rotary_embedding_dim") or head
    scheme = words("rope", head_dim=head, rotary_dim=width if width != head else None,
                   pairing=PAIRINGS[not attributes.get("interleaved")])
    ins = {"q": x, "cos": "cos_cache", "sin": "sin_cache"}
    members = {}
    if arrays.has("position_ids"):
        if len(arrays.shape("position_ids")) == 1:  # one number: where the first token stands
            tokens = shape[1] if len(shape) == 3 else shape[2]
            members["positions"] = {"rule": words("decode", count=tokens),
                                    "in": {"lengths": "position_ids"}}
        else:
            ins["positions"] = "position_ids"
    return [check("rotate_rows", scheme=scheme, axes={x: letters}, **members,
                  **{"in": ins, "out": {"q": y}})]


def onnx_mrope(case, arrays):
    scheme = words("rope", head_dim=case["params"]["head_dim"], pairing="half_split")
    return [check("rotate_rows", scheme=scheme, axes={"X": "bhtd"},
                  axis_of_pair="$axis_of_pair",
                  **{"in": {"q": "X", "cos": "cos_cache", "sin": "sin_cache",
                            "positions": "position_ids"}, "out": {"q": "Y"}})]


# rotary-embedding-torch ------------------------------------------------------------------------


def lucidrains(case, arrays):
    name, p = case["name"], case["params"]
    if name == "lr_learned_rotations":
        return learned_rotations(p)
    if case["scheme"] == "xpos":
        return lucidrains_xpos(p, arrays)
    if case["scheme"] == "axial":
        return lucidrains_axial(p, arrays)
    dim, head = p["dim"], p["head_dim"]
    kind = p.get("freqs_for", "lang")
    if kind == "lang":
        plain = words("rope", head_dim=head, rotary_dim=dim if dim != head else None, base=10000,
                      pairing="interleaved")
    else:
        plain = spaced(head, [dim], kind, p)
    # base 10000 * s^(d/(d-2)); positions divided.
    raised = None
    if "theta_rescale_factor" in p:
        raised = words("ntk", factor=p["theta_rescale_factor"], formula="alpha")
    divided = None
    if "interpolate_factor" in p:
        divided = words("linear", factor=p["interpolate_factor"])
    about = {"scheme": chain(plain, raised, divided)}
    letters = "bthd" if p["seq_before_head_dim"] else "bhtd"
    positions = "%d:%d" % (p["offset"], p["offset"] + p["n"])
    axes = all_axes(letters, "x", "grad_out")
    out = [turned(arrays, about, axes, positions, q=("x", "out")),
           turned(arrays, about, axes, positions, q=("grad_out", "grad_x"), sense="gradient"),
           check("frequencies", scheme=chain(plain, raised), out={"inv_freq": "freqs"})]
    if arrays.has("grad_freqs"):
        out.append(check("phase_gradients", **about, axes=axes, positions=positions,
                         **{"in": {"q": "x", "grad_q": "grad_out"},
                            "out": {"frequency": "grad_freqs"}}))
    return out


def spaced(head, axes_dim, kind, p):
    """freqs_for of rotary-embedding-torch: lang, pixel, constant."""
    more = dict(base=10000)
    if kind == "pixel":
        more = dict(spacing="linear", first=1, last=p["max_freq"] / 2)
    elif kind == "constant":
        more = dict(spacing="constant")
    return words("axial", head_dim=head, axes_dim=axes_dim, pairing="interleaved", **more)


def lucidrains_axial(p, arrays):
    dims = [p["dim_per_axis"]] * len(p["shape"])
    kind = p.get("freqs_for", "lang")
    about = {"scheme": spaced(p["head_dim"], dims, kind, p)}
    one = {"scheme": spaced(dims[0], dims[:1], kind, p)}
    rule = {"rule": words("linspace_grid" if kind == "pixel" else "grid", shape=p["shape"])}
    axes = all_axes("b" + "t" * len(dims) + "d", "x", "grad_out")
    every = "[" + ":," * len(dims)
    out = [turned(arrays, about, axes, rule, q=("x", "out")),
           turned(arrays, about, axes, rule, q=("grad_out", "grad_x"), sense="gradient"),
           check("frequencies", **one, out={"inv_freq": "freqs"})]
    for member in ("0::2]", "1::2]"):  # each angle stands twice
        angles = "angles" + every + member
        out.append(check("rows", **about, positions=rule, axes={angles: "t" * len(dims) + "d"},
                         out={"angles": angles}))
    return out


def learned_rotations(p):
    # One axis a pair, each turning by 1 rad per position: the angles are the positions.
    scheme = words("axial", head_dim=12, axes_dim=[2] * p["pairs"], offset=p["start_index"],
                   spacing="constant", pairing="interleaved")
    axes = {"x": "btd", "grad_out": "btd", "rotations": "bta", "grad_rotations": "bta"}

    def rotate(source, result, **more):
        return check("rotate", scheme=scheme, axes=axes, **more,
                     **{"in": {"q": source, "positions": "rotations"}, "out": {"q": result}})

    return [rotate("x", "out"), rotate("grad_out", "grad_x", sense="gradient"),
            check("phase_gradients", scheme=scheme, axes=axes,
                  **{"in": {"q": "x", "grad_q": "grad_out", "positions": "rotations"},
                     "out": {"position": "grad_rotations"}})]


def lucidrains_xpos(p, arrays):
    n, base = p["n"], p.get("xpos_scale_base", 512)

    def scheme(centre):
        return words("xpos", head_dim=p["dim"], base=10000, pairing="interleaved", center=centre,
                     scale_base=base)

    about = {"scheme": scheme(n // 2)}
    axes = all_axes("bhtd", "q", "k", "grad_q_out", "grad_k_out")
    positions = "0:%d" % n
    out = xpos_checks(arrays, about, axes, positions, positions)
    out.append(check("rows", **about, positions=[n // 2 + base], out={"decay": "scale"}))
    if p["cached_q_len"]:
        # The last queries with a centre of their own, by their own length.
        m = p["cached_q_len"]
        last = "q[:,:,%d:%d,:]" % (n - m, n)
        tail = "%d:%d" % (n - m, n)
        own = scheme(m // 2)
        axes = {last: "bhtd", "k": "bhtd", "cached_q_out": "bhtd", "cached_k_out": "bhtd"}
        out += [
            check("rotate", scheme=own, axes=axes, positions=tail,
                  **{"in": {"q": last}, "out": {"q": "cached_q_out"}}),
            check("rotate", **about, axes=axes, positions=positions,
                  **{"in": {"k": "k"}, "out": {"k": "cached_k_out"}}),
            check("scores", scheme=own, k_scheme=about["scheme"], axes=axes, scale=1,
                  q_positions=tail, k_positions=positions,
                  **{"in": {"q": last, "k": "k"}, "out": {"scores": "cached_scores"}}),
        ]
    return out


def xpos_checks(arrays, about, axes, q_positions, k_positions):
    """Rotations, gradients and scores of q and k that may stand elsewhere."""
    out = []
    for ours, where in (("q", q_positions), ("k", k_positions)):
        for source, result, sense in ((ours, ours + "_out", None),
                                      ("grad_%s_out" % ours, "grad_" + ours, "gradient")):
            if not arrays.has(result):
                continue
            members = {"positions": where}
            ins = {ours: source}
            if arrays.has(where):
                members, ins = {}, {ours: source, "positions": where}
            out.append(check("rotate", **about, axes=axes, sense=sense, **members,
                             **{"in": ins, "out": {ours: result}}))
    if arrays.has("scores"):
        ins, members = {"q": "q", "k": "k"}, {}
        for key, where in (("q_positions", q_positions), ("k_positions", k_positions)):
            (ins if arrays.has(where) else members)[key] = where
        out.append(check("scores", **about, axes=axes, scale=1, **members,
                         **{"in": ins, "out": {"scores": "scores"}}))
    return out


# x-transformers --------------------------------------------------------------------------------


def x_transformers(case, arrays):
    p = case["params"]
    if case["scheme"] == "pope":
        return pope(p)
    dim, head = p["rotary_emb_dim"], p["head_dim"]
    width = dim if dim != head else None
    raised = divided = None
    if "base_rescale_factor" in p:
        raised = words("ntk", factor=p["base_rescale_factor"], formula="alpha")
    if "interpolation_factor" in p:
        divided = words("linear", factor=p["interpolation_factor"])
    if p.get("use_xpos"):
        plain = words("xpos", head_dim=head, rotary_dim=width, base=10000, pairing="interleaved",
                      center=(max(p["positions"]) + 1) // 2, scale_base=p.get("scale_base", 512))
    else:
        plain = words("rope", head_dim=head, rotary_dim=width, base=10000, pairing="interleaved")
    about = {"scheme": chain(plain, raised, divided)}
    axes = all_axes("bhtd", "q", "k", "grad_q_out", "grad_k_out")
    out = xpos_checks(arrays, about, axes, "positions", "positions")
    out.append(check("frequencies", scheme=chain(plain, raised), out={"inv_freq": "inv_freq"}))
    return out


def pope(p):
    scheme = words("pope", head_dim=p["dim"], base=p["base"])
    axes = all_axes("bhtd", "q", "k", "q_out", "k_out")
    return [check("pope", scheme=scheme, axes=axes, **{
        "in": {"q": "q", "k": "k", "bias": "bias[:,0]", "positions": "positions",
               "grad_scores": "grad_scores"},
        "out": {"q": "q_out", "k": "k_out", "scores": "scores", "grad_q": "grad_q",
                "grad_k": "grad_k", "grad_bias": "grad_bias[:,0]", "inv_freq": "inv_freq"}})]
