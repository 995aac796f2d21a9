# SPDX-License-Identifier: Apache-2.0
"""absolute: sinusoids of one and several axes, Fourier features, timesteps, augmented positions."""

import math
import struct

from mapping.words import check, words


def checks(case, arrays):
    name = case["name"]
    for prefix, rule in RULES:
        if name.startswith(prefix):
            return rule(case["params"], arrays)
    return None


def float32(x):
    return struct.unpack("f", struct.pack("f", x))[0]


def sinusoid(width, **more):
    return words("sinusoidal", width=width, **more)


def halves(width, **more):
    """Halves with tensor2tensor's spacing; an odd width ends in a zero."""
    odd = "zero_pad" if width % 2 else None
    return sinusoid(width, **{"layout": "halves", "spacing": "t2t", "odd": odd, **more})


def encode(scheme, ins=None, outs=None, **more):
    return check("encode", scheme=scheme, **more, **{"in": ins, "out": outs})


def rows(scheme, out, positions=None, **more):
    """The encoding alone; positions are a range, or the case's array of that name."""
    given = positions is None or (isinstance(positions, str) and ":" not in positions)
    ins = {"positions": positions or "positions"} if given else None
    return encode(scheme, ins, {"rows": out}, positions=None if given else positions, **more)


def table(scheme, p, arrays, count):
    """`table` at the positions of the case, or from 0."""
    return [rows(scheme, "table", None if arrays.has("positions") else "0:%d" % count)]


# One axis -----------------------------------------------------------------------------------------


def annotated(p, arrays):
    d = p["d_model"]
    scheme = sinusoid(d, input_gain=math.sqrt(d))
    return [encode(scheme, {"x": "lut", "ids": "ids", "grad_out": "grad_out"},
                   {"out": "out", "grad_x": "grad_lut"}, positions="0:%d" % arrays.shape("ids")[1]),
            rows(scheme, "table")]


def plus(scheme, arrays, first=0, out="out", x="x", **more):
    count = arrays.shape(x)[-2] if "axes" not in more else arrays.shape(x)[0]
    return encode(scheme, {"x": x}, {"out": out}, positions="%d:%d" % (first, first + count), **more)


def bert4keras(p, arrays):
    compose = {"add": None, "mul": "one_plus"}[p["merge_mode"]]
    return [plus(sinusoid(p["output_dim"], base=p["base"], compose=compose), arrays)]


def ctranslate2(p, arrays):
    scheme = halves(p["d_model"], base=p["base"], offset=p["first_position"],
                    input_gain=math.sqrt(p["d_model"]))
    return [plus(scheme, arrays, x="embeddings")]


def deepmind(p, arrays):
    n = p["sequence_length"]
    first = -n if p.get("add_negative_side") else 0
    scheme = sinusoid(p["hidden_size"], layout=p["layout"], base=p["max_timescale"])
    return [rows(scheme, "table", "%d:%d" % (first, n))]


def diffusers_1d(p, arrays):
    scheme = sinusoid(p["embed_dim"], layout=p["layout"], base=p["base"])
    return [encode(scheme, {"positions": "pos", "grad_out": "grad_out"},
                   {"rows": "pe", "grad_position": "grad_pos"})]


def fairseq2(p, arrays):
    first, step, tokens = p["first_position"], p["step_nr"], arrays.shape("x")[1]
    d, lengths = p["encoding_dim"], p["packed_seq_lens"]
    real = halves(d, base=p["base"], offset=first, zero_position=-1)
    bounds = [sum(lengths[:i]) for i in range(len(lengths) + 1)]
    padded = words("from_lengths", lengths=p["seq_lens"], tokens=tokens, padded=-1)
    packed = words("packed", cu_seqlens=bounds, after=p["packed_width"] - bounds[-1], value=-1)
    shifted = halves(d, base=p["base"], offset=first + step)  # padding's -1 gets a position too
    return [check("positions", rule=padded, out={"positions": "position_ids"}),
            check("positions", rule=packed, out={"positions": "position_ids_packed"}),
            encode(real, {"x": "x"}, {"out": "out_padded"}, positions={"rule": padded}),
            encode(real, {"x": "x"}, {"out": "out_full"}, positions="0:%d" % tokens),
            encode(real, {"x": "x_packed"}, {"out": "out_packed"}, positions={"rule": packed}),
            encode(real, {"x": "x"}, {"out": "out_full_step3"},
                   positions="%d:%d" % (step, step + tokens)),
            encode(shifted, {"x": "x"}, {"out": "out_padded_step3"}, positions={"rule": padded})]


