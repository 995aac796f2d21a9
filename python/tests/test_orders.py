# SPDX-License-Identifier: Apache-2.0
"""Orders, chunks that count from the text, regions, results that merge: against plain sums of numpy and other programs."""
import itertools
import json
import warnings

import numpy
import posenc
import pytest


def softmax(score):
    top = score.max(-1, keepdims=True)
    p = numpy.exp(score - numpy.where(numpy.isfinite(top), top, 0))
    total = p.sum(-1, keepdims=True)
    return numpy.divide(p, total, out=numpy.zeros_like(p), where=total > 0)


def content(q, k):
    return numpy.einsum("qhd,khd->hqk", q, k) / q.shape[-1] ** 0.5


def plain(score, v):
    return numpy.einsum("hqk,khd->qhd", softmax(score), v)


@pytest.mark.parametrize("layout", ["zigzag", "striped", "contiguous"])
@pytest.mark.parametrize("scheme", [None, "alibi", "rope head_dim=8 pairing=half_split", "t5 bidirectional=false"])
def test_shards_by_order_are_the_rows_of_the_whole(random, scheme, layout):
    q, k, v = random.normal(size=(3, 12, 2, 8))
    learned = {"parameters": {"table": random.normal(size=(32, 2))}} if scheme and scheme[0] == "t" else {}
    full = posenc.attend(scheme, q, k, v, causal=True, window=(6, 0), **learned)
    d, ds = random.normal(size=q.shape), random.normal(size=(1, 2, 12))
    want = full.backward(d, ds)
    tokens = [posenc.shard_tokens(12, 2, r, layout=layout) for r in (0, 1)]
    d_k, d_v = numpy.zeros_like(k), numpy.zeros_like(v)
    for own in tokens:
        parts = [posenc.attend(scheme, q[own], k[keys], v[keys], causal=True, window=(6, 0), query_order=own,
                               key_order=keys.tolist(), **learned) for keys in tokens]
        out, sums = posenc.merge(parts)
        assert numpy.abs(out - full.out[own]).max() < 1e-13 and numpy.abs(sums - full.log_sum_exp[..., own]).max() < 1e-13
        d_q = 0
        for keys, part, (do, dl) in zip(tokens, parts, posenc.merge_backward(parts, (out, sums), d[own], ds[..., own])):
            g = part.backward(do, dl)
            d_q = d_q + g["q"]
            d_k[keys] += g["k"]
            d_v[keys] += g["v"]
            of_whole = part.backward(d[own], ds[..., own], whole=(out, sums))  # the same without the part's output
            for name in ("q", "k", "v"):
                assert numpy.abs(of_whole[name] - g[name]).max() < 1e-13
            for name, array in g["parameters"].items():
                assert numpy.abs(of_whole["parameters"][name] - array).max() < 1e-12
        assert numpy.abs(d_q - want["q"][own]).max() < 1e-13
    assert numpy.abs(d_k - want["k"]).max() < 1e-13 and numpy.abs(d_v - want["v"]).max() < 1e-13


@pytest.mark.parametrize("layout", ["zigzag", "striped", "contiguous"])
@pytest.mark.parametrize("scheme", [None, "alibi"])
def test_shards_of_packed_documents_are_the_rows_of_the_whole(random, scheme, layout):
    cu, ranks = [0, 8, 8, 20], 2
    q, k, v = random.normal(size=(3, 20, 2, 8))
    packed = {"causal": True, "window": (5, 0), "query_cu_seqlens": cu, "key_cu_seqlens": cu}
    full = posenc.attend(scheme, q, k, v, **packed, query_positions=posenc.packed(cu), key_positions=posenc.packed(cu))
    place = numpy.concatenate([numpy.arange(n) for n in numpy.diff(cu)])
    tokens = [numpy.array(posenc.shard_tokens(cu, ranks, r, layout=layout)) for r in range(ranks)]
    counts = [[0, 4, 4, 10]] * ranks  # of each rank's shard
    for own, own_cu in zip(tokens, counts):
        parts = [posenc.attend(scheme, q[own], k[keys], v[keys], causal=True, window=(5, 0), query_cu_seqlens=own_cu, key_cu_seqlens=key_cu,
                               query_order=place[own].tolist(), key_order=place[keys].tolist()) for keys, key_cu in zip(tokens, counts)]
        out, sums = posenc.merge(parts)
        assert numpy.abs(out - full.out[own]).max() < 1e-13 and numpy.abs(sums - full.log_sum_exp[..., own]).max() < 1e-13


