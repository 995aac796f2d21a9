# SPDX-License-Identifier: Apache-2.0
"""Rotation of tensors: numbers, gradients, versions, refusals."""
import posenc
import pytest
import torch
from posenc import torch as pt

ROPE = posenc.Rope(head_dim=16, pairing="half_split")
WIDE = {torch.float64: 1e-12, torch.float32: 2e-6, torch.bfloat16: 2e-2, torch.float16: 2e-3}


def qk(dtype=torch.float64, b=2, h=4, kv=2, t=5, d=16, layout="bhtd", **more):
    q, k = torch.randn(b, h, t, d, dtype=dtype), torch.randn(b, kv, t, d, dtype=dtype)
    if layout == "bthd":
        q, k = q.transpose(1, 2), k.transpose(1, 2)
    if layout == "tbhd":
        q, k = q.permute(2, 0, 1, 3), k.permute(2, 0, 1, 3)
    return q.requires_grad_(**more) if more else q, k.requires_grad_(**more) if more else k


def as_bhtd(x, layout):
    return {"bhtd": x, "bthd": x.transpose(1, 2), "tbhd": x.permute(1, 2, 0, 3) if x.dim() == 4 else x}[layout]


@pytest.mark.parametrize("dtype", WIDE)
@pytest.mark.parametrize("layout", ["bhtd", "bthd", "tbhd"])
@pytest.mark.parametrize("pairing", ["half_split", "interleaved"])
def test_rotate_is_the_definition(dtype, layout, pairing, turned, phase):
    q, k = qk(dtype, layout=layout)
    x = posenc.Rope(head_dim=16, pairing=pairing, rotary_dim=12)
    cos, sin = phase(5, 6)
    want = [turned(as_bhtd(y, layout).double(), cos, sin, pairing) for y in (q, k)]
    got = pt.rotate(x, q, k, positions=torch.arange(5), layout=layout)
    for a, b, before in zip(got, want, (q, k)):
        assert a.dtype is dtype and a.stride() == before.stride()
        assert (as_bhtd(a, layout).double() - b).abs().max() < WIDE[dtype] * 4
    copies = q.clone(), k.clone()
    pt.rotate_(x, *copies, positions=torch.arange(5), layout=layout)
    assert all(torch.equal(a, b) for a, b in zip(copies, got))
    assert torch.equal(pt.rotate(x, q, positions=torch.arange(5), layout=layout), got[0])
    assert torch.equal(pt.rotate(x, None, k, positions=torch.arange(5), layout=layout), got[1])


@pytest.mark.parametrize("columns", ["half", "duplicated", "repeated"])
@pytest.mark.parametrize("pairing", ["half_split", "interleaved"])
@pytest.mark.parametrize("dtype", WIDE)
def test_rows_are_the_definition(dtype, columns, pairing, turned, phase):
    q, k = qk(dtype)
    cos, sin = phase(5, 8)
    wide = {"half": lambda x: x, "duplicated": lambda x: torch.cat([x, x], -1), "repeated": lambda x: x.repeat_interleave(2, -1)}
    rows = [wide[columns](x).to(dtype) for x in (cos, sin)]
    for c, s in (rows, [x.expand(2, 5, -1) for x in rows]):
        got = pt.rotate_rows(q, k, c, s, pairing=pairing, columns=columns, layout="bhtd")
        want = [turned(y.double(), cos, sin, pairing) for y in (q, k)]
        assert all((a.double() - b).abs().max() < WIDE[dtype] * 8 for a, b in zip(got, want))
        q2, k2 = q.clone(), k.clone()
        assert pt.rotate_rows_(q2, k2, c, s, pairing=pairing, columns=columns, layout="bhtd") is None
        assert torch.equal(q2, got[0]) and torch.equal(k2, got[1])
        assert torch.equal(pt.rotate_rows(q, None, c, s, pairing=pairing, columns=columns, layout="bhtd"), got[0])


def test_rows_of_a_table_and_other_orders(turned, phase):
    q, k = qk()
    cos, sin = phase(50, 8)
    index = torch.tensor([[3, 1, 40, 7, 7], [0, 1, 2, 3, 4]])
    got = pt.rotate_rows(q, k, cos, sin, index=index, pairing="half_split", columns="half", layout="bhtd")
    want = turned(q, cos[index][:, None], sin[index][:, None], "half_split")
    assert (got[0] - want).abs().max() < 1e-12
    a = pt.rotate_rows(q, k, cos[:5], sin[:5], pairing="interleaved", columns="half", layout="bhtd", output_order="even_then_odd")[0]
    b = turned(q, cos[:5], sin[:5], "interleaved")
    assert (a - torch.cat([b[..., ::2], b[..., 1::2]], -1)).abs().max() < 1e-12
    a = pt.rotate_rows(q, None, cos[:5, :4], sin[:5, :4], pairing="half_split", columns="half", layout="bhtd", offset=8)
    assert torch.equal(a[..., :8], q[..., :8])
    assert (a[..., 8:] - turned(q[..., 8:], cos[:5, :4], sin[:5, :4], "half_split")).abs().max() < 1e-12


