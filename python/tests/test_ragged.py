# SPDX-License-Identifier: Apache-2.0
"""Ragged batches and pages with every default: each sequence by itself, against a plain reference of numpy."""
import itertools
import warnings

import numpy
import posenc
import pytest

H, D = 2, 4
SCHEMES = {"content": None, "alibi": "alibi", "t5": "t5 bidirectional=false num_buckets=8 max_distance=16",
           "rope": f"rope head_dim={D} pairing=half_split", "forgetting": "forgetting"}
LENGTHS = {"more keys": [(3, 5), (2, 7), (1, 1)], "equal": [(4, 4), (3, 3)], "by the same": [(2, 4), (3, 5)],
           "empty": [(0, 2), (3, 3), (2, 2)], "more queries": [(4, 2), (1, 3)]}
MASKS = [{}, {"causal": True}, {"window": (1, 0)}, {"causal": True, "window": (2, 0), "sink_tokens": 1}, {"chunk": 2},
         {"causal": True, "chunk": 3}, {"causal": True, "prefix": 2}]
OFFSETS = [None, "end", "start", 0, -1, 1]


def bucket(d):
    """T5's, of one side, 8 buckets, 16 distances: 4 exact ones, then the logarithm."""
    d = max(d, 0)
    return d if d < 4 else min(7, 4 + int(numpy.log(d / 4) / numpy.log(16 / 4) * 4))


def rotated(x, p):
    """x [t, h, 4] of base 10000, half-split."""
    y = numpy.empty_like(x)
    for t, c in itertools.product(range(len(x)), range(2)):
        angle = p[t] * 10000.0 ** (-c / 2)
        a, b = x[t, :, c], x[t, :, c + 2]
        y[t, :, c], y[t, :, c + 2] = a * numpy.cos(angle) - b * numpy.sin(angle), a * numpy.sin(angle) + b * numpy.cos(angle)
    return y


def alone(scheme, q, k, v, place, mask, learned, p=None, kp=None):
    """One sequence whose first query has order `place`."""
    n, m = len(q), len(k)
    order = place + numpy.arange(n)
    p = order if p is None else p
    kp = numpy.arange(m) if kp is None else kp
    out = numpy.zeros((n, H, v.shape[-1]))
    if scheme == "rope":
        q, k = rotated(q, p), rotated(k, kp)
    gates = None if scheme != "forgetting" else numpy.cumsum(learned, 0)
    for i, h in itertools.product(range(n), range(H)):
        scores = {}
        for j in range(m):
            seen = not mask.get("causal") or j <= order[i] or j < mask.get("prefix", 0)
            left, right = mask.get("window", (m + n, m + n))
            seen = seen and j <= order[i] + right and (j >= order[i] - left or j < mask.get("sink_tokens", 0))
            if "chunk" in mask:
                seen = seen and j // mask["chunk"] == order[i] // mask["chunk"]
            if not seen:
                continue
            s = q[i, h] @ k[j, h] * (1 if scheme == "t5" else D ** -0.5)
            if scheme == "alibi":
                s -= 2.0 ** (-4 * (h + 1)) * abs(p[i] - kp[j])
            if scheme == "t5":
                s += learned[bucket(p[i] - kp[j]), h]
            if scheme == "forgetting":
                s += gates[order[i], h] - gates[j, h]
            scores[j] = s
        if scores:
            top = max(scores.values())
            weight = {j: numpy.exp(s - top) for j, s in scores.items()}
            out[i, h] = sum(w * v[j, h] for j, w in weight.items()) / sum(weight.values())
    return out


def place_of(offset, n, m):
    return 0 if offset == "start" else m - n + (offset if isinstance(offset, int) else 0)


def boundaries(sizes):
    return numpy.concatenate([[0], numpy.cumsum(sizes)])


def sequences(lengths, random):
    cq, ck = boundaries([n for n, _ in lengths]), boundaries([m for _, m in lengths])
    q, k, v = random.normal(size=(cq[-1], H, D)), *random.normal(size=(2, ck[-1], H, D))
    return q, k, v, cq, ck


@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_default_is_that_of_each_sequence(random, scheme, lengths):
    q, k, v, cq, ck = sequences(LENGTHS[lengths], random)
    learned = random.normal(size=(8, H)) if scheme == "t5" else -random.uniform(size=(ck[-1], H))
    given = {"parameters": {"table": learned}} if scheme == "t5" else \
        {"inputs": {"log_gate": learned[None]}} if scheme == "forgetting" else {}
    places = {"query_positions": random.integers(0, 9, cq[-1]), "key_positions": random.integers(0, 9, ck[-1])}
    for mask, offset, stated in itertools.product(MASKS, OFFSETS, [False, True]):
        call = {**mask, **given, **({} if offset is None else {"offset": offset}), **(places if stated else {}),
                "query_cu_seqlens": cq.tolist(), "key_cu_seqlens": ck.astype("i4")}
        starts = [place_of(offset, n, m) for n, m in LENGTHS[lengths]]
        if scheme == "forgetting" and any(n and (s < 0 or s + n > m) for s, (n, m) in zip(starts, LENGTHS[lengths])):
            with pytest.raises(ValueError, match=r"\[forgetting\] queries must be among the keys"):
                posenc.attend(SCHEMES[scheme], q, k, v, **call)
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # positions at random contradict the order
            got = posenc.attend(SCHEMES[scheme], q, k, v, **call).out
        want = []
        for s, (a, b, c, d) in enumerate(zip(cq, cq[1:], ck, ck[1:])):
            own = (places["query_positions"][a:b], places["key_positions"][c:d]) if stated else ()
            want.append(alone(scheme, q[a:b], k[c:d], v[c:d], starts[s], mask, learned if scheme == "t5" else learned[c:d], *own))
        assert numpy.abs(got - numpy.concatenate(want)).max() < 1e-12, (mask, offset, stated)


