# SPDX-License-Identifier: Apache-2.0
"""posenc.jax: the numbers of the numpy functions, gradients, jit and vmap, and the C interface that it declares."""
import doctest
import pathlib
import re
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy
import posenc
import posenc.jax
import pytest

SOURCE = pathlib.Path(__file__).resolve().parents[3]
ROPE = posenc.Rope(head_dim=16, rotary_dim=8, pairing="interleaved") + posenc.Yarn(factor=4, original_context=64)
RANDOM = numpy.random.default_rng(3)


def normal(*shape, dtype="float32"):
    return jnp.asarray(RANDOM.normal(size=shape), dtype)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize("order", [None, "bthd", "bhtd", "tbhd"])
def test_rotation_is_that_of_numpy(dtype, jit, order):
    shape = (7, 3, 16) if order is None else {"bthd": (2, 7, 3, 16), "bhtd": (2, 3, 7, 16), "tbhd": (7, 2, 3, 16)}[order]
    q, k = normal(*shape, dtype=dtype), normal(*shape, dtype=dtype)
    positions = jnp.asarray(RANDOM.integers(-50, 5000, 7 if order is None else (2, 7)))
    rotate = lambda q, k, p: posenc.jax.rotate(ROPE, q, k, positions=p, order=order)
    got = (jax.jit(rotate) if jit else rotate)(q, k, positions)
    want = posenc.rotate(ROPE, numpy.asarray(q), numpy.asarray(k), positions=numpy.asarray(positions), order=order)
    for g, w in zip(got, want):
        assert g.dtype == dtype and (numpy.asarray(g) == w).all()


def test_gradient_of_a_rotation():
    x, g, p = normal(5, 2, 16), normal(5, 2, 16), jnp.arange(5)
    rotate = jax.jit(lambda x: posenc.jax.rotate(ROPE, x, positions=p))
    y, pull = jax.vjp(rotate, x)
    want = posenc.RotaryPlan(ROPE).rotate(numpy.asarray(g), positions=numpy.arange(5), mode="gradient")
    assert (numpy.asarray(pull(g)[0]) == want).all()
    # <R x, g> = <x, R' g>, and twice: the gradient of the gradient is the rotation.
    assert abs(float(jnp.vdot(y, g) - jnp.vdot(x, pull(g)[0]))) < 1e-4
    twice = jax.vjp(lambda g: pull(g)[0], g)[1](x)[0]
    assert (numpy.asarray(twice) == numpy.asarray(y)).all()
    with pytest.raises(TypeError, match="forward-mode|jvp"):
        jax.jvp(rotate, (x,), (g,))


def test_vmap_of_a_rotation():
    x, p = normal(4, 5, 2, 16), jnp.asarray(RANDOM.integers(0, 99, (4, 5)))
    got = jax.vmap(lambda x, p: posenc.jax.rotate(ROPE, x, positions=p))(x, p)
    for g, one, q in zip(got, x, p):
        assert (numpy.asarray(g) == posenc.rotate(ROPE, numpy.asarray(one), positions=numpy.asarray(q))).all()


COMPOSED = [("sinusoidal width=12 layout=halves", {}), ("learned rows=9 width=12", {"table": (9, 12)}),
            ("learned rows=11 width=12 offset=2 frozen_row=3", {"table": (11, 12)}), ("learned rows=9 width=12 l2norm=true", {"table": (9, 12)}),
            ("sinusoidal width=4 layout=interleaved compose=concat", {})]


@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize("scheme, learned", COMPOSED, ids=lambda x: str(x))
def test_rows_at_the_input_are_those_of_numpy(scheme, learned, jit):
    x, p = normal(2, 6, 12), jnp.asarray(RANDOM.integers(0, 9, (2, 6)))
    named = {name: normal(*shape) for name, shape in learned.items()}
    compose = lambda x, named: posenc.jax.compose(scheme, x, p, parameters=named)
    plan = posenc.InputPlan(scheme, parameters={n: numpy.asarray(a) for n, a in named.items()})
    y, pull = jax.vjp(jax.jit(compose) if jit else compose, x, named)
    assert (numpy.asarray(y) == plan.apply(numpy.asarray(x), numpy.asarray(p))).all()
    g = normal(*y.shape)
    d_x, d_named = pull(g)
    want_x, want_named = plan.gradient(numpy.asarray(g), numpy.asarray(p), x=numpy.asarray(x))
    assert (numpy.asarray(d_x) == want_x).all() and set(d_named) == set(learned)
    for name, d in d_named.items():
        assert (numpy.asarray(d) == want_named[name].astype(numpy.float32)).all() and numpy.abs(d).max() > 0


