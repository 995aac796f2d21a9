# SPDX-License-Identifier: Apache-2.0
"""posenc.torch.bias, distance_bias and polar; what posenc.torch.Attention knows of its encodings; pictures of modules."""
import copy
import io

import numpy
import posenc
import posenc.torch
import pytest
import torch

ROPE = "rope pairing=half_split"


def heads(*shape, dtype=torch.float64):
    torch.manual_seed(1)
    return [torch.randn(*shape, dtype=dtype, requires_grad=True) for _ in range(3)]


def dense(q, k, v, added, scale=None):
    """bhtd, causal, by torch alone."""
    score = q @ k.transpose(-1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale) + added
    hidden = torch.ones(score.shape[-2:], dtype=torch.bool).triu(1)
    return score.masked_fill(hidden, -torch.inf).softmax(-1) @ v


def test_a_function_of_the_distance_is_the_dense_bias_with_its_gradient():
    q, k, v = heads(2, 3, 7, 8)
    height = torch.rand(3, dtype=torch.float64, requires_grad=True)
    reach = torch.full((3,), 4.0, dtype=torch.float64, requires_grad=True)
    d = torch.randn(2, 3, 7, 8, dtype=torch.float64)

    def f(distance):
        return height * torch.expm1(-distance.double().abs()[:, None] / reach)

    encoding, parameters = posenc.torch.distance_bias(f, longest=6)
    assert encoding == posenc.Clipped(clip=6)
    got = posenc.torch.attend(encoding, q, k, v, order="bhtd", parameters=parameters, causal=True)
    distance = torch.arange(7)[:, None] - torch.arange(7)
    want = dense(q, k, v, f(distance.flatten()).view(7, 7, 3).permute(2, 0, 1))
    assert torch.allclose(got, want, rtol=0, atol=1e-13)
    every = (q, k, v, height, reach)
    for a, b in zip(torch.autograd.grad(got, every, d), torch.autograd.grad(want, every, d)):
        assert torch.allclose(a, b, rtol=0, atol=1e-12)


def test_a_table_goes_from_the_longest_future_to_the_longest_past():
    q, k, v = heads(1, 2, 5, 4)
    table = torch.randn(5, 2, dtype=torch.float64, requires_grad=True)
    encoding, parameters = posenc.torch.distance_bias(table)
    got = posenc.torch.attend(encoding, q, k, v, order="bhtd", parameters=parameters)
    row = (torch.arange(5)[:, None] - torch.arange(5)).clamp(-2, 2) + 2
    score = q @ k.transpose(-1, -2) / 2 + table[row].permute(2, 0, 1)
    assert torch.allclose(got, score.softmax(-1) @ v, rtol=0, atol=1e-13)
    shared, one = posenc.torch.distance_bias(table[:, 0], heads=2)
    assert torch.equal(one["table"], table[:, :1].expand(-1, 2)) and shared == encoding


def test_memory_is_that_of_the_table():
    encoding, parameters = posenc.torch.distance_bias(lambda d: -d.abs(), longest=100, heads=1)
    assert parameters["table"].shape == (201, 1)


@pytest.mark.parametrize("call, says", [
    (lambda: posenc.torch.distance_bias(3), "must be a function of distances or a tensor"),
    (lambda: posenc.torch.distance_bias(lambda d: d), "longest must be given with a function"),
    (lambda: posenc.torch.distance_bias(lambda d: d[1:], longest=2), r"of longest=2, got \[4\]"),
    (lambda: posenc.torch.distance_bias(lambda d: 1, longest=2), "must return a tensor"),
    (lambda: posenc.torch.distance_bias(torch.zeros(4, 2)), r"\[2 longest \+ 1\]"),
    (lambda: posenc.torch.distance_bias(torch.zeros(5)), "heads must be given with a table of one axis"),
    (lambda: posenc.torch.distance_bias(torch.zeros(5, 2), heads=3), "heads must be the columns of the table, 2, got 3")])
def test_distance_bias_refuses(call, says):
    with pytest.raises(ValueError, match=says):
        call()


