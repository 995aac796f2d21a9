# SPDX-License-Identifier: Apache-2.0
"""Learned frequencies and positions: numbers, gradients, operators, the module, refusals."""
import posenc
import pytest
import torch
from posenc import torch as pt

ROPE = posenc.Rope(head_dim=8, pairing="half_split")
OPS = torch.ops.posenc


def numbers(*shape, **more):
    return torch.randn(*shape, dtype=torch.float64, **more)


def q_and_k(**more):
    return numbers(2, 4, 5, 8, **more), numbers(2, 4, 5, 8, **more)


def learned(heads=1, axes=1, pairs=4):
    return (torch.rand(heads, axes, pairs, dtype=torch.float64) + 0.1).requires_grad_()


def by_hand(x, positions, frequencies, pairing, gain=1.0):
    """[b, h, t, d]; positions [axes, b, t]; the definition by PyTorch's own functions."""
    phase = torch.einsum("abt,hap->bhtp", positions.double(), frequencies)
    cos, sin = phase.cos() * gain, phase.sin() * gain
    if pairing == "half_split":
        a, b = x.chunk(2, -1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)
    a, b = x[..., ::2], x[..., 1::2]
    return torch.stack([a * cos - b * sin, b * cos + a * sin], -1).flatten(-2)


@pytest.mark.parametrize("pairing", ["half_split", "interleaved"])
@pytest.mark.parametrize("heads", [1, 4])
@pytest.mark.parametrize("mode", ["forward", "gradient"])
def test_numbers_and_gradients_are_the_definition(pairing, heads, mode):
    q, k = q_and_k(requires_grad=True)
    f, w = learned(heads), numbers(2, 4, 5, 8)
    positions = (torch.rand(2, 5, dtype=torch.float64) * 9).requires_grad_()
    x = posenc.Rope(head_dim=8, pairing=pairing) + posenc.Yarn(factor=4, original_context=64)  # its gain stays
    gain = 0.1 * torch.log(torch.tensor(4.0, dtype=torch.float64)) + 1
    got = pt.rotate(x, q, k, positions=positions, frequencies=f, layout="bhtd", mode=mode)
    want = [by_hand(y, positions[None], f if mode == "forward" else -f, pairing, gain) for y in (q, k)]
    for a, b in zip(got, want):
        assert torch.allclose(a, b, rtol=1e-12, atol=1e-13)
    inputs = (q, k, f, positions)
    of = lambda y: (y[0] * w).sum() + (y[1].pow(3) * w).sum()
    for a, b in zip(torch.autograd.grad(of(got), inputs), torch.autograd.grad(of(want), inputs)):
        assert a.shape == b.shape and torch.allclose(a, b, rtol=1e-11, atol=1e-12)


def test_against_finite_differences():
    q, k = q_and_k(requires_grad=True)
    p = torch.arange(5)
    real = (torch.rand(5, dtype=torch.float64) * 9).requires_grad_()
    rotate = lambda x, **more: lambda q, k, f, p: pt.rotate(x, q, k, positions=p, frequencies=f, layout="bhtd", **more)
    for x in (ROPE, posenc.parse("xpos head_dim=8 center=2 pairing=interleaved"), ROPE + posenc.Linear(factor=2),
              "rope head_dim=8 pairing=interleaved output_order=even_then_odd", posenc.Rope(head_dim=8, pairing="half_split", direction=-1)):
        for f in (learned(), None):
            given = (q, k, f, real)
            assert torch.autograd.gradcheck(rotate(x), given, fast_mode=True)
            assert torch.autograd.gradcheck(rotate(x, mode="gradient"), given, fast_mode=True)
            assert torch.autograd.gradcheck(lambda k, f, p: rotate(x)(None, k, f, p), (k, f, real), fast_mode=True)
    assert torch.autograd.gradcheck(lambda f: rotate(ROPE)(q, k, f, p), (learned(4),), fast_mode=True)
    mixed = posenc.MixedAxes(head_dim=8, heads=4, axes=2, frequencies=[0.1] * 32, pairing="interleaved")
    grid = (torch.rand(2, 2, 5, dtype=torch.float64) * 9).requires_grad_()
    assert torch.autograd.gradcheck(rotate(mixed), (q, k, learned(4, 2), grid), fast_mode=True)
    # Positions alone, of an encoding with several blocks of channels.
    axial = posenc.parse("axial head_dim=8 axes_dim=[4,4] order=blocks pairing=half_split")
    assert torch.autograd.gradcheck(lambda q, p: pt.rotate(axial, q, positions=p, layout="bhtd"), (q, grid), fast_mode=True)
    # One row of positions for the batch, and one axis written as three.
    for p in (real, real[None].detach().requires_grad_(), real.repeat(1, 2, 1).detach().requires_grad_()):
        assert torch.autograd.gradcheck(lambda p: rotate(ROPE)(q, k, None, p), (p,), fast_mode=True)


