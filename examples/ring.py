# SPDX-License-Identifier: Apache-2.0
"""Attention of one sequence over several processes, with a learned bias and its gradient.

    torchrun --nproc-per-node 4 examples/ring.py

Each process has the tokens of its rank (zigzag: causal work is the same for all). The ring's rows are compared with those of one
call over the whole sequence, which a real program would not make.
"""
import torch
import torch.distributed as dist

import posenc
import posenc.torch

TOKENS, HEADS, KEY_HEADS, DIM = 2048, 8, 2, 64
SCHEMES = ["rope head_dim=64 pairing=half_split", "t5 bidirectional=false"]


def main() -> None:
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    rank, ranks = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)  # the same tensors in every process, of which each takes its own tokens
    q, k, v = torch.randn(TOKENS, HEADS, DIM), torch.randn(TOKENS, KEY_HEADS, DIM), torch.randn(TOKENS, KEY_HEADS, DIM)
    table = torch.randn(32, HEADS, requires_grad=True)
    own = torch.tensor(posenc.shard_tokens(TOKENS, ranks, rank, layout="zigzag"))
    mine = [x[own].requires_grad_() for x in (q, k, v)]

    out = posenc.torch.ring_attend(SCHEMES, *mine, layout="zigzag", parameters={"table": table}, causal=True, scale=DIM**-0.5)
    out.square().sum().backward()  # the gradient of the table is summed over the ranks

    ring_table, table.grad = table.grad, None
    whole = [x.clone().requires_grad_() for x in (q, k, v)]
    expected = posenc.torch.attend(SCHEMES, *whole, parameters={"table": table}, causal=True, scale=DIM**-0.5)
    expected.square().sum().backward()
    pairs = {"out": (out, expected[own]), "d q": (mine[0].grad, whole[0].grad[own]), "d k": (mine[1].grad, whole[1].grad[own]),
             "d table": (ring_table, table.grad)}
    largest = {name: float((a - b).detach().abs().max() / b.detach().abs().max()) for name, (a, b) in pairs.items()}
    print(f"rank {rank} of {ranks}: {len(own)} tokens, largest errors of the largest number:",
          ", ".join(f"{n} {e:.1e}" for n, e in largest.items()), flush=True)
    dist.destroy_process_group()
    assert max(largest.values()) < 1e-5, largest


if __name__ == "__main__":
    main()
