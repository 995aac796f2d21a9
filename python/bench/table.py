#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Rotation from the positions beside rotation from a table, by number of heads: medians of processor time in turns, one thread.

    build/python/environment/bin/python python/bench/table.py [--tokens 64,2048] [--samples 51]
"""
import argparse
import statistics
import time

import numpy
import posenc


def in_turns(calls: dict[str, object], samples: int, repeats: int) -> dict[str, float]:
    """Median seconds of each call, sampled one after another so that a noisy neighbour hits all alike."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(samples):
        for name, call in calls.items():
            start = time.process_time()
            for _ in range(repeats):
                call()
            times[name].append((time.process_time() - start) / repeats)
    return {name: statistics.median(t) for name, t in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", default="64,2048")
    parser.add_argument("--samples", type=int, default=51)
    args = parser.parse_args()
    posenc.set_num_threads(1)
    plan = posenc.RotaryPlan(posenc.Rope(head_dim=128, base=5e5, pairing="half_split"))
    table = posenc.RotaryTable(plan, 8192)
    for heads in ((32, 8), (8, 2), (2, 1), (1, 1)):
        for tokens in map(int, args.tokens.split(",")):
            q, k = (numpy.ones((tokens, n, 128), numpy.float32) for n in heads)
            at = numpy.arange(tokens)
            calls = {
                "plan": lambda: plan.rotate_(q, k, positions=at),
                "table": lambda: plan.rotate_table(q, k, table=table, positions=at, out=(q, k)),
            }
            times = in_turns(calls, args.samples, max(1, 8192 // (tokens * sum(heads))))
            print(f"{heads[0]} + {heads[1]} heads, {tokens} tokens: plan {times['plan'] * 1e6:.1f} us, table {times['table'] * 1e6:.1f} us, ratio {times['table'] / times['plan']:.2f}")


if __name__ == "__main__":
    main()
