# SPDX-License-Identifier: Apache-2.0
"""attention: calls of attention, masks, caches, merging; what a peer was asked follows from its name and arguments."""

import re

from mapping.words import all_axes, check, words

GRADIENTS = ("q", "k", "v")


def checks(case, arrays):
    for prefix, rule in RULES:
        if case["name"].startswith(prefix):
            return rule(case, case["params"], arrays)
    return None


def attend(arrays, ins, outs, gradients=None, upstream=None, axes=None, call=None, **more):
    """One call; arrays that the case lacks are left out."""
    def there(names):
        return {k: v for k, v in names.items()
                if isinstance(v, list) or arrays.has(v.lstrip("-").split("[")[0])}

    gradient = None
    if gradients and upstream and there(upstream):
        gradient = {"in": there(upstream), "out": there(gradients)}
    axes = {k: v for k, v in (axes or {}).items() if arrays.has(k.lstrip("-").split("[")[0])}
    call = {k: v for k, v in (call or {}).items() if v is not None}
    return check("attend", call=call or None, axes=axes or None, gradient=gradient, **more,
                 **{"in": there(ins), "out": there(outs)})


def usual(arrays, call, ins=None, outs=None, axes=None, grads=(), **more):
    """q, k, v, out, lse and the gradients of all that goes in."""
    named = dict({"q": "q", "k": "k", "v": "v"}, **(ins or {}))
    results = dict({"out": "out", "log_sum_exp": "lse"}, **(outs or {}))
    back = {n: "grad_" + named[n] for n in GRADIENTS + tuple(grads)}
    one = attend(arrays, named, results, back, {"out": "grad_out"}, axes, call, **more)
    if not arrays.has("grad_lse"):
        return [one]
    both = {n: "grad_%s_with_lse" % named[n] for n in GRADIENTS + tuple(grads)}
    return [one, attend(arrays, named, results, both,
                        {"out": "grad_out", "log_sum_exp": "grad_lse"}, axes, call, **more)]


def sdpa(case, p, arrays):
    ins, grads, call = {}, [], {"scale": p.get("scale")}
    if p.get("is_causal") or "upper_left" in p.get("attn_mask", ""):
        call.update(causal=True)
    if "lower_right" in p.get("attn_mask", ""):
        call.update(causal=True, query_offset="end")
    if arrays.has("mask"):
        if arrays.dtype("mask") == "BOOL":
            ins["visible"] = "mask"
        else:
            ins["bias"] = "mask"
            grads = ["bias"]
    axes = {"mask": "bqk"} if arrays.has("mask") and len(arrays.shape("mask")) == 3 else {}
    return usual(arrays, call, ins, axes=axes, grads=grads)


def window_of(text):
    """A window's words in transformers' masking functions."""
    n = re.search(r"sliding_window_(causal|bidirectional)_mask_function\((\d+)\)", text)
    if not n:
        return None
    return [int(n.group(2)) - 1, 0] if n.group(1) == "causal" else [int(n.group(2))] * 2


def flex(case, p, arrays):
    mask, name = p.get("mask_mod", ""), case["name"]
    call, ins, more, grads = {}, {}, {}, []
    if p["scale"] == 1.0:
        call["scale"] = 1
    if arrays.has("visible") and "both_sides" not in name:
        call["causal"] = True
    if window_of(mask):
        call["window"] = window_of(mask)
        if call["window"][1] == 0:
            call.pop("causal", None)
    offset = re.search(r"add_offsets_to_mask_function\(.*, (\d+), 0\)$", mask)
    if offset:
        call["query_offset"] = int(offset.group(1))
    if "chunked_causal_mask_function" in mask:
        call["chunk"] = int(re.search(r"chunked_causal_mask_function\((\d+)", mask).group(1))
        ins["chunk_origin"] = "left_padding"
    if arrays.has("padding_mask"):
        ins["key_visible"] = "padding_mask"
    if "offsets" in p:
        ins["query_cu_seqlens"] = ins["key_cu_seqlens"] = "offsets"
    if arrays.has("packed_sequence"):
        ins["query_document"] = ins["key_document"] = "packed_sequence"
    if "prefix_length" in p:
        call["prefix"] = p["prefix_length"]
    if "soft_cap" in p:
        call["softcap"] = p["soft_cap"]
        call["softcap_after_terms"] = True if name == "flex_alibi_then_softcap" else None
    if name == "flex_gqa_alibi_window":
        call["window"] = [3, 0]
    if "alibi" in name:
        learned = arrays.has("slopes")
        more["scheme"] = words("alibi", slopes=p.get("slopes"),
                               learned="slopes" if learned else None,
                               future="signed_distance" if name.endswith("signed") else None)
        if learned:
            ins["slopes"], grads = "slopes", ["slopes"]
    if case["scheme"] == "t5":
        more["scheme"] = words("t5", bidirectional=p["bidirectional"],
                               num_buckets=p["num_buckets"], max_distance=p["max_distance"])
        ins.update(table="table", positions="positions")
        grads = ["table"]
    if case["scheme"] == "relative_bias":
        clip = p.get("k", p.get("offset"))
        more["scheme"] = words("clipped", clip=clip, heads_first=True)
        ins["table"], grads = "table", ["table"]
    axes = {"left_padding": "b"}
    return usual(arrays, call, ins, axes=axes, grads=grads, **more)


