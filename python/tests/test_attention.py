# SPDX-License-Identifier: Apache-2.0
"""Attention with terms: against a plain one, every gradient against finite differences, refusals."""
import numpy
import posenc
import pytest


def plain(q, k, v, bias, causal):
    """[t, h, d] each; bias [h, tq, tk]."""
    s = numpy.einsum("qhd,khd->hqk", q, k) / numpy.sqrt(q.shape[-1]) + bias
    if causal:
        s = numpy.where(numpy.tri(s.shape[1], s.shape[2], s.shape[2] - s.shape[1], dtype=bool), s, -numpy.inf)
    p = numpy.exp(s - s.max(-1, keepdims=True))
    total = p.sum(-1, keepdims=True)
    return numpy.einsum("hqk,khd->qhd", p / total, v), (numpy.log(total) + s.max(-1, keepdims=True))[..., 0], p / total


def test_alibi_is_the_plain_definition(random):
    q, k, v = random.normal(size=(3, 6, 4, 8))
    slopes = 2.0 ** (-2.0 * (numpy.arange(4) + 1))
    bias = -slopes[:, None, None] * numpy.abs(numpy.arange(6)[:, None] - numpy.arange(6))
    a = posenc.attend(posenc.Alibi(), q, k, v, causal=True)
    out, sums, probabilities = plain(q, k, v, bias, True)
    assert numpy.abs(a.out - out).max() < 1e-13 and numpy.abs(a.log_sum_exp[0] - sums).max() < 1e-13
    parts = a.scores(["probabilities", "position_position"])
    assert numpy.abs(parts["probabilities"][0] - probabilities).max() < 1e-13
    seen = numpy.tri(6, dtype=bool)
    assert numpy.abs((parts["position_position"][0] - bias)[:, seen]).max() < 1e-13
    assert numpy.abs(posenc.bias(posenc.Alibi(), heads=4, positions=range(6)) - bias).max() < 1e-13
    later = posenc.attend("alibi", q[4:], k, v, causal=True)  # the queries stand at the end
    assert numpy.abs(later.out - out[4:]).max() < 1e-13
    places = numpy.array([7, 2, 0, 5, 1, 9])  # of the queries alone
    there = -slopes[:, None, None] * numpy.abs(places[:, None] - numpy.arange(6))
    given = posenc.attend("alibi", q, k, v, query_positions=places)
    assert numpy.abs(given.out - plain(q, k, v, there, False)[0]).max() < 1e-13
    last = posenc.attend(posenc.Alibi(), q, k, v, causal=True, out=numpy.empty_like(q))
    assert (last.out == a.out).all()


@pytest.mark.parametrize("after", [None, False, True])
def test_a_soft_cap_is_of_the_content_or_of_its_sum_with_the_terms(random, after):
    q, k, v = random.normal(size=(3, 6, 2, 8)) * 3
    bias = random.normal(size=(1, 2, 6, 6))
    content = numpy.einsum("qhd,khd->hqk", q, k) / numpy.sqrt(8)
    term = -2.0 ** (-4.0 * numpy.array([1, 2]))[:, None, None] * numpy.abs(numpy.arange(6)[:, None] - numpy.arange(6))
    capped = 2 * numpy.tanh((content + term) / 2) if after else 2 * numpy.tanh(content / 2)
    score = capped + bias[0] if after else capped + term + bias[0]
    out, sums, _ = plain(q, k, v, score - content, True)
    a = posenc.attend("alibi", q, k, v, softcap=2.0, softcap_after_terms=after, bias=bias, causal=True)
    assert numpy.abs(a.out - out).max() < 1e-13 and numpy.abs(a.log_sum_exp[0] - sums).max() < 1e-13
    parts, seen = a.scores(["capped", "scores"]), numpy.tri(6, dtype=bool)
    assert numpy.abs((parts["capped"][0] - capped)[:, seen]).max() < 1e-13
    assert numpy.abs((parts["scores"][0] - score)[:, seen]).max() < 1e-13


