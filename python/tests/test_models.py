# SPDX-License-Identifier: Apache-2.0
"""Models as objects, equal to what the command line says of them; verbs; pictures."""
import json
import math
import subprocess
import sys

import numpy
import posenc
import pytest

LLAMA = "examples/models/llama-3.1-8b"


def program(*words, code=0):
    run = subprocess.run([sys.executable, "-m", "posenc", *map(str, words)], capture_output=True, text=True)
    assert run.returncode == code, run.stderr
    return run.stdout


def test_a_model_is_explain(source):
    path = source / LLAMA
    m = posenc.read_model(path)
    assert m.to_dict() == json.loads(program("explain", path, "--json")) == m.data
    assert str(m) == program("explain", path).rstrip("\n")
    assert posenc.explain(path, layer=3) == program("explain", path, "--layer", 3)
    assert len(m.layers) == 32 and m.model_type == "llama" and m.context.value == 131072
    layer = m.layers[3]
    (encoding,) = layer.encodings
    assert isinstance(encoding, posenc.Encoding) and encoding.scalings[0] == posenc.Llama3(
        factor=8, low_freq_factor=1, high_freq_factor=4, original_context=8192)
    base = layer.fields["base"]
    assert (base.value, base.source) == (500000, "stated") and "rope_theta" in base.where
    assert numpy.abs(numpy.array(layer.rotary["inv_freq"]) / posenc.frequencies(encoding) - 1).max() < 1e-14
    assert "llama" in m._repr_html_() and "theta_lost_v4" in m._repr_html_() and "<table>" in m._repr_html_()
    assert m.findings[0].code == "theta_lost_v4" and m.findings[0].severity == "note"


def test_extend_stretches_tiles_and_knows_what_rows_are():
    table = numpy.array([[0.0], [8], [4]])
    assert posenc.extend(table, to=6, how="stretch")[:, 0].tolist() == [0, 4, 8, 6, 4, 4]
    longer = posenc.extend(table, to=6, how="stretch", border="extrapolate")
    assert longer[:, 0].tolist() == [0, 4, 8, 6, 4, 2]
    assert posenc.extend(table, to=5, how="tile", prefix=1)[:, 0].tolist() == [0, 8, 4, 8, 4]
    with pytest.raises(ValueError, match="cannot be resized"):
        posenc.extend(table, to=6, how="linear", rows="buckets")
    with pytest.raises(ValueError, match="an odd number"):
        posenc.extend(table, to=6, how="linear", rows="offsets")


def test_attend_of_a_model_on_the_grid_of_the_call(tmp_path):
    """Numbers of transformers 5.23, add_decomposed_relative_positions: tables of 4 x 4 patches on a grid of 6 x 5."""
    (tmp_path / "config.json").write_text(json.dumps({
        "model_type": "vitdet", "hidden_size": 4, "num_attention_heads": 2, "num_hidden_layers": 1, "image_size": 16,
        "patch_size": 4, "pretrain_image_size": 16, "use_relative_position_embeddings": True}))
    r = numpy.arange(7.0)
    tables = {"rel_pos_h": numpy.stack([r, 1 - r / 2], 1), "rel_pos_w": numpy.stack([r * r / 10, 2 - r], 1)}
    i = numpy.arange(30)
    q = numpy.stack([0.1 * ((7 * i + 3) % 11) - 0.4, 0.05 * ((5 * i + 2) % 13) - 0.3], -1)[:, None].repeat(2, 1)
    words = {"order": "thd", "scores": True, "parameters": tables}
    got = posenc.read_model(tmp_path).attend(q, 0 * q, 0 * q, grid=(6, 5), **words)["scores"][0, 0]
    for (a, b), want in {(0, 29): -0.6, (29, 0): 4.44, (13, 7): 1.5353535353535357, (17, 22): -1.1563636363636367}.items():
        assert abs(got[a, b] - want) < 1e-14
    stated = posenc.read_model(tmp_path, assume={"grid": "6x5"})
    assert (stated.attend(q, 0 * q, 0 * q, **words)["scores"][0, 0] == got).all()
    assert stated.layers[0].encodings[0] == posenc.Decomposed(size=[6, 5], table_rows=[7, 7])
    with pytest.raises(ValueError, match="grid HxW"):
        posenc.read_model(tmp_path).attend(q, q, q, **words)


def test_the_doctor_is_the_doctor(source):
    path = source / "examples/models/broken"
    said = json.loads(program("doctor", path, "--json", code=1))["findings"]
    found = posenc.doctor(path)
    assert [f.code for f in found] == [f["code"] for f in said] and any(f.severity == "error" for f in found)
    m = posenc.read_model(path)
    with pytest.raises(posenc.ModelError, match="layer_types") as info:
        m.rotary_plan()
    assert any(f["code"] == "layer_types_length" for f in info.value.findings)


def test_a_plan_of_a_layer_rotates_as_apply(source, random, tmp_path):
    q = random.normal(size=(6, 2, 128)).astype(numpy.float32)
    m = posenc.read_model(source / LLAMA)
    numpy.save(tmp_path / "q.npy", q)
    program("apply", source / LLAMA, "--q", tmp_path / "q.npy", "--positions", "0:6", "-o", tmp_path / "o.safetensors")
    want = posenc._posenc.arrays_of((tmp_path / "o.safetensors").read_bytes())["q"]
    assert (m.rotary_plan(5).rotate(q, positions=range(6)) == want).all()