def test_chunks_count_from_the_first_token_of_a_padded_row(random):
    i, pads = numpy.arange(12), [3, 0, 5]
    q, k, v = random.normal(size=(3, 3, 12, 2, 8))
    real = numpy.array([i >= n for n in pads])
    a = posenc.attend(None, q, k, v, order="bthd", causal=True, chunk=4, chunk_origin=pads, key_visible=real)
    for b, pad in enumerate(pads):
        seen = ((i[:, None] - pad) // 4 == (i - pad) // 4) & (i <= i[:, None]) & (i >= pad)
        want = plain(numpy.where(seen, content(q[b], k[b]), -numpy.inf), v[b])
        assert numpy.abs(a.out[b, pad:] - want[pad:]).max() < 1e-13
        alone = posenc.attend(None, q[b, pad:], k[b, pad:], v[b, pad:], causal=True, chunk=4)
        assert numpy.abs(a.out[b, pad:] - alone.out).max() < 1e-13
    one = posenc.attend(None, q[0], k[0], v[0], causal=True, chunk=4, chunk_origin=3, key_visible=real[0])
    assert numpy.abs(one.out - a.out[0]).max() < 1e-13
    heads = posenc.attend(None, q[0], k[0], v[0], chunk=4, chunk_origin=[[0, 2]])  # LongLoRA's shifted heads
    for h, shift in enumerate((0, 2)):
        seen = (i[:, None] - shift) // 4 == (i - shift) // 4
        want = plain(numpy.where(seen, content(q[0], k[0]), -numpy.inf), v[0])
        assert numpy.abs(heads.out[:, h] - want[:, h]).max() < 1e-13


def test_documents_of_one_axis(random):
    q, k, v = random.normal(size=(3, 12, 2, 8))
    cu = [0, 5, 12]
    doc = posenc.document_index(cu)
    want = posenc.attend("alibi", q, k, v, causal=True, query_cu_seqlens=cu, key_cu_seqlens=tuple(cu)).out
    for d in (doc, doc.tolist(), doc[None]):
        assert numpy.abs(posenc.attend("alibi", q, k, v, causal=True, query_document=d, key_document=d).out - want).max() < 1e-13
    assert posenc.cu_seqlens_of_positions(posenc.packed(cu)).tolist() == cu
    assert posenc.document_index_of_positions(posenc.packed(cu)).tolist() == doc.tolist()


def test_mixed_heads_and_sides(random):
    q, k, v = random.normal(size=(3, 5, 2, 4))
    before, after = random.normal(size=(2, 2, 2))
    a = posenc.attend(None, q, k, v, mix_before=before, mix_after=after)
    p = numpy.einsum("hg,gqk->hqk", after, softmax(numpy.einsum("hg,gqk->hqk", before, content(q, k))))
    assert numpy.abs(a.out - numpy.einsum("hqk,khd->qhd", p, v)).max() < 1e-13
    g = a.backward(numpy.ones_like(q))
    for name, x in (("mix_before", before), ("mix_after", after)):
        ends = []
        for e in (1e-6, -1e-6):
            x[0, 1] += e
            ends.append(posenc.attend(None, q, k, v, mix_before=before, mix_after=after).out.sum())
            x[0, 1] -= e
        assert abs((ends[0] - ends[1]) / 2e-6 - g[name][0, 1]) < 1e-7
    sides = posenc.attend(None, q, k, v, head_side=numpy.array([1, 2], "u1")).out
    past = posenc.attend(None, q, k, v, causal=True).out
    assert numpy.abs(sides[:, 0] - past[:, 0]).max() < 1e-13
    later = plain(numpy.where(numpy.tri(5, dtype=bool).T, content(q, k), -numpy.inf), v)
    assert numpy.abs(sides[:, 1] - later[:, 1]).max() < 1e-13


@pytest.fixture(scope="module")
def engines():
    folder = posenc_source() / "conformance" / "rotary_engines"
    raw = (folder / "arrays.safetensors").read_bytes()
    size = int.from_bytes(raw[:8], "little")
    index = json.loads(raw[8:8 + size])

    def array(name):
        entry = index[name]
        begin, end = entry["data_offsets"]
        kind = {"F64": "f8", "F32": "f4", "I64": "i8"}[entry["dtype"]]
        return numpy.frombuffer(raw[8 + size + begin:8 + size + end], kind).reshape(entry["shape"]).astype("f8")

    return array


def posenc_source():
    import pathlib

    return pathlib.Path(__file__).resolve().parents[2]


ROPE = "rope head_dim=8 base=10000 pairing=half_split"
PATCHES = {
    "paper_self_extend": lambda p: posenc.self_extend(p, p, window=8, group=4, ratio="floored"),
    "paper_self_extend_real_ratio": lambda p: posenc.self_extend(p, p, window=6, group=4, ratio="real"),
    "paper_self_extend_short": lambda p: posenc.self_extend(p, p, window=8, group=4, ratio="floored"),
    "paper_rerope": lambda p: posenc.rerope(p, p, window=5),
    "paper_leaky_rerope": lambda p: posenc.leaky_rerope(p, p, window=5, factor=4),
    "paper_dual_chunk": lambda p: posenc.dual_chunk(p, p, chunk_size=12, local_size=2),
}


@pytest.mark.parametrize("name", PATCHES)
def test_regions_are_the_scores_of_their_authors(engines, name):
    q, k, want = engines(f"{name}/q"), engines(f"{name}/k"), engines(f"{name}/scores")
    regions = PATCHES[name](range(q.shape[2]))
    factor = numpy.maximum(1, numpy.log(numpy.arange(1, q.shape[2] + 1)) / numpy.log(8))[None] if "rerope" in name else None
    a = posenc.attend(ROPE, q, k, k, order="bhtd", causal=True, regions=regions, query_factor=factor)
    got = a.scores(["scores"])["scores"]
    seen = numpy.tri(q.shape[2], dtype=bool)
    assert numpy.abs((got - want)[..., seen]).max() < 2e-6


def test_regions_rotate_by_plans_of_their_own(random):
    """Without an encoding; with a gain of sqrt(2) they are those of twice the scale."""
    q, k, v, d = random.normal(size=(4, 9, 2, 8))
    regions = posenc.rerope(range(9), range(9), window=3)
    plan = posenc.RotaryPlan(ROPE, "float32")
    louder = plan.with_frequencies(posenc.frequencies(ROPE)[None, None], gain=2 ** 0.5)
    for own, scale in ((plan, 0.25), (louder, 0.125)):
        want = posenc.attend(ROPE, q, k, v, causal=True, regions=regions, scale=0.25)
        got = posenc.attend(None, q, k, v, causal=True, regions=[{**r, "rotation": own} for r in regions], scale=scale)
        assert numpy.abs(got.out - want.out).max() < 1e-12
        theirs, ours = want.backward(d), got.backward(d)
        assert all(numpy.abs(ours[n] - theirs[n]).max() < 1e-12 for n in "qkv")


@pytest.mark.parametrize("order", ["thd", "bthd", "bhtd"])
def test_regions_with_arrays_of_their_own(random, order):
    """The same as rotation in the call; gradients of the arrays, rotated back, are those of q and k."""
    q, k, v, d = random.normal(size=(4, 9, 2, 8))
    regions = posenc.rerope(range(9), range(9), window=3)
    want = posenc.attend(ROPE, q, k, v, causal=True, regions=regions)

    def shaped(x):
        return x if order == "thd" else x[None] if order == "bthd" else x[None].transpose(0, 2, 1, 3)

    def own(r, **arrays):
        return {n: r[n] for n in ("chunk", "low", "high")} | arrays

    arrays = [own(r, q=shaped(posenc.rotate(ROPE, q, positions=r["query"])), k=shaped(posenc.rotate(ROPE, k, positions=r["key"]))) for r in regions]
    nothing = numpy.full_like(shaped(q), numpy.nan)  # every pair is in a region
    got = posenc.attend(None, nothing, nothing, shaped(v), order=order, causal=True, regions=arrays)
    assert numpy.abs(got.out - shaped(want.out)).max() < 1e-13
    narrow = [own(r, **{n: r[n].astype(numpy.float32) for n in "qk"}) for r in arrays]
    fast = posenc.attend(None, *(shaped(x).astype(numpy.float32) for x in (q, k, v)), order=order, causal=True, regions=narrow)
    assert fast.explain_plan()["engine"] == "fast" and numpy.abs(fast.out - got.out).max() < 1e-6
    theirs = want.backward(d)
    for ours, close in ((got, 1e-13), (fast, 1e-5)):
        g = ours.backward(shaped(d).astype(ours.out.dtype))["regions"]
        for name, at in (("q", "query"), ("k", "key")):
            back = sum(posenc.rotate(ROPE, x[name] if order == "thd" else x[name][0] if order == "bthd" else x[name][0].transpose(1, 0, 2).copy(),
                                     positions=r[at], mode="gradient") for r, x in zip(regions, g))
            assert numpy.abs(back - theirs[name]).max() < close
    assert "regions" not in got.backward(shaped(d), only=["v"])
    with pytest.raises(ValueError, match=r"\[attention\] k of a region must be like that of the call"):
        posenc.attend(None, shaped(q), shaped(k), shaped(v), order=order, regions=[{**arrays[0], "k": arrays[0]["k"][..., :4]}])
    for wrong in ({"q": q}, {"q": q, "k": k, "query": range(9)}, {"query": range(9)}, {"query": range(9), "key": range(9), "k": k}):
        with pytest.raises(ValueError, match="query and key or q and k, got"):
            posenc.attend(ROPE, q, k, v, regions=[own(regions[0], **wrong)])


def test_gradients_through_regions(random):
    q, k, v, d = random.normal(size=(4, 9, 2, 8))
    for regions in (posenc.rerope(range(9), range(9), window=3), posenc.dual_chunk(range(9), range(9), chunk_size=5, local_size=1)):
        a = posenc.attend(ROPE, q, k, v, causal=True, regions=regions)
        g = a.backward(d)
        assert [sorted(r) for r in regions] == [["chunk", "high", "key", "low", "query"]] * len(regions)
        for name, x in (("q", q), ("k", k), ("v", v)):
            for _ in range(6):
                where = tuple(random.integers(0, n) for n in x.shape)
                ends = []
                for e in (1e-6, -1e-6):
                    x[where] += e
                    ends.append((posenc.attend(ROPE, q, k, v, causal=True, regions=regions).out * d).sum())
                    x[where] -= e
                assert abs((ends[0] - ends[1]) / 2e-6 - g[name][where]) < 1e-7
    with pytest.raises(ValueError, match=r"\[attention\] regions rotate q and k at other positions and need a rotary encoding"):
        posenc.attend("alibi", q, k, v, regions=regions)
    with pytest.raises(ValueError, match=r"\[attention\] regions must have a RotaryPlan as their rotation, got"):
        posenc.attend(None, q, k, v, regions=[{**r, "rotation": ROPE} for r in regions])
    for chunk in (1.5, "1", None, 2 ** 63):
        with pytest.raises(ValueError, match=r"\[attention\] chunk, low and high of regions must be whole numbers of 64 bits, got"):
            posenc.attend(ROPE, q, k, v, regions=[{**r, "chunk": chunk} for r in regions])
    with pytest.raises(ValueError, match=r"\[attention\] regions must be those of self_extend"):
        posenc.attend(ROPE, q, k, v, regions=[(q, k)])
    for wrong in (3, [{**regions[0], "hihg": 3}]):
        with pytest.raises(ValueError, match=r"\[attention\] regions must be those of self_extend"):
            posenc.attend(ROPE, q, k, v, regions=wrong)


def test_regions_of_pages(random):
    q, k, v = random.normal(size=(3, 24, 2, 8))
    regions = posenc.self_extend(range(23, 24), range(24), window=8, group=3, ratio="floored")
    want = posenc.attend(ROPE, q[-1:], k, v, causal=True, regions=regions)
    table = [[*range(5, -1, -1)]]
    got = posenc.attend(ROPE, q[-1:], k.reshape(6, 4, 2, 8)[::-1], v.reshape(6, 4, 2, 8)[::-1], causal=True, regions=regions,
                        block_table=table, key_length=[24])
    assert numpy.abs(got.out - want.out).max() < 1e-13
    narrow = posenc.attend(ROPE, q[-1:].astype(numpy.float32), k.astype(numpy.float32).reshape(6, 4, 2, 8)[::-1],
                           v.astype(numpy.float32).reshape(6, 4, 2, 8)[::-1], causal=True, regions=regions, block_table=table,
                           key_length=[24])
    assert narrow.explain_plan()["engine"] == "fast" and numpy.abs(narrow.out - want.out).max() < 1e-5


def test_distances_that_are_drawn(random):
    q, k, v = random.normal(size=(3, 6, 2, 8))
    past = posenc.random_distances(40, 6, seed=3)
    assert past[0] == 0 and (numpy.diff(past) > 0).all() and past[-1] < 40
    a = posenc.attend("alibi", q, k, v, past_distances=past.tolist(), future_distances=(past * 2).tolist())
    i = numpy.arange(6)
    ahead = i[:, None] - i
    far = numpy.where(ahead >= 0, past[numpy.abs(ahead)], 2 * past[numpy.abs(ahead)])
    bias = -(2.0 ** (-4.0 * numpy.array([1, 2])))[:, None, None] * far
    assert numpy.abs(a.out - plain(content(q, k) + bias, v)).max() < 1e-13
    with pytest.raises(ValueError, match=r"\[attention\] future_distances belongs to past_distances"):
        posenc.attend("alibi", q, k, v, future_distances=[0])
    for encodings in (None, ROPE):
        with pytest.raises(ValueError, match=r"\[attention\] past_distances need an encoding that acts in the score"):
            posenc.attend(encodings, q, k, v, past_distances=past)


def causal(*args, **options):
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        posenc.attend(*args, causal=True, **options)
    return [str(w.message) for w in said]


def test_a_causal_call_whose_positions_contradict_its_order_warns(random):
    q, k, v = random.normal(size=(3, 12, 2, 8))
    own = posenc.shard_tokens(12, 2, 1, layout="zigzag")  # 3, 4, 5, 6, 7, 8
    said = causal("alibi", q[own], k, v, query_positions=own, key_positions=range(12))
    assert said == ["[attention] a causal mask goes by the place in storage, and the positions say otherwise: query 0 at "
                    "position 3 sees key 4 at position 4; query_order and key_order state the order"]
    assert not causal("alibi", q[own], k, v, query_positions=own, key_positions=range(12), query_order=own, key_order=range(12))
    assert not causal("alibi", q[own], k, v, query_positions=own, key_positions=range(12), offset=3)
    said = causal("alibi", q, k, v, query_positions=range(12), key_positions=range(11, -1, -1))
    assert "query 0 at position 0 sees key 0 at position 11" in said[0]
    said = causal(None, q[:1], k, v, query_positions=[7], key_positions=range(12), offset=0)
    assert "query 0 at position 7 does not see key 1 at position 1" in said[0]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="the positions say otherwise"):
            posenc.attend("alibi", q[own], k, v, query_positions=own, key_positions=range(12), causal=True)


