# SPDX-License-Identifier: Apache-2.0
"""Ring attention over processes of torch.distributed: the rows and gradients of one call over the whole sequence."""
import datetime
import os
import signal
import socket
import time

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

import posenc
import posenc.torch

HEADS, KEY_HEADS, DIM = 4, 2, 8
PACKED = [0, 8, 8, 24]  # times the ranks


def begin(rank, ranks, port, seconds=60):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=ranks, timeout=datetime.timedelta(seconds=seconds))


def spawn(worker, ranks, *words):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    mp.spawn(worker, (ranks, port, *words), nprocs=ranks)


def run(attend, tensors, parameters, sink, upstream):
    leaves = [x.clone().requires_grad_() for x in (*tensors, *parameters.values(), *([] if sink is None else [sink]))]
    names = dict(zip(parameters, leaves[3:]))
    out = attend(*leaves[:3], names, leaves[-1] if sink is not None else None)
    out.backward(upstream)
    return [out.detach(), *(x.grad for x in leaves)]


def compare(ranks, rank, scheme, layout, dtype=torch.float64, packed=None, window=None, with_sink=False, order="thd"):
    torch.manual_seed(0)
    n, axis = 24 * ranks, order.index("t")
    cu = None if packed is None else [c * ranks for c in packed]

    def random(heads):
        x = torch.randn(n, heads, DIM, dtype=torch.float64)
        return x if order == "thd" else x.transpose(0, 1)[None].repeat(2, 1, 1, 1) + torch.tensor([[[[0.0]]], [[[1.0]]]], dtype=torch.float64)

    tensors = [random(h).to(dtype) for h in (HEADS, KEY_HEADS, KEY_HEADS)]
    upstream = random(HEADS).to(dtype)
    parameters = {"table": torch.randn(32, HEADS, dtype=torch.float64)} if scheme and "t5" in scheme else {}
    sink = torch.randn(HEADS, dtype=torch.float64) if with_sink else None
    more = {} if cu is None else {"query_cu_seqlens": cu, "key_cu_seqlens": cu}
    every = {"causal": True, "window": window, "order": order}
    wide = [x.double() for x in (*tensors, upstream)]
    want = run(lambda q, k, v, p, s: posenc.torch.attend(scheme, q, k, v, parameters=p, sink=s, **every, **more), wide[:3], parameters, sink, wide[3])
    own = torch.tensor(posenc.shard_tokens(n if cu is None else cu, ranks, rank, layout=layout))
    mine = [x.index_select(axis, own) for x in (*tensors, upstream)]
    got = run(lambda q, k, v, p, s: posenc.torch.ring_attend(scheme, q, k, v, layout=layout, cu_seqlens=cu, parameters=p, sink=s, **every),
              mine[:3], parameters, sink, mine[3])
    for i, (a, b) in enumerate(zip(got, want)):
        assert a.dtype == (dtype if i < 4 else torch.float64)
        b = b.index_select(axis, own) if i < 4 else b  # gradients of parameters are summed over ranks
        bound = {torch.float64: 1e-12, torch.float32: 2e-5, torch.bfloat16: 0.05}[dtype] * (1 if i < 4 else 10)
        assert float((a.double() - b).abs().max()) < bound * max(1.0, float(b.abs().max())), (scheme, layout, i)


def every_case(rank, ranks, port):
    begin(rank, ranks, port)
    for layout in ("contiguous", "zigzag", "striped"):
        compare(ranks, rank, None, layout, window=(10, 0))
        compare(ranks, rank, "t5 bidirectional=false", layout, packed=PACKED)
    compare(ranks, rank, "stick_breaking", "contiguous")
    compare(ranks, rank, "rope head_dim=8 pairing=half_split", "zigzag", with_sink=True)
    compare(ranks, rank, "alibi", "contiguous", with_sink=True, order="bhtd")
    compare(ranks, rank, "t5 bidirectional=false", "zigzag", torch.float32)
    compare(ranks, rank, "alibi", "zigzag", torch.bfloat16)
    refusals(rank, ranks)
    dist.destroy_process_group()


def refusals(rank, ranks):
    q = torch.randn(8, HEADS, DIM)
    cope = {"pos_emb": torch.zeros(1, DIM, 8)}
    for words, text in (
        ((["cope positions=8"], q, q, q, {"parameters": cope}), "do not merge"),
        *([((["stick_breaking"], q, q, q, {}), "must be neighbours")] if ranks > 1 else []),
        ((None, q, q, q, {"tokens": 8 * ranks + 2 * ranks}), "q must have the 10 tokens of rank"),
        ((None, q, q[:4], q[:4], {}), "k must have the 8 tokens of rank"),
        ((None, q[0], q, q, {}), "order must name the axes of q"),
        ((None, q, q, q, {"layout": "round"}), "layout"),
        ((None, None, q, q, {}), 'q must be a tensor, got "NoneType"'),
        ((None, q, q, q, {"cu_seqlens": "ab"}), 'cu_seqlens must be a list of whole numbers, got "ab"'),
        ((None, q, q, q, {"cu_seqlens": []}), "cu_seqlens must end at the number of tokens"),
        ((None, q, q, q, {"cu_seqlens": [0, 8 * ranks], "tokens": 8 * ranks}), "exclude tokens"),
    ):
        *positional, options = words
        with pytest.raises(ValueError, match=text):
            posenc.torch.ring_attend(*positional, causal=True, **options)
    if ranks > 1:
        with pytest.raises(ValueError, match="all ranks must make the same call"):
            posenc.torch.ring_attend(None, q, q, q, causal=rank == 0)


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_rows_and_gradients_are_those_of_the_whole(ranks):
    spawn(every_case, ranks)


def test_needs_a_process_group():
    q = torch.zeros(4, 2, 8)
    with pytest.raises(RuntimeError, match="needs torch.distributed.init_process_group"):
        posenc.torch.ring_attend(None, q, q, q)


def lose_one(rank, ranks, port, fault, path):
    begin(rank, ranks, port, seconds=4)
    q = torch.randn(64, HEADS, DIM)
    dist.barrier()
    if rank == 1:
        os.kill(os.getpid(), fault)
    started = time.time()
    try:
        for _ in range(100):
            posenc.torch.ring_attend(None, q, q, q, causal=True)
    except Exception as problem:  # noqa: BLE001  whatever torch.distributed says
        (path / str(rank)).write_text(f"{time.time() - started} {type(problem).__name__}")


@pytest.mark.parametrize("fault", [signal.SIGKILL, signal.SIGSTOP])
def test_a_rank_that_is_lost_ends_the_others(tmp_path, fault):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    processes = mp.spawn(lose_one, (3, port, fault, tmp_path), nprocs=3, join=False).processes
    try:
        for n in (0, 2):
            processes[n].join(300)  # a process begins slowly on a busy machine
            assert processes[n].exitcode is not None
            seconds, kind = (tmp_path / str(n)).read_text().split()
            assert float(seconds) < 60, kind
    finally:
        for p in processes:
            p.kill()
