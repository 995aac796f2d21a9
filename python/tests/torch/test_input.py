# SPDX-License-Identifier: Apache-2.0
"""At the input: compose, embed and the modules."""
import posenc
import pytest
import torch
from posenc import torch as pt

LEARNED = posenc.Learned(width=8, rows=12, offset=2)


def numbers(*shape, requires_grad=True):
    return torch.randn(*shape, dtype=torch.float64, requires_grad=requires_grad)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("batch", [(), (3,)])
def test_compose_is_the_definition(dtype, batch):
    x, p = torch.randn(*batch, 5, 8, dtype=dtype), torch.tensor([0, 3, 1, 9, 9])
    table = torch.randn(12, 8, dtype=dtype)
    got = pt.compose(LEARNED, x, positions=p, parameters={"table": table})
    assert got.dtype is dtype and torch.equal(got, (x.double() + table[p + 2].double()).to(dtype))
    sinus = pt.compose("sinusoidal width=8 layout=halves", x, positions=p)
    want = posenc.InputPlan("sinusoidal width=8 layout=halves", "float64").apply(x.double().numpy(), p.numpy())
    assert (sinus.double() - torch.from_numpy(want)).abs().max() < {torch.float64: 1e-15, torch.float32: 1e-6, torch.bfloat16: 4e-2}[dtype]


ENCODINGS = ["learned width=8 rows=12 compose=multiply", "learned width=8 rows=12 l2norm=true", "sinusoidal width=8 layout=halves",
             "learned width=4 rows=12 compose=concat"]


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_gradients(encoding):
    shapes = posenc.input_parameters(encoding)
    x, p = numbers(2, 5, 8), torch.arange(5)
    values = [numbers(*shape) for _, shape in shapes]
    f = lambda x, *v: pt.compose(encoding, x, positions=p, parameters={n: y for (n, _), y in zip(shapes, v)})
    assert torch.autograd.gradcheck(f, (x, *values), fast_mode=True)
    if values:  # opcheck wants gradients of lists that are not empty
        torch.library.opcheck(torch.ops.posenc.compose.default, (x, p, values, [n for n, _ in shapes], encoding, None))
        compiled = torch.compile(f, fullgraph=True, backend="aot_eager")
        assert torch.equal(compiled(x, *values), f(x, *values))


@pytest.mark.parametrize("encoding", ENCODINGS[:3])
def test_compose_in_place(encoding):
    shapes = posenc.input_parameters(encoding)
    x, p = torch.randn(2, 5, 8), torch.arange(5)
    values = {n: torch.randn(*shape) for n, shape in shapes}
    want = pt.compose(encoding, x, positions=p, parameters=values)
    y, before = x.clone(), x._version
    assert pt.compose_(encoding, y, positions=p, parameters=values) is None
    assert torch.equal(y, want) and y._version == before + 1
    part = torch.stack([x, x], 1)
    pt.compose_(encoding, part[:, 1], positions=p, parameters=values)
    assert torch.equal(part[:, 1], want) and torch.equal(part[:, 0], x) and part._version == 1
    torch.library.opcheck(torch.ops.posenc.compose_.default, (x.clone(), p, list(values.values()), list(values), encoding, None))
    minus = torch.complex(x, -x).conj().imag
    assert minus.is_neg()
    pt.compose_(encoding, minus, positions=p, parameters=values)
    assert torch.equal(minus.resolve_neg(), want)

    def f(x):
        y = x * 1
        pt.compose_(encoding, y, positions=p, parameters=values)
        return y

    assert torch.equal(torch.compile(f, fullgraph=True, backend="aot_eager")(x), want)
    leaf = x.clone().requires_grad_()
    learned = {n: v.clone().requires_grad_() for n, v in values.items()}
    for wrong in ((leaf, values), (leaf * 2, values), *([(x.clone(), learned)] if values else [])):
        with pytest.raises(RuntimeError, match=r"\[torch compose_\] tensors must not require a gradient"):
            pt.compose_(encoding, wrong[0], positions=p, parameters=wrong[1])
    with torch.no_grad():
        pt.compose_(encoding, leaf, positions=p, parameters=learned)
    assert torch.equal(leaf, want)
    with torch.inference_mode():
        pt.compose_(encoding, torch.randn(2, 5, 8), positions=p, parameters=values)
    with pytest.raises(RuntimeError, match="does not run inside torch.func"):
        torch.func.vmap(lambda x: pt.compose_(encoding, x, positions=p, parameters=values))(x)