@pytest.mark.parametrize("by_distance", [False, True])
def test_a_bias_with_its_gradient(by_distance):
    table = torch.randn(8, 2, dtype=torch.float64, requires_grad=True)
    t5 = "t5 bidirectional=true num_buckets=8 max_distance=16"

    def call(x):
        return posenc.torch.bias(t5, heads=2, positions=range(5), parameters={"table": x}, by_distance=by_distance)

    assert call(table).shape == ((2, 5) if by_distance else (2, 5, 5))
    assert torch.autograd.gradcheck(call, table)
    assert torch.equal(call(table.detach().bfloat16()), call(table.detach().bfloat16().double()))


@pytest.mark.parametrize("by_distance", [False, True])
def test_a_bias_is_one_operator_of_a_compiled_graph(by_distance):
    table = torch.randn(8, 2, requires_grad=True)
    t5 = posenc.T5(bidirectional=True, num_buckets=8, max_distance=16)

    def f(x, at):
        keys = None if by_distance else torch.arange(9)
        return posenc.torch.bias(t5, heads=2, positions=at, key_positions=keys, parameters={"table": x * 2}, by_distance=by_distance) + 1

    compiled = torch.compile(f, fullgraph=True, backend="aot_eager")
    for n in (5, 7):
        at = torch.arange(n)
        want, got = f(table, at), compiled(table, at)
        assert got.equal(want) and got.dtype == torch.float64
        a, b = (torch.autograd.grad(x.square().sum(), table)[0] for x in (got, want))
        assert a.equal(b) and a.abs().sum() > 0
    names, arrays = ["parameters.table", "positions"], [table.detach(), torch.arange(5)]
    torch.library.opcheck(torch.ops.posenc.bias.default, ([table, torch.arange(5)], names, [t5._text], 2, 64, by_distance))
    with pytest.raises(ValueError, match=r"\[torch bias\] names must be positions, key_positions, or a name after"):
        torch.ops.posenc.bias(arrays, ["table", "positions"], [t5._text], 2, 64, by_distance)
    with pytest.raises(ValueError, match=r"\[torch bias\] positions must be given"):
        torch.ops.posenc.bias(arrays[:1], names[:1], [t5._text], 2, 64, by_distance)
    with pytest.raises(ValueError, match="positions must be on the device of parameters.table, meta"):
        torch.ops.posenc.bias([arrays[0].to("meta"), arrays[1]], names, [t5._text], 2, 64, by_distance)
    with pytest.raises(RuntimeError, match="no second derivative"):
        d, = torch.autograd.grad(f(table, arrays[1]).square().sum(), table, create_graph=True)
        d.sum().backward()


def test_tensors_that_require_a_gradient_are_refused_by_numpy_s_functions():
    x = torch.ones(4, 1, 8, requires_grad=True)
    rope = posenc.Rope(head_dim=8, pairing="half_split")
    for call, says in [(lambda: posenc.attend(None, x, x, x), r"\[attention\] q must not require a gradient.*use posenc.torch.attend or q.detach"),
                       (lambda: posenc.attend("alibi", x.detach(), x.detach(), x), r"v must not require"),
                       (lambda: posenc.attend(posenc.T5(bidirectional=False), *[x.detach()] * 3, parameters={"table": torch.zeros(32, 1, requires_grad=True)}),
                        "table must not require"),
                       (lambda: posenc.rotate(rope, x, positions=range(4)), r"\[rotary\] q must not require.*posenc.torch.rotate"),
                       (lambda: posenc.bias("clipped", heads=1, positions=range(3), parameters={"table": torch.zeros(65, 1, requires_grad=True)}),
                        "table must not require.*posenc.torch.bias")]:
        with pytest.raises(ValueError, match=says):
            call()
    with torch.no_grad():
        assert posenc.attend(None, x.detach(), x.detach(), x.detach()).out is not None


def softplus_points(x, p, base, bias):
    """PoPE from its paper, equation by equation: thd."""
    d = x.shape[-1]
    angle = p[:, None, None] * base ** (-torch.arange(d, dtype=torch.float64) / d) + bias.clamp(-2 * torch.pi, 0)
    size = torch.nn.functional.softplus(x)
    return torch.cat([size * angle.cos(), size * angle.sin()], -1)


