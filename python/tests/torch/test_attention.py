# SPDX-License-Identifier: Apache-2.0
"""posenc.torch.attend: against torch's own sums, every gradient, compiled, transformed, refused."""
import numpy
import posenc
import posenc.torch
import pytest
import torch

SCHEMES = ["t5 bidirectional=false num_buckets=8 max_distance=16", "alibi", "shaw left=3", "kerple kernel=log",
           "fire", "deberta position_buckets=4 max_relative_positions=8", "transformer_xl d_model=8", "tupe positions=16", "dape", "cope", "wavlm"]


def sizes(encodings, **given):
    """Tensors of what encodings learn and take, real ones with gradients."""
    torch.manual_seed(3)
    parameters = {n: torch.rand(s, dtype=torch.float64).add(0.2).requires_grad_()  # KERPLE's are positive
                  for n, s in posenc.score_parameters(encodings, heads=2, head_dim=4)}
    inputs = {}
    for name, shape, whole, optional in posenc.score_inputs(encodings, heads=2, head_dim=4):
        shape = [given.get(n, n) for n in shape]
        inputs[name] = torch.zeros(shape, dtype=torch.int64) if whole else torch.randn(shape, dtype=torch.float64, requires_grad=True)
    return parameters, inputs


def heads(n=3, batch=2, tokens=5, dtype=torch.float64):
    torch.manual_seed(1)
    return [torch.randn(batch, 2, tokens, 4, dtype=dtype, requires_grad=True) for _ in range(n)]


def plain(q, k, v, bias, causal=True):
    """bhtd."""
    s = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5 + bias
    if causal:
        s = s.masked_fill(torch.ones(s.shape[-2:], dtype=torch.bool).triu(1 + s.shape[-1] - s.shape[-2]), -torch.inf)
    return s.softmax(-1) @ v


def test_it_is_the_plain_definition_with_its_gradients():
    q, k, v = heads()
    bias = torch.randn(1, 2, 5, 5, dtype=torch.float64, requires_grad=True)
    d = torch.randn(2, 2, 5, 4, dtype=torch.float64)
    slopes = 2.0 ** (-4.0 * (torch.arange(2) + 1))
    distance = (torch.arange(5)[:, None] - torch.arange(5)).abs()
    want = plain(q, k, v, bias - slopes[:, None, None] * distance)
    got = posenc.torch.attend(posenc.Alibi(), q, k, v, order="bhtd", bias=bias, causal=True)
    assert torch.allclose(got, want, rtol=0, atol=1e-13)
    for a, b in zip(torch.autograd.grad(got, (q, k, v, bias), d), torch.autograd.grad(want, (q, k, v, bias), d)):
        assert torch.allclose(a, b, rtol=0, atol=1e-12)
    with torch.no_grad():
        assert torch.equal(posenc.torch.attend(posenc.Alibi(), q, k, v, order="bhtd", bias=bias, causal=True), got)


def test_a_step_of_training_lowers_once():
    q, k, v = heads()
    table = torch.randn(8, 2, dtype=torch.float64, requires_grad=True)
    step = torch.optim.SGD([table], lr=0.1)
    outputs = []
    for n in range(3):
        before = posenc._posenc.lowered_count()
        for _layer in range(2):  # T5's layers share one table
            out = posenc.torch.attend(SCHEMES[0], q, k, v, order="bhtd", parameters={"table": table}, causal=True)
            out.square().sum().backward()
        assert posenc._posenc.lowered_count() == before + 1, n
        outputs.append(out.detach())
        step.step()
        step.zero_grad()
    assert not torch.equal(outputs[0], outputs[1]) and not torch.equal(outputs[1], outputs[2])


