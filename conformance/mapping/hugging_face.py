# SPDX-License-Identifier: Apache-2.0
"""rotary_hugging_face: transformers' modules, functions, layers, positions and broken files."""

import json
import pathlib

from mapping.hugging_face_rotation import apply, table_layout, vision
from mapping.words import all_axes, chain, check, words

EXPECTED = pathlib.Path(__file__).resolve().parents[2] / "tests" / "model" / "expected_doctor.json"


def checks(case, arrays):
    name = case["name"]
    for prefix, rule in (
        ("spectrum_", spectrum), ("no_rotary_", no_rotary), ("apply_", apply), ("vision_", vision),
        ("positions_", positions), ("bfloat16_", bfloat16), ("layers_", layers),
        ("temperature_", temperature), ("softmax_scale_", softmax_scale), ("state_", state),
        ("doctor_", doctor),
    ):
        if name.startswith(prefix):
            return rule(case, arrays)
    raise KeyError(name)


# Frequencies and tables -------------------------------------------------------------------------

LAYOUTS = {"half": "duplicated", "interleaved": "repeated", "one column a pair": "half"}


def variants(case):
    """(suffix of the arrays, members of a check): a layer type, a length, or neither."""
    out = []
    for name in case["outputs"]:
        if not name.startswith("cos") or name.endswith("_f64"):
            continue
        suffix = name[len("cos"):]
        if suffix.startswith("_at_"):
            out.append((suffix, {"context": int(suffix[len("_at_"):])}))
        elif suffix:
            out.append((suffix, {"layer_type": suffix[1:]}))
        else:
            out.append((suffix, {}))
    return out


def streams(config):
    """How many position axes the text model reads; a text gives all of them the same."""
    text = config.get("text_config") or config
    rope = text.get("rope_parameters") or text.get("rope_scaling") or {}
    return {"repeat_axes": 3} if rope.get("mrope_section") else {}


def facts(case, members):
    """What the peer's module says of itself, by JSON pointer."""
    expect = case["expect"]
    rotary = "/layer/rotary/"  # of the layer that `members` means
    equal = {}
    key = members.get("layer_type", "all")
    if "context" in members:
        key = "all_at_%d" % members["context"]
    factor = expect.get("attention_factor", {}).get(key)
    if factor is not None:
        equal[rotary + "attention_factor"] = factor
    layout = expect.get("layout", {})
    layout = layout.get(members.get("layer_type"), layout)
    if "pairing" in layout:
        equal[rotary + "pairing"] = layout["pairing"]
        equal[rotary + "direction"] = layout["direction"]
        if "output_order" in layout:
            equal[rotary + "output_order"] = "even_then_odd"
    elif "pairing" in expect:
        equal[rotary + "pairing"] = expect["pairing"]
    width = expect["rotary_width"]
    equal[rotary + "rotary_dim"] = width[key] if isinstance(width, dict) else width
    if "base" in expect:
        equal[rotary + "base"] = expect["base"]
    return rotary, equal


def spectrum(case, arrays):
    about = {"model": "$config_file"}
    out = []
    repeat = streams(case["params"]["config"])
    columns = case["expect"].get("table_columns")
    for suffix, members in variants(case):
        inv_freq = "inv_freq" + suffix
        layout = LAYOUTS[columns[0]] if columns else "half"
        at = "positions" + (suffix if "context" in members else "")
        rotary, equal = facts(case, members)
        if arrays.has(inv_freq):
            equal[rotary + "inv_freq"] = inv_freq + "_f64"
            for name in (inv_freq, inv_freq + "_f64"):
                out.append(check("frequencies", **about, **members, out={"inv_freq": name}))
        out.append(check("explain", **about, **members, equal=equal))

        def rows(end, ins=None, **more):
            return check("rows", **about, **members, **repeat, layout=layout, **more, **{
                "in": dict(ins or {}, positions=at),
                "out": {"cos": "cos" + suffix + end, "sin": "sin" + suffix + end}})

        out += [rows("_f64"), rows("")]
        if "hf_float32" in case["tolerance"] and arrays.has(inv_freq):
            # From the peer's own float32 frequencies its table is reproduced almost to the bit.
            out.append(rows("", {"frequencies": inv_freq}, precision="hf_float32",
                            tolerance="hf_float32"))
    return out


def no_rotary(case, arrays):
    scheme = case["expect"]["scheme"]
    equal = {"/layers/0/rotary": None}
    if scheme == "learned":
        equal["/input/0/scheme"] = "learned"
        equal["/layers/0/scheme"] = "none"
    else:
        equal["/layers/0/scheme"] = scheme
    out = [check("explain", model="$config_file", equal=equal)]
    config = case["params"]["config"]
    for name in case["outputs"]:
        if name.startswith("bucket_"):  # of memory - query from -300 to 300: minus our distance
            out.append(check("buckets", positions="300:-301:-1", out={"bucket": name}, scheme=words(
                "t5", bidirectional=name == "bucket_bidirectional",
                num_buckets=config["relative_attention_num_buckets"],
                max_distance=config["relative_attention_max_distance"])))
        if name == "alibi":
            out.append(alibi(case, config))
    return out


def alibi(case, config):
    """BLOOM: slope times key index, the signed distance to position 0. MPT: the last query."""
    by_key = config["model_type"] == "bloom"
    keys = 6
    return check("bias", scheme=words("alibi", future="signed_distance" if by_key else None),
                 heads=config.get("n_head") or config.get("n_heads"),
                 q_positions="0:1" if by_key else "%d:%d" % (keys - 1, keys),
                 k_positions="0:%d" % keys, out={"bias": "alibi"})


