# SPDX-License-Identifier: Apache-2.0
"""rotary_engines, the cases named vllm_*."""

from mapping.words import PAIRINGS, all_axes, chain, check, turned, words


def vllm_scaling(p, rope, max_position):
    kind = rope.get("rope_type", "default")
    original = rope.get("original_max_position_embeddings")
    if kind == "linear":
        return words("linear", factor=rope["factor"])
    if kind == "dynamic" and "alpha" in rope:
        return words("ntk", factor=rope["alpha"], formula="alpha")
    if kind == "dynamic":
        # One table of max_position rows; trained on as many unless the file says otherwise.
        return words("dynamic", factor=rope["factor"],
                     trained_length=rope.get("max_trained_positions", max_position),
                     length_rule="declared", declared_length=max_position)
    if kind == "ntk":
        mixed = rope.get("mixed_b")
        return words("ntk", factor=rope["factor"], formula="mixed" if mixed else "fixed",
                     mixed_b=mixed)
    if kind in ("yarn", "deepseek_yarn"):
        latent = kind == "deepseek_yarn"  # mscale and mscale_all_dim are numbers there, 0 too
        both = latent or (rope.get("mscale") and rope.get("mscale_all_dim"))
        return words("yarn", factor=rope["factor"], original_context=original,
                     beta_fast=rope.get("beta_fast"), beta_slow=rope.get("beta_slow"),
                     truncate=rope.get("truncate"), attention_factor=rope.get("attention_factor"),
                     mscale=rope["mscale"] if both else None,
                     mscale_all_dim=rope["mscale_all_dim"] if both else None)
    if kind == "llama3":
        return words("llama3", factor=rope["factor"], low_freq_factor=rope["low_freq_factor"],
                     high_freq_factor=rope["high_freq_factor"], original_context=original)
    if kind == "longrope":
        return words("longrope", short_factor=rope["short_factor"],
                     long_factor=rope["long_factor"], original_context=original,
                     switch_rule="declared", declared_length=p["max_model_len"],
                     factor=max_position / original)
    if kind == "proportional":
        return words("proportional", fraction=rope["partial_rotary_factor"])
    return None


def vllm_scheme(p):
    rope = p["rope_parameters"] or {}
    arguments = p.get("arguments", {})
    head = p["head_size"]
    width = head
    if rope.get("rope_type") != "proportional":
        width = int(head * rope.get("partial_rotary_factor", 1))
    offset = None
    if "rope_dim" in rope:  # the tail of the head
        width = rope["rope_dim"]
        offset = head - width
    where = dict(head_dim=head, rotary_dim=width if width != head else None, offset=offset,
                 base=rope.get("rope_theta", arguments.get("base")),
                 pairing=PAIRINGS[p.get("is_neox_style", True)])
    sections = rope.get("mrope_section", arguments.get("mrope_section"))
    if sections:
        layout = "interleaved" if rope.get("mrope_interleaved") else "chunked"
        scheme = words("mrope", **where, sections=sections,
                       layout="ernie" if arguments else layout)
    else:
        scheme = words("rope", **where)
    return chain(scheme, vllm_scaling(p, rope, p["max_position"]))


def vllm(case, arrays):
    p = case["params"]
    rope = p["rope_parameters"] or {}
    flat = all_axes("t(hd)", "q", "k")
    if p.get("dual_chunk_attention_config"):
        return vllm_dual_chunk(p, flat)
    if rope.get("rope_type") == "mllama4":
        return vllm_llama4(p, arrays, flat)
    if rope.get("use_fope"):
        return vllm_fope(p, flat)
    about = {"scheme": vllm_scheme(p)}
    axes = dict(flat)
    if len(arrays.shape("positions")) == 2:
        axes["positions"] = "at"
    sense = {"sense": "inverse"} if case["name"].endswith("_inverse") else {}
    out = []
    for suffix in ("", "_f64"):
        if not arrays.has("q_out" + suffix):
            continue
        out.append(turned(arrays, about, axes, "positions", q=("q", "q_out" + suffix),
                          k=("k", "k_out" + suffix), **sense))
        if arrays.has("inv_freq" + suffix):
            held = about
            if rope.get("rope_type") == "linear":  # positions are divided, not frequencies
                held = {"scheme": vllm_scheme(dict(p, rope_parameters=dict(
                    rope, rope_type="default")))}
            out.append(check("frequencies", **held, out={"inv_freq": "inv_freq" + suffix}))
        if arrays.has("cache_rows" + suffix):
            out += vllm_rows(p, arrays, about, suffix)
        for which in ("short", "long"):
            if arrays.has("inv_freq_" + which + suffix):
                out.append(check("frequencies", scheme=longrope_of(p, which),
                                 out={"inv_freq": "inv_freq_" + which + suffix}))
    if p.get("dtype") == "bfloat16":
        compat = {"precision": "hf_bfloat16_table", "tolerance": "compat"}
        out.append(turned(arrays, about, axes, "positions", **compat))
        out.append(check("rows", **about, **compat,
                         **{"in": {"positions": "positions"}, "out": {"cos_sin": "cache_rows"}}))
    if "mscale_of_the_object" in p and not rope.get("mrope_section") and rope:
        out.append(check("frequencies", **about, equal={"gain": "$mscale_of_the_object"}))
    return out


