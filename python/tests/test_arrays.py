# SPDX-License-Identifier: Apache-2.0
"""Rotation of arrays: numbers, types, strides, outputs, and what is refused."""
import array
import subprocess
import sys

import ml_dtypes
import numpy
import posenc
import pytest
from conftest import rotated

ROPE = posenc.Rope(head_dim=16, base=1e4, pairing="half_split")
FREQUENCY = 1e4 ** (-numpy.arange(8) / 8.0)
TYPES = {"float64": 1e-14, "float32": 4e-7, "float16": 2e-3, "bfloat16": 2e-2}


class Dlpack:
    """An array that speaks DLPack and nothing else."""

    def __init__(self, a):
        self.a = a

    def __dlpack__(self, **more):
        return self.a.__dlpack__(**more)

    def __dlpack_device__(self):
        return self.a.__dlpack_device__()


@pytest.mark.parametrize("pairing", ["half_split", "interleaved"])
@pytest.mark.parametrize("dtype", TYPES)
def test_rotation_is_the_definition(random, dtype, pairing):
    q = random.normal(size=(5, 3, 16)).astype(dtype)
    k = random.normal(size=(5, 1, 16)).astype(dtype)
    positions = numpy.array([0, 1, -7, 4095, 131071])
    encoding = posenc.Rope(head_dim=16, base=1e4, pairing=pairing)
    q2, k2 = posenc.rotate(encoding, q, k, positions=positions)
    for x, y in ((q, q2), (k, k2)):
        assert y.dtype == x.dtype and y.shape == x.shape
        want = rotated(x, positions, posenc.frequencies(encoding), pairing)
        assert numpy.abs(y.astype(numpy.float64) - want).max() < TYPES[dtype] * 4


@pytest.mark.parametrize("dtype", TYPES)
def test_all_ways_give_the_same_numbers(random, dtype):
    plan = posenc.RotaryPlan(ROPE, dtype)
    q = random.normal(size=(2, 6, 4, 16)).astype(dtype)
    kwargs = {"positions": numpy.arange(6), "order": "bthd"}
    new = plan.rotate(q, **kwargs)
    out = numpy.zeros_like(q)
    assert plan.rotate(q, out=out, **kwargs) is out and (out == new).all()
    assert (posenc.rotate(ROPE, q, **kwargs) == new).all()
    same = q.copy()
    plan.rotate_(same, **kwargs)
    assert (same == new).all()
    same = q.copy()
    assert plan.rotate(same, out=same, **kwargs) is same and (same == new).all()
    turned = numpy.ascontiguousarray(q.transpose(0, 2, 1, 3))
    assert (plan.rotate(turned, positions=range(6), order="bhtd").transpose(0, 2, 1, 3) == new).all()
    back = plan.rotate(new, mode="inverse", **kwargs)
    assert numpy.abs(back.astype(float) - q.astype(float)).max() < 8 * TYPES[dtype]


def test_strides_of_any_sign_without_a_copy(random):
    big = random.normal(size=(12, 8, 64)).astype(numpy.float32)
    view = big[::-2, ::2, 40:8:-2]
    want = rotated(view, range(6), FREQUENCY)
    rest = big.copy()
    posenc.RotaryPlan(ROPE).rotate_(view, positions=range(6))
    assert numpy.abs(view - want).max() < 1e-6
    rest[::-2, ::2, 40:8:-2] = view
    assert (rest == big).all(), "nothing beside the view is written"
    shared = numpy.broadcast_to(big[:1, :1, :16], (6, 3, 16))
    assert numpy.abs(posenc.rotate(ROPE, shared, positions=range(6)) - rotated(shared, range(6), FREQUENCY)).max() < 1e-6


def test_buffers_and_dlpack(random):
    q = random.normal(size=(4, 2, 16))
    want = posenc.rotate(ROPE, q, positions=range(4))
    assert (posenc.rotate(ROPE, memoryview(q), positions=range(4)) == want).all()
    assert (posenc.rotate(ROPE, Dlpack(q), positions=Dlpack(numpy.arange(4))) == want).all()
    assert (posenc.rotate(ROPE, q, positions=array.array("q", range(4))) == want).all()
    same = q.copy()
    posenc.RotaryPlan(ROPE, "float64").rotate_(Dlpack(same), positions=[0, 1, 2, 3])
    assert (same == want).all()


