# SPDX-License-Identifier: Apache-2.0
"""opcheck, torch.compile, torch.func, forward mode, autocast, tracing."""
import warnings

import posenc
import pytest
import torch
from posenc import torch as pt
from torch.func import grad, jacfwd, jvp, vmap

ROPE = posenc.Rope(head_dim=8, pairing="half_split")
OPS = torch.ops.posenc
ROTATE = (str(ROPE), "bhtd", "forward", None, False)
ROWS = ("half_split", "half", "bhtd", "in_place", 0, "forward")


def numbers(*shape, requires_grad=False):
    return torch.randn(*shape, dtype=torch.float64, requires_grad=requires_grad)


def same(a, b):
    return a.shape == b.shape and torch.allclose(a, b, rtol=1e-14, atol=1e-14)


def q_and_k(**more):
    return numbers(2, 4, 5, 8, **more), numbers(2, 2, 5, 8, **more)


@pytest.mark.parametrize("history", [False, True])
def test_opcheck(history):
    q, k = q_and_k(requires_grad=history)
    p, cos, sin = torch.arange(5), numbers(5, 4), numbers(5, 4)
    rows = (cos, sin, None, *ROWS)
    check = torch.library.opcheck
    check(OPS.rotate.default, (q, p, *ROTATE))
    check(OPS.rotate.default, (q.transpose(1, 2), p, str(ROPE), "bthd", "forward", None, False))
    check(OPS.rotate_qk.default, (q, k, p, *ROTATE))
    check(OPS.rotate_rows.default, (q, *rows))
    check(OPS.rotate_rows_qk.default, (q, k, *rows))
    check(OPS.rotate_rows_qk.default, (q, k, numbers(9, 4), numbers(9, 4), p, *ROWS))
    if history:
        check(OPS.rotate_rows_qk.default, (q, k, numbers(5, 4, requires_grad=True), numbers(5, 4, requires_grad=True), None, *ROWS))
    else:
        check(OPS.rotate_.default, (q.clone(), p, *ROTATE))
        check(OPS.rotate_qk_.default, (q.clone(), k.clone(), p, *ROTATE))
        check(OPS.rotate_rows_.default, (q.clone(), *rows))
        check(OPS.rotate_rows_qk_.default, (q.clone(), k.clone(), *rows))
        check(OPS.row_gradients.default, (q, k, q, k, cos, sin, None, *ROWS[:-1]))


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_compiled_without_a_break(backend):
    p = torch.arange(5)

    def f(q, k, cos, sin):
        q, k = pt.rotate(ROPE, q * 2, k, positions=p, layout="bhtd")
        q, k = pt.rotate_rows(q, k, cos, sin, pairing="half_split", columns="half", layout="bhtd")
        x = k.detach().clone()
        pt.rotate_(ROPE, x, positions=p, layout="bhtd")
        return (q.pow(2).sum() + k.pow(3).sum() * x.sum()).sin()

    compiled = torch.compile(f, fullgraph=True, backend=backend)
    given = [*q_and_k(requires_grad=True), numbers(5, 4, requires_grad=True), numbers(5, 4, requires_grad=True)]
    a, b = f(*given), compiled(*given)
    assert torch.allclose(a, b, rtol=1e-12)
    for x, y in zip(torch.autograd.grad(a, given), torch.autograd.grad(b, given)):
        assert torch.allclose(x, y, rtol=1e-10)


def test_compiled_with_sizes_that_change():
    f = torch.compile(lambda q, p: pt.rotate(ROPE, q, positions=p, layout="bhtd"), fullgraph=True, dynamic=True, backend="aot_eager")
    for t in (5, 6, 9):
        q = numbers(1, 2, t, 8)
        assert torch.equal(f(q, torch.arange(t)), pt.rotate(ROPE, q, positions=torch.arange(t), layout="bhtd"))


def test_exported():
    class Turn(torch.nn.Module):
        def forward(self, q, p):
            return pt.rotate(ROPE, q, positions=p, layout="bhtd")

    q, p = numbers(1, 2, 5, 8), torch.arange(5)
    program = torch.export.export(Turn(), (q, p))
    assert "posenc.rotate.default" in str(program.graph) and torch.equal(program.module()(q, p), Turn()(q, p))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        traced = torch.jit.trace(Turn(), (q, p), check_trace=False)
    assert torch.equal(traced(q * 3, p + 1), Turn()(q * 3, p + 1))


