# SPDX-License-Identifier: Apache-2.0
"""RerotationPlan: stored keys of every type, against a rotation in long double of what is stored."""
import ml_dtypes
import numpy
import posenc
import pytest

DIM, HEADS, SLOTS, POOL = 64, 2, 4, 6
ROPE = posenc.Rope(head_dim=DIM, base=1e4, pairing="half_split")
PAIRS = posenc.Rope(head_dim=DIM, base=1e4, pairing="interleaved")
PART = posenc.Rope(head_dim=DIM, rotary_dim=32, base=1e4, pairing="half_split")
YARN = ROPE + posenc.Yarn(factor=4, original_context=4096)
GAIN = 0.1 * numpy.log(4) + 1
TYPES = ["float64", "float32", "float16", "bfloat16", "q8_0"]


def packed(x):
    """Blocks of q8_0, as ggml's quantize_row_q8_0_ref makes them."""
    x = x.reshape(*x.shape[:-1], -1, 32)
    scale = numpy.abs(x).max(-1, keepdims=True) / 127
    numbers = numpy.round(x / numpy.where(scale > 0, scale, 1)).astype(numpy.int8)
    return numpy.concatenate([scale.astype(numpy.float16).view(numpy.uint8), numbers.view(numpy.uint8)], -1).reshape(*x.shape[:-2], -1)


def unpacked(blocks):
    blocks = blocks.reshape(*blocks.shape[:-1], -1, 34)
    scale = numpy.ascontiguousarray(blocks[..., :2]).view(numpy.float16).astype(float)
    return (scale * numpy.ascontiguousarray(blocks[..., 2:]).view(numpy.int8)).reshape(*blocks.shape[:-2], -1)


def stored(x, dtype):
    return packed(x) if dtype == "q8_0" else x.astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)


def read(keys, dtype):
    return unpacked(keys) if dtype == "q8_0" else keys.astype(float)


def turned(x, angle, gain=1.0, pairing="half_split"):
    """x [..., slots, heads, DIM] by angles [..., slots, pairs]; the other channels stay."""
    y, n = x.astype(numpy.longdouble), angle.shape[-1]
    a, b = (numpy.s_[..., :n], numpy.s_[..., n:2 * n]) if pairing == "half_split" else (numpy.s_[..., 0:2 * n:2], numpy.s_[..., 1:2 * n:2])
    cos, sin = gain * numpy.cos(angle)[..., None, :], gain * numpy.sin(angle)[..., None, :]
    y[a], y[b] = x[a] * cos - x[b] * sin, x[b] * cos + x[a] * sin
    return y, (a, b)


def moved(x, before, after, old, new, gain=1.0, pairing="half_split"):
    """What the keys should be, and their pairs."""
    f, g = (numpy.asarray(posenc.frequencies(e), numpy.longdouble) for e in (before, after))
    old, new = (numpy.asarray(p, numpy.longdouble)[..., None] for p in (old, new))
    return turned(x, new * g - old * f, gain, pairing)


def worst(got, want, pairs, dtype):
    """The largest error of a pair over its length; of q8_0 over the largest number of the head."""
    a, b = pairs
    error = numpy.hypot(got[a] - want[a], got[b] - want[b])
    length = numpy.abs(want).max(-1, keepdims=True) if dtype == "q8_0" else numpy.hypot(want[a], want[b])
    return (error / length).max()


CASES = {"shift": (ROPE, ROPE, 1.0, "half_split"), "interleaved": (PAIRS, PAIRS, 1.0, "interleaved"), "partial": (PART, PART, 1.0, "half_split"),
         "to yarn": (ROPE, YARN, GAIN, "half_split"), "from yarn": (YARN, ROPE, 1 / GAIN, "half_split")}


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("case", CASES)
def test_keys_move_within_the_bound(random, case, dtype):
    before, after, gain, pairing = CASES[case]
    keys = stored(random.normal(size=(2, SLOTS, HEADS, DIM)), dtype)
    far = 900 if dtype == "float64" else 100000  # for longer angles long double is too short
    old, new = random.integers(0, far, (2, SLOTS)), random.integers(0, far, SLOTS)
    plan = posenc.RerotationPlan(before, after, dtype)
    assert plan.dtype == dtype and plan.verdict == ("kept" if before is after else "moved")
    want, pairs = moved(read(keys, dtype), before, after, old, new, gain, pairing)
    out = numpy.zeros_like(keys)
    assert plan.move_into(keys, out, old_positions=old, new_positions=new, order="bthd") == "moved"
    assert 0 < worst(read(out, dtype), want, pairs, dtype) <= plan.bound()
    assert plan.move(keys, old_positions=old, new_positions=new, order="bthd") == "moved"
    assert keys.tobytes() == out.tobytes()
    if pairs[0][1].stop == 16:  # channels that do not rotate
        assert (read(keys, dtype)[..., 32:] == want[..., 32:]).all()


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("by_page", [False, True])
def test_listed_pages_move(random, dtype, by_page):
    pool = stored(random.normal(size=(POOL, SLOTS, HEADS, DIM)), dtype)
    pages, out, tokens = numpy.array([4, 0, 3], numpy.int32), [1, 0, 5], range(2, 5)
    first, target = random.integers(0, 9999, (3, 1)), random.integers(0, 9999, (3, 1))
    slots = numpy.arange(SLOTS)
    old, new = (first, target) if by_page else (first + slots, target + slots)
    want, pairs = moved(read(pool[pages], dtype), ROPE, ROPE, first + slots, target + slots)
    plan = posenc.RerotationPlan(ROPE, ROPE, dtype)
    other = numpy.zeros_like(pool)
    assert plan.move_pages_into(pool, other, pages, old_positions=old, new_positions=new, out=out, tokens=tokens, order="bthd") == "moved"
    before = pool.copy()
    assert plan.move_pages(pool, pages, old_positions=old, new_positions=new, out=out, tokens=tokens, order="bthd") == "moved"
    for i, page in enumerate(out):
        used = slice(0, tokens[i])
        assert worst(read(pool[page, used], dtype), want[i, used], pairs, dtype) <= plan.bound()
        assert pool[page, used].tobytes() == other[page, used].tobytes()
        assert pool[page, tokens[i]:].tobytes() == before[page, tokens[i]:].tobytes() and not other[page, tokens[i]:].view(numpy.uint8).any()
    untouched = [2, 3, 4]
    assert pool[untouched].tobytes() == before[untouched].tobytes() and not other[untouched].view(numpy.uint8).any()


