# SPDX-License-Identifier: Apache-2.0
"""What C++ has, Python, PyTorch, C and the command line have too, or this file says why not. A new field or function of the
headers fails here until each door has it or its reason."""
import inspect
import re

import posenc
import pytest

from posenc import _posenc

# Where Python and its neighbours say a field in other words: {field: words}.
# prepare and normalisation follow from the encodings: a rotary one rotates, `stick_breaking` replaces the softmax. The biases and norms
# that a stage of `prepare` computes besides are elementwise on q and k, which the caller has as arrays before the call.
PYTHON_WORDS = {
    "query_offset": "offset", "query_offsets": "offset", "window_left": "window", "window_right": "window", "terms": "encodings",
    "normalisation": "encodings", "prepare": "encodings",
}
C_WORDS = {"terms": "schemes", "normalisation": "schemes", "prepare": "schemes", "scale": "sizes", "regions": None}
CLI_WORDS = {
    "query_offset": "--offset", "query_offsets": "--offset", "causal": "--mask", "window_left": "--mask", "window_right": "--mask",
    "prefix": "--mask", "sink_tokens": "--mask", "chunk": "--mask", "visible": "--mask", "bias": "--mask", "query_document": "--documents",
    "key_document": "--documents", "query_cu_seqlens": "--cu-seqlens", "query_positions": "--positions", "terms": "--with",
    "normalisation": "--with", "prepare": "--with",
}
# What a door does not have, and why.
NOT_IN_PYTHON = {"dropout": "refused by the engine: attend is exact"}
NOT_IN_C = {
    "dropout": "refused by the engine: attend is exact",
}
NOT_IN_CLI = {
    "dropout": "refused by the engine: attend is exact",
    "head_side": "of schemes alone there, which state it (marian_alibi)",
    "key_visible": "--mask FILE hides any pair, and so a key from all queries",
    "head_scale": "of models and schemes there (swin_v2)", "query_factor": "of models there (Llama 4)",
    "sink": "of models there, from their weights (gpt-oss)",
    "mix_before": "for programs that train them; files have no name for it", "mix_after": "as mix_before",
    "regions": "needs positions of each region; posenc.attend(regions=) makes them",
}
FUNCTIONS_NOT_IN_PYTHON = {
    # include/posenc/positions
    "explicit_positions": "arrays and lists are positions", "owned": "arrays own themselves",
    "position_at": "indexing", "integer_position_at": "indexing", "length_of": "positions.max() + 1",
    "draw_cape": "cape_positions(seed=) draws and applies", "mapped_distance": "a check of regions, of one pair",
    "positions_by_rule": "positions", "position_rule": "help(posenc.positions)", "position_rules": "help(posenc.positions)",
    "qwen2_vl_rule": "mrope_positions(rule=)", "qwen2_vl_classic_rule": "mrope_positions(rule=)",
    "qwen2_5_vl_rule": "mrope_positions(rule=)", "qwen3_vl_rule": "mrope_positions(rule=)",
    "qwen2_5_omni_rule": "omni_positions(rule=)", "qwen3_omni_rule": "omni_positions(rule=)",
    "qwen2_5_omni_sound_tokens": "omni_sound_tokens(rule=)", "qwen3_omni_sound_tokens": "omni_sound_tokens(rule=)",
    # include/posenc/attention
    "attend_backward": "the result's backward", "attend_scores": "the result's scores",
    "attend_scores_backward": "bias_gradient, and the result's backward", "locality": "the result's locality",
    "attend_path_backward": "the result's backward", "attend_selective_backward": "the result's backward",
    "check_attention": "every call checks itself", "check_attention_indices": "every call checks itself",
    "check_rows": "every call checks itself", "distance_ranges": "attend lowers for the positions of the call",
    "relative_scheme": "encodings are texts or classes", "query_offsets": "attend(offset=)",
    "default_positions": "attend without positions", "order_conflict": "attend warns",
    "row_of": "of lowered terms, which Python has not", "term_arrays": "as row_of", "term_name": "as row_of",
    "explain_plan": "the result's explain_plan", "term_class": "the result's explain_plan",
    "workspace_bytes": "the result's explain_plan; calls have memory of their own",
}


