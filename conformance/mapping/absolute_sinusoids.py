# SPDX-License-Identifier: Apache-2.0
"""absolute: sinusoids of one axis, timesteps."""

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


RULES = (
    ("sin_annotated_", annotated), ("sin_bert4keras_", bert4keras),
    ("sin_ctranslate2_", ctranslate2), ("sin_deepmind_", deepmind),
    ("sin_diffusers_", diffusers_1d), ("sin_fairseq2_", fairseq2),
    ("sin_fairseq_forward_", fairseq_forward), ("sin_fairseq_table_", fairseq_table),
    ("sin_hf_m2m100_forward_", m2m100_forward), ("sin_hf_m2m100_table_", fairseq_table),
    ("sin_hf_marian_decode_", hf_marian_decode), ("sin_hf_marian_", hf_marian),
    ("sin_hf_musicgen_", musicgen), ("sin_hf_speecht5_", speecht5), ("sin_hf_whisper", whisper),
    ("sin_hf_xlm_", xlm), ("sin_marian_", marian), ("sin_mlx_", mlx),
    ("sin_opennmt_py_", opennmt_py), ("sin_pytorch_example_", pytorch_example),
    ("sin_t2t_", tensor2tensor), ("sin_xtransformers_", x_transformers),
    ("timestep_diffusers_", timestep),
)