def positions(case, arrays):
    p = case["params"]
    rule = words("mrope", merge=p["spatial_merge_size"], tokens_per_second=p["tokens_per_second"])
    ins = {"token_types": "mm_token_type_ids", "mask": "attention_mask"}
    for ours, theirs in (("image_grid", "image_grid_thw"), ("video_grid", "video_grid_thw"),
                         ("seconds", "second_per_grid_ts")):
        if arrays.has(theirs):
            ins[ours] = theirs
    return [check("positions", rule=rule, **{
        "in": ins, "out": {"positions": "position_ids", "delta": "rope_deltas"}})]


def bfloat16(case, arrays):
    about = {"model": "$config"}
    axes = all_axes("bhtd", "q", "k")
    named = {"precision": "hf_bfloat16_table"}
    layout = table_layout(arrays, arrays.shape("q")[-1], None, case["params"]["model_type"])
    exact = {"abs": 0, "rel": 0}
    return [
        # From the peer's own table: bit for bit.
        check("rotate_rows", **about, **named, axes=axes, layout=layout, tolerance=exact,
              **{"in": {"q": "q", "k": "k", "cos": "table_cos", "sin": "table_sin"},
                 "out": {"q": "q_out", "k": "k_out"}}),
    ] + [near_table(about, named, layout, token, position)
         for token, position in enumerate(arrays.integers("position_ids")) if position <= NEAR]


# Farther on the last bit of the peer's float32 frequencies decides the table's bfloat16.
NEAR = 64


def near_table(about, named, layout, token, position):
    return check("rows", **about, **named, layout=layout, positions=[position],
                 out={"cos": "table_cos[0,%d]" % token, "sin": "table_sin[0,%d]" % token})


# Layers, magnitudes, state ----------------------------------------------------------------------


def layers(case, arrays):
    p = case["params"]
    tokens = p["tokens"]
    about = {"model": "$config", "tokens": tokens, "context": tokens}
    columns = arrays.shape("angles_at_position_1")[-1]
    head = p["config"].get("head_dim") or p["config"]["hidden_size"] // p["config"][
        "num_attention_heads"]
    interleaved = p["model_type"] in ("cohere2", "cohere")
    layout = "half" if columns * 2 == head else "repeated" if interleaved else "duplicated"
    equal = {}
    for entry in case["expect"]["layers"]:
        scheme = "/layers/%d/scheme" % entry["layer"]
        equal[scheme] = "rope" if entry["rotary"] else "none"
        if entry.get("amplitude") is not None and entry["amplitude"] == 1:
            equal["/layers/%d/rotary/attention_factor" % entry["layer"]] = 1.0
    out = [check("explain", **about, equal=equal, query=tokens - 1, layout=layout,
                 out={"visible": "visible", "angles": "angles_at_position_1"}),
           check("explain", **about, query=tokens // 2, out={"visible": "visible_middle"})]
    if arrays.has("q_scale"):
        out.append(check("explain", **about, out={"query_factor": "q_scale"}))
    return out


def temperature(case, arrays):
    return [check("temperature", form="ministral", beta="$llama_4_scaling_beta",
                  period="$original_max_position_embeddings",
                  **{"in": {"positions": "position_ids"}, "out": {"factor": name}})
            for name in ("scale", "scale_f64")]


def softmax_scale(case, arrays):
    out = []
    for i, row in enumerate(case["params"]["rows"]):
        rope = row["rope_parameters"]
        scaling = None
        # The peer asks only whether the type is scaled and mscale_all_dim is there.
        if rope["rope_type"] != "default" and rope.get("mscale_all_dim"):
            scaling = words("mscale_logit", factor=rope["factor"],
                            mscale_all_dim=rope["mscale_all_dim"])
        scheme = chain(words("rope", head_dim=64, base=10000, pairing="interleaved"), scaling)
        out.append(check("frequencies", scheme=scheme, qk_head_dim=row["qk_head_dim"],
                         out={"softmax_scale": "scaling[%d]" % i}))
    return out


def state(case, arrays):
    p = case["params"]
    members = {"model": "$config", "in": {"lengths": "lengths"}}
    if case["name"] == "state_dynamic_ntk":
        members.update(hold="hugging_face", trained=p["config"]["max_position_embeddings"])
    return [check("calls", **members, out={"inv_freq": name})
            for name in ("inv_freq", "inv_freq_f64")]


# Broken files -----------------------------------------------------------------------------------


def doctor(case, arrays):
    """The codes that our own list expects (tests/model/expected_doctor.json): transformers' verdict
    is not ours. Where the file can be read, its frequencies are the peer's."""
    expected = json.loads(EXPECTED.read_text())["cases"][case["name"]]
    about = {"model": "$config"}
    codes = [dict(zip(("code", "severity"), entry.split())) for entry in expected]
    errors = [c["code"] for c in codes if c["severity"] == "error"]
    out = [check("doctor", **about, codes=codes, errors=errors)]
    if errors:
        return out + [check("refuse", **about)]
    for name in case["outputs"]:
        if "older" in name or not name.startswith("inv_freq"):
            continue
        suffix = name[len("inv_freq"):]
        members = {}
        if suffix == "_after_9000":
            members["context"] = 9000
        elif suffix:
            members["layer_type"] = suffix[1:]
        elif "inv_freq_after_9000" in case["outputs"]:
            members["context"] = 16
        out.append(check("frequencies", **about, **members, out={"inv_freq": name}))
    return out
