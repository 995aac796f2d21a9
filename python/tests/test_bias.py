# SPDX-License-Identifier: Apache-2.0
"""What encodings add without queries and keys, its gradient, what follows from sizes, and attention by distance."""
import json

import numpy
import posenc
import pytest

T5 = "t5 bidirectional=false num_buckets=8 max_distance=16"


def test_the_registry_is_that_of_the_command_line():
    _, data, _ = posenc._posenc.command(["list", "--json"])
    assert posenc.schemes() == json.loads(data)


def test_missing_fields_follow_from_sizes():
    rope = posenc.complete("rope pairing=half_split + linear factor=2", head_dim=64)
    assert rope == posenc.Rope(head_dim=64, pairing="half_split") + posenc.Linear(factor=2)
    assert posenc.complete("transformer_xl", heads=8, head_dim=64) == posenc.TransformerXl(d_model=512)
    assert posenc.complete("transformer_xl", heads=8, head_dim=64, width=768) == posenc.TransformerXl(d_model=768)
    assert posenc.complete("learned", width=8, rows=4) == posenc.Learned(width=8, rows=4)
    assert posenc.complete("t5", causal=True) == posenc.T5(bidirectional=False)
    assert posenc.complete(posenc.Alibi(), heads=2) == posenc.Alibi()
    with pytest.raises(ValueError, match=r"rope: head_dim must be given"):
        posenc.complete("rope pairing=half_split", heads=8)
    with pytest.raises(ValueError, match=r'\[complete\] rows must be positive, got "0"'):
        posenc.complete("learned", width=8, rows=0)


def test_a_bias_and_its_gradient_lower_once(random):
    call = {"heads": 2, "positions": range(5), "parameters": {"table": random.normal(size=(8, 2))}}
    before = posenc._posenc.lowered_count()
    got = posenc.bias(T5, **call)
    posenc.bias_gradient(T5, numpy.ones_like(got), **call)
    assert posenc._posenc.lowered_count() == before + 1 and (posenc.bias(T5, **call) == got).all()


def test_a_bias_reads_arrays_and_writes_no_file(random, monkeypatch):
    monkeypatch.setattr("tempfile.TemporaryDirectory", None)
    table = random.normal(size=(8, 2))
    call = {"heads": 2, "positions": range(5), "key_positions": numpy.array([0, 2, 4]), "parameters": {"table": table}}
    got = posenc.bias(T5, **call)
    rows = [[min(max(i - j, 0), 4) for j in (0, 2, 4)] for i in range(5)]  # exact buckets 0 .. 3, then the first wide one
    assert (got == table[rows].transpose(2, 0, 1)).all()
    far = posenc.bias(T5, heads=2, positions="0:3", by_distance=True, parameters={"table": table})
    assert (far == table[:3].T).all()
    both = posenc.bias([T5, "alibi"], heads=2, positions=range(3), parameters={"table": table})
    assert numpy.abs(both - posenc.bias(T5, heads=2, positions=range(3), parameters={"table": table})
                     - posenc.bias("alibi", heads=2, positions=range(3))).max() < 1e-15
    started = posenc.score_initial(T5, heads=2, head_dim=64, seed=3)
    assert (posenc.bias(T5, heads=2, positions=range(4), start=3)
            == posenc.bias(T5, heads=2, positions=range(4), parameters=started)).all()


def test_a_bias_is_what_the_command_line_writes(tmp_path):
    posenc._posenc.command(["bias", "kerple kernel=log", "--heads=3", "--start=5", "--positions=0:6", "-o", str(tmp_path / "b.npy")])
    assert (numpy.load(tmp_path / "b.npy") == posenc.bias("kerple kernel=log", heads=3, positions=range(6), start=5)).all()


@pytest.mark.parametrize("scheme", ["t5 bidirectional=true num_buckets=8 max_distance=16", "kerple kernel=log", "fire",
                                    "clipped clip=2", "tupe positions=8 reset=false"])