@pytest.mark.parametrize("name", ["order", "padded left", "documents", "visible", "images", "spans", "shifted", "decode", "prefix"])
def test_usual_positions_do_not_warn(random, name):
    q, k, v = random.normal(size=(3, 12, 2, 8))
    mask = numpy.array([[0] * 4 + [1] * 8])
    doc = numpy.array([0] * 5 + [1] * 7)
    rows = posenc.packed([0, 5, 12])
    types = numpy.array([[0, 0, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0]])
    image = posenc.mrope_positions(types, rule="qwen2_vl", images=[(1, 4, 4)])[0]
    glm = posenc.glm_positions(6, [(2, 3), (4, 3)])
    same = {"order": range(12), "padded left": posenc.from_mask(mask, padded=1), "documents": rows, "visible": rows, "images": image,
            "spans": glm, "shifted": range(100, 112), "decode": range(12), "prefix": [0, 3, 2, 1, *range(4, 12)]}[name]
    more = {"padded left": {"key_visible": mask.astype("u1")}, "documents": {"query_document": doc, "key_document": doc},
            "visible": {"visible": (doc[:, None] == doc).astype("u1")}, "prefix": {"prefix": 4}}.get(name, {})
    query, places = (q[8:], numpy.arange(8, 12)) if name == "decode" else (q, same)
    assert not causal(None, query, k, v, query_positions=places, key_positions=same, **more)