def paged(k, v, ck, random, size=2):
    """The same keys in pages, in any order of pages, and their table."""
    lengths = numpy.diff(ck)
    pages = max(1, -(-lengths.max() // size))
    places = random.permutation(len(lengths) * pages)
    table = places.reshape(len(lengths), pages)
    out = [numpy.full((len(places), size, H, D), numpy.nan) for _ in range(2)]
    for s, n in enumerate(lengths):
        for j in range(n):
            for x, to in zip((k, v), out):
                to[table[s, j // size], j % size] = x[ck[s] + j]
    return *out, table, lengths


@pytest.mark.parametrize("scheme", ["content", "alibi", "t5", "rope"])
def test_pages_of_a_ragged_batch(random, scheme):
    lengths = LENGTHS["more keys"]
    q, k, v, cq, ck = sequences(lengths, random)
    table = random.normal(size=(8, H))
    given = {"parameters": {"table": table}} if scheme == "t5" else {}
    kp, vp, pages, held = paged(k, v, ck, random)
    for mask, offset in itertools.product(MASKS, OFFSETS):
        a = posenc.attend(SCHEMES[scheme], q, kp, vp, block_table=pages, key_length=held.tolist(), query_cu_seqlens=cq,
                          offset=offset, **mask, **given)
        want = [alone(scheme, q[a0:b], k[c:d], v[c:d], place_of(offset, b - a0, d - c), mask, table)
                for a0, b, c, d in zip(cq, cq[1:], ck, ck[1:])]
        assert numpy.abs(a.out - numpy.concatenate(want)).max() < 1e-12, (mask, offset)


@pytest.mark.parametrize("order", ["bthd", "bhtd"])
@pytest.mark.parametrize("scheme", ["content", "alibi", "t5", "rope"])
def test_pages_of_a_batch(random, scheme, order):
    n, lengths = 2, [5, 7, 2]
    ck = boundaries(lengths)
    q, (k, v) = random.normal(size=(3, n, H, D)), random.normal(size=(2, ck[-1], H, D))
    table = random.normal(size=(8, H))
    given = {"parameters": {"table": table}} if scheme == "t5" else {}
    kp, vp, pages, held = paged(k, v, ck, random)
    axes = (0, 2, 1, 3) if order == "bhtd" else (0, 1, 2, 3)
    q2, kp, vp = (x.transpose(axes) for x in (q, kp, vp))
    for mask, offset in itertools.product(MASKS, [None, "end", "start", 1]):
        a = posenc.attend(SCHEMES[scheme], q2, kp, vp, order=order, block_table=pages, key_length=held, offset=offset,
                          **mask, **given)
        for b, m in enumerate(lengths):
            place = {None: m - n, "end": m - n, "start": 0}.get(offset, offset)
            want = alone(scheme, q[b], k[ck[b]:ck[b + 1]], v[ck[b]:ck[b + 1]], place, mask, table)
            assert numpy.abs(a.out.transpose(axes)[b] - want).max() < 1e-12, (mask, offset, b)
    g = a.backward(numpy.ones_like(a.out))
    assert g["k"].shape == kp.shape and g["q"].shape == q2.shape


@pytest.mark.parametrize("scheme", SCHEMES)
def test_gradients_are_those_of_each_sequence(random, scheme):
    lengths = LENGTHS["more keys"]
    q, k, v, cq, ck = sequences(lengths, random)
    learned = random.normal(size=(8, H)) if scheme == "t5" else -random.uniform(size=(ck[-1], H))
    d = random.normal(size=q.shape)

    def given(c, e):
        return {"parameters": {"table": learned}} if scheme == "t5" else \
            {"inputs": {"log_gate": learned[None, c:e]}} if scheme == "forgetting" else {}

    g = posenc.attend(SCHEMES[scheme], q, k, v, causal=True, query_cu_seqlens=cq, key_cu_seqlens=ck,
                      **given(0, None)).backward(d)
    rows = [posenc.attend(SCHEMES[scheme], q[a:b], k[c:e], v[c:e], causal=True, **given(c, e)).backward(d[a:b])
            for a, b, c, e in zip(cq, cq[1:], ck, ck[1:])]
    for name in "qkv":
        assert numpy.abs(g[name] - numpy.concatenate([r[name] for r in rows])).max() < 1e-12
    if scheme == "forgetting":
        want = numpy.concatenate([r["inputs"]["log_gate"] for r in rows], 1)
        assert numpy.abs(g["inputs"]["log_gate"] - want).max() < 1e-12
    if scheme == "t5":
        assert numpy.abs(g["parameters"]["table"] - sum(r["parameters"]["table"] for r in rows)).max() < 1e-12
