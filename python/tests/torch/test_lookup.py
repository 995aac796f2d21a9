# SPDX-License-Identifier: Apache-2.0
"""Tables that are read where they lie give what a plan gives; what they cannot do goes to the plan."""
import json

import posenc
import pytest
import torch
from posenc import torch as pt

PLAIN = ["learned width=8 rows=12", "learned width=8 rows=12 offset=2", "learned width=8 rows=12 gain=0.3 input_gain=2.5",
         "learned width=8 rows=12 frozen_row=1 axis=0", "hierarchy preset=segatron_bert width=8 tokens=12 sentences=5 paragraphs=4"]
PLANNED = ["learned width=8 rows=12 compose=multiply", "learned width=8 rows=12 l2norm=true", "learned width=8 rows=12 beyond=clamp",
           "learned width=8 rows=12 zero_position=3", "learned width=8 rows=12 first=1", "learned width=4 rows=12 compose=concat"]


def call(encoding, dtype=torch.float64, parameter_dtype=None, batch=(2,), positions=None):
    shapes = posenc.input_parameters(encoding)
    x = torch.randn(*batch, 5, 9 if "first=1" in encoding else 8, dtype=dtype)
    values = {n: torch.randn(*shape, dtype=parameter_dtype or dtype) for n, shape in shapes}
    if positions is None:
        positions = torch.arange(5) if "hierarchy" not in encoding else torch.stack([torch.arange(5), torch.arange(5) // 2, torch.arange(5) // 3])
        positions = positions if positions.dim() == 1 else positions[:, None]
    return x, positions, values


def by_a_plan(encoding, x, positions, values):
    wide = {n: v.to(x.dtype).double().numpy() for n, v in values.items()}
    return torch.from_numpy(posenc.InputPlan(encoding, "float64", parameters=wide).apply(x.double().numpy(), positions.numpy()))


@pytest.mark.parametrize("encoding", PLAIN + PLANNED)
def test_which_need_a_plan(encoding):
    x, positions, values = call(encoding)
    taken = posenc._posenc.compose_tables(encoding, x, positions, values, torch.empty_like(x))
    assert taken == (encoding in PLAIN)


def test_sizes_of_a_text_alone_take_no_memory():
    """Of a table that nobody could have: the given one has another size, and that is said before anything is made."""
    x = torch.zeros(2, 1024)
    with pytest.raises(ValueError, match=r"table must be \[1000000000, 1024\]"):
        pt.compose("learned width=1024 rows=1000000000", x, positions=torch.arange(2), parameters={"table": torch.zeros(4, 1024)})
    with pytest.raises(ValueError, match=r"table must be \[1000000000, 1024\], got \[4, 1024\]"):
        pt.compose("learned width=1024 rows=1000000000", x.to("meta"), positions=torch.arange(2, device="meta"),
                   parameters={"table": torch.zeros(4, 1024, device="meta")})


@pytest.mark.parametrize("encoding", PLAIN + PLANNED)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_numbers_are_those_of_a_plan(encoding, dtype):
    bound = {torch.float64: 1e-14, torch.float32: 2e-6, torch.bfloat16: 6e-2, torch.float16: 8e-3}[dtype]
    for parameter_dtype in {dtype, torch.float32}:
        for batch in ((2,), (), (1,)):
            x, p, values = call(encoding, dtype, parameter_dtype, batch)
            got = pt.compose(encoding, x, positions=p, parameters=values)
            want = by_a_plan(encoding, x, p, values)
            assert got.dtype is dtype and (got.double() - want).abs().max() < bound
            if "concat" not in encoding:
                y = x.clone()
                pt.compose_(encoding, y, positions=p, parameters=values)
                assert torch.equal(y, got)
    x, p, values = call(encoding, dtype, batch=(2,))
    each = (torch.stack([p, p.flip(-1)]) if p.dim() == 1 else torch.cat([p, p.flip(-1)], 1)).int()
    wide = pt.compose(encoding, x.transpose(0, 1).contiguous().transpose(0, 1), positions=each, parameters=values)
    assert (wide.double() - by_a_plan(encoding, x, each, values)).abs().max() < bound


@pytest.mark.parametrize("encoding", PLAIN)
def test_gradients(encoding):
    x, p, values = call(encoding)
    names = list(values)
    given = [v.requires_grad_() for v in values.values()]
    x.requires_grad_()
    f = lambda x, *v: pt.compose(encoding, x, positions=p, parameters=dict(zip(names, v)))
    if "frozen" not in encoding:
        assert torch.autograd.gradcheck(f, (x, *given), fast_mode=True)
    else:
        w = torch.randn_like(x)
        d, = torch.autograd.grad((f(x, *given) * w).sum(), given)
        assert not d[1].any() and torch.allclose(d[2], w[:, 2].sum(0), rtol=1e-13)
    torch.library.opcheck(torch.ops.posenc.compose.default, (x, p, given, names, encoding, None))
    half = [v.detach().float().requires_grad_() for v in given]
    y = f(x.detach().bfloat16(), *half)
    y.float().pow(2).sum().backward()
    assert all(h.grad.dtype is torch.float32 and h.grad.shape == h.shape for h in half)
    compiled = torch.compile(f, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(x, *given), f(x, *given))


def learned_at_the_input():
    yield "boxes preset=layoutlm width=8 rows=12"
    for s in json.loads(posenc._posenc.registry_json())["schemes"]:
        if s["family"] == "absolute" and s["parameters"]:
            for text in dict.fromkeys([s["at"], *(p["preset"] for p in s["presets"])]):
                if sum(torch.Size(size).numel() for _, size in posenc.input_parameters(text)) < 3_000_000:
                    yield text


@pytest.mark.parametrize("encoding", learned_at_the_input())
def test_every_encoding_that_learns(encoding):
    """Whatever its rows are made of, the numbers are those of a plan."""
    shapes = posenc.input_parameters(encoding)
    values = {n: torch.randn(s, dtype=torch.float64) for n, s in shapes}
    plan = posenc.InputPlan(encoding, "float64", parameters={n: v.numpy() for n, v in values.items()})
    for axes in range(1, 7):
        for positions in (torch.randint(0, 3, (axes, 1, 5)).sort(0).values, torch.rand(axes, 1, 5, dtype=torch.float64)):
            try:
                rows = plan.apply(None, positions.numpy())
            except ValueError:  # of another number of axes, or of real numbers
                continue
            x = torch.randn(1, 5, rows.shape[-1] - plan.appended or 3, dtype=torch.float64)
            got = pt.compose(encoding, x, positions=positions, parameters=values)
            want = torch.from_numpy(plan.apply(x.numpy(), positions.numpy()))
            assert torch.allclose(got, want.reshape(got.shape), rtol=1e-13, atol=1e-13)
            return
    raise AssertionError("no positions fit")


def test_whole_numbers_as_reals():
    x, _, values = call(PLAIN[0])
    a, b = (pt.compose(PLAIN[0], x, positions=p, parameters=values) for p in (torch.arange(5), torch.arange(5.0, dtype=torch.float64)))
    assert torch.equal(a, b)


@pytest.mark.parametrize("wrong, said", [
    (dict(positions=torch.arange(8, 13)), r"\[input_plan\].*12"), (dict(positions=torch.arange(4)), r"\[input_plan\]"),
    (dict(positions=torch.tensor([0, 1, -1, 2, 3])), r"\[input_plan\].*-1"), (dict(parameters={"table": torch.randn(11, 8)}), r"table.*12"),
    (dict(parameters={"weight": torch.randn(12, 8)}), "weight"), (dict(parameters={}), "parameters must hold table, which the encoding learns"),
    (dict(x=torch.randn(5, 7)), r"\[input_plan\]"), (dict(x=torch.randn(8)), r"\[input_plan\]")])
def test_refusals_are_the_plans(wrong, said):
    good = dict(x=torch.randn(5, 8), positions=torch.arange(5), parameters={"table": torch.randn(12, 8)})
    with pytest.raises(ValueError, match=said):
        pt.compose(PLAIN[0], **{**good, **wrong})