def fields(source, header, struct):
    """The members of a struct of a header."""
    text = (source / "include/posenc/attention" / header).read_text()
    body = re.search(rf"^struct {struct} \{{\n(.*?)^\}};", text, re.M | re.S)[1]
    body = re.sub(r"//[^\n]*", "", body)
    found = []
    for statement in body.split(";"):
        words = re.sub(r"\{[^}]*\}|=[^,]*", "", statement.strip())
        if words and "(" not in words:
            names = words.split(" ", 1)[1] if "<" not in words.split(" ")[0] else words.rsplit("> ", 1)[-1]
            found += [n.strip().split()[-1] for n in names.split(",")]
    assert len(found) > 1, (header, struct)
    return found


def call_fields(source):
    call = fields(source, "attention.h", "AttentionArgs")
    assert "mask" in call and "block_table" in call and "query_cu_seqlens" in fields(source, "attention.h", "Mask")
    return [n for n in call if n != "mask"] + fields(source, "attention.h", "Mask")


def functions(source, *headers):
    found = set()
    for header in headers:
        for path in sorted((source / "include/posenc").glob(header)):
            if path.name.endswith("_c.h"):  # the C interface
                continue
            text = re.sub(r"//[^\n]*", "", path.read_text())
            text = re.sub(r"^(class|struct) [^;{]*\{.*?^\};", "", text, flags=re.M | re.S)
            found |= set(re.findall(r"POSENC_API [\w:<>&,\s]*?\b(\w+)\(", text))
    assert len(found) > 10, headers
    return found


def compare(wanted, have, words, missing):
    lacking = [n for n in wanted if n not in missing and (words.get(n) or n) not in have]
    assert not lacking, f"the door lacks {lacking}: add them, or the reason to this file"
    stale = [n for n in missing if n not in wanted or n in have]
    assert not stale, f"{stale} need no reason any more"


def test_python_has_every_field_of_a_call(source):
    compare(call_fields(source), inspect.signature(posenc.attend).parameters, PYTHON_WORDS, NOT_IN_PYTHON)
    path = fields(source, "path.h", "PathArgs")
    compare(path, inspect.signature(posenc.attend_path).parameters, {"query_offset": "offset"}, {})
    selective = fields(source, "selective.h", "SelectiveOptions")
    compare(selective, inspect.signature(posenc.attend_selective).parameters, {}, {})


def test_torch_has_the_arguments_of_python(source):
    text = (source / "python/posenc/torch/_attention.py").read_text()
    own = set(inspect.signature(posenc.attend).parameters) - {"out"}
    signature = text[text.index("def attend("):text.index("-> Any:\n    \"\"\"`posenc.attend`")]
    assert own <= set(re.findall(r"(\w+)(?=: )", signature)), own - set(re.findall(r"(\w+)(?=: )", signature))


def test_c_has_every_field_of_a_call(source):
    text = (source / "include/posenc/attention/attention_c.h").read_text()
    body = re.search(r"typedef struct posenc_attention_call \{(.*?)\} posenc_attention_call;", text, re.S)[1]
    have = set(re.findall(r"\w+", re.sub(r"/\*.*?\*/", "", body, flags=re.S))) | {"schemes", "sizes"}
    compare(call_fields(source), have, C_WORDS, NOT_IN_C)
    for function in ("create", "lower", "forward", "backward", "merge", "merge_backward"):
        assert f"posenc_status posenc_attention_{function}(" in text


def test_the_command_line_has_every_field_of_a_call(source):
    code, text, _ = _posenc.command(["attend", "--help"])
    assert code == 0
    have = set(re.findall(r"--[a-z-]+", text.decode()))
    options = {n: CLI_WORDS.get(n, "--" + n.replace("_", "-")) for n in call_fields(source)}
    if "--softcap-after-terms" not in have:
        options["softcap_after_terms"] = "--softcap"  # of a model's layer or a scheme
    compare(call_fields(source), have, options, NOT_IN_CLI)


def test_python_has_every_function_of_positions_and_attention(source):
    wanted = functions(source, "positions/*.h", "attention/*.h", "positions.h")
    compare(sorted(wanted), set(posenc.__all__), {}, FUNCTIONS_NOT_IN_PYTHON)