LAYOUTS = {"bhtd": lambda x: x, "bthd": lambda x: x.transpose(1, 2), "tbhd": lambda x: x.permute(2, 0, 1, 3),
           "thd": lambda x: x[0].transpose(0, 1)}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_other_layouts_and_types(layout, dtype):
    q, f, p = numbers(2, 4, 5, 8).to(dtype), learned(4).detach().to(dtype), torch.arange(5)
    want = by_hand(q.double(), p.expand(1, 2, 5), f.double(), "half_split")
    x = LAYOUTS[layout](q).requires_grad_()
    f.requires_grad_()
    got = pt.rotate(ROPE, x, positions=p, frequencies=f, layout=layout)
    assert got.dtype is dtype and (got.double() - LAYOUTS[layout](want)).abs().max() < (2e-6 if dtype is torch.float32 else 3e-2)
    w = torch.randn_like(got)
    (got * w).sum().backward()
    wide = f.detach().double().requires_grad_()
    again = LAYOUTS[layout](by_hand(q.double(), p.expand(1, 2, 5), wide, "half_split"))
    exact, = torch.autograd.grad((again * w.double()).sum(), wide)
    assert f.grad.dtype is dtype and x.grad is not None
    assert (f.grad.double() - exact).abs().max() < (1e-5 if dtype is torch.float32 else 1e-2) * exact.abs().max()


def test_without_a_gradient_and_in_place():
    q, k = q_and_k()
    f, p = learned(4).detach(), torch.arange(5)
    want = pt.rotate(ROPE, q, k, positions=p, frequencies=f, layout="bhtd")
    a, b = q.clone(), k.clone()
    pt.rotate_(ROPE, a, b, positions=p, frequencies=f, layout="bhtd")
    assert torch.equal(a, want[0]) and torch.equal(b, want[1])
    own = torch.from_numpy(posenc.frequencies(ROPE)).reshape(1, 1, 4)
    assert torch.equal(pt.rotate(ROPE, q, positions=p, frequencies=own, layout="bhtd"), pt.rotate(ROPE, q, positions=p, layout="bhtd"))
    with pytest.raises(RuntimeError, match="must not require a gradient"):
        pt.rotate_(ROPE, a, positions=p, frequencies=learned(4), layout="bhtd")
    with pytest.raises(RuntimeError, match="must not require a gradient"):
        pt.rotate_(ROPE, a, positions=p.double().requires_grad_(), layout="bhtd")