@pytest.mark.parametrize("by_distance", [False, True])
def test_the_gradient_of_a_bias(random, scheme, by_distance):
    if by_distance and scheme.startswith(("fire", "tupe")):
        pytest.skip("reads positions, not distances alone")
    parameters = {n: random.uniform(0.2, 1.2, size=s) for n, s in posenc.score_parameters(scheme, heads=2, head_dim=8)}
    call = {"heads": 2, "head_dim": 8, "positions": range(5), "by_distance": by_distance}
    d = random.normal(size=posenc.bias(scheme, **call, parameters=parameters).shape)
    found = posenc.bias_gradient(scheme, d, **call, parameters=parameters)
    assert set(found) == {"parameters", "inputs"} and set(found["parameters"]) == set(parameters)
    for name, x in parameters.items():
        for at in list(numpy.ndindex(x.shape))[:: max(1, x.size // 20)]:
            before, values = x[at], []
            for step in (1e-6, -1e-6):
                x[at] = before + step
                values.append((posenc.bias(scheme, **call, parameters=parameters) * d).sum())
            x[at] = before
            want = (values[0] - values[1]) / 2e-6
            assert abs(found["parameters"][name][at] - want) < 2e-7 + 1e-8 * abs(want), (name, at)


def test_what_no_bias_says():
    for call, says in [
            (lambda: posenc.bias("shaw left=2", heads=2, positions=range(3), start=1), "must not read q, k or v"),
            (lambda: posenc.bias(T5, heads=2, positions=range(3)), r"parameters must hold what the encodings learn: table; start=SEED"),
            (lambda: posenc.bias(T5, heads=2, positions=range(3), start=1, parameters={}), "start draws the parameters"),
            (lambda: posenc.bias("alibi", heads=2, positions=range(3), layer=1), r"\[bias\] layer goes with a model"),
            (lambda: posenc.bias("alibi", heads=2, positions=range(3), key_positions=[0], by_distance=True), "key_positions must not"),
            (lambda: posenc.bias("alibi precision=falcon_bfloat16", heads=2, positions=range(3), by_distance=True), "rounded at the position of each"),
            (lambda: posenc.bias_gradient("alibi", numpy.zeros((2, 3)), heads=2, positions=range(3)), "d_bias must have the shape")]:
        with pytest.raises(ValueError, match=says):
            call()


def test_a_model_s_bias_still_comes_from_its_file(source):
    model = posenc.read_model(source / "conformance/model_attention/models/bloom")
    assert posenc.bias(model, heads=2, positions=range(3)).shape == (2, 3, 3)


def test_probabilities_and_locality_of_a_call(random):
    q, k, v = random.normal(size=(3, 4, 2, 8))
    a = posenc.attend("alibi", q, k, v, causal=True)
    p = a.probabilities
    assert (p == a.scores(["probabilities"])["probabilities"]).all()
    distance, mass = a.locality()
    assert distance.tolist() == list(range(-3, 4))
    for h in range(2):
        for d, got in zip(distance, mass[h]):
            want = sum(p[0, h, i, i - d] for i in range(4) if 0 <= i - d < 4) / 4
            assert abs(got - want) < 1e-15
    # A query that sees nothing counts in no mean.
    hidden = posenc.attend(None, q, k, v, causal=True, key_visible=numpy.array([[0, 1, 1, 1]], "u1")).locality()[1]
    assert numpy.abs(hidden.sum(1) - 1).max() < 1e-14


def test_messages_name_arguments():
    for call, says in [
            (lambda: posenc.plot("alibi", kind="bias"), r"^kind bias needs heads N"),
            (lambda: posenc.plot("alibi", language="de"), r"^language must be en or zh"),
            (lambda: posenc.plot("alibi", kind="locality", q=numpy.zeros((2, 1, 4))), r"^q and k go together"),
            (lambda: posenc.table("rope head_dim=8 pairing=half_split", positions=range(2), what="bias"), "^what bias needs heads N"),
            (lambda: posenc.plot("t5 bidirectional=true", heads=2, kind="bias", parameters={"table": numpy.zeros((3, 2))}),
             r"^parameters: table must have shape \[32, 2\], got \[3, 2\]")]:
        with pytest.raises(ValueError, match=says) as problem:
            call()
        assert "--" not in str(problem.value) and "/tmp" not in str(problem.value)


def test_pictures_of_arrays_and_several_encodings(random, tmp_path):
    q, k = random.normal(size=(2, 6, 2, 8))
    near = posenc.plot("alibi", kind="locality", q=q, k=k, mask="causal")
    assert "q and k are random" not in near.svg and "alibi, mask causal" in near.svg
    both = posenc.plot("alibi", kind="bias", heads=2, compare=["kerple kernel=log"], start=1, language="zh").svg
    assert "kerple kernel=log" in both and "\u504f\u7f6e" in both
    near.save(tmp_path / "near.svg")
    assert (tmp_path / "near.svg").read_text() == near.svg