def test_positions_of_every_form(random):
    q = random.normal(size=(2, 3, 1, 16))
    plan = posenc.RotaryPlan(ROPE, numpy.float64)
    one = plan.rotate(q, positions=range(5, 8), order="bthd")
    for p in ([5, 6, 7], (5, 6, 7), numpy.array([5, 6, 7], numpy.int32), numpy.array([5.0, 6, 7]), [5.0, 6, 7],
              numpy.array([[5, 6, 7]] * 2), numpy.arange(14)[5:8]):
        assert numpy.abs(plan.rotate(q, positions=p, order="bthd") - one).max() < 1e-14
    two = plan.rotate(q, positions=[[5, 6, 7], [1, 2, 3]] and numpy.array([[5, 6, 7], [1, 2, 3]]), order="bthd")
    assert (two[0] == one[0]).all() and (two[1] != one[1]).any()


def test_rows_and_others_rows(random):
    q, k = random.normal(size=(2, 7, 3, 16)).astype(numpy.float32)
    plan = posenc.RotaryPlan(ROPE)
    want = plan.rotate(q, k, positions=range(7))
    rows = plan.rows(range(7))
    assert rows.shape == (7, plan.row_columns)
    for got in (plan.rotate_rows(q, k, rows=rows),
                plan.rotate_by(q, k, cos=rows[:, :8], sin=rows[:, 8:]),
                plan.rotate_by(q, k, cos=rows[::-1, :8].copy(), sin=rows[::-1, 8:].copy(), index=range(6, -1, -1))):
        assert all(numpy.abs(a - b).max() < 1e-6 for a, b in zip(got, want))
    cos, sin = posenc.cos_sin(ROPE, range(7), layout="duplicated", dtype="float64")
    angle = numpy.arange(7)[:, None] * FREQUENCY
    assert numpy.abs(cos - numpy.cos(numpy.tile(angle, 2))).max() < 1e-14
    assert numpy.abs(sin - numpy.sin(numpy.tile(angle, 2))).max() < 1e-14
    assert numpy.abs(posenc.frequencies(ROPE) / FREQUENCY - 1).max() < 1e-14
    assert posenc.cos_sin(ROPE, range(7), dtype=ml_dtypes.bfloat16)[0].dtype == ml_dtypes.bfloat16
    out = numpy.zeros((2, 7, 8), numpy.float16)
    assert posenc.cos_sin(ROPE, range(7), out=(out[0], out[1]))[1].base is out and out[0, 0].tolist() == [1] * 8


def test_polar(random):
    x = random.normal(size=(4, 2, 8))
    plan = posenc.PopePlan("pope head_dim=8", "float64")
    bias = -random.uniform(1, 5, size=(2, 8))
    mu, phi = numpy.log1p(numpy.exp(x)), numpy.arange(4)[:, None, None] * 1e4 ** (-numpy.arange(8) / 8.0)
    assert numpy.abs(plan.apply(x, range(4)) - numpy.concatenate([mu * numpy.cos(phi), mu * numpy.sin(phi)], -1)).max() < 1e-13
    d = random.normal(size=(4, 2, 16))
    d_x, d_bias = plan.gradient(x, d, range(4), bias=bias)
    for a, g in ((x, d_x), (bias, d_bias)):
        where = (1,) * a.ndim
        ends = []
        for e in (1e-6, -1e-6):
            a[where] += e
            ends.append((plan.apply(x, range(4), bias=bias) * d).sum())
            a[where] -= e
        assert abs((ends[0] - ends[1]) / 2e-6 - g[where]) < 1e-6


Q = numpy.zeros((4, 2, 16), numpy.float32)


def read_only():
    q = Q.copy()
    q.flags.writeable = False
    return q


def overlapping():
    return numpy.lib.stride_tricks.as_strided(Q, strides=(Q.strides[0], 0, 4))


def test_no_tokens_are_no_work():
    assert posenc.rotate(ROPE, Q[:0], positions=[]).shape == (0, 2, 16)
    assert posenc.attend("alibi", Q[:0], Q, Q).out.shape == (0, 2, 16)
    assert posenc.cos_sin(ROPE, [])[0].shape == (0, 8)
    assert posenc.InputPlan("sinusoidal width=16").apply(Q[:0, 0], []).shape == (0, 16)