def test_a_step_of_training_lowers_once():
    x, p = normal(5, 4), jnp.arange(5)
    loss = lambda t: (posenc.jax.compose("learned rows=9 width=4 l2norm=true", x, p, parameters={"table": t}) ** 2).sum()
    table = normal(9, 4)
    loss(jnp.ones((9, 4)))  # the channels of this encoding are found once
    for n in range(3):
        before = posenc._posenc.lowered_count()
        d = jax.grad(loss)(table)
        d.block_until_ready()
        assert posenc._posenc.lowered_count() == before + 1, n
        table = table - 0.1 * d


def test_training_reaches_a_table():
    """Ten steps of descent bring a learned table nearer to another one."""
    target, p, zero = normal(9, 4), jnp.arange(9), jnp.zeros((9, 4))
    loss = lambda t: ((posenc.jax.compose("learned rows=9 width=4", zero, p, parameters={"table": t}) - target) ** 2).sum()
    step = jax.jit(lambda t: t - 0.25 * jax.grad(loss)(t))
    table = zero
    for _ in range(10):
        table = step(table)
    assert float(loss(table)) < 1e-4 * float(loss(zero))


@pytest.mark.parametrize("call, says", [
    (lambda: posenc.jax.rotate("alibi", normal(2, 1, 16), positions=jnp.arange(2)), r"\[alibi\] is not rotary"),
    (lambda: posenc.jax.rotate(ROPE, normal(1, 2, 1, 16), positions=jnp.arange(2)), "order must be bthd, bhtd or tbhd"),
    (lambda: posenc.jax.rotate(ROPE, normal(2, 1, 16), positions=jnp.ones(2)), "positions must be int32 or int64"),
    (lambda: posenc.jax.compose("learned rows=9 width=4", normal(2, 4), jnp.arange(2)), "parameters must be the learned arrays"),
    (lambda: posenc.jax.compose("learned rows=9 width=4", normal(2, 4), jnp.arange(2), parameters=[3]), r"\[jax\] parameters must be a mapping"),
    (lambda: posenc.jax.compose("rope head_dim=8 pairing=half_split", normal(2, 4), jnp.arange(2)), "adds rows at the input"),
])
def test_what_is_wrong_is_refused_by_name(call, says):
    with pytest.raises(ValueError, match=says):
        call()


@pytest.mark.parametrize("call, says", [
    (lambda: posenc.jax.rotate(ROPE, normal(2, 1, 8), positions=jnp.arange(2)), r"\[rotary\] head size must be the plan's 16, got 8"),
    (lambda: posenc.jax.rotate(ROPE, normal(2, 1, 16), positions=jnp.arange(3)), r"\[rotary\] .*positions"),
    (lambda: posenc.jax.compose("learned rows=9 width=4", normal(2, 4), jnp.asarray([0, 9]),
                                parameters={"table": normal(9, 4)}), r"\[.*\] .*9"),
])
def test_what_is_found_in_the_call_is_said_by_jax(call, says):
    with pytest.raises(Exception, match=says):
        jax.block_until_ready(call())


