# SPDX-License-Identifier: Apache-2.0
"""absolute: what the operations of today cover; the other cases have no field yet (None)."""

from mapping import absolute_tables
from mapping.words import check, words


def checks(case, arrays):
    tables = absolute_tables.checks(case, arrays)
    if tables is not None:
        return tables
    name, p = case["name"], case["params"]
    if name.startswith("sin_t2t_") and arrays.has("signal"):
        return tensor2tensor(p)
    if name.startswith("sin_marian_"):
        return marian(p)
    if name == "ids_fairseq":
        return [check("positions", rule=words("fairseq", padding_idx=i), **{
            "in": {"tokens": "input_ids"}, "out": {"positions": "pad%d" % i}})
            for i in p["padding_idx"]]
    if name == "ids_hf436_gpt2_generation":
        return [check("positions", rule="from_mask padded=1", **{
            "in": {"mask": "attention_mask"}, "out": {"positions": "position_ids"}})]
    return None


def signal(width, base, first, count, **more):
    scheme = words("sinusoidal", width=width, layout="halves", spacing="t2t", base=base, **more)
    return [check("encode", scheme=scheme, positions="%d:%d" % (first, first + count),
                  out={"rows": "signal"})]


def tensor2tensor(p):
    if "start_index" not in p or "channels" not in p:
        return None
    return signal(p["channels"], p["max_timescale"], p["start_index"], p["length"],
                  min_timescale=p["min_timescale"], odd="zero_pad" if p["channels"] % 2 else None)


def marian(p):
    if p["dimEmb"] % 2:  # an odd width is neither of the two usual rules
        return None
    return signal(p["dimEmb"], p["base"], p["start"], p["words"])