def counted(padding_idx, past=None):
    return {"rule": words("fairseq", padding_idx=padding_idx, past=past), "in": {"tokens": "input_ids"}}


def fairseq_forward(p, arrays):
    pad = p["padding_idx"]
    scheme = halves(p["embedding_dim"], base=p["base"], zero_position=pad)
    steps = {"out_incremental": pad + p["incremental_tokens"], "out_timestep": pad + p["timestep"] + 1}
    return [check("positions", **counted(pad), out={"positions": "position_ids"}),
            encode(scheme, None, {"rows": "out"}, positions=counted(pad))] + [
        rows(scheme, out, "%d:%d" % (at, at + 1)) for out, at in steps.items()]


def m2m100_forward(p, arrays):
    pad, past, later = p["padding_idx"], p["past_key_values_length"], p["inputs_embeds_past"]
    scheme = halves(p["embedding_dim"], base=p["base"], zero_position=pad)
    first, count = pad + 1 + later, p["inputs_embeds_shape"][1]
    return [check("positions", **counted(pad), out={"positions": "position_ids"}),
            check("positions", **counted(pad, past), out={"positions": "position_ids_past%d" % past}),
            encode(scheme, None, {"rows": "out"}, positions=counted(pad)),
            encode(scheme, None, {"rows": "out_past%d" % past}, positions=counted(pad, past)),
            rows(scheme, "out_embeds_past%d" % later, "%d:%d" % (first, first + count))]


def fairseq_table(p, arrays):
    scheme = halves(p["embedding_dim"], base=p["base"], zero_position=p.get("padding_idx"))
    return table(scheme, p, arrays, p["num_embeddings"])


def hf_marian(p, arrays):
    d = p["embedding_dim"]
    scheme = sinusoid(d, layout=p["layout"], base=p["base"], odd="truncate" if d % 2 else None)
    return table(scheme, p, arrays, p["num_positions"])


def hf_marian_decode(p, arrays):
    scheme = sinusoid(p["embedding_dim"], layout=p["layout"], base=p["base"])
    past = p["past_key_values_length"]
    return [rows(scheme, "past%d" % past, "%d:%d" % (past, past + p["input_ids_shape"][1])),
            rows(scheme, "by_ids", "position_ids")]


def musicgen(p, arrays):
    return table(halves(p["embedding_dim"], layout=p["layout"], base=p["base"]), p, arrays,
                 p["num_embeddings"])


def speecht5(p, arrays):
    return [encode(sinusoid(p["dim"], base=p["base"], learned_gain=True),
                   {"x": "x", "grad_out": "grad_out"},
                   {"out": "out", "grad_x": "grad_x", "grad_gain": "grad_alpha"},
                   positions="0:%d" % arrays.shape("x")[1],
                   parameters={"gain": float32(p["alpha"])})]


def whisper(p, arrays):
    return table(halves(p["channels"], base=p["max_timescale"]), p, arrays, p["length"])


def xlm(p, arrays):
    return table(sinusoid(p["dim"], base=p["base"]), p, arrays, p["n_pos"])


def marian(p, arrays):
    d = p["dimEmb"]
    scheme = halves(d, base=p["base"], odd="marian" if d % 2 else None)
    return [rows(scheme, "signal", "%d:%d" % (p["start"], p["start"] + p["words"]))]


