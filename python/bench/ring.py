# SPDX-License-Identifier: Apache-2.0
"""Ring attention beside one process: seconds of forward and backward, and what of the communication was waited for.

python ring.py [--ranks 2] [--tokens 4096] [--heads 8] [--dim 64] [--layout zigzag] [--rounds 5] [--scheme alibi]

Each process has one thread: as many idle cores as ranks are needed. One process computes the whole sequence first. The seconds of a
round are those of its slowest rank; the median of the rounds is shown. Waiting: the share of a rank's time in which it waited for
keys or gradients of its neighbour.
"""
from __future__ import annotations

import argparse
import os
import socket
import statistics
import time
from typing import Any, Callable

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

import posenc
import posenc.torch
from posenc.torch import _ring


def timed(run: Callable[[], Any], rounds: int) -> float:
    run()
    times = []
    for _ in range(rounds):
        dist.barrier()
        begin = time.perf_counter()
        run()
        seconds = torch.tensor([time.perf_counter() - begin])
        dist.all_reduce(seconds, op=dist.ReduceOp.MAX)
        times.append(float(seconds))
    return statistics.median(times)


def worker(rank: int, words: argparse.Namespace, port: int) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    posenc.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=words.ranks)
    torch.manual_seed(0)
    tensors = [torch.randn(words.tokens, words.heads, words.dim) for _ in range(3)]
    own = torch.tensor(posenc.shard_tokens(words.tokens, words.ranks, rank, layout=words.layout))
    mine = [x[own].requires_grad_() for x in tensors]
    waited = [0.0]
    finish = _ring._Group.finish

    def watched(self: Any, transfer: Any, seconds: float) -> bool:
        begin = time.perf_counter()
        done = finish(self, transfer, seconds)
        waited[0] += time.perf_counter() - begin
        return done

    _ring._Group.finish = watched  # type: ignore[method-assign]
    lines = []
    for name, backward in (("forward", False), ("forward and backward", True)):

        def ring() -> None:
            out = posenc.torch.ring_attend(words.scheme, *mine, layout=words.layout, causal=True)
            if backward:
                out.sum().backward()

        whole = [x.requires_grad_() for x in tensors]

        def one() -> None:
            if rank == 0:
                out = posenc.torch.attend(words.scheme, *whole, causal=True)
                if backward:
                    out.sum().backward()

        alone = timed(one, words.rounds)
        waited[0] = 0.0
        together = timed(ring, words.rounds)
        share = waited[0] / (words.rounds + 1) / together
        lines.append(f"{name:21} one process {alone:6.3f} s, {words.ranks} ranks {together:6.3f} s, {alone / together:.2f} x as fast, waiting {share:.0%}")
    if rank == 0:
        print(f"{words.tokens} tokens, {words.heads} heads of {words.dim}, {words.layout}, causal, {words.scheme}", *lines, sep="\n", flush=True)
    dist.destroy_process_group()


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, number in (("ranks", 2), ("tokens", 4096), ("heads", 8), ("dim", 64), ("rounds", 5)):
        words.add_argument(f"--{name}", type=int, default=number)
    words.add_argument("--layout", default="zigzag")
    words.add_argument("--scheme", default="alibi")
    given = words.parse_args()
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    mp.spawn(worker, (given, port), nprocs=given.ranks)


if __name__ == "__main__":
    main()