@pytest.mark.parametrize("after", [None, False, True])
def test_a_soft_cap_before_and_after_the_terms(after):
    q, k, v = heads()
    bias = torch.randn(1, 2, 5, 5, dtype=torch.float64, requires_grad=True)
    table = torch.randn(8, 2, dtype=torch.float64, requires_grad=True)
    d = torch.randn(2, 2, 5, 4, dtype=torch.float64)
    row = torch.tensor([[0, 1, 2, 3, 4][max(i - j, 0)] for i in range(5) for j in range(5)])  # T5's exact buckets, and 4
    term = table[row].view(5, 5, 2).permute(2, 0, 1)
    content = q @ k.transpose(-1, -2)
    score = (content + term).tanh() if after else content.tanh() + term
    want = plain(q, k, v, score - content / 2 + bias)
    cap = {"softcap": 1.0} if after is None else {"softcap": 1.0, "softcap_after_terms": after}
    got = posenc.torch.attend(SCHEMES[0], q, k, v, order="bhtd", parameters={"table": table}, bias=bias, causal=True, **cap)
    assert torch.allclose(got, want, rtol=0, atol=1e-13)
    every = (q, k, v, bias, table)
    for a, b in zip(torch.autograd.grad(got, every, d), torch.autograd.grad(want, every, d)):
        assert torch.allclose(a, b, rtol=0, atol=1e-12)
    module = posenc.torch.Attention(SCHEMES[0], heads=2, head_dim=4, dtype=torch.float64, order="bhtd", causal=True, **cap)
    with torch.no_grad():
        module.relative_attention_bias.weight.copy_(table)
        assert torch.equal(module(q, k, v, bias=bias), got)
    graph = torch.export.export(module, (q.detach(), k.detach(), v.detach())).module()
    assert torch.equal(graph(q, k, v), module(q, k, v))


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_gradient_under_a_cap_of_all_terms(scheme):
    every_gradient(scheme, softcap=1.0, softcap_after_terms=True)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_gradient_of_a_scheme(scheme):
    every_gradient(scheme)


def every_gradient(scheme, **cap):
    parameters, inputs = sizes(scheme, batch=1, queries=4, keys=4)
    q, k, v = heads(batch=1, tokens=4)
    real = [x for x in (q, k, v, *parameters.values(), *inputs.values()) if x.is_floating_point()]

    def call(*_):
        return posenc.torch.attend(scheme, q, k, v, order="bhtd", parameters=parameters, inputs=inputs, causal=True,
                                   log_sum_exp=True, **cap)

    assert torch.autograd.gradcheck(call, real, eps=1e-6, atol=1e-5, fast_mode=True)


def arguments(**more):
    q, k, v = heads(dtype=torch.float32)
    parameters, _ = sizes(SCHEMES[0])
    names = ["parameters.table", "key_length", "bias"]
    arrays = [parameters["table"].detach().float().requires_grad_(), torch.tensor([5, 4]),
              torch.randn(2, 2, 5, 5).requires_grad_()]
    return q, k, v, arrays, names, [SCHEMES[0]], "bhtd", None, None, True, [3, 0], None, None, None, None, None, 2.0, True


def test_opcheck():
    torch.library.opcheck(torch.ops.posenc.attend.default, arguments())
    q, k, v, arrays, *rest = arguments()
    q, k, v, *arrays = (x.detach() for x in (q, k, v, *arrays))
    out, sums = torch.ops.posenc.attend(q, k, v, arrays, *rest)
    wanted = [True, False, True, True, False, True]
    torch.library.opcheck(torch.ops.posenc.attend_backward.default,
                          (torch.randn_like(out), torch.zeros_like(sums), out, sums, wanted, q, k, v, arrays, *rest))


