# SPDX-License-Identifier: Apache-2.0
"""Cached keys that move, tables that grow, gradients of frequencies, gains and positions."""
import threading

import ml_dtypes
import numpy
import posenc
import pytest
from conftest import rotated

ROPE = posenc.Rope(head_dim=16, base=1e4, pairing="half_split")
LINEAR = ROPE + posenc.Linear(factor=4.0)
YARN = ROPE + posenc.Yarn(factor=4, original_context=8192)
DYNAMIC = ROPE + posenc.Dynamic(factor=4.0, trained_length=32, length_rule="per_call")


@pytest.mark.parametrize("dtype, bound", {"float64": 1e-13, "float32": 2e-6, "bfloat16": 8e-2}.items())
@pytest.mark.parametrize("after", [ROPE, LINEAR, YARN], ids=["same", "linear", "yarn"])
def test_moved_keys_are_those_of_the_new_positions(random, dtype, bound, after):
    keys = random.normal(size=(2, 6, 3, 16)).astype(dtype)
    old, new = numpy.array([0, 5, 7, 900, 901, 4000]), numpy.array([9, 0, 100, 3, -2, 70])
    cached = posenc.rotate(ROPE, keys, positions=old, order="bthd")
    assert posenc.can_rerotate(ROPE, after)[0] == ("kept" if after is ROPE else "moved")
    assert posenc.rerotate_(cached, ROPE, after, old_positions=old, new_positions=new, order="bthd") is None
    want = posenc.rotate(after, keys, positions=new, order="bthd")
    assert numpy.abs(cached.astype(float) - want.astype(float)).max() < bound


def test_a_plan_says_context_and_precision(random):
    keys = random.normal(size=(4, 2, 16)).astype(numpy.float32)
    long, theirs = posenc.RotaryPlan(DYNAMIC, context=64), posenc.RotaryPlan(ROPE, precision="hf_float32")
    assert posenc.can_rerotate(long, ROPE)[0] == "refused"
    old, new = {"old_positions": range(10**5, 10**5 + 4)}, {"new_positions": range(40, 44)}
    cached = theirs.rotate(keys, positions=old["old_positions"])
    want, exactly = rotated(keys, range(40, 44), posenc.frequencies(ROPE)), cached.copy()
    posenc.rerotate_(cached, theirs, ROPE, **old, **new)
    assert numpy.abs(cached - want).max() < 2e-6
    posenc.rerotate_(exactly, ROPE, ROPE, **old, **new)
    assert numpy.abs(exactly - want).max() > 1e-4, "as if they had been rotated exactly"
    for other, said in ((posenc.Rope(head_dim=16, pairing="interleaved"), "pairing"), (posenc.Rope(head_dim=8, pairing="half_split"), "head")):
        verdict, reason = posenc.can_rerotate(ROPE, other)
        assert verdict == "refused" and said in reason
        with pytest.raises(ValueError, match=r"\[rerotate\] "):
            posenc.rerotate_(cached, ROPE, other, old_positions=range(4), new_positions=range(4))


def slope(f, array, where, e=1e-6):
    ends = []
    for step in (e, -e):
        moved = array.copy()
        moved[where] += step
        ends.append(f(moved))
    return (ends[0] - ends[1]) / (2 * e)


@pytest.mark.parametrize("keys", [False, True])
def test_gradients_of_the_phase_are_finite_differences(random, keys):
    frequency, positions = posenc.frequencies(YARN), numpy.array([[0.5, 3, -7.25], [11, 2, 1]])
    plan = posenc.RotaryPlan(YARN, "float64")
    gain = 0.1 * numpy.log(4) + 1
    q, d_q = random.normal(size=(2, 2, 3, 4, 16))
    k, d_k = random.normal(size=(2, 2, 3, 2, 16))
    given = {"k": k, "d_k": d_k} if keys else {}
    g = plan.phase_gradients(q, d_q=d_q, positions=positions, order="bthd", **given)

    def loss(frequency, gain, positions):
        pairs = [(q, d_q), (k, d_k)] if keys else [(q, d_q)]
        return sum(gain * (rotated(x[b], positions[b], frequency) * d[b]).sum() for x, d in pairs for b in range(2))

    assert {name: a.shape for name, a in g.items()} == {"frequency": (1, 1, 8), "gain": (1,), "position": (1, 2, 3)}
    for i in range(8):
        assert abs(slope(lambda f: loss(f, gain, positions), frequency, i) - g["frequency"][0, 0, i]) < 1e-5
    for i in numpy.ndindex(2, 3):
        assert abs(slope(lambda p: loss(frequency, gain, p), positions, i) - g["position"][0][i]) < 1e-5
    # The gain of this scaling: the loss grows by it in proportion.
    assert abs(loss(frequency, 1.0, positions) - g["gain"][0]) < 1e-9