def test_what_appends_is_not_composed_in_place():
    with pytest.raises(ValueError, match=r"\[torch compose_\] an encoding that appends channels.*got 4 more"):
        pt.compose_("sinusoidal width=4 layout=halves compose=concat", torch.randn(5, 8), positions=torch.arange(5))


def test_second_derivatives_are_refused():
    x, table = numbers(5, 8), numbers(12, 8)
    y = pt.compose(LEARNED, x, positions=torch.arange(5), parameters={"table": table})
    with pytest.raises(RuntimeError, match="compose.*has no second derivative"):
        torch.autograd.grad(y.pow(2).sum(), table, create_graph=True)
    y = pt.embed([table], [torch.arange(5)])
    with pytest.raises(RuntimeError, match="embed.*has no second derivative"):
        torch.autograd.grad(y.pow(2).sum(), table, create_graph=True)
    with pytest.raises(RuntimeError, match="does not run inside torch.func"):
        torch.func.grad(lambda t: pt.embed([t], [torch.arange(5)]).sum())(table.detach())


def test_a_step_of_training_lowers_once():
    table = torch.randn(9, 4, requires_grad=True)
    step = torch.optim.SGD([table], lr=0.1)
    compose = lambda table: pt.compose("learned rows=9 width=4 l2norm=true", torch.randn(5, 4), positions=torch.arange(5), parameters={"table": table})
    compose(torch.ones(9, 4, requires_grad=True)).sum().backward()  # the channels of this encoding are found once
    for n in range(3):
        before = posenc._posenc.lowered_count()
        compose(table).square().sum().backward()
        assert posenc._posenc.lowered_count() == before + 1, n
        step.step()
        step.zero_grad()


def test_embed():
    words, places = numbers(9, 8), numbers(6, 8)
    rows, gamma, beta = numbers(2, 4, 8), numbers(8), numbers(8)
    ids, p = torch.randint(0, 9, (2, 4)), torch.arange(4)

    def ours(words, places, rows, gamma, beta):
        return pt.embed([words, places], [ids, p], scales=[2.5, 1], offsets=[0, 2], rows=rows, gamma=gamma, beta=beta, epsilon=1e-5)

    def theirs(words, places, rows, gamma, beta):
        return torch.nn.functional.layer_norm(2.5 * words[ids] + places[p + 2] + rows, (8,), gamma, beta, 1e-5)

    given = (words, places, rows, gamma, beta)
    a, b = ours(*given), theirs(*given)
    assert torch.allclose(a, b, atol=1e-13)
    for x, y in zip(torch.autograd.grad(a.pow(3).sum(), given), torch.autograd.grad(b.pow(3).sum(), given)):
        assert torch.allclose(x, y, rtol=1e-9, atol=1e-11)
    torch.library.opcheck(torch.ops.posenc.embed.default, ([words, places], [ids, p], [2.5, 1.0], [0, 2], [-1, 3], rows, gamma, beta, 1e-5))
    compiled = torch.compile(ours, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(*given), a)
    frozen = torch.autograd.grad(pt.embed([words], [ids], frozen=[int(ids[0, 0])]).sum(), words)[0]
    assert (frozen[ids[0, 0]] == 0).all() and frozen.abs().sum() > 0
    half = pt.embed([words.detach().bfloat16()], [ids])
    assert half.dtype is torch.bfloat16 and torch.equal(half, words.bfloat16()[ids])
    for wrong in (lambda: pt.embed([words], [ids], offsets=[1, 2]), lambda: pt.embed([], []), lambda: pt.embed([words], [ids + 9]),
                  lambda: pt.embed([words], [ids], gamma=gamma)):
        with pytest.raises(ValueError, match=r"embed\]"):
            wrong()


