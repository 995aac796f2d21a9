# SPDX-License-Identifier: Apache-2.0
"""At the input: rows composed with x, tables looked up, their gradients; positions and grids; tables of other sizes."""
import numpy
import posenc
import pytest


def test_sinusoids_are_added(random):
    plan = posenc.InputPlan(posenc.Sinusoidal(width=8, layout="halves"), "float64")
    x = random.normal(size=(5, 8))
    angle = numpy.arange(5)[:, None] * 1e4 ** (-numpy.arange(4) / 4.0)
    rows = numpy.concatenate([numpy.sin(angle), numpy.cos(angle)], -1)
    assert numpy.abs(plan.apply(x, range(5)) - (x + rows)).max() < 1e-14
    assert numpy.abs(plan.apply(None, range(5)) - rows).max() < 1e-14
    same = x.copy()
    assert plan.apply(same, range(5), out=same) is same and numpy.abs(same - x - rows).max() < 1e-14
    batch = plan.apply(random.normal(size=(2, 5, 8)) * 0, range(5))
    assert batch.shape == (2, 5, 8) and numpy.abs(batch - rows).max() < 1e-14


def test_learned_tables_and_their_gradient(random):
    encoding = posenc.Learned(rows=6, width=4)
    assert posenc.input_parameters(encoding) == [("table", (6, 4))]
    table = random.normal(size=(6, 4))
    plan = posenc.InputPlan(encoding, "float64", parameters={"table": table})
    x = random.normal(size=(3, 4))
    assert (plan.apply(x, [5, 0, 5]) == x + table[[5, 0, 5]]).all()
    d = random.normal(size=(3, 4))
    d_x, d_parameters = plan.gradient(d, [5, 0, 5], x=x)
    want = numpy.zeros((6, 4))
    numpy.add.at(want, [5, 0, 5], d)
    assert (d_x == d).all() and numpy.abs(d_parameters["table"] - want).max() < 1e-14
    assert (plan.parameters["table"] == table).all()
    started = posenc.InputPlan(encoding, seed=3).parameters["table"]
    assert (started == posenc.InputPlan(encoding, seed=3).parameters["table"]).all() and started.std() > 0


def test_equal_parameters_lower_once(random):
    make = lambda table, **more: posenc.InputPlan("learned rows=9 width=4 l2norm=true", parameters={"table": table}, **more).apply(None, [3, 8])
    table = random.normal(size=(9, 4))
    before = posenc._posenc.lowered_count()
    first = make(table)
    assert posenc._posenc.lowered_count() == before + 1
    assert (make(table.copy()) == first).all() and posenc._posenc.lowered_count() == before + 1
    other = table.copy()
    other[8, 3] = numpy.nextafter(table[8, 3], 9)
    make(other)
    assert posenc._posenc.lowered_count() == before + 2
    assert make(table, dtype="float64").dtype == numpy.float64 and posenc._posenc.lowered_count() == before + 3
    assert (make(table) == first).all() and posenc._posenc.lowered_count() == before + 3


def test_embed_is_one_sum_and_a_norm(random):
    words, places = random.normal(size=(9, 4)), random.normal(size=(5, 4))
    ids = numpy.array([[1, 8, 3], [0, 0, 2]])
    gamma, beta = random.normal(size=(2, 4))
    parts = [posenc.EmbedPart(words, ids, scale=2.0), posenc.EmbedPart(places, numpy.arange(3), offset=1)]
    s = 2 * words[ids] + places[1:4]
    assert numpy.abs(posenc.embed(parts) - s).max() < 1e-14
    normed = (s - s.mean(-1, keepdims=True)) / numpy.sqrt(s.var(-1, keepdims=True) + 1e-5) * gamma + beta
    norm = posenc.EmbedNorm(gamma, beta, epsilon=1e-5)
    assert numpy.abs(posenc.embed(parts, norm=norm) - normed).max() < 1e-13
    d = random.normal(size=(2, 3, 4))
    (d_words, d_places), d_gamma, d_beta = posenc.embed_gradient(parts, d, norm=norm)
    assert d_places.shape == (5, 4) and numpy.abs(d_beta - d.sum((0, 1))).max() < 1e-13
    ends = []
    for e in (1e-6, -1e-6):
        words[0, 1] += e
        ends.append((posenc.embed(parts, norm=norm) * d).sum())
        words[0, 1] -= e
    assert abs((ends[0] - ends[1]) / 2e-6 - d_words[0, 1]) < 1e-6
    assert d_gamma.shape == (4,)
    start, beta_too = numpy.ones((9, 4), numpy.float32), numpy.zeros(4)
    posenc.embed_gradient_into(parts, d, d_parts=[start, None], d_beta=beta_too, norm=norm)
    assert (start == (1 + d_words).astype(numpy.float32)).all() and (beta_too == d_beta).all()
    for wrong, said in ((dict(d_parts=[start]), "for each part"), (dict(d_parts=[start.astype(numpy.float16), None]), "f64 or f32"),
                        (dict(d_parts=[start[:3], None]), "shape of its part"), (dict(d_parts=[None, None], d_gamma=gamma), "norm")):
        with pytest.raises(ValueError, match=r"\[embed\] .*" + said):
            posenc.embed_gradient_into(parts, d, **wrong)


