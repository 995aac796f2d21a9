# SPDX-License-Identifier: Apache-2.0
"""rotary_engines, the cases named paper_*: the authors' own code."""

from mapping.engines import xpos_checks
from mapping.words import PAIRINGS, all_axes, chain, check, turned, words


def checks(case, arrays):
    name = case["name"][len("paper_"):]
    for prefix, rule in FAMILIES:
        if name.startswith(prefix):
            return rule(case["params"], arrays)
    raise KeyError(name)


def both(arrays, about, axes, positions, **names):
    """Forward, and the gradients that the case holds."""
    out = [turned(arrays, about, axes, positions, **names)]
    out.append(turned(arrays, about, axes, positions, q=("grad_q_out", "grad_q"),
                      k=("grad_k_out", "grad_k"), sense="gradient"))
    return [c for c in out if c["in"].get("q") or c["in"].get("k")]


def single(arrays, about, letters, positions):
    axes = all_axes(letters, "x", "grad_out")
    return [turned(arrays, about, axes, positions, q=("x", "out"), k=None),
            turned(arrays, about, axes, positions, q=("grad_out", "grad_x"), k=None,
                   sense="gradient")]


def qk_axes(letters):
    return all_axes(letters, "q", "k", "grad_q_out", "grad_k_out")


# Llama, GPT-NeoX, GPT-J, RoFormer, ChatGLM ------------------------------------------------------


def llama(p, arrays):
    about = {"scheme": words("rope", head_dim=p["dim"], base=p["theta"], pairing="interleaved")}
    positions = "%d:%d" % (p["start_pos"], p["start_pos"] + p["seqlen"])
    return both(arrays, about, qk_axes("bthd"), positions) + [
        check("rows", **about, positions=positions, layout="pairs", axes={"freqs_cis": "td2"},
              out={"cos_sin": "freqs_cis"})]


def llama31(p, arrays):
    constants = p["constants in the file"]
    plain = words("rope", head_dim=p["dim"], base=p["theta"], pairing="interleaved")
    scaled = chain(plain, words("llama3", factor=constants["scale_factor"],
                                low_freq_factor=constants["low_freq_factor"],
                                high_freq_factor=constants["high_freq_factor"],
                                original_context=constants["old_context_len"]))
    out = []
    for suffix in ("", "_f64"):
        out.append(check("frequencies", scheme=plain, out={"inv_freq": "freqs" + suffix}))
        out.append(check("frequencies", scheme=scaled, out={"inv_freq": "scaled" + suffix}))
    out.append(check("rows", scheme=scaled, layout="pairs", axes={"freqs_cis": "td2"},
                     **{"in": {"positions": "rows"}, "out": {"cos_sin": "freqs_cis"}}))
    return out


def gpt_neox(p, arrays):
    scheme = words("rope", head_dim=p["head_dim"], rotary_dim=p["rotary_ndims"], base=p["base"],
                   pairing="half_split")
    positions = "%d:%d" % (p["offset"], p["offset"] + p["n"])
    return both(arrays, {"scheme": scheme}, qk_axes("tbhd"), positions)


def gpt_j(p, arrays):
    about = {"scheme": words("rope", head_dim=p["head_dim"], rotary_dim=p["pe_rotate_dims"],
                             base=10000, pairing="interleaved")}
    end = p["past"] + p["n"]
    return both(arrays, about, qk_axes("thd"), "%d:%d" % (p["past"], end)) + [
        check("rows", **about, positions="0:%d" % end, out={"cos": "cos", "sin": "sin"})]


def roformer(p, arrays):
    about = {"scheme": words("rope", head_dim=p["dim"], base=10000, pairing="interleaved")}
    positions = "0:%d" % len(p["positions"])
    return both(arrays, about, qk_axes("bthd"), positions) + [
        check("rows", **about, positions=positions,
              out={"sin": "sinusoidal[0,:,0::2]", "cos": "sinusoidal[0,:,1::2]"})]


def chatglm2(p, arrays):
    scheme = words("rope", head_dim=p["head_dim"], rotary_dim=p["rotary_dim"],
                   base=10000 * p["base_scale"], pairing="interleaved")
    return single(arrays, {"scheme": scheme}, "tbhd", "0:%d" % p["n"])