def test_the_other_orders_and_a_part_of_wider_rows(random):
    """Keys [batch, heads, tokens, channels] beside values in one array, as a view."""
    both = random.normal(size=(2, HEADS, SLOTS, 2 * DIM)).astype(numpy.float32)
    values = both[..., DIM:].copy()
    want, _ = moved(both[..., :DIM].swapaxes(1, 2), ROPE, ROPE, numpy.arange(SLOTS), numpy.arange(9, 9 + SLOTS))
    plan = posenc.RerotationPlan(ROPE, ROPE)
    plan.move(both[..., :DIM], old_positions=range(SLOTS), new_positions=range(9, 9 + SLOTS), order="bhtd")
    assert numpy.abs(both[..., :DIM].swapaxes(1, 2) - want).max() < 2e-6 and (both[..., DIM:] == values).all()


def test_a_move_of_none_is_kept(random):
    keys = random.normal(size=(SLOTS, HEADS, DIM)).astype(numpy.float32)
    out, before = numpy.empty_like(keys), keys.copy()
    plan = posenc.RerotationPlan(YARN, YARN)
    assert plan.move(keys, old_positions=range(SLOTS), new_positions=range(SLOTS)) == "kept" and (keys == before).all()
    assert plan.move_into(keys, out, old_positions=range(SLOTS), new_positions=range(SLOTS)) == "kept" and (out == before).all()


@pytest.mark.parametrize("dtype", TYPES)
def test_the_bound_holds_after_many_moves(random, dtype):
    """By -3, 64 times: it grows, and stays below the bound."""
    keys = stored(random.normal(size=(SLOTS, HEADS, DIM)), dtype)
    start, plan, first = read(keys, dtype), posenc.RerotationPlan(ROPE, ROPE, dtype), numpy.arange(1000, 1000 + SLOTS)
    for i in range(64):
        plan.move(keys, old_positions=first - 3 * i, new_positions=first - 3 * (i + 1))
    want, pairs = moved(start, ROPE, ROPE, first, first - 192)
    a, b = pairs
    error = numpy.hypot(read(keys, dtype)[a] - want[a], read(keys, dtype)[b] - want[b])
    length = numpy.abs(start).max(-1, keepdims=True) if dtype == "q8_0" else numpy.hypot(want[a], want[b])
    assert plan.bound() < (error / length).max() <= plan.bound(64) and plan.bound(0) == 0


def test_a_plan_says_context_and_precision(random):
    keys = random.normal(size=(SLOTS, HEADS, DIM)).astype(numpy.float32)
    theirs = posenc.RotaryPlan(ROPE, precision="hf_float32")
    old, new = range(10**5, 10**5 + SLOTS), range(SLOTS)
    cached = theirs.rotate(keys, positions=old)
    posenc.RerotationPlan(theirs, ROPE).move(cached, old_positions=old, new_positions=new)
    assert numpy.abs(cached - posenc.rotate(ROPE, keys, positions=new)).max() < 2e-6


def keys_of(dtype="float32", shape=(SLOTS, HEADS, DIM)):
    return numpy.zeros((*shape[:-1], 68) if dtype == "q8_0" else shape, "uint8" if dtype == "q8_0" else dtype)


