# SPDX-License-Identifier: Apache-2.0
"""Ragged batches, orders, pages, regions and merged parts of posenc.torch: against torch's own attention, with gradients."""
import posenc
import posenc.torch as pt
import pytest
import torch

torch.manual_seed(0)
CQ, CK = [0, 3, 5], [0, 5, 12]


def ragged():
    torch.manual_seed(2)
    return [torch.randn(n, 2, 8, dtype=torch.float64, requires_grad=True) for n in (5, 12, 12)]


def each(q, k, v, causal=True):
    """scaled_dot_product_attention of each sequence, aligned at its end."""
    out = []
    for a, b, c, d in zip(CQ, CQ[1:], CK, CK[1:]):
        x, y, z = (t.transpose(0, 1) for t in (q[a:b], k[c:d], v[c:d]))
        seen = torch.arange(d - c) <= torch.arange(b - a)[:, None] + (d - c) - (b - a)
        out.append(torch.nn.functional.scaled_dot_product_attention(x, y, z, attn_mask=seen if causal else None).transpose(0, 1))
    return torch.cat(out)


@pytest.mark.parametrize("offset", [None, "end", 0])
@pytest.mark.parametrize("as_tensor", [False, True])
def test_a_ragged_batch_is_torchs_own_attention(offset, as_tensor):
    q, k, v = ragged()
    want, d = each(q, k, v), torch.randn(5, 2, 8, dtype=torch.float64)
    cq, ck = (torch.tensor(x) if as_tensor else x for x in (CQ, CK))
    got = pt.attend(None, q, k, v, causal=True, query_cu_seqlens=cq, key_cu_seqlens=ck, offset=offset)
    assert torch.allclose(got, want, rtol=0, atol=1e-13)
    for a, b in zip(torch.autograd.grad(got, (q, k, v), d), torch.autograd.grad(want, (q, k, v), d)):
        assert torch.allclose(a, b, rtol=0, atol=1e-12)


def test_positions_of_a_ragged_batch_count_inside_each_sequence():
    q, k, v = ragged()
    table = torch.randn(32, 2, dtype=torch.float64, requires_grad=True)
    t5 = posenc.T5(bidirectional=False)
    got = pt.attend(t5, q, k, v, parameters={"table": table}, causal=True, query_cu_seqlens=CQ, key_cu_seqlens=CK)
    want = torch.cat([pt.attend(t5, q[a:b], k[c:d], v[c:d], parameters={"table": table}, causal=True)
                      for a, b, c, d in zip(CQ, CQ[1:], CK, CK[1:])])
    assert torch.allclose(got, want, rtol=0, atol=1e-13)
    for a, b in zip(torch.autograd.grad(got.sum(), (q, table)), torch.autograd.grad(want.sum(), (q, table))):
        assert torch.allclose(a, b, rtol=0, atol=1e-12)


