# SPDX-License-Identifier: Apache-2.0
"""rotary_engines, the cases named timm_*."""

from mapping.words import PAIRINGS, all_axes, check, turned, words


def timm_axial(p, dims, dinov3):
    """Bands of RotaryEmbeddingCat (pixels or a temperature) and of DINOv3 (periods)."""
    half = p.get("rotate_half", dinov3)
    more = dict(pairing=PAIRINGS[bool(half)])
    if dinov3 and "min_period" in p:
        more.update(spacing="periods", first=p["min_period"], last=p["max_period"])
    elif dinov3:
        more.update(base=100, scale=6.283185307179586)
    elif p.get("in_pixels", True):
        more.update(spacing="linear" if p.get("linear_bands") else "logarithmic", first=1,
                    last=p.get("max_res", 224) / 2)
    else:
        more.update(base=10000)
    return words("axial", head_dim=sum(dims), axes_dim=dims, **more)


def timm_positions(p, arrays, dinov3):
    rows, columns = p["feat_shape"]
    ins = {}
    if dinov3 or p.get("grid_type") == "centered":
        rule = words("patch_centres", rows=rows, columns=columns,
                     normalisation=p.get("normalize_coords", "separate"))
        ins = {n: n for n in ("shift", "log_jitter", "log_rescale") if arrays.has(n)}
    elif p.get("in_pixels", True):
        rule = words("linspace_grid", shape=[rows, columns])
    elif "ref_feat_shape" in p:
        rule = words("scaled_grid", shape=[rows, columns], reference=p["ref_feat_shape"])
    else:
        rule = words("grid", shape=[rows, columns], first=p.get("grid_offset"),
                     swap_xy=True if p.get("grid_indexing") == "xy" else None)
    return {"rule": rule, "in": ins} if ins else {"rule": rule}


def timm(case, arrays):
    name, p = case["name"], case["params"]
    if case["scheme"] == "mixed_2d":
        return timm_mixed(p)
    if case["scheme"] == "mrope":
        return timm_mrope(p, arrays)
    if name == "timm_batch":
        return timm_batch(p, arrays)
    dinov3 = name.startswith("timm_dinov3")
    dim = p["dim"]
    about = {"scheme": timm_axial(p, [dim // 2, dim // 2], dinov3)}
    one = {"scheme": timm_axial(p, [dim // 2], dinov3)}
    rule = timm_positions(p, arrays, dinov3)
    out = vision_checks(arrays, about, rule, bool(p.get("rotate_half", dinov3)), dim)
    out.append(check("frequencies", **one,
                     out={"periods": "periods"} if dinov3 else {"inv_freq": "bands"}))
    return out


def vision_checks(arrays, about, rule, half, dim):
    axes = all_axes("bhtd", "x", "grad_out")
    return [turned(arrays, about, axes, rule, q=("x", "out")),
            turned(arrays, about, axes, rule, q=("grad_out", "grad_x"), sense="gradient"),
            check("rows", **about, positions=rule, layout="duplicated" if half else "repeated",
                  out={"sin": "embed[:,0:%d]" % dim, "cos": "embed[:,%d:%d]" % (dim, 2 * dim)})]


def timm_mixed(p):
    head = p["dim"] // p["heads"]
    rule = {"rule": words("grid", shape=p["feat_shape"], swap_xy=True)}
    out = []
    for i in range(p["depth"]):
        freqs, x = "freqs[:,%d]" % i, "x[%d]" % i
        grad_out, grad_freqs = "grad_out[%d]" % i, "grad_freqs[:,%d]" % i
        sin = "embed[%d,:,:,0:%d]" % (i, head)
        cos = "embed[%d,:,:,%d:%d]" % (i, head, 2 * head)
        about = {"scheme": words("mixed_axes", head_dim=head, heads=p["heads"], axes=2,
                                 frequencies="@" + freqs, pairing="interleaved"),
                 "axes": {x: "bhtd", grad_out: "bhtd", freqs: "ahd", grad_freqs: "ahd",
                          sin: "htd", cos: "htd"}}
        out += [
            check("rotate", **about, positions=rule,
                  **{"in": {"q": x}, "out": {"q": "out[%d]" % i}}),
            check("rotate", **about, positions=rule, sense="gradient",
                  **{"in": {"q": grad_out}, "out": {"q": "grad_x[%d]" % i}}),
            check("rows", **about, positions=rule, layout="repeated",
                  out={"sin": sin, "cos": cos}),
            check("phase_gradients", **about, positions=rule,
                  **{"in": {"q": x, "grad_q": grad_out}, "out": {"frequency": grad_freqs}}),
        ]
    return out


def timm_mrope(p, arrays):
    dim = p["dim"]
    where = dict(head_dim=dim, base=p["temperature"], pairing="half_split")
    about = {"scheme": words("mrope", **where, sections=p["mrope_section"], layout="interleaved")}
    rule = {"rule": words("grid", shape=[1] + p["feat_shape"])}
    out = vision_checks(arrays, about, rule, True, dim)
    out.append(check("frequencies", **about, out={"inv_freq": "inv_freq"}))
    return out


def timm_batch(p, arrays):
    """One padded batch of grids, and rows kept by number."""
    dim = p["dim"]
    scheme = timm_axial(p, [dim // 2, dim // 2], False)

    def rows(name, positions):
        return check("rows", scheme=scheme, positions=positions, layout="repeated",
                     out={"sin": "%s:%d]" % (name + ",0", dim),
                          "cos": "%s:%d]" % (name + ",%d" % dim, 2 * dim)})

    out = []
    for i, (height, width) in enumerate(p["shapes"]):
        tokens = height * width
        out.append(rows("embed[%d,0:%d" % (i, tokens),
                        {"rule": words("grid", shape=[height, width])}))
    images, kept = arrays.shape("keep_indices")
    numbers = arrays.integers("keep_indices")
    for i in range(images):
        width = p["shapes"][i][1]
        own = numbers[i * kept : (i + 1) * kept]
        inside = [n for n in own if n < p["shapes"][i][0] * width]
        out.append(rows("kept_embed[%d,0:%d" % (i, len(inside)),
                        [[n // width for n in inside], [n % width for n in inside]]))
    return out