def test_pope_in_the_module():
    q, k, v = heads(6, 2, 8)
    module = posenc.torch.Attention("pope", heads=2, head_dim=8, dtype=torch.float64, causal=True)
    assert module.encodings == ("pope head_dim=8",)
    assert {n: tuple(x.shape) for n, x in module.state_dict().items()} == {"phase_bias": (2, 8)}
    assert ((module.phase_bias < 0) & (module.phase_bias > -2 * torch.pi)).all()
    got = module(q, k, v)
    p = torch.arange(6, dtype=torch.float64)
    a = softplus_points(q, p, 10000.0, torch.zeros(2, 8, dtype=torch.float64))
    b = softplus_points(k, p, 10000.0, module.phase_bias)
    want = dense(*(x.transpose(0, 1)[None] for x in (a, b, v)), 0, scale=8 ** -0.5)[0].transpose(0, 1)
    assert torch.allclose(got, want, rtol=0, atol=1e-12)
    d, every = torch.randn_like(want), (q, k, v, module.phase_bias)
    for x, y in zip(torch.autograd.grad(got, every, d), torch.autograd.grad(want, every, d)):
        assert torch.allclose(x, y, rtol=0, atol=1e-11)
    # Decoding: the last query by itself stands at the end.
    assert torch.allclose(module(q[-1:], k, v), got[-1:], rtol=0, atol=1e-13)
    assert torch.allclose(module.probabilities(q, k).sum(-1), torch.ones(1, 2, 6, dtype=torch.float64))
    with pytest.raises(ValueError, match="scale must be given if pope is combined with another encoding"):
        posenc.torch.Attention(["pope", "alibi"], heads=2, head_dim=8, dtype=torch.float64)(q, k, v)
    posenc.torch.Attention(["pope", "alibi"], heads=2, head_dim=8, scale=0.3)(*(x.float() for x in (q, k, v)))
    with pytest.raises(ValueError, match="only one encoding may act on q and k"):
        posenc.torch.Attention(["pope", ROPE], heads=2, head_dim=8)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_polar_is_an_operator(dtype):
    x, bias = torch.randn(5, 2, 4).to(dtype).requires_grad_(), torch.full((2, 4), -0.5, dtype=dtype, requires_grad=True)
    made = posenc.torch.polar("pope head_dim=4", x, positions=torch.arange(5), bias=bias)
    assert made.dtype == dtype and made.shape == (5, 2, 8)
    made.float().sum().backward()
    assert x.grad.dtype == dtype and bias.grad.dtype == dtype and bias.grad.abs().sum() > 0
    if dtype is torch.float64:
        torch.library.opcheck(torch.ops.posenc.polar.default, (x, torch.arange(5), bias, "pope head_dim=4", None, None))
        assert torch.autograd.gradcheck(lambda a, b: posenc.torch.polar("pope head_dim=4", a, positions=torch.arange(5), bias=b), (x, bias))
    compiled = torch.compile(lambda a: posenc.torch.polar("pope head_dim=4", a * 1, positions=torch.arange(5)), fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(x.detach()), posenc.torch.polar("pope head_dim=4", x.detach(), positions=torch.arange(5)))


def test_the_module_fills_in_what_it_knows():
    module = posenc.torch.Attention([ROPE + " + yarn factor=4 original_context=4096", "t5"], heads=2, head_dim=16, causal=True)
    assert module.encodings == ("rope head_dim=16 pairing=half_split + yarn factor=4 original_context=4096", "t5 bidirectional=false")
    assert list(module.state_dict()) == ["table"]
    with pytest.raises(ValueError, match="bidirectional must be given"):
        posenc.torch.Attention("t5", heads=2, head_dim=16)


def test_scalings_by_length():
    q, k, v = heads(8, 2, 16)
    dynamic = ROPE + " + dynamic factor=2 trained_length=4 length_rule=per_call"
    module = posenc.torch.Attention(dynamic, heads=2, head_dim=16, causal=True, length=8)
    x = posenc.complete(dynamic, head_dim=16)
    plan = posenc.RotaryPlan(x, "float64", context=8)
    q2, k2 = (torch.from_numpy(t) for t in plan.rotate(q.detach().numpy(), k.detach().numpy(), positions=range(8)))
    want = dense(*(t.transpose(0, 1)[None] for t in (q2, k2, v)), 0)[0].transpose(0, 1)
    assert torch.allclose(module(q, k, v), want, rtol=0, atol=1e-12)
    later = posenc.torch.Attention(dynamic, heads=2, head_dim=16, causal=True)
    assert torch.equal(later(q, k, v, length=8), module(q, k, v))
    with pytest.raises(ValueError, match="length"):
        later(q, k, v)