def test_operators():
    q, k = q_and_k(requires_grad=True)
    f, p = learned(4), torch.arange(5)
    real = (torch.rand(2, 5, dtype=torch.float64) * 9).requires_grad_()
    tail = (str(ROPE), "bhtd", "forward", None, False)
    check = torch.library.opcheck
    check(OPS.rotate_learned_qk.default, (q, k, p, f, *tail))
    check(OPS.rotate_learned_qk.default, (q, k, real, f, *tail))
    check(OPS.rotate_learned.default, (q, real, None, *tail))
    check(OPS.rotate_learned.default, (k, p, f, str(ROPE), "bhtd", "gradient", None, True))
    q, k, f, real = (x.detach() for x in (q, k, f, real))
    check(OPS.rotate_learned_.default, (q.clone(), p, f, *tail))
    check(OPS.rotate_learned_qk_.default, (q.clone(), k.clone(), real, f, *tail))
    for of in ((True, True), (False, True), (True, False)):
        check(OPS.phase_gradients.default, (q, k, q, k, real, f, str(ROPE), "bhtd", None, *of))
    check(OPS.phase_gradients.default, (None, k, None, k, real, f, str(ROPE), "bhtd", None, True, True))


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compiled(backend):
    q, k = q_and_k(requires_grad=True)
    f, real = learned(4), (torch.rand(5, dtype=torch.float64) * 9).requires_grad_()

    def loss(q, k, f, p):
        q, k = pt.rotate(ROPE, q * 2, k, positions=p, frequencies=f * 1.5, layout="bhtd")
        return (q.pow(2) * k).sum()

    given = (q, k, f, real)
    a, b = loss(*given), torch.compile(loss, fullgraph=True, backend=backend)(*given)
    assert torch.allclose(a, b, rtol=1e-12)
    for x, y in zip(torch.autograd.grad(a, given), torch.autograd.grad(b, given)):
        assert torch.allclose(x, y, rtol=1e-9, atol=1e-12)


def test_transforms():
    q, k = q_and_k()
    f, p, w = learned(4), torch.arange(5), numbers(2, 4, 5, 8)
    loss = lambda f, q: (pt.rotate(ROPE, q, positions=p, frequencies=f, layout="bhtd").pow(3) * w[: q.shape[0]]).sum()
    want, = torch.autograd.grad(loss(f, q), f)
    assert torch.allclose(torch.func.grad(loss)(f.detach(), q), want, rtol=1e-11)
    one = lambda f, q: (pt.rotate(ROPE, q, positions=p, frequencies=f, layout="htd").pow(3)).sum()
    each = torch.func.vmap(torch.func.grad(one), in_dims=(None, 0))(f.detach(), q)
    assert torch.allclose(each[1], torch.func.grad(one)(f.detach(), q[1]), rtol=1e-11)
    out = torch.func.vmap(lambda q, p: pt.rotate(ROPE, q, positions=p, frequencies=f.detach(), layout="htd"))(q, torch.stack([p, p + 3]))
    assert torch.allclose(out[1], pt.rotate(ROPE, q[1], positions=p + 3, frequencies=f.detach(), layout="htd"), rtol=1e-13)
    with pytest.raises(RuntimeError, match="not over frequencies"):
        torch.func.vmap(lambda f: pt.rotate(ROPE, q, positions=p, frequencies=f, layout="bhtd"))(f.detach().expand(3, 4, 1, 4))
    with pytest.raises(RuntimeError, match="forward-mode derivative for q and k only"):
        torch.func.jvp(lambda f: loss(f, q), (f.detach(),), (f.detach(),))
    tangent = numbers(2, 4, 5, 8)
    _, made = torch.func.jvp(lambda q: pt.rotate(ROPE, q, positions=p, frequencies=f.detach(), layout="bhtd"), (q,), (tangent,))
    assert torch.allclose(made, pt.rotate(ROPE, tangent, positions=p, frequencies=f.detach(), layout="bhtd"), rtol=1e-13)


def test_second_derivatives():
    q, _ = q_and_k(requires_grad=True)
    f, p = learned(4), torch.arange(5)
    loss = lambda: pt.rotate(ROPE, q, positions=p, frequencies=f, layout="bhtd").pow(3).sum()
    # The gradient of q is a rotation by the same frequencies: it has a gradient in them.
    d_q, d_f = torch.autograd.grad(loss(), (q, f), create_graph=True)
    v = numbers(2, 4, 5, 8)
    got, = torch.autograd.grad((d_q * v).sum(), f, retain_graph=True)
    again = by_hand(q, p.expand(1, 2, 5), f, "half_split").pow(3).sum()
    want, = torch.autograd.grad((torch.autograd.grad(again, q, create_graph=True)[0] * v).sum(), f)
    assert torch.allclose(got, want, rtol=1e-10)
    with pytest.raises(RuntimeError, match="gradient of positions and frequencies has no second derivative"):
        d_f.sum().backward()