def test_the_declared_interface_is_that_of_jaxlib(tmp_path):
    """Offsets and sizes of python/src/xla.h against xla/ffi/api/c_api.h."""
    pairs = {
        "CallFrame": ("XLA_FFI_CallFrame", "struct_size:struct_size extensions:extension_start api:api context:ctx stage:stage "
                      "arguments:args results:rets attributes:attrs"),
        "Buffers": ("XLA_FFI_Args", "size:size types:types buffers:args"),
        "Attributes": ("XLA_FFI_Attrs", "size:size types:types names:names values:attrs"),
        "Buffer": ("XLA_FFI_Buffer", "dtype:dtype data:data rank:rank dims:dims"),
        "Text": ("XLA_FFI_ByteSpan", "data:ptr size:len"),
        "Api": ("XLA_FFI_Api", "struct_size:struct_size version:api_version internal:internal_api make_error:XLA_FFI_Error_Create"),
        "ErrorArguments": ("XLA_FFI_Error_Create_Args", "message:message code:errc"),
        "Extension": ("XLA_FFI_Extension_Base", "type:type next:next"),
        "MetadataExtension": ("XLA_FFI_Metadata_Extension", "base:extension_base metadata:metadata"),
        "Metadata": ("XLA_FFI_Metadata", "version:api_version traits:traits"),
        "Version": ("XLA_FFI_Api_Version", "major_version:major_version minor_version:minor_version"),
    }
    lines = ['#include "xla/ffi/api/c_api.h"', '#include "xla.h"', "using namespace posenc::python;"]
    for ours, (theirs, fields) in pairs.items():
        for field in fields.split():
            a, b = field.split(":")
            lines.append(f"static_assert(offsetof(xla::{ours}, {a}) == offsetof({theirs}, {b}));")
    for ours, theirs in (("Text", "XLA_FFI_ByteSpan"), ("Buffers", "XLA_FFI_Args"), ("Buffers", "XLA_FFI_Rets"), ("Version", "XLA_FFI_Api_Version")):
        lines.append(f"static_assert(sizeof(xla::{ours}) == sizeof({theirs}));")
    for ours, theirs in (("kMajor", "XLA_FFI_API_MAJOR"), ("kMinor", "XLA_FFI_API_MINOR"), ("kMetadata", "XLA_FFI_Extension_Metadata"),
                         ("kExecute", "XLA_FFI_ExecutionStage_EXECUTE"), ("kTextType", "XLA_FFI_AttrType_STRING"),
                         ("kInvalidArgument", "XLA_FFI_Error_Code_INVALID_ARGUMENT"), ("kResourceExhausted", "XLA_FFI_Error_Code_RESOURCE_EXHAUSTED")):
        lines.append(f"static_assert(xla::{ours} == {theirs});")
    types = (SOURCE / "python/src/jax.cpp").read_text()
    for number, name in re.findall(r"\{(\d+), DType::(\w+)\}", types):
        theirs = {"i": "S", "f": "F", "b": "BF"}[name[0]] + re.sub(r"\D", "", name)
        lines.append(f"static_assert(XLA_FFI_DataType_{theirs} == {number});")
    (tmp_path / "same.cpp").write_text("\n".join(lines) + "\n")
    done = subprocess.run(["g++", "-std=c++20", "-fsyntax-only", "-Wno-invalid-offsetof", "-I", SOURCE / "python/src", "-I", jax.ffi.include_dir(),
                           tmp_path / "same.cpp"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_examples():
    """Of the docstrings, and of the page."""
    result = doctest.testmod(posenc.jax)
    assert result.attempted > 0 and result.failed == 0
    text = (SOURCE / "docs/python.md").read_text()
    (block,) = [b for b in re.findall(r"^```py\n(.*?)^```", text, re.M | re.S) if "posenc.jax" in b]
    test = doctest.DocTestParser().get_doctest(block, {}, "docs/python.md", None, 0)
    assert test.examples and doctest.DocTestRunner().run(test).failed == 0


def test_other_uses_are_refused_by_jax():
    """Two derivatives of a table: the first one's call has none."""
    loss = lambda t: (posenc.jax.compose("learned rows=9 width=4", jnp.ones((9, 4)), jnp.arange(9), parameters={"table": t}) ** 3).sum()
    with pytest.raises(ValueError, match="differentiat|FFI"):
        jax.grad(lambda t: jax.grad(loss)(t).sum())(jnp.ones((9, 4)))


def test_types_are_complete(tmp_path):
    words = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", tmp_path, "-p", "posenc.jax"]
    done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stdout