@pytest.mark.parametrize("call, says", [
    (lambda q: posenc.attend(None, q, q, q, query_order=range(4)), r"query_order and key_order must be given together"),
    (lambda q: posenc.attend(None, q, q, q, query_order=range(4), key_order=range(4), offset=0), r"offset must not be given together with query_order, got \"0\""),
    (lambda q: posenc.attend(None, q, q, q, chunk_origin=3), r"chunk_origin needs a chunk"),
    (lambda q: posenc.attend(None, q, q, q, query_cu_seqlens=[0, 2.5], key_cu_seqlens=[0, 4]), r"query_cu_seqlens must be whole numbers: an array, a list or"),
    (lambda q: posenc.attend(None, q, q, q, query_document=[[0, 1], [0]], key_document=[0]), r"query_document must be whole numbers"),
    (lambda q: posenc.attend(None, q, q, q, query_cu_seqlens=[0, 9], key_cu_seqlens=[0, 4], offset="start"), r"query_cu_seqlens must end at the number of tokens, got 9"),
    (lambda q: posenc.attend(None, q, q[None], q[None], block_table=[[0]]), r"block_table needs key_length"),
    (lambda q: posenc.attend(None, q, q[None], q[None], block_table=[[3]], key_length=[4]), r"a page of block_table must lie between 0 and 0, got 3"),
    (lambda q: posenc.attend(None, q, q, q).backward(q, whole=q), r"whole must be a result of attend or a pair of out and log_sum_exp"),
    (lambda q: posenc.attend(None, q, q, q).backward(q, whole=(q, q[:, 0])), r"must be \[batch, heads, queries\]"),
    (lambda q: posenc.merge([q]), r"parts must be results of attend or pairs"),
    (lambda q: posenc.merge([]), r"parts must be at least one"),
    (lambda q: posenc.merge([posenc.attend(None, q, q, q)], normalisation="mean"), r"normalisation must be one of softmax, stick_breaking"),
])
def test_refusals(call, says):
    with pytest.raises(ValueError, match=says):
        call(numpy.zeros((4, 2, 8)))


