#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What rotation of PyTorch's tensors costs, beside transformers' own: medians of calls in turns.

    build/lab/bin/python python/bench/torch_rotation.py [--tokens 1,2048] [--samples 31] [--threads 1]

First the calls themselves, on 16 tokens of one head of 64 channels, q and k; then 32 query and 8 key heads of 128
channels, one sequence. Needs transformers for the second part.
"""
import argparse
import statistics
import time

import posenc
import torch
from posenc import torch as pt

ROPE = posenc.Rope(head_dim=64, pairing="half_split")
WIDE = posenc.Rope(head_dim=128, base=5e5, pairing="half_split")


clock = time.process_time  # on one thread: what other programs take does not count


def in_turns(functions, samples):
    """Median seconds of each, sampled one after another so that a noisy neighbour hits all alike."""
    calls = {}
    for name, f in functions.items():
        f()
        start = clock()
        f()
        calls[name] = max(1, int(1e-3 / max(clock() - start, 1e-7)))
    times = {name: [] for name in functions}
    for _ in range(samples):
        for name, f in functions.items():
            start = clock()
            for _ in range(calls[name]):
                f()
            times[name].append((clock() - start) / calls[name])
    return {name: statistics.median(t) for name, t in times.items()}


def cost_of_calls(samples):
    q, k = torch.randn(1, 1, 16, 64), torch.randn(1, 1, 16, 64)
    qg, kg = q.clone().requires_grad_(), k.clone().requires_grad_()
    p = torch.arange(16)
    angles = torch.outer(p, 1e4 ** (-torch.arange(32) / 32)).repeat(1, 2)[None]
    cos, sin = angles.cos(), angles.sin()
    plan, a, b = posenc.RotaryPlan(ROPE), q.numpy(), k.numpy()
    rows = {"pairing": "half_split", "columns": "duplicated", "layout": "bhtd"}
    times = in_turns({
        "numpy, in place": lambda: plan.rotate_(a, b, positions=p, order="bhtd"),
        "rotate_": lambda: pt.rotate_(ROPE, q, k, positions=p, layout="bhtd"),
        "rotate": lambda: pt.rotate(ROPE, q, k, positions=p, layout="bhtd"),
        "rotate, gradient recorded": lambda: pt.rotate(ROPE, qg, kg, positions=p, layout="bhtd"),
        "rotate_rows_": lambda: pt.rotate_rows_(q, k, cos, sin, **rows),
        "rotate_rows": lambda: pt.rotate_rows(q, k, cos, sin, **rows),
        "rotate_rows, gradient recorded": lambda: pt.rotate_rows(qg, kg, cos, sin, **rows),
        "operator rotate_rows_qk": lambda: torch.ops.posenc.rotate_rows_qk(q, k, cos, sin, None, "half_split", "duplicated", "bhtd", "in_place", 0, "forward"),
    }, samples)
    for name, t in times.items():
        print(f"  {name:<32} {t * 1e6:6.2f} us")


def beside_transformers(tokens, samples):
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

    made = LlamaRotaryEmbedding(LlamaConfig(hidden_size=4096, num_attention_heads=32, num_key_value_heads=8))
    rows = {"pairing": "half_split", "columns": "duplicated", "layout": "bhtd"}
    for dtype in (torch.float32, torch.bfloat16):
        for t in tokens:
            q, k = (torch.randn(1, t, h, 128, dtype=dtype).transpose(1, 2) for h in (32, 8))
            p = torch.arange(t)
            cos, sin = made(q, p[None])
            with torch.no_grad():
                times = in_turns({
                    "transformers": lambda: apply_rotary_pos_emb(q, k, cos, sin),
                    "rotate_rows": lambda: pt.rotate_rows(q, k, cos, sin, **rows),
                    "rotate_rows_": lambda: pt.rotate_rows_(q, k, cos, sin, **rows),
                    "rotate_": lambda: pt.rotate_(WIDE, q, k, positions=p, layout="bhtd"),
                }, samples)
            theirs = times["transformers"]
            print(f"  {str(dtype)[6:]:<9}{t:>6} tokens  " +
                  "  ".join(f"{n} {s * 1e3:.3f} ms ({theirs / s:.1f} x)" for n, s in times.items()))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", default="1,2048")
    parser.add_argument("--samples", type=int, default=31)
    parser.add_argument("--threads", type=int, default=1)
    words = parser.parse_args()
    torch.set_num_threads(words.threads)
    if words.threads > 1:
        global clock
        clock = time.perf_counter
    print(f"a call, 16 tokens of one head of 64 channels, q and k ({words.threads} threads)")
    cost_of_calls(words.samples)
    print("32 query and 8 key heads of 128 channels, against transformers' apply_rotary_pos_emb")
    beside_transformers([int(t) for t in words.tokens.split(",")], words.samples)


if __name__ == "__main__":
    main()