def mlx(p, arrays):
    scheme = halves(p["dims"], layout="halves_cos_first" if p["cos_first"] else "halves",
                    base=p["max_freq"] / p["min_freq"],
                    scale=p["max_freq"] * (2 * math.pi if p["full_turns"] else 1), gain=p["scale"])
    return [rows(scheme, "out", "x")]


def opennmt_py(p, arrays):
    scheme = sinusoid(p["dim"], base=p["base"], input_gain=p["scale"])
    return [plus(scheme, arrays), plus(scheme, arrays, p["step"], "out_step%d" % p["step"])]


def pytorch_example(p, arrays):
    scheme = sinusoid(p["d_model"], base=p["base"])
    return [plus(scheme, arrays, axes={"x": "tbd", "out": "tbd"})]


def tensor2tensor(p, arrays):
    scheme = halves(p["channels"], base=p["max_timescale"], min_timescale=p["min_timescale"])
    first = p["start_index"]
    if arrays.has("x"):
        return [plus(scheme, arrays, first)]
    return [rows(scheme, "signal", "%d:%d" % (first, first + p["length"]))]


def x_transformers(p, arrays):
    scheme = sinusoid(p["dim"], layout=p["layout"], base=p["theta"], learned_gain=True)
    return [encode(scheme, {"positions": "pos", "grad_out": "grad_out"},
                   {"rows": "out", "grad_gain": "grad_scale"}, parameters={"gain": "$scale"})]


def timestep(p, arrays):
    d = p["embedding_dim"]
    layout = "halves_cos_first" if p["flip_sin_to_cos"] else "halves"
    scheme = sinusoid(d, layout=layout, spacing="shifted", base=p["max_period"], scale=p["scale"],
                      shift=p["downscale_freq_shift"], odd="zero_pad" if d % 2 else None)
    return [rows(scheme, "emb", "timesteps")]


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


RULES = (
    ("complex_order_embedding_", complex_embedding), ("complex_order_attention", complex_attention),
    ("conv_hf_wav2vec2", wav2vec2),
    ("sin_annotated_", annotated), ("sin_bert4keras_", bert4keras), ("sin_ctranslate2_", ctranslate2),
    ("sin_deepmind_", deepmind), ("sin_diffusers_", diffusers_1d), ("sin_fairseq2_", fairseq2),
    ("sin_fairseq_forward_", fairseq_forward), ("sin_fairseq_table_", fairseq_table),
    ("sin_hf_m2m100_forward_", m2m100_forward), ("sin_hf_m2m100_table_", fairseq_table),
    ("sin_hf_marian_decode_", hf_marian_decode), ("sin_hf_marian_", hf_marian),
    ("sin_hf_musicgen_", musicgen), ("sin_hf_speecht5_", speecht5), ("sin_hf_whisper", whisper),
    ("sin_hf_xlm_", xlm), ("sin_marian_", marian), ("sin_mlx_", mlx),
    ("sin_opennmt_py_", opennmt_py), ("sin_pytorch_example_", pytorch_example),
    ("sin_t2t_nd_", tensor2tensor_nd), ("sin_t2t_", tensor2tensor),
    ("sin_xtransformers_", x_transformers), ("timestep_diffusers_", timestep),
    ("sin2d_detr_", detr), ("sin2d_hf_detr_", detr), ("sin2d_diffusers_", diffusers_2d),
    ("sin2d_hf_build_", hf_build), ("sin2d_hf_vitmae_", vit_mae), ("sin2d_mae", mae),
    ("sin2d_timm_", timm), ("sin3d_diffusers", diffusers_3d), ("sin_tatp22_", tatp22),
    ("fourier_hf_perceiver_", perceiver), ("fourier_hf_sam_", sam), ("fourier_timm_", timm_fourier),
    ("cape1d_", cape_1d), ("cape2d_", cape_2d), ("shape_", shape), ("randomized_", randomized),
)