def test_path_is_the_product_of_reflections(random):
    q, k, v, w = random.normal(size=(4, 6, 2, 4))
    w /= numpy.linalg.norm(w, axis=-1, keepdims=True)
    beta, gate = random.uniform(0, 2, size=(6, 2, 1)), -random.uniform(size=(6, 2, 1))
    arrays = {"q": q, "k": k, "v": v, "w": w, "beta": beta, "log_gate": gate}

    def call():
        return posenc.attend_path(q[2:], k, v, w, beta, log_gate=gate, scale=0.7)

    a = call()
    score = numpy.full((2, 4, 6), -numpy.inf)
    for h, i in itertools.product(range(2), range(2, 6)):
        for j in range(i + 1):
            x = k[j, h]
            for t in range(j + 1, i + 1):
                x = x - beta[t, h, 0] * w[t, h] * (w[t, h] @ x)
            score[h, i - 2, j] = 0.7 * (q[i, h] @ x + gate[j + 1:i + 1, h].sum())
    assert numpy.abs(a.out - plain(score, v)).max() < 1e-13
    d, ds = random.normal(size=a.out.shape), random.normal(size=a.log_sum_exp.shape)
    g = a.backward(d, ds)
    for name, x in arrays.items():
        where = tuple(random.integers(0, n) for n in x.shape)
        where = (max(where[0], 2), *where[1:])
        ends = []
        for e in (1e-6, -1e-6):
            x[where] += e
            b = call()
            ends.append((b.out * d).sum() + (b.log_sum_exp * ds).sum())
            x[where] -= e
        got = g[name][(where[0] - 2, *where[1:]) if name == "q" else where]
        assert abs((ends[0] - ends[1]) / 2e-6 - got) < 1e-7, name


