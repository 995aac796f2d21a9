#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A grid of learned positions at another size, by PyTorch and by posenc: bicubic 14 x 14 -> 37 x 37 x 768, one thread.

    python3 bench/peers/extend.py [--rounds 5] [--posenc build/bin/posenc]

PyTorch comes from PyPI into build/peers (run.py makes the same environment). Each round runs both, one after the
other; ours is the line of `posenc bench`, which compares its result with double sums before it is timed. PyTorch's
numbers themselves are in the suite `absolute`.
"""
import argparse
import json
import statistics
import subprocess
import time

import run as peers


def by_posenc(program):
    out = subprocess.run([program, "bench", "--filter", "extend_bicubic", "--quick", "--json"], check=True,
                         capture_output=True, text=True).stdout
    return json.loads(out)["results"][0]["seconds"]


def by_torch(torch, table, layout):
    """Seconds of interpolate as ViT and DINOv2 call it: [1, c, h, w], a permuted view of [1, h * w, c]."""
    grid = table.reshape(1, 14, 14, 768).permute(0, 3, 1, 2)
    grid = grid.contiguous() if layout == "channels first" else grid
    seconds = []
    for _ in range(9):
        start = time.perf_counter()
        torch.nn.functional.interpolate(grid, size=(37, 37), mode="bicubic", align_corners=False)
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--posenc", default=str(peers.ROOT / "build" / "bin" / "posenc"))
    arguments = parser.parse_args()
    peers.enter_environment()
    import torch
    torch.set_num_threads(1)
    table = torch.randn(1, 14 * 14, 768, generator=torch.Generator().manual_seed(0))
    layouts = ["as it lies", "channels first"]
    times = {name: [] for name in ["posenc", *layouts]}
    for _ in range(arguments.rounds):
        times["posenc"].append(by_posenc(arguments.posenc))
        for layout in layouts:
            times[layout].append(by_torch(torch, table, layout))
    ours = statistics.median(times["posenc"])
    print(f"bicubic 14 x 14 -> 37 x 37 x 768, f32, one thread\n  posenc                        {ours * 1e3:8.2f} ms")
    for layout in layouts:
        theirs = statistics.median(times[layout])
        print(f"  PyTorch {torch.__version__:8.8}, {layout:14} {theirs * 1e3:8.2f} ms   {theirs / ours:.1f} x ours")


if __name__ == "__main__":
    main()