def test_tables_and_pictures(source):
    m = posenc.read_model(source / LLAMA, context=4096)
    assert posenc.table(m).shape == (64,)
    rows = posenc.table(m, positions=range(3), what="cos", layout="duplicated", dtype="f32")
    assert rows.shape == (3, 128) and rows.dtype == numpy.float32
    assert (posenc.table(m, positions=numpy.arange(3), what="cos", layout="duplicated", dtype="f32") == rows).all()
    assert posenc.table(m, positions="0:3", what="cos", layout="half").shape == (3, 64)
    picture = posenc.plot(m, kind="wavelengths")
    assert picture._repr_svg_().startswith("<svg") and "</svg>" in picture.svg
    learned = posenc.table("learned rows=5 width=4", positions=[4, 0], parameters={"table": numpy.arange(20.0).reshape(5, 4)})
    assert learned.tolist() == [[16, 17, 18, 19], [0, 1, 2, 3]]


def test_options_reach_the_verbs(source):
    rope = posenc.Rope(head_dim=4, pairing="half_split")
    steps = posenc.table(rope, positions=range(0, 9, 4), what="angles")
    assert steps.shape[0] == 3 and steps[2, 0] == 8
    by_distance = posenc.bias(posenc.Alibi(), heads=2, positions=range(4), by_distance=True)
    assert by_distance.ndim == 2 and posenc.bias(posenc.Alibi(), heads=2, positions=range(4), by_distance=False).shape == (2, 4, 4)
    table = numpy.arange(32.0).reshape(16, 2) ** 2
    plain = posenc.extend(table, to="2x2", how="bilinear", grid="4x4")
    assert numpy.abs(posenc.extend(table, to="2x2", how="bilinear", grid="4x4", antialias=True) - plain).max() > 1
    assert (posenc.extend(table, to="2x2", how="bilinear", grid="4x4", antialias=False) == plain).all()
    gemma = source / "examples/models/gemma-3-1b"
    for word in (True, False):  # what is not said stays the program's default
        call = posenc._call.Call("extend")
        call.option("align_corners", word)
        assert call.words == ["extend", *(["--align-corners"] if word else [])]
    first, last = (posenc.table(gemma, what="inv_freq", layer=i) for i in (0, 5))
    assert (first != last).any()


def test_text_of_a_file_is_no_html(source):
    m = posenc.read_model(source / LLAMA)
    m.findings, m.path = [posenc.Finding("note", "<i>", "<b>&", "", "")], "a<b>"
    page = m._repr_html_()
    assert "&lt;b&gt;&amp;" in page and "<i>" not in page and "a<b>" not in page


def test_attention_of_a_layer(source):
    layer = posenc._posenc.arrays_of((source / "conformance/model_attention/arrays.safetensors").read_bytes())
    q, k, v = (layer[f"bloom_layer0/{n}"] for n in "qkv")
    m = posenc.read_model(source / "conformance/model_attention/models/bloom")
    got = m.attend(q, k, v, layer=0, order="bhtd", probabilities=True)
    a = posenc.attend(m.layers[0].encodings, q, k, v, order="bhtd", causal=True)
    assert numpy.abs(got["out"] - a.out).max() < 1e-5 and got["probabilities"].shape[-1] == k.shape[2]


def test_wrong_files(source, tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": ')
    with pytest.raises(posenc.FormatError) as info:
        posenc.read_model(tmp_path / "config.json")
    assert info.value.file.endswith("config.json") and "byte" in info.value.place
    assert isinstance(info.value, ValueError)
    with pytest.raises(ValueError):
        posenc.read_model(tmp_path / "nothing")
    with pytest.raises(ValueError, match="path must be a path"):
        posenc.read_model(None)
    with pytest.raises(ValueError, match="reader"):
        posenc.read_model(source / LLAMA, reader="onnx")
    for words in (["--what", "cosine"], ["--layer", "99"]):
        with pytest.raises(ValueError):
            posenc.table(source / LLAMA, **{words[0][2:]: words[1] if words[0] == "--what" else int(words[1])}, positions=range(2))


def test_layers_that_differ_are_said(source):
    with pytest.warns(UserWarning, match="layer"):
        posenc.table(source / "examples/models/gemma-3-1b", what="inv_freq")


def made_up(which, *shape):
    return numpy.array([0.4 * math.sin(7.0 * i + 3 + which) for i in range(math.prod(shape))]).reshape(shape)


@pytest.mark.parametrize("config, memory, want, tolerance", [
    # NezhaSelfAttention, whose table is float32, and RelPartialLearnableMultiHeadAttn behind three memories, of transformers 4.40.2,
    # the last release with both classes, run in double.
    ({"model_type": "nezha", "hidden_size": 8, "num_attention_heads": 2, "max_relative_position": 3}, 0,
     {(0, 0, 0): -1.4051283575594944, (0, 1, 3): 1.852646759099561, (2, 1, 1): 0.001476557639080972, (5, 0, 2): -0.6868542891385822}, 2e-8),
    ({"model_type": "transfo-xl", "d_model": 8, "n_head": 2, "d_head": 4, "clamp_len": 4}, 3,
     {(0, 0, 0): -0.07427088526421223, (0, 1, 3): 1.346735762346178, (2, 1, 1): -0.7585691174669562, (3, 1, 0): -0.9658027104744575}, 1e-15)])
def test_classes_that_transformers_has_removed(tmp_path, config, memory, want, tolerance):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    layer = posenc.read_model(path).layers[0]
    q, k, v = (4 * made_up(w, 7 if memory else 6, 2, 4) for w in (6, 7, 8))
    learned = {"w_kr": made_up(3, 8, 8), "u": made_up(1, 2, 4), "v_bias": made_up(2, 2, 4)} if memory else None
    out = posenc.attend(layer.encodings, q[memory:], k, v, parameters=learned, causal=layer.attention["right"] == 0).out
    for at, value in want.items():
        assert abs(out[at] - value) < tolerance, at