@pytest.mark.parametrize("name", ["attend", "attend_path", "attend_selective"])
def test_every_argument_is_described(name):
    function = getattr(posenc, name)
    described = set()
    for entry in re.findall(r"^        (\S[^:]*): ", function.__doc__, re.M):
        described |= set(re.split(r",\s+", entry))
    wrapped = re.sub(r"\s+", " ", function.__doc__)
    for argument in inspect.signature(function).parameters:
        assert argument in described or f" {argument}," in wrapped or f" {argument}:" in wrapped, argument


def test_twins_are_made_from_the_table():
    """A function for each verb that says so, with every option as an argument; old names stay."""
    import json

    for verb in json.loads(_posenc.verbs_json()):
        if not verb["twin"]:
            continue
        arguments = set(inspect.signature(getattr(posenc, verb["name"])).parameters)
        assert arguments == {w["name"].lower().split("|")[0].replace("-", "_") for w in verb["words"] if not w["output"]}


def test_verbs_of_every_kind_can_have_a_twin(source):
    """A report in JSON, a verb without options, and one without words."""
    import importlib.util
    import json

    from posenc._call import twin

    spec = importlib.util.spec_from_file_location("generate", source / "python/generate.py")
    generate = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generate)
    made = {"twin": twin}
    for verb in json.loads(_posenc.verbs_json()):
        if verb["name"] in ("list", "completion", "man"):
            exec("from __future__ import annotations" + generate.one_twin(verb), made)
    assert made["list"]("t5")["name"] == "t5" and not inspect.signature(made["man"]).parameters
    assert list(inspect.signature(made["completion"]).parameters) == ["shell"]


# What stands for the place of the command line, and where the data of a function go.
OF_THE_FUNCTION = {"explain": {"path"}, "doctor": {"path"}, "table": {"subject", "input"}, "bias": {"subject"}, "emit": {"subject", "output"},
                   "extend": {"table", "output"}, "plot": {"subject"}}


@pytest.mark.parametrize("name", OF_THE_FUNCTION)
def test_arguments_of_written_functions_are_words_of_the_table(name):
    """These functions accept models, modules and arrays, so they are written by hand; their arguments are the verb's options."""
    import json

    from posenc._call import _ARGUMENTS

    verb = next(v for v in json.loads(_posenc.verbs_json()) if v["name"] == name)
    words = {_ARGUMENTS.get(w["name"], w["name"].lower().replace("-", "_")) for w in verb["words"] if not w["output"]}
    assert set(inspect.signature(getattr(posenc, name)).parameters) - words == OF_THE_FUNCTION[name]


def test_positions_by_rule():
    import numpy

    assert posenc.positions("packed", cu_seqlens=[0, 3, 5]).tolist() == [0, 1, 2, 0, 1]
    assert posenc.positions("packed_lengths", lengths=(3, 2)).tolist() == posenc.packed([0, 3, 5]).tolist()
    ids = numpy.array([[0, 31414, 232, 2, 1, 1]])
    assert posenc.positions("fairseq padding_idx=1", tokens=ids).tolist() == posenc.from_tokens(ids, padding_idx=1).ravel().tolist()
    mask = [[0, 1, 1], [1, 1, 1]]
    assert posenc.positions("left_padded", mask=mask).tolist() == [[0, 0, 1], [0, 1, 2]]
    # Qwen2-VL: text 0, a merged grid of 2 x 2 at 1, text at 3; the next token at 6 + delta.
    made = posenc.positions("mrope", token_types=[[0, 1, 1, 1, 1, 0]], image_grid=[[1, 4, 4]])
    assert made["positions"][:, 0].tolist() == [[0, 1, 1, 1, 1, 3], [0, 1, 1, 2, 2, 3], [0, 1, 2, 1, 2, 3]]
    assert made["delta"].tolist() == [-2]
    with pytest.raises(ValueError, match="left_padded needs mask"):
        posenc.positions("left_padded")
    with pytest.raises(ValueError, match="tokens is not read by packed, which reads cu_seqlens"):
        posenc.positions("packed", cu_seqlens=[0, 3], tokens=[1])