def test_selective_goes_on_from_earlier_queries(random):
    q, k, v = random.normal(size=(3, 9, 2, 4))
    whole = posenc.attend_selective(q, k, v, causal=True, head=1).out
    masked = numpy.zeros((1, 9))
    for begin, end in ((0, 5), (5, 6), (6, 9)):
        some = posenc.attend_selective(q[begin:end], k[:end], v[:end], causal=True, head=1, offset=begin,
                                       masked=masked[:, :end])
        assert numpy.abs(some.out - whole[begin:end]).max() < 1e-12
    with pytest.raises(ValueError, match="masked"):
        some.backward(numpy.ones_like(some.out))
    for wrong in (numpy.zeros((1, 8)), numpy.zeros((1, 9), numpy.float32)):
        with pytest.raises(ValueError, match="masked"):
            posenc.attend_selective(q, k, v, causal=True, masked=wrong)


def test_selective_takes_what_was_masked(random):
    q, k, v = random.normal(size=(3, 6, 2, 4))
    a = posenc.attend_selective(q, k, v, causal=True, head=1)
    score, seen = content(q, k), numpy.tri(6, dtype=bool)
    taken = numpy.zeros((6, 6))
    for i in range(1, 6):
        s = numpy.where(seen[i - 1], numpy.maximum(score[1, i - 1], 0), 0)
        s[i - 1] = s[0] = 0
        taken[i] = taken[i - 1] + s
    assert numpy.abs(a.out - plain(numpy.where(seen, score - taken, -numpy.inf), v)).max() < 1e-13
    d = random.normal(size=a.out.shape)
    g = a.backward(d)
    for name, x in (("q", q), ("k", k), ("v", v)):
        for _ in range(4):
            where = tuple(random.integers(0, n) for n in x.shape)
            ends = []
            for e in (1e-6, -1e-6):
                x[where] += e
                ends.append((posenc.attend_selective(q, k, v, causal=True, head=1).out * d).sum())
                x[where] -= e
            assert abs((ends[0] - ends[1]) / 2e-6 - g[name][where]) < 1e-7, name