def test_pages_are_the_ragged_batch():
    q, k, v = ragged()
    table, size = torch.tensor([[2, 0, 5, 1], [3, 6, 4, 7]]), 2
    pages = torch.full((2, 8, size, 2, 8), torch.nan, dtype=torch.float64)
    for s, (c, d) in enumerate(zip(CK, CK[1:])):
        for j in range(d - c):
            for x, to in zip((k, v), pages):
                to[table[s, j // size], j % size] = x[c + j].detach()
    kp, vp = (x.requires_grad_() for x in pages.unbind(0))
    want = pt.attend("alibi", q, k, v, causal=True, query_cu_seqlens=CQ, key_cu_seqlens=CK)
    call = {"causal": True, "query_cu_seqlens": CQ, "block_table": table, "key_length": [5, 7]}
    got = pt.attend("alibi", q, kp, vp, **call)
    assert torch.allclose(got, want, rtol=0, atol=1e-13)
    d = torch.autograd.grad(got.sum(), kp)[0]
    assert d.shape == kp.shape and torch.allclose(d[3, 1], torch.autograd.grad(want.sum(), k)[0][6], rtol=0, atol=1e-12)
    compiled = torch.compile(lambda *x: pt.attend("alibi", *x, **call), fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(q, kp, vp), got)


def test_shards_merge_to_the_whole_with_its_gradients():
    q, k, v = ([torch.randn(12, 2, 8, dtype=torch.float64, requires_grad=True) for _ in range(3)])
    want, sums = pt.attend("alibi", q, k, v, causal=True, log_sum_exp=True)
    d, ds = torch.randn_like(want), torch.randn_like(sums)
    own, other = (torch.from_numpy(posenc.shard_tokens(12, 2, r, layout="zigzag")) for r in (0, 1))

    def merged(q, k, v):
        return pt.merge([pt.attend("alibi", q[own], k[keys], v[keys], causal=True, query_order=own, key_order=keys, log_sum_exp=True)
                         for keys in (own, other)])

    for run in (merged, torch.compile(merged, fullgraph=True, backend="aot_eager")):
        out, logs = run(q, k, v)
        assert torch.allclose(out, want[own], rtol=0, atol=1e-13) and torch.allclose(logs, sums[..., own], rtol=0, atol=1e-13)
        got = torch.autograd.grad((out * d[own]).sum() + (logs * ds[..., own]).sum(), (q, k, v))
        for a, b in zip(got, torch.autograd.grad((want * d)[own].sum() + (sums * ds)[..., own].sum(), (q, k, v), retain_graph=True)):
            assert torch.allclose(a, b, rtol=0, atol=1e-12)


def test_gradients_of_what_else_a_call_takes():
    q, k, v = [torch.randn(6, 2, 4, dtype=torch.float64, requires_grad=True) for _ in range(3)]
    mix = torch.randn(2, 2, dtype=torch.float64, requires_grad=True)
    rope = "rope head_dim=4 pairing=half_split"
    regions = posenc.rerope(range(6), range(6), window=2)
    sides = torch.tensor([1, 0], dtype=torch.uint8)
    assert torch.autograd.gradcheck(lambda q, k, v, m: pt.attend(None, q, k, v, mix_before=m, mix_after=m, head_side=sides,
                                                                 chunk=4, chunk_origin=1), (q, k, v, mix), fast_mode=True)
    with pytest.raises(ValueError, match=r"\[torch attend\] regions must rotate by the encodings"):
        pt.attend(None, q, k, v, regions=[{**r, "rotation": posenc.RotaryPlan(rope)} for r in regions])
    assert torch.autograd.gradcheck(lambda *x: pt.attend(rope, *x, causal=True, regions=regions), (q, k, v), fast_mode=True)
    past = posenc.random_distances(30, 6, seed=1).tolist()
    assert torch.autograd.gradcheck(lambda *x: pt.attend("alibi", *x, causal=True, past_distances=past), (q, k, v), fast_mode=True)
    w = torch.nn.functional.normalize(torch.randn(6, 2, 4, dtype=torch.float64), dim=-1).requires_grad_()
    beta = torch.rand(6, 2, 1, dtype=torch.float64, requires_grad=True)
    gate = (-torch.rand(6, 1, 1, dtype=torch.float64)).requires_grad_()
    assert torch.autograd.gradcheck(lambda q, k, v, w, b, g: pt.attend_path(q, k, v, w, b, log_gate=g, log_sum_exp=True),
                                    (q, k, v, w, beta, gate), fast_mode=True)
    assert torch.autograd.gradcheck(lambda *x: pt.attend_selective(*x, causal=True, head=1), (q, k, v), fast_mode=True)


def test_the_operators_themselves():
    q, k, v = [torch.randn(6, 2, 4, requires_grad=True) for _ in range(3)]
    beta = torch.rand(6, 2, 1)
    torch.library.opcheck(torch.ops.posenc.attend_path.default, ([q, k, v, k, beta], None, None, None, None, None))
    torch.library.opcheck(torch.ops.posenc.attend_selective.default,
                          ([q, k, v], None, [], [], None, None, None, None, None, True, None, None, None))
    out, sums = pt.attend(None, q, k, v, log_sum_exp=True)
    torch.library.opcheck(torch.ops.posenc.merge.default, ([out.detach()] * 2 + [sums.detach()] * 2, None, "softmax"))
    half = [x.detach().bfloat16() for x in (q, k, v)]
    assert pt.attend_path(*half, half[1], beta.bfloat16()).dtype == torch.bfloat16
    for call, says in ((lambda: torch.ops.posenc.merge([out], None, "softmax"), r"\[torch merge\] tensors must be outputs and then their logarithms, as many, got 1"),
                       (lambda: torch.ops.posenc.attend_path([q, k], None, None, None, None, None), r"tensors must be 5 or 6, got 2"),
                       (lambda: pt.attend_path(q, k, v.to("meta"), k, beta), r"v must be on the device of q, cpu, got \"meta\""),
                       (lambda: pt.attend_selective(q, k, v, sink=q), r"unexpected keyword argument 'sink'")):
        with pytest.raises((ValueError, TypeError), match=says):
            call()


def test_a_causal_call_whose_positions_contradict_its_order_warns():
    q, k, v = [torch.randn(4, 2, 8) for _ in range(3)]
    with pytest.warns(UserWarning, match="query 0 at position 3 does not see key 1 at position 2"):
        pt.attend("alibi", q, k, v, causal=True, query_positions=[3, 2, 1, 0], key_positions=[3, 2, 1, 0])


def test_ctrl_c_ends_forward_and_backward():
    import signal
    import time

    q = torch.randn(6000, 4, 64, requires_grad=True)

    class Stop(BaseException):
        pass

    def ring(*_):
        rung.append(time.perf_counter())
        raise Stop

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    out = pt.attend(None, q, q, q, window=(1, 1))
    full = pt.attend(None, q[:3000], q[:3000], q[:3000])
    del out
    before = signal.signal(signal.SIGALRM, ring)
    try:
        for call in (lambda: pt.attend(None, q, q, q), lambda: full.sum().backward()):
            rung = []
            signal.setitimer(signal.ITIMER_REAL, 0.1)
            with pytest.raises(Stop):
                call()
            assert time.perf_counter() - rung[0] < 0.5
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        torch.set_num_threads(threads)