def flash(case, p, arrays):
    call = {"query_offset": "end"}
    axes = all_axes("bthd", "q", "k", "v", "out", "grad_out", "grad_q", "grad_k", "grad_v")
    if p.get("causal"):
        call["causal"] = True
    left, right = p.get("window_size", [None, None])
    if left is not None:
        call["window"] = [None if left < 0 else left, None if right < 0 else right]
    call["softcap"] = p.get("softcap")
    call["chunk"] = p.get("attention_chunk")
    call["sink_tokens"] = p.get("sink_token_length")
    ins, more, grads = {}, {}, []
    if arrays.has("alibi_slopes"):
        more["scheme"] = "alibi learned=slopes"
        ins["slopes"] = "alibi_slopes"
    if arrays.has("learnable_sink"):
        ins["sink"], grads = "learnable_sink", ["sink"]
    if arrays.has("query_padding_mask"):  # bottom right of what is no padding
        return flash_packed(arrays, call)
    outs = {"probabilities": "attention"}
    return usual(arrays, call, ins, outs, axes, grads, **more)


def flash_packed(arrays, call):
    call = dict(call, query_offset=None)
    axes = all_axes("thd", "q_packed", "k_packed", "v_packed", "out_packed")
    ins = {"q": "q_packed", "k": "k_packed", "v": "v_packed", "query_cu_seqlens": "cu_seqlens_q",
           "key_cu_seqlens": "cu_seqlens_k"}
    return [attend(arrays, ins, {"out": "out_packed"}, axes=axes, call=call)]