def test_a_scale_of_zero_is_the_softmax_of_the_terms_alone():
    q, k, v = heads(dtype=torch.float64)
    got = posenc.torch.attend(None, q, k, v, order="bhtd", causal=True, scale=0.0)
    weights = torch.tril(torch.ones(q.shape[2], k.shape[2], dtype=torch.float64))
    want = (weights / weights.sum(-1, keepdim=True)) @ v.repeat_interleave(q.shape[1] // v.shape[1], 1)
    assert torch.allclose(got, want, rtol=0, atol=1e-15)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compiled_without_a_break(backend):
    q, k, v = heads(dtype=torch.float32)
    table = torch.randn(8, 2, requires_grad=True)
    t5 = posenc.T5(bidirectional=False, num_buckets=8, max_distance=16)

    def f(q, k, v, table):
        return posenc.torch.attend(t5, q * 2, k, v, order="bhtd",
                                   parameters={"table": table}, causal=True, scale=0.3, window=(3, 0),
                                   softcap=1.0, softcap_after_terms=True) + 1

    compiled = torch.compile(f, fullgraph=True, backend=backend)
    every = (q, k, v, table)
    want, got = f(*every), compiled(*every)
    assert torch.allclose(got, want, atol=1e-6)
    for a, b in zip(torch.autograd.grad(got.square().sum(), every), torch.autograd.grad(want.square().sum(), every)):
        assert torch.allclose(a, b, atol=1e-5)


def test_the_operator_has_the_gradients_of_the_function():
    q, k, v, arrays, names, *rest = arguments()
    every = (q, k, v, arrays[0], arrays[2])
    out, sums = torch.ops.posenc.attend(q, k, v, arrays, names, *rest)
    other, others = posenc.torch.attend(SCHEMES[0], q, k, v, order="bhtd", parameters={"table": arrays[0]}, causal=True,
                                        key_length=arrays[1], bias=arrays[2], window=[3, 0], softcap=2.0, softcap_after_terms=True,
                                        log_sum_exp=True)
    assert torch.equal(out, other) and torch.equal(sums, others)
    # Nothing comes back to a result that is not used.
    for of in (lambda x, y: x.sum() + y.sum(), lambda x, y: x.square().sum(), lambda x, y: y.square().sum()):
        got, want = (torch.autograd.grad(of(*pair), every, retain_graph=True) for pair in ((other, others), (out, sums)))
        for a, b in zip(got, want):
            assert torch.equal(a, b)


def test_vmap_and_grad_of_torch_func():
    q, k, v = (x.detach() for x in heads())
    table = torch.randn(8, 2, dtype=torch.float64)

    def f(q, k, v, table):
        return posenc.torch.attend(SCHEMES[0], q, k, v, order="bhtd", parameters={"table": table}, causal=True, softcap=1.0,
                                   softcap_after_terms=True)

    stacked = torch.stack([q, q + 1, q - 1])
    got = torch.func.vmap(f, (0, None, None, None))(stacked, k, v, table)
    assert torch.equal(got, torch.stack([f(x, k, v, table) for x in stacked]))
    tables = torch.stack([table, -table])
    got = torch.func.vmap(torch.func.grad(lambda t: f(q, k, v, t).sin().sum()))(tables)
    for one, gradient in zip(tables, got):
        t = one.clone().requires_grad_()
        assert torch.allclose(torch.autograd.grad(f(q, k, v, t).sin().sum(), t)[0], gradient, rtol=0, atol=1e-14)


def test_orders_strides_and_views():
    q, k, v = heads()
    want = posenc.torch.attend("alibi", q, k, v, order="bhtd")
    b = [x.transpose(1, 2) for x in (q, k, v)]
    assert torch.equal(posenc.torch.attend("alibi", *b, order="bthd").transpose(1, 2), want)
    one = posenc.torch.attend("alibi", *(x[0] for x in b))
    assert torch.equal(one.transpose(0, 1), want[0])
    neg = torch._neg_view(q)
    assert neg.is_neg() and torch.equal(posenc.torch.attend("alibi", neg, k, v, order="bhtd"),
                                        posenc.torch.attend("alibi", -q, k, v, order="bhtd"))
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        x = q * 1
        y = posenc.torch.attend("alibi", x, k, v, order="bhtd")
        x.add_(1)
        y.sum().backward()


def test_16_bits():
    q, k, v = (x.detach().bfloat16().requires_grad_() for x in heads())
    table = torch.randn(8, 2).bfloat16().requires_grad_()
    out = posenc.torch.attend(SCHEMES[0], q, k, v, order="bhtd", parameters={"table": table}, causal=True)
    exact = posenc.torch.attend(SCHEMES[0], *(x.double() for x in (q, k, v)), order="bhtd",
                                parameters={"table": table.double()}, causal=True)
    assert out.dtype == torch.bfloat16 and torch.equal(out, exact.bfloat16())
    d = torch.autograd.grad(out.float().sum(), (q, table))
    assert [x.dtype for x in d] == [torch.bfloat16] * 2 and all(x.abs().sum() > 0 for x in d)


def test_keys_in_blocks_and_of_other_types():
    torch.manual_seed(4)
    q = torch.randn(1, 2, 3, 32, requires_grad=True)
    blocks = torch.randint(0, 256, (1, 2, 9, 34), dtype=torch.uint8)
    blocks[..., :2] = torch.tensor([0x00, 0x20], dtype=torch.uint8)  # a scale of 2^-7
    k = blocks[..., 2:].view(torch.int8).float() / 128
    v = torch.randn(1, 2, 9, 32).half()
    attend = lambda q, k, v: posenc.torch.attend("alibi", q, k, v, order="bhtd", causal=True)
    want = attend(q, k, v.float())
    for f in (attend, torch.compile(attend, fullgraph=True, backend="aot_eager")):
        out = f(q, blocks, v)
        assert (out - want).abs().max() < 1e-5
        assert (torch.autograd.grad(out.sum(), q)[0] - torch.autograd.grad(want.sum(), q, retain_graph=True)[0]).abs().max() < 1e-5


Q = torch.zeros(1, 2, 4, 8)


@pytest.mark.parametrize("call, says", [
    (lambda: posenc.torch.attend(None, numpy.zeros((4, 2, 8)), Q, Q), r"\[torch attend\] q must be a tensor, got \"ndarray\""),
    (lambda: posenc.torch.attend(None, Q, Q.to_sparse(), Q, order="bhtd"), r"k must be a dense tensor of numbers"),
    (lambda: posenc.torch.attend(None, Q, Q, Q), r"\[attention\] order must be given"),
    (lambda: posenc.torch.attend(None, Q, Q, Q, order="tdhb"), r"order|layout"),
    (lambda: posenc.torch.attend(None, Q.int(), Q, Q, order="bhtd"), r"dtype must be f64, f32, f16 or bf16"),
    (lambda: posenc.torch.attend(None, Q, Q.int(), Q, order="bhtd"), r"dtype must be f64, f32, f16 or bf16"),
    (lambda: posenc.torch.attend("t5 bidirectional=true", Q, Q, Q, order="bhtd"), r"table"),
    (lambda: posenc.torch.attend(None, Q, Q, Q, order="bhtd", window=[1]), r"window must be two whole numbers"),
    (lambda: posenc.torch.attend("alibi", Q, Q, Q, order="bhtd", softcap_after_terms=True), r"softcap_after_terms needs a softcap, got 0"),
    (lambda: posenc.torch.attend([7], Q, Q, Q, order="bhtd"), r"encoding must be SCHEME text"),
    (lambda: posenc.torch.attend(None, None, Q, Q, order="bhtd"), r"\[torch attend\] q must be a tensor, got \"NoneType\""),
    (lambda: posenc.torch.attend_path(Q, Q, None, Q, Q, order="bhtd"), r"\[torch attend_path\] v must be a tensor, got \"NoneType\""),
    (lambda: posenc.torch.attend(7, Q, Q, Q, order="bhtd"), r"encoding must be SCHEME text"),
    (lambda: posenc.torch.attend(None, Q, Q, Q, order="bhtd", parameters=[Q]), r"parameters must be a mapping of names to tensors, got \"list\""),
    (lambda: posenc.torch.attend(None, Q, Q, Q, order="bhtd", inputs=3), r"inputs must be a mapping of names to tensors, got \"int\""),
    (lambda: posenc.torch.attend(None, Q, Q, Q, order="bhtd", regions=3), r"regions must be those of self_extend"),
    (lambda: posenc.torch.attend(None, Q, Q, Q, order="bhtd", scale=torch.ones((), requires_grad=True)),
     r"\[torch attend\] scale has no gradient; use scale.detach\(\)"),
    (lambda: posenc.torch.attend("alibi", Q, Q, Q, order="bhtd", query_positions=torch.ones(Q.shape[2], dtype=torch.float64, requires_grad=True)),
     r"\[torch attend\] query_positions has no gradient; use query_positions.detach\(\)"),
    (lambda: torch.vmap(lambda x: posenc.torch.attend(None, x, x, x, order="bhtd"))(Q[None][:0]), r"vmap must have at least one entry, got 0"),
    (lambda: posenc.torch.merge([Q]), r"\[torch merge\] parts must be pairs of out and log_sum_exp, got \"Tensor\""),
    (lambda: posenc.torch.merge(3), r"\[torch merge\] parts must be pairs"),
    (lambda: posenc.torch.attend(None, Q, Q, Q[..., 0], order="bhtd"), r"\["),
    (lambda: posenc.torch.attend(None, Q, Q, Q, order="bhtd", bias=Q[0]), r"\[attention\].*bias"),
])
def test_what_is_wrong_is_refused(call, says):
    with pytest.raises(ValueError, match=says):
        call()


def test_second_derivatives_and_forward_mode_are_refused():
    q, k, v = heads()
    for out in (posenc.torch.attend("alibi", q, k, v, order="bhtd"),
                torch.ops.posenc.attend(q, k, v, [], [], ["alibi"], "bhtd", *[None] * 11)[0]):
        d, = torch.autograd.grad(out.sin().sum(), q, create_graph=True)
        with pytest.raises(RuntimeError, match="no second derivative"):
            d.sum().backward()
    with pytest.raises(RuntimeError, match="no forward-mode derivative"):
        torch.func.jvp(lambda x: posenc.torch.attend("alibi", x, k, v, order="bhtd"), (q,), (q,))


def test_other_devices_by_name():
    m = Q.to("meta")
    assert posenc.torch.attend("alibi", m, m, m[..., :4], order="bhtd").shape == (1, 2, 4, 4)
    if torch.cuda.is_available():
        with pytest.raises(ValueError, match="must lie in the memory of the CPU"):
            posenc.torch.attend("alibi", Q.cuda(), Q, Q, order="bhtd")


def relative():
    """Every scheme of the registry that acts in the score and needs no field."""
    for name in posenc._schemes.__all__:
        try:
            scheme = getattr(posenc, name)()
            posenc.score_parameters(scheme, heads=2, head_dim=4)
        except (TypeError, ValueError):
            continue
        yield scheme


def test_a_module_for_each_scheme():
    torch.manual_seed(5)
    found = list(relative())
    assert len(found) > 15
    for scheme in found:
        torch.manual_seed(2)
        module = posenc.torch.Attention(scheme, heads=2, head_dim=4, order="bhtd")
        listed = dict(posenc.score_parameters(scheme, heads=2, head_dim=4))
        assert {n: tuple(x.shape) for n, x in module.named_arrays().items()} == listed
        assert all(x.isfinite().all() for x in module.parameters()) and str(scheme).split()[0] in repr(module)
        assert len(module.state_dict()) == len(listed)
        torch.manual_seed(2)
        again = posenc.torch.Attention(scheme, heads=2, head_dim=4, order="bhtd")
        assert all(torch.equal(a, b) for a, b in zip(module.parameters(), again.parameters()))
    first, second = (posenc.torch.Attention("t5 bidirectional=false", heads=2, head_dim=4).relative_attention_bias.weight for _ in range(2))
    assert not torch.equal(first, second)


def test_a_module_is_transformers_t5():
    from transformers import T5Config
    from transformers.models.t5.modeling_t5 import T5Attention

    config = T5Config(d_model=16, d_kv=8, num_heads=2, is_decoder=True, dropout_rate=0.0)
    config._attn_implementation = "eager"
    theirs = T5Attention(config, has_relative_attention_bias=True, layer_idx=0).eval()
    ours = posenc.torch.Attention(posenc.T5(bidirectional=False), heads=2, head_dim=8, order="bhtd", causal=True)
    ours.load_state_dict({n: x for n, x in theirs.state_dict().items() if n in ours.state_dict()})
    x = torch.randn(2, 200, 16)
    q, k, v = (p(x).view(2, 200, 2, 8).transpose(1, 2) for p in (theirs.q, theirs.k, theirs.v))
    mask = torch.zeros(200, 200).masked_fill(torch.ones(200, 200, dtype=torch.bool).triu(1), -torch.inf)
    want = theirs(x, mask=mask[None, None])[0]
    got = theirs.o(ours(q, k, v).transpose(1, 2).reshape(2, 200, 16))
    assert (got - want).abs().max() < 1e-5
    table = ours.relative_attention_bias.weight
    for a, b in zip(torch.autograd.grad(got.square().sum(), table),
                    torch.autograd.grad(want.square().sum(), theirs.relative_attention_bias.weight)):
        assert (a - b).abs().max() < 1e-5 * b.abs().max()


def test_a_module_of_two_schemes_learns_and_is_kept():
    module = posenc.torch.Attention(["t5 bidirectional=true num_buckets=8", "t5 bidirectional=true num_buckets=8 axis=0"],
                                    heads=2, head_dim=4, order="bhtd")
    assert list(module.state_dict()) == ["0.table", "1.table"]
    q, k, v = (x.detach() for x in heads(dtype=torch.float32))
    optimiser = torch.optim.SGD(module.parameters(), lr=0.1)
    before = module(q, k, v).square().sum()
    before.backward()
    optimiser.step()
    assert module(q, k, v).square().sum() < before
    assert torch.compile(module, fullgraph=True, backend="aot_eager")(q, k, v).equal(module(q, k, v))
    with pytest.raises(ValueError, match=r"names must be of table, got \"row\""):
        posenc.torch.Attention(posenc.T5(bidirectional=True), heads=2, head_dim=4, names={"row": "x"})


def test_examples_of_docstrings_and_of_the_page():
    import doctest
    import pathlib
    import re

    from posenc.torch import _attention, _attention_module

    for module in (_attention, _attention_module):
        assert doctest.testmod(module).failed == 0
    page = pathlib.Path(__file__).resolve().parents[3] / "docs/python.md"
    blocks = [b for b in re.findall(r"^```py\n(.*?)^```", page.read_text(), re.M | re.S) if "posenc.torch.attend" in b]
    test = doctest.DocTestParser().get_doctest("\n".join(blocks), {}, "page", str(page), 0)
    assert len(test.examples) > 4 and doctest.DocTestRunner().run(test).failed == 0


def test_a_trace_is_refused_by_name():
    q = torch.randn(1, 2, 4, 8)
    with pytest.raises(RuntimeError, match=r"\[torch attend\] must not be recorded by torch.jit.trace"):
        torch.jit.trace(lambda q: posenc.torch.attend("alibi", q, q, q, order="bhtd"), (q,))