def glm_2d(p, arrays):
    half = p["head_dim"] // 2
    scheme = words("axial", head_dim=p["head_dim"], axes_dim=[half, half], base=10000,
                   pairing="half_split", order="blocks")
    return both(arrays, {"scheme": scheme}, qk_axes("tbhd"),
                ["position_ids", "block_position_ids"])


# xPos -----------------------------------------------------------------------------------------


def xpos(p, arrays):
    about = {"scheme": words("xpos", head_dim=p["head_dim"], base=10000, pairing="interleaved",
                             center=p["centre"], scale_base=p["scale_base"])}
    q_positions = "%d:%d" % (p["offset"], p["offset"] + p["q_len"])
    out = xpos_checks(arrays, about, qk_axes("btd"), q_positions, "0:%d" % p["k_len"])
    out.append(check("rows", **about, positions=[p["centre"] + p["scale_base"]],
                     out={"decay": "scale"}))
    return out


def flash(p, arrays):
    where = dict(head_dim=p["head_dim"], rotary_dim=p["dim"] if p["dim"] != p["head_dim"] else None,
                 base=p["base"], pairing=PAIRINGS[not p["interleaved"]])

    def scheme(length):
        if p["scale_base"] is None:
            return words("rope", **where)
        return words("xpos", **where, center=length // 2, scale_base=p["scale_base"])

    about = {"scheme": scheme(p["table_length"])}
    positions = "%d:%d" % (p["seqlen_offset"], p["seqlen_offset"] + p["n"])
    axes = qk_axes("bthd")
    out = both(arrays, about, axes, positions)
    grown = p.get("table_length_after_growth")
    if grown:  # q recentred, k as cached
        after = scheme(grown)
        out.append(turned(arrays, {"scheme": after}, axes, positions,
                          q=("q", "q_out_after_growth"), k=None))
        for own, result in ((about["scheme"], "scores"), (after, "scores_after_growth")):
            out.append(check("scores", scheme=own, k_scheme=about["scheme"], axes=axes, scale=1,
                             q_positions=positions, k_positions=positions,
                             **{"in": {"q": "q", "k": "k"}, "out": {"scores": result}}))
    return out


# Scalings -------------------------------------------------------------------------------------


def table_of(p, scaling, frequencies=None, context=None):
    """inv_freq and rows of a table. frequencies="": the plain ones, where positions are scaled."""
    plain = words("rope", head_dim=p["dim"], base=p.get("base", 10000), pairing="half_split")
    scheme = chain(plain, scaling)
    gain = {"gain": "$mscale_of_the_object"} if "mscale_of_the_object" in p else None
    return [
        check("frequencies", scheme=chain(plain, frequencies) if frequencies == "" else scheme,
              context=context, out={"inv_freq": "inv_freq"},
              equal=None if frequencies == "" else gain),
        check("rows", scheme=scheme, context=context, positions=p["rows"],
              out={"cos": "cos_rows", "sin": "sin_rows"}),
    ]


def yarn(p, arrays):
    return table_of(p, words("yarn", factor=p["scale"],
                             original_context=p["original_max_position_embeddings"],
                             attn_factor=p.get("attn_factor"),
                             extrapolation=p.get("extrapolation_factor")))


def ntk(p, arrays):
    return table_of(p, words("ntk", factor=p["alpha"], formula="alpha"))


def part_ntk(p, arrays):
    return table_of(p, words("ntk_by_parts", factor=p["scale"], form="two_ramps",
                             original_context=p["original_max_position_embeddings"]))


def dynamic_ntk(p, arrays):
    return table_of(p, words("dynamic", factor=p["ntk"], length_rule="per_call",
                             trained_length=p["max_position_embeddings"]),
                    context=p["seq_len_of_the_call"])


def dynamic_linear(p, arrays):
    return table_of(p, words("dynamic_linear", length_rule="per_call",
                             trained_length=p["max_position_embeddings"]),
                    frequencies="", context=p["seq_len_of_the_call"])


def dynamic_yarn(p, arrays):
    return table_of(p, words("dynamic_yarn", length_rule="per_call",
                             original_context=p["original_max_position_embeddings"],
                             max_context=p["max_position_embeddings"]),
                    context=p["seq_len_of_the_call"])


def longrope(p, arrays):
    original = p["original_max_position_embeddings"]
    policy = p["magnitude_scaling_policy"]
    known = policy in ("su", "yarn")
    scaling = words("longrope", long_factor=p["rescale_factors"], original_context=original,
                    switch_rule="always_long",
                    factor=p["max_position_embeddings"] / original if known else None,
                    magnitude=policy if known else None,
                    attention_factor=None if known else float(policy))
    plain = words("rope", head_dim=p["dim"], base=p["base"], pairing="half_split")
    start = p.get("start_token_idx", 0)
    out = [check("frequencies", scheme=chain(plain, scaling),
                 equal={"gain": "$mscale_of_the_object"})]
    for suffix in ("", "_f64"):
        out.append(check("frequencies", scheme=chain(plain, scaling),
                         out={"inv_freq": "inv_freq" + suffix}))
        for i, row in enumerate(p["rows"]):  # the first tokens keep the plain rotary
            scheme = plain if row < start else chain(plain, scaling)
            out.append(check("rows", scheme=scheme, positions=[row],
                             out={"cos": "cos_rows%s[%d]" % (suffix, i),
                                  "sin": "sin_rows%s[%d]" % (suffix, i)}))
    return out


def qwen1(p, arrays):
    out = []
    for length in p["true_seq_len"]:
        about = {"scheme": chain(words("rope", head_dim=p["dim"], base=10000, pairing="half_split"),
                                 words("qwen_dynamic", trained_length=p["seq_length"],
                                       length_rule="held")),
                 "context": length}
        out.append(turned(arrays, about, qk_axes("bthd"), "0:%d" % p["n"],
                          q=("q", "q_out_len_%d" % length), k=None))
        out.append(check("frequencies", **about, out={"inv_freq": "inv_freq_len_%d" % length}))
    return out


def deepseek_v3(p, arrays):
    scheme = chain(words("rope", head_dim=p["qk_rope_head_dim"], base=p["rope_theta"],
                         pairing="interleaved"),
                   # The amplitude stands in the softmax scale.
                   words("yarn", factor=p["rope_factor"], original_context=p["original_seq_len"],
                         beta_fast=p["beta_fast"], beta_slow=p["beta_slow"], apply_scale=False))
    out = [turned(arrays, {"scheme": scheme}, {"x": "bthd"}, "positions", q=("x", "out"), k=None)]
    for suffix in ("", "_f64"):
        rows = "freqs_cis" + suffix
        out.append(check("rows", scheme=scheme, layout="pairs", axes={rows: "td2"}, **{
            "in": {"positions": "positions"}, "out": {"cos_sin": rows}}))
    return out


def gpt_oss(p, arrays):
    about = {"scheme": chain(words("rope", head_dim=p["head_dim"], base=p["base"],
                                   pairing="half_split"),
                             words("yarn", factor=p["scaling_factor"],
                                   original_context=p["initial_context_length"],
                                   beta_fast=p["ntk_beta"], beta_slow=p["ntk_alpha"],
                                   truncate=False))}
    tokens = arrays.shape("q")[0]
    return both(arrays, about, qk_axes("t(hd)"), "0:%d" % tokens) + [
        check("frequencies", **about, out={"inv_freq": "inv_freq"},
              equal={"gain": "$concentration"})]


# Several axes ---------------------------------------------------------------------------------


def flux(p, arrays):
    about = {"scheme": words("axial", head_dim=sum(p["axes_dim"]), axes_dim=p["axes_dim"],
                             base=p["theta"], pairing="interleaved")}
    axes = dict(qk_axes("bhtd"), ids="ta")
    out = [turned(arrays, about, axes, "ids")]
    for name, tolerance in (("pe", None), ("pe_from_float32_ids", "from_float32_ids")):
        # [[cos, -sin], [sin, cos]] of each pair
        for cos, sin in (("%s[:,:,0,0]", "%s[:,:,1,0]"), ("%s[:,:,1,1]", "-%s[:,:,0,1]")):
            out.append(check("rows", **about, axes={"ids": "ta"}, tolerance=tolerance, **{
                "in": {"positions": "ids"}, "out": {"cos": cos % name, "sin": sin % name}}))
    return out


def pixtral(p, arrays):
    half = p["dim"] // 2
    about = {"scheme": words("axial", head_dim=p["dim"], axes_dim=[half, half], base=p["theta"],
                             spacing="interlaced", pairing="interleaved")}
    rule = {"rule": words("grid", shape=[p["height"], p["width"]])}
    return both(arrays, about, qk_axes("thd"), rule) + [
        check("rows", **about, positions=rule, layout="pairs", axes={"freqs_cis": "ttd2"},
              out={"cos_sin": "freqs_cis"})]


def eva02(p, arrays):
    side = p["ft_seq_len"]
    scheme = words("axial", head_dim=2 * p["dim"], axes_dim=[p["dim"], p["dim"]], base=10000,
                   pairing="interleaved")
    rule = {"rule": words("scaled_grid", shape=[side, side], reference=[p["pt_seq_len"]] * 2)}
    return single(arrays, {"scheme": scheme}, "bhtd", rule)


def rope_vit(p, arrays):
    half = p["dim"] // 2
    scheme = words("axial", head_dim=p["dim"], axes_dim=[half, half], base=p["theta"],
                   pairing="interleaved")
    rule = {"rule": words("grid", shape=[p["end_y"], p["end_x"]], swap_xy=True)}
    return both(arrays, {"scheme": scheme}, qk_axes("bhtd"), rule)


def vjepa2(p, arrays):
    """No rotation: neighbours are combined, but channel c takes angle c mod d/2. A table made for
    halves, given as the caller's cos and sin, axis by axis."""
    width = p["dims_per_axis"]
    grid = [p["T"], p["H"], p["W"]]
    out = []
    for axis in range(3):
        made = {"scheme": words("axial", head_dim=width, axes_dim=[width], base=10000,
                                pairing="half_split", stream=[axis], streams=3),
                "positions": {"rule": words("grid", shape=grid)}, "layout": "duplicated"}
        part = "[:,:,:,%d:%d]" % (axis * width, (axis + 1) * width)
        for source, result, sense in (("x", "out", None), ("grad_out", "grad_x", "gradient")):
            out.append(check("rotate_rows",
                             scheme=words("rope", head_dim=width, pairing="interleaved"),
                             axes={source + part: "bhtd"}, rows=made, layout="repeated",
                             sense=sense,
                             **{"in": {"q": source + part}, "out": {"q": result + part}}))
    return out


# Other distances ------------------------------------------------------------------------------


def scores_of(p, arrays, rule, **more):
    members = dict(scheme=words("rope", head_dim=p["head_dim"], base=p["base"],
                                pairing="half_split"),
                   map=rule, axes=all_axes("bhtd", "q", "k"), causal=True)
    ins = {"q": "q", "k": "k"}
    for key in ("q_positions", "k_positions"):
        if arrays.has(key):
            ins[key] = key
        else:
            members[key] = "0:%d" % p[key[0] + "_len"]
    out = {"scores": "scores"}
    if arrays.has("distance"):
        out["distance"] = "distance"
    return [check("scores", **members, **more, **{"in": ins, "out": out})]


def self_extend(p, arrays):
    # The published code takes window / group as a real number.
    return scores_of(p, arrays, words("self_extend", window=p["group_size_2"],
                                      group=p["group_size_1"], ratio="real"))


def rerope(p, arrays):
    return scores_of(p, arrays, words("rerope", window=p["window"]),
                     temperature=words("log_n", period=p["training_length"]))


def leaky_rerope(p, arrays):
    return scores_of(p, arrays, words("leaky_rerope", window=p["window"],
                                      factor=p["scaling_factor"]),
                     temperature=words("log_n", period=p["training_length"]))


def dual_chunk(p, arrays):
    return scores_of(p, arrays, words("dual_chunk", chunk_size=p["chunk_size"],
                                      local_size=p["local_window"]))


FAMILIES = (
    ("llama_", llama), ("llama31", llama31), ("gpt_neox", gpt_neox), ("gpt_j", gpt_j),
    ("roformer", roformer), ("chatglm2", chatglm2), ("glm_2d", glm_2d), ("xpos", xpos),
    ("flash", flash), ("yarn", yarn), ("ntk", ntk), ("part_ntk", part_ntk),
    ("dynamic_ntk", dynamic_ntk), ("dynamic_linear", dynamic_linear),
    ("dynamic_yarn", dynamic_yarn), ("longrope", longrope), ("qwen1", qwen1),
    ("deepseek_v3", deepseek_v3), ("gpt_oss", gpt_oss), ("flux", flux), ("pixtral", pixtral),
    ("eva02", eva02), ("rope_vit", rope_vit), ("vjepa2", vjepa2), ("self_extend", self_extend),
    ("rerope", rerope), ("leaky_rerope", leaky_rerope), ("dual_chunk", dual_chunk),
)