def test_positions_and_grids():
    assert posenc.arange(3, 4, 2).tolist() == [3, 5, 7, 9]
    mask = numpy.array([[0, 1, 1], [1, 1, 1]])
    assert posenc.from_mask(mask, padded=1).tolist() == [[1, 0, 1], [0, 1, 2]]
    assert posenc.from_mask(mask.astype(bool), padded=0).tolist() == [[0, 0, 1], [0, 1, 2]]
    assert posenc.left_padded(mask, padded=0).tolist() == [[0, 0, 1], [0, 1, 2]]
    with pytest.raises(ValueError, match=r"\[right_padded\]"):
        posenc.right_padded(mask, padded=0)
    assert posenc.from_lengths([2, 0], 3, padded=-1).tolist() == [[0, 1, -1], [-1, -1, -1]]
    assert posenc.from_tokens(numpy.array([5, 7, 1]), padding_idx=1).tolist() == [2, 3, 1]
    assert posenc.packed([0, 2, 5]).tolist() == [0, 1, 0, 1, 2]
    assert posenc.document_index([0, 2, 5]).tolist() == [0, 0, 1, 1, 1]
    assert posenc.decode_positions([4, 9], 2).tolist() == [[4, 5], [9, 10]]
    assert posenc.shifted(range(3), -1).tolist() == [-1, 0, 1]
    assert posenc.repeated_axes(range(2), 3).tolist() == [[[0, 1]]] * 3
    assert posenc.grid([2, 3])[:, 0].tolist() == [[0, 0, 0, 1, 1, 1], [0, 1, 2, 0, 1, 2]]
    assert posenc.swap_xy(posenc.grid([2, 3]))[:, 0].tolist() == [[0, 1, 2, 0, 1, 2], [0, 0, 0, 1, 1, 1]]
    assert posenc.scaled_grid([2], [8.0]).tolist() == [0.0, 4.0]
    assert posenc.linspace_grid([3]).tolist() == [-1.0, 0.0, 1.0]
    assert posenc.patch_centres(2, 2)[:, 0].tolist() == [[-0.5, -0.5, 0.5, 0.5], [-0.5, 0.5, -0.5, 0.5]]
    assert posenc.merge_blocks(posenc.grid([2, 4]), 2, 4, 2)[1, 0].tolist() == [0, 1, 0, 1, 2, 3, 2, 3]
    assert posenc.with_special_tokens(range(1, 3), before=1).tolist() == [0, 1, 2]
    types = numpy.array([[0, 1, 1, 1, 1, 0]])
    positions, delta = posenc.mrope_positions(types, rule="qwen2_vl", images=[(1, 4, 4)])
    assert positions[:, 0].tolist() == [[0, 1, 1, 1, 1, 3], [0, 1, 1, 2, 2, 3], [0, 1, 2, 1, 2, 3]]
    assert delta.tolist() == [-2]
    assert posenc.shard_positions(8, 2, 0, layout="zigzag").tolist() == [0, 1, 6, 7]


def test_tables_of_another_size(random, tmp_path):
    table = random.normal(size=(9, 4)).astype(numpy.float32)
    bigger = posenc.extend(table, to="4x4", how="bicubic", grid="3x3")
    assert bigger.shape == (16, 4) and bigger.dtype == numpy.float32
    path = tmp_path / "weights.safetensors"
    posenc._posenc.save_arrays(str(path), {"pos": table, "other": table[:2]})
    made = posenc.extend(path, tensor="pos", to="4x4", how="bicubic", grid="3x3", output=tmp_path / "new.safetensors")
    arrays = posenc._posenc.arrays_of(open(made, "rb").read())
    assert (arrays["pos"] == bigger).all() and (arrays["other"] == table[:2]).all()


@pytest.mark.parametrize("call, says", [
    (lambda: posenc.InputPlan(posenc.Learned(rows=6, width=4)), r"parameters must hold table, which the encoding learns"),
    (lambda: posenc.InputPlan("learned rows=6 width=4", parameters={"tabel": numpy.zeros((6, 4))}), r"those that the encoding learns \(table\), got \"tabel\""),
    (lambda: posenc.InputPlan("learned rows=6 width=4", parameters={"table": numpy.zeros((4, 6))}), r"\[input_plan\] parameter table must be \[6, 4\]"),
    (lambda: posenc.InputPlan("learned rows=6 width=4", parameters=[1]), r"arrays by name \(parameters, inputs\) must be a dict, got \"list\""),
    (lambda: posenc.InputPlan("learned rows=6 width=4", seed=1).apply(numpy.zeros((1, 4), numpy.float32), [6]), r"\[input_plan\].*6"),
    (lambda: posenc.InputPlan("alibi"), r"encoding must be one that adds rows at the input, got \"alibi\""),
    (lambda: posenc.embed([]), r"at least one part must be given"),
    (lambda: posenc.embed([3]), r"parts must be EmbedParts, got \"int\""),
    (lambda: posenc.embed([posenc.EmbedPart(numpy.zeros((3, 2)), numpy.array([3]))]), r"\[embed\].*3"),
    (lambda: posenc.from_mask(numpy.array([2, 1]), padded=0), r"\[from_mask\].*2"),
    (lambda: posenc.shard_positions(7, 2, 0, layout="zigzag"), r"\[shard\]"),
    (lambda: posenc.mrope_positions(numpy.zeros((1, 3), int), rule="qwen9"), r"rule must be one of qwen2_vl.*got \"qwen9\""),
    (lambda: posenc.mrope_positions(numpy.zeros((1, 3), int), rule="qwen2_5_vl"), r"tokens_per_second must be given"),
    (lambda: posenc.mrope_positions(numpy.ones((1, 3), int), rule="qwen2_vl", images=[(1, 2)]), r"images must be \(frames, rows, columns\)"),
    (lambda: posenc.extend(numpy.zeros((3, 2)), to=4, how="cubic"), r"cubic"),
])
def test_what_is_wrong_is_refused(call, says):
    with pytest.raises(ValueError, match=says):
        call()