def test_every_rotary_scheme_with_scalings():
    for x in (ROPE + posenc.Yarn(factor=4, original_context=64), posenc.parse("xpos head_dim=16 center=2 pairing=interleaved"),
              posenc.Rope(head_dim=16, pairing="half_split", rotary_dim=8), "rope head_dim=16 pairing=interleaved output_order=even_then_odd"):
        q, k = qk(torch.float64)
        got = pt.rotate(x, q, k, positions=torch.arange(5), layout="bhtd")
        want = posenc.rotate(x, q.numpy(), k.numpy(), positions=range(5), order="bhtd")
        assert all((a.numpy() == b).all() for a, b in zip(got, want))
    q, k = qk()
    p = torch.randint(0, 9, (3, 2, 5))
    x = posenc.Mrope(head_dim=16, pairing="half_split", sections=[4, 2, 2], layout="chunked")
    got = pt.rotate(x, q, k, positions=p, layout="bhtd")
    assert (got[1].numpy() == posenc.rotate(x, q.numpy(), k.numpy(), positions=p.numpy(), order="bhtd")[1]).all()


def test_one_token_of_a_fused_projection(phase):
    """Axes of size 1 may have any stride: q and k of one buffer do not overlap."""
    qkv = torch.randn(3, 1, (4 + 2 + 2) * 16)
    q, k = qkv[..., :64].view(3, 1, 4, 16).transpose(1, 2), qkv[..., 64:96].view(3, 1, 2, 16).transpose(1, 2)
    want = pt.rotate(ROPE, q.clone(), k.clone(), positions=torch.tensor([9]), layout="bhtd")
    v = qkv[..., 96:].clone()
    pt.rotate_(ROPE, q, k, positions=torch.tensor([9]), layout="bhtd")
    assert torch.equal(q, want[0]) and torch.equal(k, want[1]) and torch.equal(qkv[..., 96:], v)
    cos, sin = (x[9:].float() for x in phase(10, 8))
    want = pt.rotate_rows(q.clone(), k.clone(), cos, sin, pairing="half_split", columns="half", layout="bhtd")
    pt.rotate_rows_(q, k, cos, sin, pairing="half_split", columns="half", layout="bhtd")
    assert torch.equal(q, want[0]) and torch.equal(k, want[1]) and torch.equal(qkv[..., 96:], v)


def rows_call(cos, sin, **more):
    return lambda q, k: pt.rotate_rows(q, k, cos, sin, pairing="half_split", columns="half", layout="bhtd", **more)


def test_gradients_of_q_and_k(phase):
    q, k = qk(requires_grad=True)
    p = torch.arange(5)
    for f in (lambda q, k: pt.rotate(ROPE, q, k, positions=p, layout="bhtd"),
              lambda q, k: pt.rotate("xpos head_dim=16 center=2 pairing=half_split", q, k, positions=p, layout="bhtd"),
              lambda q, k: pt.rotate("xpos head_dim=16 center=2 pairing=half_split", None, k, positions=p, layout="bhtd"),
              lambda q, k: pt.rotate(ROPE + posenc.Yarn(factor=4, original_context=64), q, k, positions=p, layout="bhtd", mode="gradient"),
              lambda q, k: pt.rotate("rope head_dim=16 pairing=interleaved output_order=even_then_odd", q, k, positions=p, layout="bhtd"),
              rows_call(*phase(5, 8)), rows_call(*phase(5, 8), mode="gradient"), rows_call(*phase(5, 6))):
        assert torch.autograd.gradcheck(f, (q, k), fast_mode=True)
        assert torch.autograd.gradgradcheck(f, (q, k), fast_mode=True)
    for mode in ("inverse", "shift"):
        with pytest.raises(RuntimeError, match=f'modes forward and gradient, got "{mode}"'):
            pt.rotate(ROPE, q, k, positions=p, layout="bhtd", mode=mode)[0].sum().backward()
    with pytest.raises(RuntimeError, match="positions must not require a gradient"):
        torch.ops.posenc.rotate(q, p.double().requires_grad_(), str(ROPE), "bhtd", "forward", None, False)