def test_module():
    rope = pt.RotaryEmbedding(ROPE, layout="bhtd", learned=True, heads=4)
    assert list(rope.state_dict()) == ["frequencies"] and rope.frequencies.shape == (4, 1, 4)
    q, k = (x.float() for x in q_and_k())
    p = torch.arange(5)
    fixed = pt.RotaryEmbedding(ROPE, layout="bhtd")
    assert not fixed.state_dict()
    for a, b in zip(rope(q, k, positions=p), fixed(q, k, positions=p)):
        assert torch.allclose(a, b, atol=1e-6)
    target = pt.rotate(ROPE + posenc.Linear(factor=1.5), q, positions=p, layout="bhtd")
    best = torch.optim.Adam(rope.parameters(), lr=0.02)
    losses = []
    for _ in range(80):
        best.zero_grad()
        loss = (rope(q, positions=p) - target).pow(2).mean()
        loss.backward()
        best.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 50
    rope.reset_parameters()
    assert torch.allclose(rope.frequencies[0, 0].double(), torch.from_numpy(posenc.frequencies(ROPE)), atol=1e-7)
    mixed = posenc.MixedAxes(head_dim=8, heads=4, axes=2, frequencies=[0.1] * 32, pairing="interleaved")
    assert pt.RotaryEmbedding(mixed, learned=True, dtype=torch.float64).frequencies.shape == (4, 2, 4)
    with pytest.raises(ValueError, match="heads must be those of the encoding, 4, got 3"):
        pt.RotaryEmbedding(mixed, learned=True, heads=3)
    with pytest.raises(ValueError, match="need learned=True, got heads=3"):
        pt.RotaryEmbedding(ROPE, heads=3)


REFUSED = {
    "pairs": (ValueError, r"\[heads or 1, 1, 4\]", dict(frequencies=torch.ones(1, 1, 5))),
    "axes": (ValueError, r"\[heads or 1, 1, 4\]", dict(frequencies=torch.ones(1, 2, 4))),
    "rank": (ValueError, r"\[heads or 1, 1, 4\]", dict(frequencies=torch.ones(4))),
    "heads": (ValueError, r"heads must be 3", dict(frequencies=torch.ones(3, 1, 4))),
    "not finite": (ValueError, r"finite", dict(frequencies=torch.full((1, 1, 4), float("nan")))),
    "integers": (ValueError, r"frequencies must be float64 or float32.*int64", dict(frequencies=torch.ones(1, 1, 4, dtype=torch.int64))),
    "no tensor": (ValueError, r"frequencies must be a tensor", dict(frequencies=[1.0])),
    "positions": (ValueError, r"positions", dict(frequencies=torch.ones(1, 1, 4), positions=torch.arange(4))),
    "blocks": (ValueError, r"one block", dict(encoding="axial head_dim=8 axes_dim=[4,4] order=blocks pairing=half_split", frequencies=torch.ones(1, 1, 4))),
}


@pytest.mark.parametrize("what", REFUSED)
def test_refusals(what):
    error, rule, more = REFUSED[what]
    x = numbers(2, 4, 5, 8)
    with pytest.raises(error, match=rule):
        pt.rotate(more.pop("encoding", ROPE), x, layout="bhtd", **{"positions": torch.arange(5), **more})
    for mode in ("inverse", "shift"):
        with pytest.raises(RuntimeError, match=f'modes forward and gradient, got "{mode}"'):
            pt.rotate(ROPE, x, positions=torch.arange(5), frequencies=learned(), layout="bhtd", mode=mode)
