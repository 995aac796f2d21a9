# SPDX-License-Identifier: Apache-2.0
"""posenc.torch.RerotationPlan: tensors move in place, as numpy's arrays do."""
import numpy
import posenc
import pytest
import torch
from posenc.torch import RerotationPlan

ROPE = posenc.Rope(head_dim=64, base=1e4, pairing="half_split")
LINEAR = ROPE + posenc.Linear(factor=4.0)
TYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
MOVE = {"old_positions": torch.arange(4), "new_positions": torch.arange(10, 14)}


def reference(keys, old, new, before=ROPE, after=ROPE):
    """keys [..., tokens, heads, channels] in long double."""
    x, n = keys.double().numpy().astype(numpy.longdouble), keys.shape[-1] // 2
    f, g = (posenc.frequencies(e).astype(numpy.longdouble) for e in (before, after))
    angle = numpy.multiply.outer(new.numpy(), g) - numpy.multiply.outer(old.numpy(), f)
    cos, sin, a, b = numpy.cos(angle)[:, None], numpy.sin(angle)[:, None], x[..., :n], x[..., n:]
    return numpy.concatenate([a * cos - b * sin, b * cos + a * sin], -1)


def error(got, want):
    """Of pairs over their lengths."""
    d, n = got.double().numpy() - want, want.shape[-1] // 2
    return (numpy.hypot(d[..., :n], d[..., n:]) / numpy.hypot(want[..., :n], want[..., n:])).max()


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("after", [ROPE, LINEAR], ids=["shift", "rescale"])
def test_tensors_move_in_place(dtype, after):
    keys = torch.randn(2, 3, 4, 64, generator=torch.Generator().manual_seed(1), dtype=torch.float64).to(dtype)  # bhtd
    plan = RerotationPlan(ROPE, after, dtype)
    want = reference(keys.transpose(1, 2), MOVE["old_positions"], MOVE["new_positions"], ROPE, after).swapaxes(1, 2)
    out, version, place = torch.empty_like(keys), keys._version, keys.data_ptr()
    assert plan.dtype is dtype and plan.verdict == ("kept" if after is ROPE else "moved")
    assert plan.move_into(keys, out, layout="bhtd", **MOVE) == "moved" and out._version == 1 and keys._version == version
    assert plan.move(keys, layout="bhtd", **MOVE) == "moved"
    assert torch.equal(keys, out) and keys._version == version + 1 and keys.data_ptr() == place
    assert 0 < error(keys, want) <= plan.bound()


def test_pages_and_blocks_are_those_of_numpy():
    generator = torch.Generator().manual_seed(2)
    for dtype, pool in (("q8_0", torch.randint(0, 100, (6, 4, 2, 68), generator=generator, dtype=torch.uint8)),
                        (torch.bfloat16, torch.randn(6, 4, 2, 64, generator=generator).bfloat16())):
        plan, own = RerotationPlan(ROPE, ROPE, dtype), posenc.RerotationPlan(ROPE, ROPE, str(dtype).removeprefix("torch."))
        assert plan.dtype == dtype and plan.bound(64) == own.bound(64)
        pages, out, tokens = torch.tensor([4, 0], dtype=torch.int32), torch.tensor([1, 2]), [3, 4]
        at = {"old_positions": torch.tensor([[100], [7]]), "new_positions": torch.tensor([[0], [4]])}
        theirs, other = pool.clone(), torch.zeros_like(pool)
        assert own.move_pages(theirs, pages, out=out, tokens=tokens, order="bthd", **at) == "moved"
        assert plan.move_pages_into(pool, other, pages, out=out, tokens=tokens, layout="bthd", **at) == "moved"
        assert plan.move_pages(pool, pages, out=out, tokens=tokens, layout="bthd", **at) == "moved"
        assert torch.equal(pool, theirs) and pool._version == 1
        assert torch.equal(other[1, :3], pool[1, :3]) and torch.equal(other[2], pool[2]) and not other[[0, 3, 4, 5]].any()


def test_a_move_of_none_is_kept():
    keys = torch.randn(4, 2, 64)
    before = keys.clone()
    assert RerotationPlan(ROPE, ROPE).move(keys, old_positions=range(4), new_positions=range(4)) == "kept"
    assert torch.equal(keys, before) and keys._version == 0
    assert torch.equal(torch.from_numpy(numpy.asarray(keys)), before)


@pytest.mark.parametrize("keys, message", [
    (lambda: torch.zeros(4, 2, 64, requires_grad=True), r"\[torch rerotate\] keys must not require a gradient; use keys.detach\(\)"),
    (lambda: torch.zeros(4, 2, 64, device="meta"), r"\[torch rerotate\] tensors must be dense ones with memory"),
    (lambda: torch.zeros(4, 2, 64).to_sparse(), r"\[torch rerotate\] keys must be a dense tensor of numbers"),
    (lambda: numpy.zeros((4, 2, 64), "float32"), r"\[torch rerotate\] keys must be a tensor, got \"ndarray\""),
    (lambda: torch.zeros(4, 2, 64).bfloat16(), r"\[rerotate\] keys must be of the plan's type f32, got \"bf16\""),
    (lambda: torch.zeros(4, 1, 64).expand(4, 2, 64), r"\[rerotate\] elements of keys must not share memory"),
])
def test_refusals(keys, message):
    with pytest.raises(ValueError, match=message):
        RerotationPlan(ROPE, ROPE).move(keys(), **MOVE)


def test_transforms_are_refused():
    plan = RerotationPlan(ROPE, ROPE)
    with pytest.raises(ValueError, match=r"\[torch rerotate\] tensors must be dense"):
        torch.vmap(lambda x: plan.move(x, **MOVE))(torch.zeros(2, 4, 2, 64))