@pytest.mark.parametrize("columns", ["half", "duplicated", "repeated"])
def test_gradients_of_cos_and_sin(columns):
    q, k = qk(requires_grad=True)
    width = 8 if columns == "half" else 16
    for shape in ((5, width), (2, 5, width)):
        cos, sin = (torch.randn(shape, dtype=torch.float64, requires_grad=True) for _ in range(2))
        f = lambda q, k, c, s: pt.rotate_rows(q, k, c, s, pairing="interleaved", columns=columns, layout="bhtd")
        assert torch.autograd.gradcheck(f, (q, k, cos, sin), fast_mode=True)
        back = lambda q, c, s: pt.rotate_rows(q, None, c, s, pairing="interleaved", columns=columns, layout="bhtd", mode="gradient")
        assert torch.autograd.gradcheck(back, (q, cos, sin), fast_mode=True)
        g = torch.autograd.grad(f(q, k, cos, sin)[0].pow(2).sum(), [q, cos], create_graph=True)
        with pytest.raises(RuntimeError, match="gradient of cos and sin has no second derivative"):
            g[1].sum().backward(retain_graph=True)
    index = torch.tensor([0, 2, 2, 1, 0])
    cos, sin = (torch.randn(3, width, dtype=torch.float64, requires_grad=True) for _ in range(2))
    f = lambda c, s: pt.rotate_rows(q, k, c, s, index=index, pairing="half_split", columns=columns, layout="bhtd")
    assert torch.autograd.gradcheck(f, (cos, sin), fast_mode=True)


CALLS = {"function": (pt.rotate_, lambda x, p: pt.rotate_(ROPE, x, positions=p)),
         "operator": (torch.ops.posenc.rotate_, lambda x, p: torch.ops.posenc.rotate_(x, p, str(ROPE), None, "forward", None, False))}


@pytest.mark.parametrize("way", CALLS)
def test_in_place_with_history(way):
    call, p = CALLS[way][1], torch.arange(5)
    leaf = torch.randn(5, 2, 16, requires_grad=True)
    for x in (leaf, leaf * 2, (leaf * 2)[:, :1], leaf.view(5, 1, 2, 16)[:, 0]):
        with pytest.raises(RuntimeError, match="must not require a gradient"):
            call(x, p)
    with torch.no_grad():
        call(leaf, p)  # as an initialiser may
    assert leaf.requires_grad and leaf.is_leaf
    with pytest.raises(RuntimeError, match="must not require a gradient"):
        pt.rotate_rows_(torch.randn(5, 2, 16), None, torch.randn(5, 8, requires_grad=True), torch.randn(5, 8), pairing="half_split", columns="half")
    # What backward saved was overwritten: torch must see it.
    x, w = torch.randn(5, 2, 16), torch.randn(5, 2, 16, requires_grad=True)
    y, before = (x * w).sum(), x._version
    call(x, p)
    assert x._version == before + 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()
    base = torch.randn(5, 4, 16)
    part, before = base[:, 1:3], base._version
    call(part, p)
    assert base._version == before + 1 == part._version
    with torch.inference_mode():
        call(torch.randn(5, 2, 16), p)


def test_views_of_negated_numbers():
    z = torch.randn(5, 2, 16, dtype=torch.complex64)
    x = z.conj().imag
    assert x.is_neg()
    want = pt.rotate(ROPE, x.clone().resolve_neg(), positions=torch.arange(5))
    assert torch.equal(pt.rotate(ROPE, x, positions=torch.arange(5)).resolve_neg(), want)
    assert torch.equal(torch.ops.posenc.rotate(x, torch.arange(5), str(ROPE), None, "forward", None, False).resolve_neg(), want)
    pt.rotate_(ROPE, x, positions=torch.arange(5))
    assert torch.equal(x.resolve_neg(), want) and torch.equal(z.imag, -want)
    cos = torch.randn(5, 8, dtype=torch.complex64).conj().imag
    q = torch.randn(5, 2, 16)
    a, b = (pt.rotate_rows(q, None, c, c, pairing="half_split", columns="half") for c in (cos, cos.resolve_neg().clone()))
    assert torch.equal(a, b)


class Watching(torch.Tensor):
    seen = []

    @classmethod
    def __torch_function__(cls, f, types, args=(), kwargs=None):
        cls.seen.append(str(f))
        return super().__torch_function__(f, types, args, kwargs or {})