def test_gradients_of_one_block_of_several(random):
    axial = posenc.parse("axial head_dim=16 axes_dim=[8,8] pairing=half_split order=blocks")
    plan = posenc.RotaryPlan(axial, "float64")
    q, d = random.normal(size=(2, 3, 2, 16))
    p = numpy.array([[[1.0, 2, 3]], [[5, 4, 3]]])
    found = []
    for block in range(8):
        try:
            found.append(plan.phase_gradients(q, d_q=d, positions=p, block=block)["position"])
        except ValueError as problem:
            assert "block must be one of the plan's" in str(problem)
            break
    total = sum(found)
    for i in ((0, 0, 1), (1, 0, 2)):
        assert abs(slope(lambda x: (plan.rotate(q, positions=x) * d).sum(), p, i) - total[i]) < 1e-6


@pytest.mark.parametrize("rows", ["float32", "float16", "bfloat16"])
def test_a_table_is_the_plan(random, rows):
    q, k = (random.normal(size=(2, 7, h, 16)).astype(numpy.float32) for h in (4, 1))
    plan, positions = posenc.RotaryPlan(YARN), numpy.array([0, 63, 5, 5, 1, 20, 62])
    want = plan.rotate(q, k, positions=positions, order="bthd")
    table = posenc.RotaryTable(YARN, 64, rows)
    assert table.size == 64 and table.bytes == 64 * 16 * table.rows().itemsize
    got = plan.rotate_table(q, k, table=table, positions=positions, order="bthd")
    bound = {"float32": 1e-6, "float16": 5e-3, "bfloat16": 4e-2}[rows]
    assert all(numpy.abs(a - b).max() < bound for a, b in zip(got, want))
    same = q.copy()
    assert plan.rotate_table(same, table=table, positions=positions, out=same, order="bthd") is same and (same == got[0]).all()
    back = plan.rotate_table(same, table=table, positions=positions, mode="inverse", order="bthd")
    assert numpy.abs(back - q).max() < bound * 4


def test_rows_of_a_table_stay_as_they_are():
    table = posenc.RotaryTable(ROPE, 8)
    rows = table.rows()
    before, plan = rows.copy(), posenc.RotaryPlan(ROPE)
    assert rows.shape == (8, 16) and not rows.flags.writeable
    assert (rows == plan.rows(range(8))).all()
    table.grow(100000)
    assert table.size == 100000 and (table.rows()[99990:] == plan.rows(range(99990, 100000))).all()
    table.replace(LINEAR)
    assert (table.rows()[:100] == posenc.RotaryPlan(LINEAR).rows(range(100))).all()
    q = numpy.ones((1, 1, 16), numpy.float32)
    want = posenc.rotate(LINEAR, q, positions=[99])
    assert numpy.abs(plan.rotate_table(q, table=table, positions=[99]) - want).max() < 1e-6
    del table
    assert (rows == before).all()
    wide = posenc.RotaryTable(ROPE, 3, ml_dtypes.bfloat16, layout="duplicated").rows()
    assert wide.dtype == ml_dtypes.bfloat16 and wide.shape == (3, 32) and wide[0].tolist() == [1] * 16 + [0] * 16