def longrope_of(p, which):
    """The same scheme with the list that the peer keeps beside the one in use."""
    rope = p["rope_parameters"]
    chosen = dict(p, max_model_len=rope["original_max_position_embeddings"] + (which == "long"))
    return vllm_scheme(chosen)


def vllm_rows(p, arrays, about, suffix):
    name = "cache_rows" + suffix
    if not arrays.has("rows"):  # a row a token
        return [check("rows", **about, **{"in": {"positions": "positions"},
                                          "out": {"cos_sin": name}})]
    rope = p["rope_parameters"] or {}
    if rope.get("rope_type") != "longrope":
        return [check("rows", **about, **{"in": {"positions": "rows"}, "out": {"cos_sin": name}})]
    # The cache holds L rows of the short list, then the rows of the long one.
    original = rope["original_max_position_embeddings"]
    out = []
    for i, row in enumerate(arrays.integers("rows")):
        which, position = ("short", row) if row < original else ("long", row - original)
        out.append(check("rows", scheme=longrope_of(p, which), positions=[position],
                         out={"cos_sin": "%s[%d]" % (name, i)}))
    return out


def vllm_dual_chunk(p, flat):
    config = p["dual_chunk_attention_config"]
    about = {"scheme": vllm_scheme(p), "axes": flat}
    width = p["num_heads"] * p["head_size"]

    def rule(which):
        return {"rule": words("dual_chunk." + which, chunk_size=config["chunk_size"],
                              local_size=config["local_size"]), "in": {"positions": "positions"}}

    out = []
    for suffix in ("", "_f64"):
        for i, which in enumerate(("intra", "successive", "inter", "successive_critical",
                                   "inter_critical")):
            part = "q_out%s[:,%d:%d]" % (suffix, i * width, (i + 1) * width)
            out.append(check("rotate", **about, positions=rule(which),
                             **{"in": {"q": "q"}, "out": {"q": part}}))
        out.append(check("rotate", **about, positions=rule("key"),
                         **{"in": {"k": "k"}, "out": {"k": "k_out" + suffix}}))
        out.append(check("frequencies", scheme=about["scheme"],
                         out={"inv_freq": "inv_freq" + suffix}))
    return out


def vllm_llama4(p, arrays, flat):
    """The class keeps its complex table in the dtype of the queries, so that of float32 queries
    only the cosines are left: channels are multiplied, nothing is turned. Given as cosines with
    sines of 0."""
    head = p["head_size"]
    side = round(p["max_position"] ** 0.5)
    base = p["rope_parameters"]["rope_theta"]
    where = dict(base=base, pairing="interleaved")
    scheme = words("axial", head_dim=head, axes_dim=[head // 2, head // 2], **where)
    still = words("mixed_axes", head_dim=head, axes=2, frequencies=[0] * head,
                  pairing="interleaved")
    one = words("axial", head_dim=head // 2, axes_dim=[head // 2], **where)
    rows = {"scheme": scheme, "sin_scheme": still,
            "positions": {"rule": words("grid", shape=[side, side], first=1, swap_xy=True,
                                        after=1)}}
    plain = words("rope", head_dim=head, pairing="interleaved")
    return [check("rotate_rows", scheme=plain, axes=flat, rows=rows,
                  **{"in": {"q": "q", "k": "k"}, "out": {"q": "q_out", "k": "k_out"}}),
            check("frequencies", scheme=one, out={"inv_freq": "inv_freq"})]


def vllm_fope(p, flat):
    head = p["head_size"]
    rope = p["rope_parameters"]
    plain = words("rope", head_dim=head, base=rope["rope_theta"], pairing="half_split")
    kept = words("fope", keep=rope["num_inv_freq"])
    half = head // 2
    # [row, kv head, (cos | sin)], each doubled for the two members of a pair.
    pieces = {"cos": ("cache_rows[:,:,0:%d]" % half, "cache_rows[:,:,%d:%d]" % (half, head)),
              "sin": ("cache_rows[:,:,%d:%d]" % (head, head + half),
                      "cache_rows[:,:,%d:%d]" % (head + half, 2 * head))}
    out = []
    for member in (0, 1):
        out.append(check("rows", scheme=chain(plain, kept), **{
            "in": {"positions": "positions", "cos_coef": "cos_coef", "sin_coef": "sin_coef"},
            "out": {"cos": pieces["cos"][member], "sin": pieces["sin"][member]}}))
    axes = dict(flat)
    axes.update({pieces["cos"][0]: "thd", pieces["sin"][0]: "thd", "q_out": "thd", "k_out": "thd"})
    out.append(check("rotate_rows", scheme=plain, axes=axes, **{
        "in": {"q": "q", "k": "k", "cos": pieces["cos"][0], "sin": pieces["sin"][0]},
        "out": {"q": "q_out", "k": "k_out"}}))
    return out