def test_rescaled_shares_its_parameters():
    t5 = "t5 bidirectional=false"
    module = posenc.torch.Attention([ROPE, t5], heads=2, head_dim=16, dtype=torch.float64, causal=True)
    longer = module.rescaled([ROPE + " + linear factor=2", t5], scale=0.25)
    assert longer.table is module.table and module.options == {"causal": True} and longer.options["scale"] == 0.25
    q, k, v = heads(6, 2, 16)
    want = posenc.torch.attend(["rope head_dim=16 pairing=half_split + linear factor=2", t5], q, k, v,
                               parameters={"table": module.table}, causal=True, scale=0.25)
    assert torch.equal(longer(q, k, v), want)
    with torch.no_grad():
        module.table.add_(1)
    assert torch.equal(longer.table, module.table)
    longer.register_forward_hook(lambda *_: None)
    assert not module._forward_hooks and len(longer._forward_hooks) == 1
    with pytest.raises(ValueError, match="must learn what those of the module learn"):
        module.rescaled(ROPE)
    file = io.BytesIO()
    torch.save(longer.state_dict(), file)
    assert copy.deepcopy(longer).encodings == longer.encodings


def test_probabilities_and_locality_of_the_module():
    module = posenc.torch.Attention("t5", heads=2, head_dim=16, dtype=torch.bfloat16, order="bhtd", causal=True)
    q, k, v = heads(1, 2, 6, 16, dtype=torch.bfloat16)
    p = module.probabilities(q, k)
    assert p.shape == (1, 2, 6, 6) and not p.requires_grad
    assert torch.allclose((p.to(torch.float64) @ v.detach().double())[0], module(q, k, v)[0].double(), atol=2e-2)
    distance, mass = module.locality(q, k)
    assert distance.tolist() == list(range(-5, 6))
    want = torch.stack([p[0].diagonal(-d, 1, 2).sum(-1) / 6 for d in range(-5, 6)], -1)
    assert torch.allclose(mass, want, rtol=0, atol=1e-14)


def test_pictures_of_modules():
    module = posenc.torch.Attention([ROPE, "t5"], heads=2, head_dim=16, causal=True)
    with torch.no_grad():
        module.table.copy_(torch.arange(64.0).view(32, 2))
    picture = posenc.plot(module, kind="bias", positions="0:3").svg
    assert '"y":[0.0,2.0,4.0]' in picture.replace("&quot;", '"').replace(" ", "") and "head 1" in picture
    q, k, _ = heads(6, 2, 16)
    seen = posenc.plot(module, kind="locality", q=q.detach(), k=k.detach(), mask="causal").svg
    assert "t5 bidirectional=false" in seen and "rope head_dim=16" in seen
    assert "Wavelength" in posenc.plot(posenc.torch.Attention(ROPE, heads=2, head_dim=16)).svg
    learned = posenc.torch.RotaryEmbedding(posenc.Rope(head_dim=8, pairing="half_split"), learned=True)
    with torch.no_grad():
        learned.frequencies.mul_(2)
    plain = posenc.plot(posenc.Rope(head_dim=8, pairing="half_split") + posenc.Frequencies(values=learned.frequencies.detach().flatten().tolist()))
    numbers = [x.split("</metadata>")[0].split("series")[1] for x in (plain.svg, posenc.plot(learned).svg)]
    assert numbers[0] == numbers[1]
    table = posenc.torch.LearnedPositions(posenc.Learned(width=4, rows=8))
    assert numpy.abs(table.weight.detach().numpy()).max() > 0 and "Encoding of every position" in posenc.plot(table).svg
    with pytest.raises(ValueError, match="must be a module of posenc.torch with an encoding"):
        posenc.plot(torch.nn.Linear(2, 2))