def test_a_table_grows_while_others_read(random):
    table, plan = posenc.RotaryTable(ROPE, 4, beyond="grow"), posenc.RotaryPlan(ROPE)
    q = random.normal(size=(1, 2, 16)).astype(numpy.float32)
    wrong = []

    def read(start):
        for p in range(start, 3000, 7):
            if numpy.abs(plan.rotate_table(q, table=table, positions=[p]) - plan.rotate(q, positions=[p])).max() > 1e-6:
                wrong.append(p)

    threads = [threading.Thread(target=read, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    table.grow(2000)
    for t in threads:
        t.join()
    assert not wrong and table.size >= 2999


@pytest.mark.parametrize("layout", ["half", "duplicated", "repeated", "pairs"])
def test_a_table_in_a_file(tmp_path, random, layout):
    table, plan = posenc.RotaryTable(YARN, 64), posenc.RotaryPlan(YARN)
    q = random.normal(size=(5, 2, 16)).astype(numpy.float32)
    for name in ("rows.npy", "rows.safetensors"):
        path = tmp_path / name
        table.save(path, layout=layout)
        says = layout if name.endswith("npy") else None
        mapped = posenc.RotaryTable.map(str(path), YARN, beyond="grow", layout=says)
        assert mapped.size == 64 and mapped.bytes == table.bytes * (1 if layout in ("half", "pairs") else 2)
        want = plan.rotate_table(q, table=table, positions=range(59, 64))
        assert (plan.rotate_table(q, table=mapped, positions=range(59, 64)) == want).all()
        plan.rotate_table(q, table=mapped, positions=range(60, 65))
        assert mapped.size >= 65  # in memory from now on; the file stays as it was
        assert posenc.RotaryTable.map(path, plan, layout=says).size == 64
        with pytest.raises(ValueError, match=r"\[rotary table\] "):
            posenc.RotaryTable.map(path, LINEAR, layout=says)
    if layout == "half":
        assert (numpy.load(tmp_path / "rows.npy") == table.rows()).all()


def test_frequencies_in_place_of_the_plans_own(random):
    q = random.normal(size=(3, 2, 16))
    plan = posenc.RotaryPlan(ROPE, "float64")
    own = posenc.frequencies(ROPE).reshape(1, 1, 8)
    assert (plan.with_frequencies(own).rotate(q, positions=[0, 5, 9]) == plan.rotate(q, positions=[0, 5, 9])).all()
    mine = random.uniform(0, 1, size=(2, 1, 8))
    got = plan.with_frequencies(mine).rotate(q, positions=[0, 5, 9])
    phase = numpy.array([0, 5, 9])[:, None, None] * mine[:, 0]
    a, b = q[..., :8], q[..., 8:]
    want = numpy.concatenate([a * numpy.cos(phase) - b * numpy.sin(phase), b * numpy.cos(phase) + a * numpy.sin(phase)], -1)
    assert numpy.abs(got - want).max() < 1e-14
    assert numpy.abs(plan.with_frequencies(mine, gain=1.25).rotate(q, positions=[0, 5, 9]) - 1.25 * want).max() < 1e-14
    assert (plan.with_frequencies(mine[::-1].astype(numpy.float32)[:, :, ::1]).dtype == "float64")


Q = numpy.zeros((4, 2, 16), numpy.float32)
PLAN = posenc.RotaryPlan(ROPE)
TABLE = posenc.RotaryTable(ROPE, 4)
MOVE = {"old_positions": range(4), "new_positions": range(4)}


@pytest.mark.parametrize("call, said", [
    (lambda: PLAN.rotate_table(Q, table=TABLE, positions=[0, 1, 2, 4]), r"\[rotary table\] position must lie in the table of 4 positions .*, got 4"),
    (lambda: PLAN.rotate_table(Q, table=TABLE, positions=[0, 1, 2, -1]), r"\[rotary table\] position must not be negative, got -1"),
    (lambda: PLAN.rotate_table(Q, table=TABLE, positions=[0.0, 1, 2, 3]), r"\[rotary table\] positions must be i64 or i32"),
    (lambda: PLAN.rotate_table(Q, table=PLAN.rows(range(4)), positions=range(4)), r"\[rotary\] table must be a RotaryTable, got"),
    (lambda: PLAN.rotate_table(Q, table=None, positions=range(4)), r"\[rotary\] table must be a RotaryTable, got"),
    (lambda: posenc.RotaryPlan(LINEAR).rotate_table(Q, table=TABLE, positions=range(4)), r"the table must have been built from the plan's spec"),
    (lambda: posenc.RotaryTable(ROPE, 4, "float64"), r"\[rotary table\] dtype must"),
    (lambda: posenc.RotaryTable(ROPE, -1), r"\[rotary table\] "),
    (lambda: posenc.RotaryTable(ROPE, 4, layout="wide"), r"\[rotary table\] layout must be one of half, duplicated"),
    (lambda: posenc.RotaryTable(ROPE, 4, beyond="wrap"), r"\[rotary table\] beyond must be one of refuse"),
    (lambda: posenc.RotaryTable("alibi", 4), r"\[alibi\] "),
    (lambda: posenc.RotaryTable(7, 4), r"\[rotary table\] "),
    (lambda: TABLE.save(7), r"\[rotary table\] path must be a path, got \"int\""),
    (lambda: TABLE.save("rows.txt"), r"npy"),
    (lambda: TABLE.save("rows.npy", layout="wide"), r"\[rotary table\] layout must be one of half, duplicated"),
    (lambda: posenc.RotaryTable.map("no such file.npy", ROPE), r"no such file.npy"),
    (lambda: posenc.RotaryTable.map(None, ROPE), r"\[rotary table\] path must be a path, got \"NoneType\""),
    (lambda: PLAN.with_frequencies(numpy.zeros((1, 1, 7))), r"\[rotary\] frequencies must be float64 or float32, \[heads or 1, 1, 8\], got \"float64 \[1, 1, 7\]\""),
    (lambda: PLAN.with_frequencies(numpy.zeros((1, 1, 8), int)), r"got \"int64 \[1, 1, 8\]\""),
    (lambda: PLAN.with_frequencies(None), r"\[rotary\] frequencies must be an array"),
    (lambda: PLAN.with_frequencies(numpy.full((1, 1, 8), numpy.inf)), r"finite"),
    (lambda: posenc.RotaryPlan(ROPE, precision="hf_float32").with_frequencies(numpy.zeros((1, 1, 8))), r"precision exact, got \"hf_float32\""),
    (lambda: TABLE.grow(-1), r"\[rotary table\] "),
    (lambda: TABLE.replace(posenc.Rope(head_dim=8, pairing="half_split")), r"\[rotary table\] "),
    (lambda: posenc.rerotate_(Q.astype(complex), ROPE, ROPE, **MOVE), r"\[rerotate\] keys must have elements of float64"),
    (lambda: posenc.rerotate_(Q[None], ROPE, ROPE, **MOVE), r"\[rerotate\] order must be given"),
    (lambda: posenc.rerotate_(Q, ROPE, ROPE, old_positions=range(3), new_positions=range(4)), r"\[rerotate\] old positions must be 4, got 3"),
    (lambda: posenc.rerotate_(Q, ROPE, ROPE, old_positions=range(4), new_positions=None), r"\[rerotate\] new_positions must be given"),
    (lambda: posenc.rerotate_(numpy.broadcast_to(Q, Q.shape), ROPE, ROPE, **MOVE), r"\[rerotate\] keys must be an array that may be written"),
    (lambda: PLAN.phase_gradients(Q, positions=range(4)), r"\[rotary\] d_"),
    (lambda: PLAN.phase_gradients(Q, d_q=Q[:3], positions=range(4)), r"\[rotary\] "),
    (lambda: PLAN.phase_gradients(Q, d_q=Q, positions=range(4), block=1), r"\[rotary\] block must be one of the plan's, got 1"),
    (lambda: posenc.RotaryPlan(ROPE, precision="hf_float32").phase_gradients(Q, d_q=Q, positions=range(4)), r"gradients of the phase are those of precision exact"),
])
def test_what_is_refused(call, said):
    with pytest.raises(ValueError, match=said):
        call()
