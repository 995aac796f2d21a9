# SPDX-License-Identifier: Apache-2.0
"""Files of `posenc emit onnx`, run by onnxruntime, against the library's own numbers."""
import pathlib

import numpy
import onnxruntime
import posenc
import pytest
from posenc import _posenc


SOURCE = pathlib.Path(__file__).resolve().parents[3]


def session(tmp_path, subject, **words):
    path = tmp_path / "m.onnx"
    assert posenc.emit(subject, output=path, **words)["schema"] == "posenc.emit/1"
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


ROTATIONS = [
    "rope head_dim=64 pairing=half_split",
    "rope head_dim=64 pairing=interleaved",
    "rope head_dim=64 rotary_dim=32 pairing=half_split",
    "rope head_dim=64 rotary_dim=16 pairing=interleaved",
    "rope head_dim=64 pairing=half_split direction=-1",
    "rope head_dim=64 pairing=half_split + yarn factor=4 original_context=512",
    "rope head_dim=64 base=500000 pairing=half_split + llama3 factor=8 low_freq_factor=1 high_freq_factor=4 original_context=512",
]


@pytest.mark.parametrize("scheme", ROTATIONS)
@pytest.mark.parametrize("dtype, allowed", [("float32", 1e-6), ("float16", 4e-3)])
def test_rotation(tmp_path, scheme, dtype, allowed):
    random = numpy.random.default_rng(5)
    run = session(tmp_path, scheme, positions="0:2048", dtype={"float32": "f32", "float16": "f16"}[dtype])
    x = random.normal(size=(2, 3, 33, 64)).astype(dtype)
    positions = random.integers(0, 2048, (2, 33))
    (got,) = run.run(None, {"X": x, "position_ids": positions})
    want = posenc.rotate(scheme, x.astype(numpy.float64), positions=positions, order="bhtd")
    assert got.dtype == x.dtype
    assert numpy.abs(got - want).max() <= allowed * numpy.abs(x).max()


def test_llama(tmp_path):
    model = SOURCE / "examples/models/llama-3.1-8b"
    run = session(tmp_path, model, positions="0:20000")
    x = numpy.random.default_rng(5).normal(size=(1, 8, 4, 128)).astype(numpy.float32)
    positions = numpy.array([[0, 1, 8191, 19999]])
    (got,) = run.run(None, {"X": x, "position_ids": positions})
    plan = posenc.read_model(model).rotary_plan(0, "float64")
    assert numpy.abs(got - plan.rotate(x.astype(numpy.float64), positions=positions, order="bhtd")).max() < 3e-6


SCORES = [
    ("alibi", 0),
    ("t5 bidirectional=false num_buckets=16 max_distance=40", 1),
    ("t5 bidirectional=true", 2),
    ("kerple kernel=log", 3),
    ("sandwich", 0),
]


@pytest.mark.parametrize("scheme, seed", SCORES, ids=lambda x: str(x))
@pytest.mark.parametrize("mask", [[], ["causal"], ["window=7,0"], ["window=3,2"], ["causal", "sinks=2", "window=5,0"]], ids=",".join)
def test_attention(tmp_path, scheme, seed, mask):
    random = numpy.random.default_rng(5)
    words = [w for m in mask for w in ("--mask", m)] + (["--start", seed] if seed else [])
    run = session(tmp_path, scheme, heads=4, head_dim=16, positions="0:40", mask=mask, start=seed or None)
    q, k, v = (random.normal(size=(2, h, 40, 16)).astype(numpy.float32) for h in (4, 2, 2))
    (got,) = run.run(None, {"Q": q, "K": k, "V": v})
    folder = tmp_path / "call"
    folder.mkdir()
    for name, x in (("q", q), ("k", k), ("v", v)):
        numpy.save(folder / f"{name}.npy", x.astype(numpy.float64))
    files = [w for name in "qkv" for w in (f"--{name}", str(folder / f"{name}.npy"))]
    code, data, _ = _posenc.command(["attend", scheme, *files, "--order", "bhtd", *map(str, words), "-o", "-", "--format=safetensors"])
    want = _posenc.arrays_of(data)["out"]
    assert code == 0 and numpy.abs(got - want).max() < 2e-6


def test_queries_behind_their_keys(tmp_path):
    """The last 3 of 40 tokens, as in decoding; a query that sees nothing gives 0."""
    random = numpy.random.default_rng(5)
    run = session(tmp_path, "alibi", heads=4, head_dim=8, positions="37:40", key_positions="0:40", mask="causal")
    q, k, v = (random.normal(size=(1, 4, n, 8)).astype(numpy.float32) for n in (3, 40, 40))
    (got,) = run.run(None, {"Q": q, "K": k, "V": v})
    score = numpy.einsum("bhqd,bhkd->bhqk", q, k, dtype=numpy.float64) / numpy.sqrt(8)
    distance = numpy.arange(37, 40)[:, None] - numpy.arange(40)
    score += numpy.where(distance < 0, -numpy.inf, -(4.0 ** -numpy.arange(1, 5))[:, None, None] * distance)
    weight = numpy.exp(score - score.max(-1, keepdims=True))
    want = numpy.einsum("bhqk,bhkd->bhqd", weight / weight.sum(-1, keepdims=True), v)
    assert numpy.abs(got - want).max() < 2e-6
    run = session(tmp_path, "alibi", heads=4, head_dim=8, positions="0:3", mask="window=0,-1")
    (got,) = run.run(None, {"Q": q, "K": k[:, :, :3], "V": v[:, :, :3]})
    assert (got == 0).all()