def flashinfer(case, p, arrays):
    if p["batch_size"] != 1:
        n, m = (arrays.shape(x)[0] // p["batch_size"] for x in ("q", "k"))
        parts = []
        for b in range(p["batch_size"]):
            ins = {"q": "q[%d:%d]" % (b * n, (b + 1) * n), "sink": "sink"}
            ins.update({x: "%s[%d:%d]" % (x, b * m, (b + 1) * m) for x in ("k", "v")})
            outs = {"out": "out[%d:%d]" % (b * n, (b + 1) * n)}
            parts.append(attend(arrays, ins, outs, call=sink_call(p)))
        return parts
    return [attend(arrays, {"q": "q", "k": "k", "v": "v", "sink": "sink"}, {"out": "out"},
                   call=sink_call(p))]


def sink_call(p):
    window = None if p["window_left"] < 0 else [p["window_left"], None]
    return {"scale": p["sm_scale"], "causal": True, "query_offset": "end", "window": window}


def onnx(case, p, arrays):
    a = p["attributes"]
    merged = len(arrays.shape("Q")) == 3
    call = {"scale": a.get("scale"), "softcap": a.get("softcap"),
            "causal": True if a.get("is_causal") else None}
    ins, outs, more = {"q": "Q", "k": "K", "v": "V"}, {"out": "Y"}, {}
    axes = {}
    if merged:
        dims = [arrays.shape("Q")[2] // a["q_num_heads"], arrays.shape("V")[2] // a["kv_num_heads"]]
        if dims[0] != dims[1]:
            more["value_dim"] = dims[1]
        more["head_dim"] = dims[0]
        axes = all_axes("bt(hd)", "Q", "K", "V", "Y")
    if arrays.has("past_key"):
        ins["k"], ins["v"] = ["past_key", "K"], ["past_value", "V"]
        if call["causal"]:
            call["query_offset"] = arrays.shape("past_key")[2]
    if arrays.has("attn_mask"):
        ins["visible" if arrays.dtype("attn_mask") == "BOOL" else "bias"] = "attn_mask"
    if arrays.has("nonpad_kv_seqlen"):  # the mask ends where the longest row does
        n = arrays.shape("attn_mask")[-1]
        ins.update(k="K[:, :, 0:%d]" % n, v="V[:, :, 0:%d]" % n, key_length="nonpad_kv_seqlen")
        axes = {ins["k"]: "bhtd", ins["v"]: "bhtd"}
    if arrays.has("qk_matmul_output"):
        which = ["content", "capped", "scores", "probabilities"][a.get("qk_matmul_output_mode", 0)]
        outs[which] = "qk_matmul_output"
    mod = a.get("score_mod", "")
    if "causal_mask" in mod:
        call["causal"] = True
    if "soft_cap" in mod:
        call["softcap"] = float(re.search(r"float cap =\s+\{(\d+)\}", mod).group(1))
    if "relative_positional" in mod:  # score + (q - k)
        more["scheme"] = "alibi learned=slopes future=signed_distance bias_scale=-1"
        more["parameters"] = {"slopes": [1] * arrays.shape("Q")[1]}
    if "score_mod_bias" in mod:
        pass  # a number for every pair changes nothing
    if a.get("prob_mod"):  # heads mixed by a multiple of the unit matrix
        factor = float(re.search(r"float scale =\s+\{([0-9.]+)\}", a["prob_mod"]).group(1))
        heads = arrays.shape("Q")[1]
        call["mix_after"] = [[factor if i == j else 0 for j in range(heads)] for i in range(heads)]
    return [attend(arrays, ins, outs, axes=axes, call=call, **more)]


def flashinfer_merge(case, p, arrays):
    out = {"out": "v_merged", "log_sum_exp": "s_merged"}
    axes = all_axes("thd", "v_a", "v_b", "v_merged", "direct_v")
    axes.update(all_axes("qh", "s_a", "s_b", "s_merged", "direct_s"))
    if case["name"].endswith("three"):
        parts = {"out": ["v[:, %d]" % i for i in range(3)],
                 "log_sum_exp": ["s[:, %d]" % i for i in range(3)]}
        axes.update(all_axes("thd", *parts["out"]))
        axes.update(all_axes("qh", *parts["log_sum_exp"]))
    elif arrays.has("mask"):  # where it is false the other part is one without keys
        parts = {"out": ["v", "v_other"], "log_sum_exp": ["s", "s_other"], "rows": ["", "mask"]}
        axes = all_axes("thd", "v", "v_other", "v_merged")
        axes.update(all_axes("qh", "s", "s_other", "s_merged"))
    else:
        parts = {"out": ["v_a", "v_b"], "log_sum_exp": ["s_a", "s_b"]}
    axes = {k: v for k, v in axes.items() if arrays.has(k.split("[")[0])}
    many = [check("merge", base=p["lse_base"], axes=axes, **{"in": parts, "out": out})]
    if arrays.has("direct_v"):
        direct = {"out": "direct_v", "log_sum_exp": "direct_s"}
        many.append(check("merge", base=p["lse_base"], axes=axes, **{"in": parts, "out": direct}))
    return many


def ring_merge(case, p, arrays):
    axes = all_axes("bthd", *["%s%d_out" % (w, i) for w in ("block", "after") for i in range(3)])
    axes.update(all_axes("bqh1", *["after%d_lse" % i for i in range(3)]))
    axes.update(direct_out="bthd")
    parts = {"out": ["block%d_out" % i for i in range(3)],
             "log_sum_exp": ["block%d_lse" % i for i in range(3)]}
    two = {k: v[:2] for k, v in parts.items()}
    return [check("merge", axes=axes, **{"in": two, "out": {"out": "after1_out", "log_sum_exp": "after1_lse"}}),
            check("merge", axes=axes, **{"in": parts, "out": {"out": "after2_out", "log_sum_exp": "after2_lse"}}),
            check("merge", axes=axes, **{"in": parts, "out": {"out": "direct_out", "log_sum_exp": "direct_lse"}})]


def vllm_merge(case, p, arrays):
    axes = all_axes("thd", "prefix_output", "suffix_output", "output")
    axes.update(all_axes("hq", "prefix_lse", "suffix_lse", "output_lse"))
    return [check("merge", empty="+inf", axes=axes,
                  **{"in": {"out": ["prefix_output", "suffix_output"],
                            "log_sum_exp": ["prefix_lse", "suffix_lse"]},
                     "out": {"out": "output", "log_sum_exp": "output_lse"}})]


def ring(case, p, arrays):
    if not arrays.has("q"):
        return ring_positions(case, p, arrays)
    axes = all_axes("bthd", "q", "k", "v", "direct_out", "grad_out", "grad_q", "grad_k", "grad_v")
    both = usual(arrays, {"causal": True}, outs={"out": "direct_out", "log_sum_exp": "direct_lse"},
                 axes=axes)
    for rank in range(p["world_size"]):
        own = arrays.integers("rank%d_positions" % rank)
        halves = runs(own)
        for begin, end in halves:
            at = own.index(begin)
            rows = "%d:%d" % (at, at + end - begin)
            q = "q[:, %d:%d]" % (begin, end)
            out, lse = "rank%d_out[:, %s]" % (rank, rows), "rank%d_lse[:, :, %s]" % (rank, rows)
            both.append(attend(arrays, {"q": q, "k": "k", "v": "v"},
                               {"out": out, "log_sum_exp": lse},
                               axes=dict(axes, **{q: "bthd", out: "bthd"}),
                               call={"causal": True, "query_offset": begin}))
    return both


def runs(numbers):
    """[begin, end) of numbers that follow each other."""
    out = []
    for n in numbers:
        if out and out[-1][1] == n:
            out[-1][1] = n + 1
        else:
            out.append([n, n + 1])
    return out


def ring_positions(case, p, arrays):
    """Which tokens of packed sequences a rank owns, and the keys it needs."""
    parts = {"_tokens": ("shard_tokens", {"layout": "zigzag"}),
             "_positions": ("shard", {"layout": "zigzag"}),
             "_cu_seqlens_q": ("packed_run.query_cu_seqlens", {"causal": p.get("causal")}),
             "_cu_seqlens_k": ("packed_run.key_cu_seqlens", {"causal": p.get("causal")}),
             "_max_seqlen": ("packed_run.longest", {"causal": p.get("causal")}),
             "_local_k_slice": ("packed_run.keys", {"causal": p.get("causal")})}
    return [check("positions", rule=words(rule, ranks=p["world_size"], rank=rank, **options),
                  **{"in": {"cu_seqlens": "cu_seqlens"}, "out": {"positions": name}})
            for rank in range(p["world_size"])
            for name, (rule, options) in (("rank%d%s" % (rank, end), r) for end, r in parts.items())
            if arrays.has(name)]


def paged(case, p, arrays):
    axes = all_axes("thd", "query", "out")
    axes.update(all_axes("bthd", "key_cache", "value_cache"))
    ins = {"q": "query", "k": "key_cache", "v": "value_cache", "block_table": "block_tables"}
    lengths = [0]
    for n in p["query_lens"]:
        lengths.append(lengths[-1] + n)
    return [attend(arrays, ins, {"out": "out"}, axes=axes,
                   call={"scale": p["scale"], "causal": True, "key_length": p["kv_lens"],
                         "query_cu_seqlens": lengths})]


def hugging_face(case, p, arrays):
    if "pieces" in p:
        return cached(case, p, arrays)
    arguments = p["attention_arguments"]
    ins = {"q": "attention_query", "k": "attention_key", "v": "attention_value", "sink": "sinks",
           "visible": "visible"}
    call = {"scale": arguments["scaling"], "softcap": arguments.get("softcap")}
    more = {}
    if "left_padded" in case["name"]:
        more["empty_rows"] = "skip"  # finfo.min there: uniform
    return [attend(arrays, ins, {"out": "context", "probabilities": "probabilities"},
                   axes={"context": "bthd"}, call=call, **more)]


def cached(case, p, arrays):
    many = []
    for layer, arguments in enumerate(p["attention_arguments"]):
        call = {"scale": arguments["scaling"], "softcap": arguments.get("softcap")}
        for step in ["step%d" % i for i in range(len(p["pieces"]))] + ["full"]:
            at = "%s_layer%d_" % (step, layer)
            ins = {"q": at + "query", "k": at + "key", "v": at + "value", "visible": at + "visible"}
            many.append(attend(arrays, ins, {"out": at + "context",
                                             "probabilities": at + "probabilities"},
                               axes={at + "context": "bthd"}, call=call))
    return many


def streaming(case, p, arrays):
    config = p["config"]
    dim = config["hidden_size"] // config["num_attention_heads"]
    scheme = words("rope", head_dim=dim, pairing="half_split")
    many = []
    for step in range(len(p["pieces"])):
        for layer in range(config["num_hidden_layers"]):
            at = "step%d_layer%d_" % (step, layer)
            ins = {"q": at + "query_in", "k": at + "key_cache_in", "v": at + "key_cache_in",
                   "q_positions": at + "query_positions", "k_positions": at + "key_positions"}
            many.append(attend(arrays, ins, {"probabilities": at + "probabilities"}, scheme=scheme,
                               call={"causal": True, "query_offset": "end"}))
    return many


RULES = (("sdpa_", sdpa), ("flex_", flex), ("flash_attn", flash), ("flashinfer_", flashinfer),
         ("onnx_", onnx), ("merge_flashinfer", flashinfer_merge), ("merge_ring", ring_merge),
         ("vllm_merge", vllm_merge), ("vllm_paged", paged), ("ring_", ring),
         ("streaming_", streaming), ("hf_", hugging_face))