@pytest.mark.parametrize("call, says", [
    (lambda p: p.rotate(Q.astype(numpy.complex64), positions=range(4)), r"\[rotary\] q must have elements of float64.*got \"complex64\""),
    (lambda p: p.rotate(Q.astype(">f4"), positions=range(4)), r"q must have elements of .*got \">f4\""),
    (lambda p: p.rotate(Q.astype(object), positions=range(4)), r"q must have elements of"),
    (lambda p: p.rotate("q", positions=range(4)), r"q must be an array .*got \"str\""),
    (lambda p: p.rotate([[1.0]], positions=range(4)), r"q must be an array .*got \"list\""),
    (lambda p: p.rotate(None, positions=range(4)), r"q or k must be given"),
    (lambda p: p.rotate(Q, positions=None), r"positions must be given"),
    (lambda p: p.rotate(Q, positions=3), r"positions must be an array .*got \"int\""),
    (lambda p: p.rotate(Q, positions=["a"] * 4), r"positions must be a list of numbers.*got \"str\""),
    (lambda p: p.rotate(Q, positions=[[0, 1, 2, 3]]), r"positions must be a list of numbers, or an array of several axes, got \"list\""),
    (lambda p: p.rotate(Q, positions=range(3)), r"\[rotary\].*3"),
    (lambda p: p.rotate(Q, positions=numpy.zeros(4, numpy.uint16)), r"positions must have elements of"),
    (lambda p: p.rotate(Q, positions=numpy.zeros(4, numpy.float32)), r"\[positions\] dtype must be i64, i32 or f64, got"),
    (lambda p: p.rotate(Q, positions=[float("nan")] * 4), r"finite|nan"),
    (lambda p: p.rotate(Q.astype(numpy.float64), positions=range(4)), r"\[rotary\].*dtype"),
    (lambda p: p.rotate(Q[..., :8], positions=range(4)), r"\[rotary\].*16.*8|\[rotary\].*8"),
    (lambda p: p.rotate(Q[0], positions=range(4)), r"order must be given.*2 axes"),
    (lambda p: p.rotate(Q[None], positions=range(4)), r"order must be given.*q with 4 axes"),
    (lambda p: p.rotate(Q, positions=range(4), order="bthd"), r"rank must fit the order bthd, got 3"),
    (lambda p: p.rotate(Q, positions=range(4), order="hello"), r"order of the axes must be thd.*hello"),
    (lambda p: p.rotate(Q, positions=range(4), mode="backward"), r"mode must be one of forward, gradient, inverse, shift, got \"backward\""),
    (lambda p: p.rotate(Q, positions=range(4), out=numpy.zeros((4, 2, 8), numpy.float32)), r"\[rotary\]"),
    (lambda p: p.rotate(Q, positions=range(4), out=read_only()), r"out must be an array that may be written, got \"a read-only one\""),
    (lambda p: p.rotate(Q, Q, positions=range(4), out=Q.copy()), r"out must be a tuple of two arrays"),
    (lambda p: p.rotate_(read_only(), positions=range(4)), r"q must be an array that may be written"),
    (lambda p: p.rotate(Q, positions=[1 << 70] * 4), r"positions must fit 64 bits, got \"1180591620717411303424\""),
    (lambda p: p.rotate(Q.astype(int), positions=range(4)), r"dtype must be f64, f32, f16 or bf16"),
    (lambda p: posenc.rotate(ROPE, Q.astype(int), positions=range(4)), r"dtype|float"),
    (lambda p: p.rotate(Q, positions=range(4), out=overlapping()), r"\[rotary\].*share memory"),
    (lambda p: p.rotate(numpy.zeros((1,) * 6, numpy.float32), positions=range(1)), r"q must have at most 5 axes, got \"6\""),
    (lambda p: p.rotate_rows(Q, rows=None), r"rows must be an array"),
    (lambda p: p.rotate_by(Q, cos=Q[:, 0], sin=None), r"sin must be an array"),
    (lambda p: posenc.RotaryPlan(ROPE, "float8"), r"dtype must be float64, float32, float16 or bfloat16, got \"float8\""),
    (lambda p: posenc.RotaryPlan(ROPE, int), r"dtype must be float64"),
    (lambda p: posenc.RotaryPlan(ROPE, precision="best"), r"precision must be one of exact"),
    (lambda p: posenc.RotaryPlan(ROPE, context=0), r"context must be positive, got \"0\""),
    (lambda p: posenc.RotaryPlan(ROPE, context="long"), r"context must be a whole number"),
    (lambda p: posenc.cos_sin(ROPE, range(3), layout="halves"), r"layout must be one of half, duplicated, repeated, pairs"),
    (lambda p: posenc.frequencies("alibi"), r"\[alibi\] has no frequencies"),
    (lambda p: posenc.PopePlan(ROPE).apply(None, range(4)), r"x must be an array"),
])
def test_what_is_wrong_is_refused_by_argument_rule_and_value(call, says):
    plan = posenc.RotaryPlan(ROPE)
    with pytest.raises(ValueError, match=says) as info:
        call(plan)
    assert "incompatible function arguments" not in str(info.value)


def test_bfloat16_without_its_package():
    code = """
import sys
sys.modules["ml_dtypes"] = None
import posenc
try:
    posenc.cos_sin("rope head_dim=8 pairing=half_split", range(2), dtype="bfloat16")
except ValueError as problem:
    print(problem)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[numpy] has no bfloat16: pass out, or install ml_dtypes\n"
