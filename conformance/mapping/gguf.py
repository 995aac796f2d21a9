# SPDX-License-Identifier: Apache-2.0
"""gguf: files for a reader; what llama.cpp builds from them; broken ones."""

from mapping.words import check


def checks(case, arrays):
    p = case["params"]
    about = {"model": "$file"}
    if case["scheme"] == "gguf":
        return model(case, p, about)
    expect = p["expect"]
    if expect == "refuse":
        return [check("container", **about, read="false"),
                check("refuse", **about, kind="container")]
    if expect == "refuse_value":
        return [check("refuse", **about, kind="value", says=p.get("key"))]
    if expect == "accept":
        return [check("container", **about, read="true"),
                check("explain", **about, equal={"/reader": "llama_cpp"})]
    return [check("container", **about, read="either")]


def model(case, p, about):
    expected = p["expected"]
    out = [check("container", **about, of="$expected/read_by_gguf_py",
                 out={name: name for name in case["outputs"]})]
    peer = expected["llama_cpp"]
    equal = {"/reader": "llama_cpp"}
    if expected.get("same_as"):  # the same model in another container
        out.append(check("explain", **about, equal=equal,
                         same_as=expected["same_as"]))
    if peer is None:
        return out
    if peer["max_alibi_bias"] > 0:
        equal["/layers/0/scheme"] = "alibi"
    elif peer["architecture"].startswith("t5"):
        equal["/layers/0/scheme"] = "t5"
    operators = expected.get("llama_cpp_operators")
    if operators is None and peer["rope_type"] not in ("NONE", None):
        # Read as the hyperparameters say; the graph was not built for this file.
        equal["/layers/0/rotary/base"] = peer["freq_base"]
        equal["/layers/0/rotary/rotary_dim"] = peer["n_rot"]
        equal["/layers/0/rotary/pairing"] = peer["pairing"]
    out.append(check("explain", **about, equal=equal))
    if operators is not None:
        out.append(check("operators", **about, of="$expected/llama_cpp_operators"))
    return out