def test_equal_parameters_and_positions_lower_once(random):
    q, k, v = random.normal(size=(3, 6, 2, 8))
    table, t5 = random.normal(size=(32, 2)), "t5 bidirectional=false"
    before = posenc._posenc.lowered_count()
    first = posenc.attend(t5, q, k, v, parameters={"table": table}, causal=True)
    first.backward(numpy.ones_like(q))
    again = posenc.attend(t5, q, k, v, parameters={"table": table.copy()}, causal=True)
    assert posenc._posenc.lowered_count() == before + 1 and (again.out == first.out).all()
    table[3, 1] += 1  # in place
    changed = posenc.attend(t5, q, k, v, parameters={"table": table}, causal=True)
    assert posenc._posenc.lowered_count() == before + 2 and (changed.out != first.out).any()
    posenc.attend(t5, q, k, v, parameters={"table": table}, key_positions=range(1, 7))
    assert posenc._posenc.lowered_count() == before + 3
    for n in range(40):  # more plans than are kept
        posenc.attend(f"alibi max_bias={n + 1}", q, k, v, causal=True)
    assert (posenc.attend(t5, q, k, v, parameters={"table": table}, causal=True).out == changed.out).all()


def test_explain_plan_names_the_engine_and_the_terms(random):
    q, k, v = random.normal(size=(3, 6, 2, 8))
    plan = posenc.attend(["rope head_dim=8 pairing=half_split", "alibi", "cope positions=4"], q, k, v, causal=True,
                         parameters={"pos_emb": random.normal(size=(1, 8, 4))}).explain_plan()
    assert plan["engine"] == plan["backward_engine"] == "exact"
    assert plan["others"] == plan["backward_others"] == [{"engine": "fast", "why_not": "q, k or v is f64"}]
    assert plan["workspace_bytes"] >= q.nbytes
    assert plan["terms"] == [{"name": "alibi", "class": "linear"}, {"name": "cope", "class": "gates"}]


def test_rotary_beside_a_bias_is_both(random):
    q, k, v = random.normal(size=(3, 2, 5, 3, 8))
    rope = posenc.Rope(head_dim=8, pairing="half_split")
    q2, k2 = posenc.rotate(rope, q, k, positions=range(5), order="bthd")
    bias = random.normal(size=(3, 5, 5))
    both = posenc.attend([rope], q, k, v, bias=bias[None], order="bthd")
    for b in range(2):
        assert numpy.abs(both.out[b] - plain(q2[b], k2[b], v[b], bias, False)[0]).max() < 1e-13
    assert (posenc.attend([rope], *(numpy.ascontiguousarray(x.transpose(0, 2, 1, 3)) for x in (q, k, v)),
                          bias=bias[None], order="bhtd").out.transpose(0, 2, 1, 3) == both.out).all()


def difference(array, where, call, e=1e-6):
    ends = []
    for step in (e, -e):
        array[where] += step
        ends.append(call())
        array[where] -= step
    return (ends[0] - ends[1]) / (2 * e)


@pytest.mark.parametrize("cap", [{}, {"softcap": 2.0}, {"softcap": 2.0, "softcap_after_terms": True}])
def test_every_gradient_is_the_difference(random, cap):
    q, v = random.normal(size=(2, 5, 2, 4))
    k = random.normal(size=(5, 2, 4))
    encoding = posenc.T5(bidirectional=False)
    table = {n: random.normal(size=s) for n, s in posenc.score_parameters(encoding, heads=2, head_dim=4)}
    bias, sink, d = random.normal(size=(1, 2, 5, 5)), random.normal(size=2), random.normal(size=(5, 2, 4))
    ds = random.normal(size=(1, 2, 5))

    def call():
        a = posenc.attend([encoding], q, k, v, parameters=table, bias=bias, sink=sink, causal=True, **cap)
        return (a.out * d).sum() + (a.log_sum_exp * ds).sum()

    g = posenc.attend([encoding], q, k, v, parameters=table, bias=bias, sink=sink, causal=True, **cap).backward(d, ds)
    assert sorted(g) == ["bias", "inputs", "k", "parameters", "q", "sink", "v"]
    for x, gradient in ((q, g["q"]), (k, g["k"]), (v, g["v"]), (bias, g["bias"]), (sink, g["sink"]),
                        *((table[n], g["parameters"][n]) for n in table)):
        assert gradient.shape == x.shape
        for _ in range(4):
            where = tuple(random.integers(0, n) for n in x.shape)
            assert abs(difference(x, where, call) - gradient[where]) < 1e-7


def test_what_comes_with_a_call(random):
    encoding = posenc.Forgetting()
    listed = posenc.score_inputs(encoding, heads=2, head_dim=4)
    assert listed and all(len(x) == 4 for x in listed)
    q, k, v = random.normal(size=(3, 4, 2, 4))
    sizes = {"batch": 1, "queries": 4, "keys": 4}
    inputs = {name: -random.uniform(size=[sizes.get(n, n) for n in shape]) for name, shape, _, _ in listed}
    a = posenc.attend(encoding, q, k, v, inputs=inputs, causal=True)
    g = a.backward(numpy.ones_like(q))["inputs"]
    assert set(g) == set(inputs) and all(g[n].shape == inputs[n].shape for n in g)