LAYOUTS = {"bhtd": lambda x: x, "bthd": lambda x: x.transpose(1, 2), "tbhd": lambda x: x.permute(2, 0, 1, 3),
           "thd": lambda x: x[0].transpose(0, 1), "htd": lambda x: x[0]}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_vmap(layout):
    """As a loop would have it, over any axis and any argument."""
    qs, ks = ([LAYOUTS[layout](x) for x in xs] for xs in zip(*(q_and_k() for _ in range(3))))
    ps = [torch.randint(0, 9, (5,)) for _ in range(3)]
    one = lambda q, k, p: pt.rotate(ROPE, q, k, positions=p, layout=layout)
    operator = lambda q, k, p: OPS.rotate_qk(q, k, p, str(ROPE), layout, "forward", None, False)
    for f in (one, operator):
        for dims in ((0, 0, 0), (1, 2, None), (0, None, 0), (None, None, 0), (-1, 0, 1)):
            given = [xs[0] if d is None else torch.stack(xs, d) for xs, d in zip((qs, ks, ps), dims)]
            got = vmap(f, in_dims=dims)(*given)
            for i in range(3):
                want = one(*(xs[0 if d is None else i] for xs, d in zip((qs, ks, ps), dims)))
                assert all(same(a[i], b) for a, b in zip(got, want))
    assert same(vmap(one, in_dims=(0, None, None), out_dims=1)(torch.stack(qs), ks[0], ps[0])[0][:, 1], one(qs[1], ks[0], ps[0])[0])
    twice = vmap(vmap(lambda q: one(q, ks[0], ps[0])[0]))(torch.stack([torch.stack(qs)] * 2))
    assert same(twice[1, 2], one(qs[2], ks[0], ps[0])[0])


def test_vmap_of_rows_and_of_positions_with_a_batch():
    q = numbers(3, 2, 4, 5, 8)
    for shape in ((5, 4), (2, 5, 4), (2, 5, 4, 4)):
        cos, sin = numbers(3, *shape), numbers(3, *shape)
        f = lambda q, c, s: pt.rotate_rows(q, None, c, s, pairing="interleaved", columns="half", layout="bhtd")
        for dims in ((0, 0, 0), (None, 0, 0), (0, None, None), (0, 0, None)):
            given = [x[0] if d is None else x for x, d in zip((q, cos, sin), dims)]
            got = vmap(f, in_dims=dims)(*given)
            for i in range(3):
                assert same(got[i], f(*(x[0 if d is None else i] for x, d in zip((q, cos, sin), dims))))
    f = lambda q, p: pt.rotate(ROPE, q, positions=p, layout="bhtd")
    for shape in ((5,), (2, 5)):
        p = torch.randint(0, 9, (3, *shape))
        for dims in ((0, 0), (0, None), (None, 0)):
            given = [x[0] if d is None else x for x, d in zip((q, p), dims)]
            got = vmap(f, in_dims=dims)(*given)
            for i in range(3):
                assert same(got[i], f(*(x[0 if d is None else i] for x, d in zip((q, p), dims))))
    axes = "axial head_dim=8 axes_dim=[4,4] pairing=half_split"
    f = lambda q, p: pt.rotate(axes, q, positions=p, layout="bhtd")
    p = torch.randint(0, 9, (3, 2, 2, 5))  # [vmap, axes, batch, tokens]
    assert all(same(vmap(f)(q, p)[i], f(q[i], p[i])) for i in range(3))
    table, index = numbers(9, 4), torch.randint(0, 9, (3, 5))
    f = lambda q, i, t: pt.rotate_rows(q, None, t, t, index=i, pairing="half_split", columns="half", layout="bhtd")
    assert same(vmap(f, in_dims=(0, 0, None))(q, index, table)[1], f(q[1], index[1], table))
    with pytest.raises(RuntimeError, match="not over both"):
        vmap(f)(q, index, numbers(3, 9, 4))