def test_embed_makes_the_gradients_that_are_asked_for():
    ids, p = torch.randint(0, 9, (2, 4)), torch.arange(4)
    of = lambda learned: {n: torch.randn(*size, dtype=torch.float64, generator=torch.Generator().manual_seed(5)).requires_grad_(n in learned)
                          for n, size in {"words": (9, 8), "places": (6, 8), "rows": (2, 4, 8), "gamma": (8,), "beta": (8,)}.items()}
    f = lambda x: (pt.embed([x["words"], x["places"]], [ids, p], rows=x["rows"], gamma=x["gamma"], beta=x["beta"], epsilon=1e-5).pow(3).sum())
    every = of({"words", "places", "rows", "gamma", "beta"})
    f(every).backward()
    for learned in ({"words"}, {"places", "beta"}, {"rows"}, {"gamma", "words"}):
        some = of(learned)
        f(some).backward()
        assert {n for n, x in some.items() if x.grad is not None} == learned
        assert all(torch.equal(some[n].grad, every[n].grad) for n in learned)
    # In float32 sums are made in double and rounded once.
    many, table = torch.zeros(1, 4000, dtype=torch.long), torch.zeros(3, 1, requires_grad=True)
    d = torch.rand(1, 4000, 1)
    pt.embed([table], [many]).backward(d)
    assert table.grad[0].item() == d.double().sum().float().item() and not table.grad[1:].any()


def test_modules():
    rope = pt.RotaryEmbedding("rope head_dim=8 pairing=half_split", layout="bhtd")
    assert not rope.state_dict() and "head_dim=8" in repr(rope)
    assert torch.equal(rope(torch.ones(1, 1, 3, 8), positions=torch.arange(3))[0, 0, 0], torch.ones(8))
    with pytest.raises(ValueError, match="alibi"):
        pt.RotaryEmbedding("alibi")
    torch.manual_seed(3)
    learned = pt.LearnedPositions(posenc.Learned(width=64, rows=100, frozen_row=1))
    torch.manual_seed(3)
    again = pt.LearnedPositions(posenc.Learned(width=64, rows=100, frozen_row=1))
    assert list(learned.state_dict()) == ["weight"] and torch.equal(learned.weight, again.weight)
    assert abs(float(learned.weight.detach().std()) / 0.02 - 1) < 0.05 and (learned.weight[1] == 0).all()
    again.reset_parameters()
    assert not torch.equal(learned.weight, again.weight)
    x = torch.randn(2, 5, 64)
    theirs = torch.nn.Embedding(100, 64)
    learned.load_state_dict(theirs.state_dict())
    assert torch.equal(learned(x), x + theirs(torch.arange(5)))
    learned(x).pow(2).sum().backward()
    want, = torch.autograd.grad((x + theirs(torch.arange(5))).pow(2).sum(), theirs.weight)
    want[1] = 0
    assert torch.allclose(learned.weight.grad, want, rtol=1e-6)
    assert torch.equal(torch.compile(learned, fullgraph=True, backend="aot_eager")(x), learned(x))
    assert learned.double()(x.double()).dtype is torch.float64
    sinus = pt.SinusoidalPositions(posenc.Sinusoidal.fairseq(width=64))
    assert not sinus.state_dict() and sinus(x).shape == x.shape


def test_refusals():
    x = torch.randn(5, 8)
    with pytest.raises(ValueError, match=r"parameters must hold table, which the encoding learns"):
        pt.compose(LEARNED, x, positions=torch.arange(5))
    with pytest.raises(ValueError, match="alibi"):
        pt.compose("alibi", x, positions=torch.arange(5))
    with pytest.raises(ValueError, match="row"):
        pt.compose(LEARNED, x, positions=torch.arange(50, 55), parameters={"table": torch.randn(12, 8)})