def test_a_scale_of_zero_is_the_softmax_of_the_terms_alone(random):
    """The weights of the case of pytorch/pytorch#185991: uniform without terms; of T5 the softmax of its table."""
    q, k, v = random.normal(size=(3, 6, 2, 8))
    seen = numpy.tril(numpy.ones((6, 6))) > 0

    def of(bias):
        weights = numpy.where(seen, numpy.exp(bias), 0)
        return numpy.einsum("hij,jhd->ihd", weights / weights.sum(-1, keepdims=True), v)

    for zero in (0, 0.0, -0.0):
        numpy.testing.assert_allclose(posenc.attend(None, q, k, v, causal=True, scale=zero).out, of(numpy.zeros((2, 6, 6))), atol=1e-15)
    table = random.normal(size=(32, 2))
    bias = table[numpy.maximum(numpy.arange(6)[:, None] - numpy.arange(6), 0)].transpose(2, 0, 1)
    got = posenc.attend(posenc.T5(bidirectional=False), q, k, v, causal=True, parameters={"table": table}, scale=0.0).out
    numpy.testing.assert_allclose(got, of(bias), atol=1e-15)


def test_float32_gradients_are_float32(random):
    q, k, v = random.normal(size=(3, 4, 2, 4)).astype(numpy.float32)
    a = posenc.attend(None, q, k, v)
    assert a.out.dtype == numpy.float32 and a.backward(numpy.ones_like(q))["q"].dtype == numpy.float32
    assert not a.reads_content and posenc.attend("nope", q, k, v).out.tolist() == a.out.tolist()


def blocks(x):
    """q8_0 blocks of x, along its last axis, and the numbers that they hold."""
    each = x.reshape(*x.shape[:-1], -1, 32)
    scale = (numpy.abs(each).max(-1, keepdims=True) / 127).astype(numpy.float16)
    whole = numpy.rint(each / scale).clip(-127, 127).astype(numpy.int8)
    packed = numpy.concatenate([scale.view(numpy.uint8), whole.view(numpy.uint8)], -1)
    return packed.reshape(*x.shape[:-1], -1), (scale.astype(numpy.float64) * whole).reshape(x.shape)


def test_keys_and_values_in_blocks(random):
    q, k, v = random.normal(size=(3, 40, 2, 64))
    (k_blocks, k), (v_blocks, v) = blocks(k), blocks(v)
    assert k_blocks.shape == (40, 2, 68) and k_blocks.dtype == numpy.uint8
    want = posenc.attend("alibi", q, k, v, causal=True)
    for keys, values in ((k_blocks, v_blocks), (k_blocks, v), (k, v_blocks)):
        a = posenc.attend("alibi", q, keys, values, causal=True)
        assert numpy.abs(a.out - want.out).max() < 1e-13
        narrow = posenc.attend("alibi", q.astype(numpy.float32), keys if keys is k_blocks else k.astype(numpy.float32),
                               values if values is v_blocks else v.astype(numpy.float32), causal=True)
        assert narrow.explain_plan()["engine"] == "fast" and numpy.abs(narrow.out - want.out).max() < 2e-5
        g, wanted = a.backward(q), want.backward(q)
        assert numpy.abs(g["q"] - wanted["q"]).max() < 1e-12
        assert ("k" in g, "v" in g) == (keys is k, values is v)
    with pytest.raises(ValueError, match=r"gradient of k must not be given: q8_0 blocks have no gradient"):
        a = posenc.attend("alibi", q, k_blocks, v, causal=True)
        a.backward(q, only=["k"])
    pages = posenc.attend("alibi", q[-1:], k_blocks.reshape(10, 4, 2, 68)[::-1], v_blocks.reshape(10, 4, 2, 68)[::-1],
                          causal=True, block_table=[[*range(9, -1, -1)]], key_length=[40])
    assert numpy.abs(pages.out - want.out[-1:]).max() < 1e-13


Q = numpy.zeros((4, 2, 8))


