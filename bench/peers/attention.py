# SPDX-License-Identifier: Apache-2.0
"""posenc's attention with a learned bias by distance beside PyTorch's scaled_dot_product_attention, one thread, float32.

python bench/peers/attention.py [--heads 8] [--dim 64] [--rounds 5] [TOKENS ...]

Milliseconds of processor time, the least of the rounds. PyTorch has no bias by distance: the nearest is an array of all pairs.
Needs torch and the posenc package.
"""
from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch

import posenc.torch


def least(run: Callable[[], object], rounds: int) -> float:
    run()
    times = []
    for _ in range(rounds):
        begin = time.process_time()
        run()
        times.append(time.process_time() - begin)
    return min(times) * 1e3


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("tokens", nargs="*", type=int, default=[512, 2048])
    words.add_argument("--heads", type=int, default=8)
    words.add_argument("--dim", type=int, default=64)
    words.add_argument("--rounds", type=int, default=5)
    given = words.parse_args()
    torch.set_num_threads(1)
    fused = torch.nn.functional.scaled_dot_product_attention
    ours = posenc.torch.Attention("t5 bidirectional=true", heads=given.heads, head_dim=given.dim, order="bhtd")
    for tokens in given.tokens:
        shape = (1, given.heads, tokens, given.dim)
        q, k, v = (torch.randn(shape, requires_grad=True) for _ in range(3))
        dense, upstream = torch.zeros(1, given.heads, tokens, tokens, requires_grad=True), torch.randn(shape)
        calls: dict[str, Callable[[], torch.Tensor]] = {
            "PyTorch, no bias": lambda: fused(q, k, v),
            "PyTorch, learned dense bias": lambda: fused(q, k, v, attn_mask=dense),
            "posenc, T5's bias": lambda: ours(q, k, v),
        }
        print(f"{tokens} tokens, {given.heads} heads of {given.dim}")
        for name, call in calls.items():
            with torch.no_grad():
                forward = least(call, given.rounds)
            print(f"  {name:28} forward {forward:8.1f} ms, with gradients {least(lambda: call().backward(upstream), given.rounds):8.1f} ms")


if __name__ == "__main__":
    main()