def test_func_grad_and_forward_mode():
    q, k = q_and_k()
    p, w = torch.arange(5), numbers(2, 4, 5, 8)
    f = lambda q: (pt.rotate(ROPE, q, k, positions=p, layout="bhtd")[0].pow(3) * w).sum()
    leaf = q.clone().requires_grad_()
    want, = torch.autograd.grad(f(leaf), leaf)
    assert torch.allclose(grad(f)(q), want, rtol=1e-12)
    per_sample = vmap(grad(lambda q: pt.rotate(ROPE, q, positions=p).pow(2).sum()))(q.transpose(1, 2))
    assert torch.allclose(per_sample, 2 * q.transpose(1, 2), rtol=1e-10)
    twice = lambda q: grad(lambda x: pt.rotate(ROPE, x, positions=p).pow(3).sum())(q)
    small = numbers(5, 1, 8)
    second = torch.func.jacrev(twice)(small)
    assert torch.allclose(second, torch.autograd.functional.hessian(lambda x: pt.rotate(ROPE, x, positions=p).pow(3).sum(), small), atol=1e-9)
    linear = lambda q: pt.rotate(ROPE, q, positions=p, layout="bhtd")
    assert torch.equal(jvp(linear, (q,), (w,))[1], linear(w))
    x = numbers(5, 1, 8)
    assert torch.allclose(jacfwd(lambda x: pt.rotate(ROPE, x, positions=p))(x), torch.autograd.functional.jacobian(lambda x: pt.rotate(ROPE, x, positions=p), x), rtol=1e-12)
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(q, w)
        for call in (linear, lambda q: OPS.rotate(q, p, *ROTATE), lambda q: pt.rotate_rows(q, None, *rows, pairing="half_split", columns="half", layout="bhtd")):
            rows = numbers(5, 4), numbers(5, 4)
            assert torch.equal(torch.autograd.forward_ad.unpack_dual(call(dual)).tangent, call(w))
        turned = torch.autograd.forward_ad.make_dual(rows[0], rows[1])
        with pytest.raises(RuntimeError, match="forward-mode derivative for q and k only"):
            pt.rotate_rows(q, None, turned, rows[1], pairing="half_split", columns="half", layout="bhtd")
        with pytest.raises(RuntimeError, match="use rotate"):
            pt.rotate_(ROPE, dual, positions=p, layout="bhtd")
    with pytest.raises(RuntimeError, match=r"torch rotate_\].*use rotate"):
        vmap(lambda q: pt.rotate_(ROPE, q, positions=p, layout="bhtd"))(q[None])
    cos, sin = numbers(5, 4), numbers(5, 4)
    rotated = lambda c: pt.rotate_rows(q, k, c, sin, pairing="half_split", columns="half", layout="bhtd")[1].pow(2).sum()
    leaf = cos.clone().requires_grad_()
    want, = torch.autograd.grad(rotated(leaf), leaf)
    assert torch.allclose(grad(rotated)(cos), want, rtol=1e-12)
    assert torch.allclose(vmap(grad(rotated))(torch.stack([cos, cos]))[1], want, rtol=1e-12)


def test_autocast_changes_nothing():
    q = torch.randn(2, 4, 5, 8)
    cos, sin = torch.randn(5, 4), torch.randn(5, 4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert pt.rotate(ROPE, q, positions=torch.arange(5), layout="bhtd").dtype is torch.float32
        assert OPS.rotate(q, torch.arange(5), *ROTATE).dtype is torch.float32
        half = pt.rotate_rows(q.bfloat16(), None, cos, sin, pairing="half_split", columns="half", layout="bhtd")
        assert half.dtype is torch.bfloat16


def test_checkpointed():
    from torch.utils.checkpoint import checkpoint
    q = numbers(2, 4, 5, 8, requires_grad=True)
    f = lambda q: pt.rotate(ROPE, q.sin(), positions=torch.arange(5), layout="bhtd").pow(2).sum()
    a, = torch.autograd.grad(f(q), q)
    b, = torch.autograd.grad(checkpoint(f, q, use_reentrant=False), q)
    assert torch.equal(a, b)