@pytest.mark.parametrize("call, says", [
    (lambda: posenc.attend(None, Q, Q[..., :4], Q), r"\[attention"),
    (lambda: posenc.attend(3, Q, Q, Q), r"\[attention\] encodings must be SCHEME text, an encoding of posenc or a list, got \"int\""),
    (lambda: posenc.attend(None, Q, Q, Q, parameters=[Q]), r"\[attention\] parameters must be a mapping of names to arrays, got \"list\""),
    (lambda: posenc.attend(None, Q, Q, Q, inputs=3), r"\[attention\] inputs must be a mapping of names to arrays, got \"int\""),
    (lambda: posenc.attend("alibi", Q, Q, Q, query_positions=[]), r"\[attention\] query_positions must be one for each of the tokens, got 0"),
    (lambda: posenc.attend("rope head_dim=8 pairing=half_split", Q, Q, Q, length=-3), r"\[attention_plan\] length must not be negative, got -3"),
    (lambda: posenc.attend("alibi", Q, Q, Q).backward(Q, only=["qq"]), r"\[attention\] only must name arguments of the call that have a gradient, got \"qq\""),
    (lambda: posenc.attend("alibi", Q, Q, Q).backward(Q, only=["q", "bias"]), r"\[attention\] only must name arguments .* got \"bias\""),
    (lambda: posenc.attend("alibi", Q, Q, Q).backward(Q, only=3), r"\[attention\] only must be a list of names, got \"int\""),
    (lambda: posenc.attend_selective(Q, Q, Q, causal=True).backward(Q, only=["w"]), r"\[selective\] only must name arguments .* got \"w\""),
    (lambda: posenc.attend_path(Q, Q, Q, Q, Q[..., :1]).backward(Q, only=["log_gate"]), r"\[path\] only must name arguments .* got \"log_gate\""),
    (lambda: posenc.attend_path(Q, Q, Q, Q, Q[..., 0]), r"\[path\] beta: rank must fit the order thd, got 2"),
    (lambda: posenc.attend(None, Q, Q, Q.astype(int)), r"\[attention\] v: dtype must be f64, f32, f16 or bf16, got \"i64\""),
    (lambda: posenc.attend("alibi", Q, Q, Q).backward(Q[0]), r"\[attention\] d_out: rank must fit the order thd, got 2"),
    (lambda: posenc.merge(3), r"\[merge\] parts must be results of attend or pairs of out and log_sum_exp, got \"int\""),
    (lambda: posenc.batched(3), r"\[positions\] positions must be a list of positions, got \"int\""),
    (lambda: posenc.attend(None, Q, Q.astype(numpy.uint8), Q), r"\[attention\] k in q8_0 blocks must have head size / 32 \* 34 bytes, got 8"),
    (lambda: posenc.attend("t5 bidirectional=true", Q, Q, Q), r"\[attention_plan\].*table"),
    (lambda: posenc.attend("t5 bidirectional=true", Q, Q, Q, parameters={"table": Q}), r"\[attention_plan\].*table|\[t5\].*table"),
    (lambda: posenc.attend("alibi", Q, Q, Q, parameters={"table": Q}), r"table"),
    (lambda: posenc.attend("sinusoidal width=8", Q, Q, Q), r"\[attention_plan\]"),
    (lambda: posenc.attend([7], Q, Q, Q), r"encoding must be SCHEME text"),
    (lambda: posenc.attend(None, Q, Q, Q, scale="x"), r"\[attention\] scale must be a number"),
    (lambda: posenc.attend("alibi", Q, Q, Q, softcap_after_terms=True), r"\[attention\] softcap_after_terms needs a softcap, got 0"),
    (lambda: posenc.attend(None, Q, Q, Q, softcap=1, softcap_after_terms="x"), r"\[attention\] softcap_after_terms must be True or False, got"),
    (lambda: posenc.attend(None, Q, Q, Q, offset="middle"), r"offset must be end, start or a whole number, got \"middle\""),
    (lambda: posenc.attend(None, Q, Q, Q, window=[1]), r"window must be two whole numbers"),
    (lambda: posenc.attend(None, Q, Q, Q, visible=Q), r"\[attention\].*visible"),
    (lambda: posenc.attend(None, Q[None], Q[None], Q[None]), r"order must be given"),
    (lambda: posenc.attend(None, Q, Q, Q, out=Q.astype(numpy.float32)), r"\[attention\]"),
    (lambda: posenc.attend(None, Q, Q, Q).scores(["all"]), r"names must be of content.*got \"all\""),
    (lambda: posenc.attend(None, Q, Q, Q).backward(None), r"d_out must be an array"),
    (lambda: posenc.bias("t5 bidirectional=true", heads=2, positions=range(3)), r"learn: table"),
])
def test_what_is_wrong_is_refused(call, says):
    with pytest.raises(ValueError, match=says):
        call()