MOVE = {"old_positions": range(SLOTS), "new_positions": range(3, 3 + SLOTS)}
PLAN = posenc.RerotationPlan(ROPE, ROPE)
CUT = posenc.Rope(head_dim=DIM, rotary_dim=16, pairing="half_split")
XPOS = posenc.Xpos(head_dim=DIM, pairing="half_split", center=0)
DYNAMIC = ROPE + posenc.Dynamic(factor=4.0, trained_length=32, length_rule="per_call")
POOLED = keys_of(shape=(POOL, SLOTS, HEADS, DIM))
AT = {"old_positions": numpy.array([[0], [4]]), "new_positions": numpy.array([[4], [0]]), "order": "bthd"}


@pytest.mark.parametrize("call, message", [
    (lambda: posenc.RerotationPlan(ROPE, PAIRS), r"\[rerotate\] .*pairing"),
    (lambda: posenc.RerotationPlan(posenc.RotaryPlan(DYNAMIC, context=64), ROPE), r"\[rerotate\] "),
    (lambda: posenc.RerotationPlan(ROPE, ROPE, "int32"), r"\[rerotate\] dtype must be float64, float32, float16 or bfloat16, got \"int32\""),
    (lambda: posenc.RerotationPlan(CUT, CUT, "q8_0"), r"\[rerotate\] channels 0 to 31 share a q8_0 block.*set cut_blocks"),
    (lambda: posenc.RerotationPlan(XPOS, XPOS, "q8_0"), r"\[rerotate\] keys of xPos decay pair by pair"),
    (lambda: PLAN.bound(-1), r"\[rerotate\] moves must not be negative, got -1"),
    (lambda: PLAN.move(keys_of("float16"), **MOVE), r"\[rerotate\] keys must be of the plan's type f32, got \"f16\""),
    (lambda: PLAN.move(keys_of(shape=(SLOTS, HEADS, 32)), **MOVE), r"\[rerotate\] keys must have the head size of the plan, 64, got 32"),
    (lambda: PLAN.move(numpy.broadcast_to(keys_of(), (SLOTS, HEADS, DIM)), **MOVE), r"\[rerotate\] keys must be an array that may be written"),
    (lambda: PLAN.move(keys_of()[None], **MOVE), r"\[rerotate\] order must be given"),
    (lambda: PLAN.move(keys_of(), old_positions=range(3), new_positions=range(4)), r"\[rerotate\] old positions must be 4, got 3"),
    (lambda: PLAN.move(keys_of(), old_positions=None, new_positions=range(4)), r"\[rerotate\] old_positions must be given"),
    (lambda: PLAN.move(keys_of(), old_positions=range(4), new_positions=[0, 1, 2, 2**37 + 1]), r"\[rerotate\] new positions must be at most 2\^37"),
    (lambda: posenc.RerotationPlan(ROPE, ROPE, "q8_0").move(keys_of(), **MOVE), r"\[heads\] dtype of q8_0 blocks must be u8, got \"f32\""),
    (lambda: PLAN.move_into(POOLED[:2], POOLED[1:3], old_positions=range(4), new_positions=range(4), order="bthd"), r"\[rerotate\] "),
    (lambda: PLAN.move_pages(POOLED, [0, 6], **AT), r"\[rerotate\] page numbers must be within the 6 pages of the pool, got 6"),
    (lambda: PLAN.move_pages(POOLED, [2, 2], **AT), r"\[rerotate\] a page must not be written twice in one move, got 2"),
    (lambda: PLAN.move_pages(POOLED, [0, 1], out=[1, 2], **AT), r"\[rerotate\] a page that an entry of the list writes must not be read by another, got 1"),
    (lambda: PLAN.move_pages(POOLED, [0, 1], out=[], **AT), r"\[rerotate\] out must have a number for each of the 2 listed pages, got 0"),
    (lambda: PLAN.move_pages(POOLED, [0, 1], tokens=[5, 1], **AT), r"\[rerotate\] tokens of pages must be from 0 to the page size of 4, got 5"),
    (lambda: PLAN.move_pages(POOLED, None, **AT), r"\[rerotate\] pages must be given"),
    (lambda: PLAN.move_pages(POOLED, [0.5, 1], **AT), r"\[rerotate\] pages must be a list of whole numbers"),
    (lambda: PLAN.move_pages(POOLED, numpy.zeros((2, 2), int), **AT), r"\[rerotate\] pages must be a list of whole numbers"),
    (lambda: PLAN.move_pages(POOLED, "0:2", **AT), r"\[rerotate\] pages must be an array"),
])
def test_refusals(call, message):
    before = POOLED.copy()
    with pytest.raises(ValueError, match=message):
        call()
    assert (POOLED == before).all()


def test_cut_blocks_move_where_allowed(random):
    keys = stored(random.normal(size=(SLOTS, HEADS, DIM)), "q8_0")
    want, pairs = moved(read(keys, "q8_0"), CUT, CUT, numpy.arange(SLOTS), numpy.arange(SLOTS) + 5)
    plan = posenc.RerotationPlan(CUT, CUT, "q8_0", cut_blocks=True)
    assert plan.move(keys, old_positions=range(SLOTS), new_positions=range(5, 5 + SLOTS)) == "moved"
    assert worst(read(keys, "q8_0"), want, pairs, "q8_0") <= plan.bound()
