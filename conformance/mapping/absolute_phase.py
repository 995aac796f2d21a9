# SPDX-License-Identifier: Apache-2.0
"""absolute: sinusoids of several axes, Fourier features, augmented positions, and arithmetic of its
own (complex word order, convolutional positions)."""

import math

from mapping.absolute_sinusoids import encode, rows, sinusoid
from mapping.words import check, words


def checks(case, arrays):
    name = case["name"]
    for prefix, rule in RULES:
        if name.startswith(prefix):
            return rule(case["params"], arrays)
    return None


# Several axes -------------------------------------------------------------------------------------


def axes(widths, **more):
    return words("sinusoidal_nd", widths=widths, **more)


def two_halves(width, stream, **more):
    return axes([width // 2, width // 2], stream=stream, layout="halves", **more)


def grid(shape, before=0, **more):
    """Rule for a grid; tokens before it stand at -1, whose row is zero."""
    extra = {"before": before, "value": -1} if before else {}
    return {"rule": words("grid", shape=shape, **extra, **more)}


def detr(p, arrays):
    d = p.get("num_pos_feats", p.get("num_position_features"))
    mask = "padding_mask" if arrays.has("padding_mask") else "mask"
    rule = words("counted_grid", normalise=p["normalize"] or None, scale=p["scale"], eps=p["eps"],
                 ones_are_padding=mask == "padding_mask" or None)
    return [encode(axes([d, d], base=p["temperature"]), None, {"rows": "pos"},
                   positions={"rule": rule, "in": {"mask": mask}}, axes={"pos": "bdtt"})]


def diffusers_2d(p, arrays):
    size = p["grid_size"]
    shape = size if isinstance(size, list) else [size, size]
    before = p.get("extra_tokens", 0) if p.get("cls_token") else 0
    space = p.get("interpolation_scale", 1.0)
    scheme = two_halves(p["embed_dim"], [1, 0], scale=[1 / space] * 2,
                        zero_position=-1 if before else None)
    extra = {"before": before, "value": -1} if before else {}
    rule = words("scaled_grid", shape=shape, reference=[p["base_size"]] * 2, float32=True,
                 **extra)
    return [encode(scheme, None, {"rows": "pe"}, positions={"rule": rule})]


def vision(p, arrays, stream, shape, width, temperature, class_token):
    scheme = two_halves(width, stream, base=temperature, zero_position=-1 if class_token else None)
    return [encode(scheme, None, {"rows": "pe"}, positions=grid(shape, 1 if class_token else 0))]


def hf_build(p, arrays):
    return vision(p, arrays, [0, 1], [p["height"], p["width"]], p["embed_dim"], p["temperature"],
                  p["cls_token"])


def vit_mae(p, arrays):
    return vision(p, arrays, [1, 0], p["grid"], p["config"]["hidden_size"], p["temperature"], True)


def mae(p, arrays):
    return vision(p, arrays, [1, 0], [p["grid_size"]] * 2, p["embed_dim"], p["base"], p["cls_token"])


def timm(p, arrays):
    shape = p["feat_shape"][::-1] if p["reverse_coord"] else p["feat_shape"]
    joint = None if p["interleave_sin_cos"] else "joint"
    scheme = two_halves(p["dim"], None, base=p["temperature"], arrangement=joint)
    return [encode(scheme, None, {"rows": "pe"}, positions=grid(shape))]


def diffusers_3d(p, arrays):
    d, (width, height) = p["embed_dim"], p["spatial_size"]
    space = 1 / p["spatial_interpolation_scale"]
    scheme = axes([d // 4, 3 * d // 8, 3 * d // 8], stream=[0, 2, 1], layout="halves",
                  scale=[1 / p["temporal_interpolation_scale"], space, space])
    return [encode(scheme, None, {"rows": "pe"}, positions=grid([p["temporal_size"], height, width]),
                   axes={"pe": "ttd"})]


def tensor2tensor_nd(p, arrays):
    scheme = axes([2 * p["timescales_per_axis"]] * len(p["grid"]), layout="halves", spacing="t2t",
                  base=p["max_timescale"], min_timescale=p["min_timescale"])
    return [encode(scheme, None, {"rows": "signal"}, positions=grid(p["grid"]),
                   axes={"signal": "b" + "t" * len(p["grid"]) + "d"})]


def tatp22(p, arrays):
    n, left, widths = len(p["grid"]), p["channels"], []
    each = 2 * -(-p["channels"] // (2 * n))
    for _ in range(n):
        widths.append(min(left, each))
        left -= widths[-1]
    scheme = axes(widths, exponent_width=each, base=p["base"],
                  odd="truncate" if any(w % 2 for w in widths) else None)
    ts, x = "t" * n, arrays.has("x")
    out = "out" if x else "pe"
    channel_first = not x and arrays.shape("pe")[0] == p["channels"] and n > 1
    letters = "d" + ts if channel_first else ("b" if x else "") + ts + "d"
    return [encode(scheme, {"x": "x"} if x else None, {"out" if x else "rows": out},
                   positions=grid(p["grid"]), axes={out: letters, **({"x": letters} if x else {})})]


# Fourier features ---------------------------------------------------------------------------------


def perceiver(p, arrays):
    scheme = words("fourier_features", axes=len(p["index_dims"]), bands=p["num_bands"], first=[1],
                   last=[r / 2 for r in p["max_resolution"]], factor=math.pi,
                   layout="sines" if p["sine_only"] else None, coordinates=p["concat_pos"])
    return [encode(scheme, None, {"rows": "pe"},
                   positions={"rule": words("linspace_grid", shape=p["index_dims"])})]


def sam(p, arrays):
    height, width = p["input_shape"]
    scheme = words("fourier_features", axes=2, bands=p["num_pos_feats"], law="random",
                   factor=2 * math.pi)
    points = {"rule": words("normalised", size=[width, height]), "in": {"positions": "coords"},
              "axes": {"coords": "btta"}}
    return [encode(scheme, {"weight": "weight", "grad_out": "grad_out"},
                   {"rows": "out", "grad_weight": "grad_weight"}, positions=points,
                   axes={"out": "bttd", "grad_out": "bttd"})]


def timm_fourier(p, arrays):
    if p["in_pixels"]:
        at = {"rule": words("linspace_grid", shape=p["feat_shape"])}
        law = {"law": "linear" if p.get("linear_bands") else "log", "last": [p["max_res"] / 2],
               "factor": math.pi}
    else:
        at, law = grid(p["feat_shape"]), {"law": "powers", "base": p["temperature"]}
    out = [encode(words("fourier_features", axes=2, bands=p["num_bands"], layout=layout, **law), None,
                  {"rows": name}, positions=at, axes={name: "ttdd"})
           for name, layout in (("sin", "sines"), ("cos", "cosines"))]
    if p["include_grid"]:
        out.append(encode(words("coordinates", axes=2), None, {"rows": "grid"}, positions=at,
                          axes={"grid": "ttdd"}))
    return out


# Augmented positions ------------------------------------------------------------------------------


def cape_1d(p, arrays):
    (batch, tokens, d), padded = arrays.shape("x"), -1000000
    lengths = "lengths" if arrays.has("x_lengths") or "x_lengths" in p else None
    ins = {ours: theirs for ours, theirs in
           {"shift": "global_shift", "local": "local_shift", "log_scale": "log_scale",
            "time_steps": "positions_delta", "lengths": "x_lengths"}.items() if arrays.has(theirs)}
    rule = words("cape", batch=batch, tokens=tokens, normalise=p["normalize"] or None,
                 lengths=p.get("x_lengths") if "lengths" not in ins else None,
                 padding="after_length" if lengths else None, padded=padded)
    scheme = sinusoid(d, scale=p["freq_scale"], input_gain=math.sqrt(d),
                      zero_position=padded if lengths else None)
    return [encode(scheme, {"x": "x"}, {"out": "out"}, positions={"rule": rule, "in": ins})]


def cape_2d(p, arrays):
    d = p["d_model"]
    drawn = {"shift_first": "shift_x", "shift_second": "shift_y", "local_first": "local_x",
             "local_second": "local_y", "log_scale": "log_scale"}
    ins = {ours: theirs for ours, theirs in drawn.items() if arrays.has(theirs)}
    rule = words("cape_grid", first=p["grid"][0], second=p["grid"][1], batch=arrays.shape("x")[0])
    return [encode(words("cape2d", width=d, input_gain=math.sqrt(d)), {"x": "x"}, {"out": "out"},
                   positions={"rule": rule, "in": ins}, axes={"x": "bttd", "out": "bttd"})]


def shape(p, arrays):
    d, count, late = p["dim"], arrays.shape("x")[0], p["pe_noise_size"]
    scheme = sinusoid(d, base=p["base"], input_gain=math.sqrt(d))
    letters = {name: "tbd" for name in ("x", "out_train", "out_eval", "out_eval_step%d" % p["step"])}
    drawn = {"rule": words("shifted_rows", count=count), "in": {"deltas": "offsets"}}
    return [encode(scheme, {"x": "x"}, {"out": "out_train"}, positions=drawn, axes=letters)] + [
        encode(scheme, {"x": "x"}, {"out": out}, positions="%d:%d" % (at, at + count), axes=letters)
        for out, at in (("out_eval", late), ("out_eval_step%d" % p["step"], late + p["step"]))]


def randomized(p, arrays):
    return [rows(sinusoid(p["hidden_size"], layout=p["layout"], base=p["base"]), "encodings")]


# Arithmetic of its own ----------------------------------------------------------------------------


def complex_embedding(p, arrays):
    first = arrays.shape("ids")
    shares = {"per word and channel": None, "per word": "per_word", "per channel": "per_channel"}
    scheme = words("complex_order", width=p["d_model"], vocabulary=arrays.shape("amplitude")[0],
                   frequency=shares[p["sharing"]], amplitude_gain=p.get("amplitude_gain"),
                   padding_word=p.get("padding_idx"))
    if p["positions"].endswith("(reversed)"):
        letters, at = {}, {"rule": words("reversed", count=first[1])}
    else:  # 1 .. length; arrays are [position, batch]
        letters, at = {"ids": "tb"}, "1:%d" % (first[0] + 1)
        letters.update({name: "tbd" for name in ("re", "im", "grad_re", "grad_im")})
    names = ("amplitude", "frequency")
    return [check("complex_embedding", scheme=scheme, positions=at, axes=letters or None, **{
        "in": {n: n for n in names + ("ids", "grad_re", "grad_im")},
        "out": {n: n for n in ("re", "im", "grad_amplitude", "grad_frequency")}})]


def complex_attention(p, arrays):
    parts = [x + y for x in ("q", "k", "v") for y in ("_re", "_im")]
    ins = {n: n for n in parts + ["grad_re", "grad_im"] + (["mask"] if arrays.has("mask") else [])}
    outs = {n: n for n in ["out_re", "out_im"] + ["grad_" + n for n in parts]}
    outs["probabilities"] = "probs"
    return [check("complex_attention", score="hermitian" if p["conjugate"] else "bilinear",
                  **{"in": ins, "out": outs})]


def wav2vec2(p, arrays):
    scheme = words("convolutional", width=p["hidden_size"], kernel=p["num_conv_pos_embeddings"],
                   groups=p["num_conv_pos_embedding_groups"], add=False)
    weights = ("weight_g", "weight_v", "bias")
    return [check("convolve", scheme=scheme, **{
        "in": {n: n for n in ("x", "grad_out") + weights},
        "out": {n: n for n in ("out", "grad_x") + tuple("grad_" + w for w in weights)}})]


def visual_bert(p, arrays):
    """Words and regions stand behind each other in one output."""
    count, norm = arrays.shape("input_ids")[1], {"gamma": "gamma", "beta": "beta"}
    text = [{"table": "word", "in": {"ids": "input_ids"}},
            {"table": "position", "ids": "0:%d" % count}, {"table": "type", "ids": [0] * count}]
    epsilon = p["layer_norm_eps"]
    ins = {"features": "visual_embeds", "weight": "visual_projection_weight",
           "bias": "visual_projection_bias", "alignment": "alignment", "position": "position",
           "type": "visual_type", "own_position": "visual_position", **norm}
    return [check("embed", parts=text, norm={**norm, "epsilon": epsilon},
                  out={"out": "out[:, 0:%d]" % count}),
            check("regions", type_id=1, epsilon=epsilon,
                  **{"in": ins, "out": {"out": "out[:, %d:]" % count}})]


RULES = (
    ("complex_order_embedding_", complex_embedding), ("complex_order_attention", complex_attention),
    ("conv_hf_wav2vec2", wav2vec2), ("crossmodal_hf_visualbert", visual_bert),
    ("sin_t2t_nd_", tensor2tensor_nd), ("sin2d_detr_", detr),
    ("sin2d_hf_detr_", detr), ("sin2d_diffusers_", diffusers_2d), ("sin2d_hf_build_", hf_build),
    ("sin2d_hf_vitmae_", vit_mae), ("sin2d_mae", mae), ("sin2d_timm_", timm),
    ("sin3d_diffusers", diffusers_3d), ("sin_tatp22_", tatp22),
    ("fourier_hf_perceiver_", perceiver), ("fourier_hf_sam_", sam), ("fourier_timm_", timm_fourier),
    ("cape1d_", cape_1d), ("cape2d_", cape_2d), ("shape_", shape), ("randomized_", randomized),
)