def test_subclasses_and_modes():
    x = torch.randn(5, 2, 16)
    want = pt.rotate(ROPE, x, positions=torch.arange(5))
    got = pt.rotate(ROPE, x.as_subclass(Watching), positions=torch.arange(5))
    assert type(got) is Watching and torch.equal(got.as_subclass(torch.Tensor), want) and "posenc" in Watching.seen[-1]
    from torch._subclasses import FakeTensorMode
    from torch.utils._python_dispatch import TorchDispatchMode
    with FakeTensorMode() as mode:
        fake = pt.rotate(ROPE, mode.from_tensor(x), positions=torch.arange(5))
        assert type(fake).__name__ == "FakeTensor" and fake.shape == x.shape

    class Log(TorchDispatchMode):
        calls = []

        def __torch_dispatch__(self, f, types, args=(), kwargs=None):
            self.calls.append(str(f))
            return f(*args, **(kwargs or {}))

    with Log():
        pt.rotate(ROPE, x, positions=torch.arange(5))
        pt.rotate_(ROPE, x.clone(), positions=torch.arange(5))
    assert {"posenc.rotate.default", "posenc.rotate_.default"} <= set(Log.calls)

    class Functions(torch.overrides.TorchFunctionMode):
        calls = []

        def __torch_function__(self, f, types, args=(), kwargs=None):
            self.calls.append(str(f))
            return f(*args, **(kwargs or {}))

    with Functions():
        pt.rotate(ROPE, x, positions=torch.arange(5))
    assert "posenc.rotate.default" in Functions.calls
    meta = pt.rotate(ROPE, x.to("meta"), positions=torch.arange(5, device="meta"))
    assert meta.is_meta and meta.shape == x.shape


def test_leaf_and_parameter():
    w = torch.nn.Parameter(torch.randn(5, 2, 16))
    y = pt.rotate(ROPE, w, positions=torch.arange(5))
    assert type(y) is torch.Tensor and not y.is_leaf
    y.sum().backward()
    assert w.grad is not None


WRONG = {
    "positions": (ValueError, r"positions", lambda x: pt.rotate(ROPE, x, positions=torch.arange(4))),
    "dtype": (ValueError, r"complex64", lambda x: pt.rotate(ROPE, x.to(torch.complex64), positions=torch.arange(5))),
    "integers": (ValueError, r"\[", lambda x: pt.rotate(ROPE, x.to(torch.int64), positions=torch.arange(5))),
    "head_dim": (ValueError, r"\[rotary\].*16", lambda x: pt.rotate(ROPE, x[..., :8], positions=torch.arange(5))),
    "axes": (ValueError, r"layout must be given", lambda x: pt.rotate(ROPE, x[None], positions=torch.arange(5))),
    "layout": (ValueError, r"bhdt", lambda x: pt.rotate(ROPE, x[None], positions=torch.arange(5), layout="bhdt")),
    "mode": (ValueError, r"mode must be", lambda x: pt.rotate(ROPE, x, positions=torch.arange(5), mode="backward")),
    "positions type": (ValueError, r"i64, i32 or f64", lambda x: pt.rotate(ROPE, x, positions=torch.arange(5.0))),
    "no tensor": (ValueError, r"positions must be a tensor", lambda x: pt.rotate(ROPE, x, positions=range(5))),
    "sparse": (ValueError, r"q must be a dense tensor of numbers, got .torch.sparse_coo", lambda x: pt.rotate(ROPE, x.to_sparse(), positions=torch.arange(5))),
    "nested": (ValueError, r"q must be a dense tensor of numbers, got .nested", lambda x: pt.rotate(
        ROPE, torch.nested.nested_tensor([x[0], x[1]]), positions=torch.arange(5))),
    "quantized": (ValueError, r"dtype must be float64.*got .qint8", lambda x: pt.rotate_(
        ROPE, torch.quantize_per_tensor(x, 0.1, 0, torch.qint8), positions=torch.arange(5))),
    "numpy": (ValueError, r"q must be a tensor", lambda x: pt.rotate(ROPE, x.numpy(), positions=torch.arange(5))),
    "neither": (ValueError, r"q or k must be given", lambda x: pt.rotate(ROPE, None, positions=torch.arange(5))),
    "pairing": (ValueError, r"pairing must", lambda x: pt.rotate_rows(x, None, x[:, 0], x[:, 0], pairing="half", columns="half")),
    "columns": (ValueError, r"columns must", lambda x: pt.rotate_rows(x, None, x[:, 0], x[:, 0], pairing="half_split", columns="all")),
    "too wide": (ValueError, r"16", lambda x: pt.rotate_rows(x, None, x[:, 0], x[:, 0], pairing="half_split", columns="half")),
    "written twice": (ValueError, r"overlap|stride", lambda x: pt.rotate_(ROPE, x[:, :1].expand(5, 2, 16), positions=torch.arange(5))),
    "encoding": (ValueError, r"alibi", lambda x: pt.rotate("alibi", x, positions=torch.arange(5))),
}


@pytest.mark.parametrize("what", WRONG)
def test_refusals(what):
    error, rule, call = WRONG[what]
    x = torch.randn(5, 2, 16)
    before = x.clone()
    with pytest.raises(error, match=rule):
        call(x)
    assert torch.equal(x, before)
