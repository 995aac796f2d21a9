#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Processor time and memory of one training step of the lab's model, beside the same model with PyTorch's eager attention and a dense bias.

    build/lab/bin/python python/bench/lab_steps.py [--shapes 32x32,256x8,2048x1] [--rounds 25]

One thread; the two models take turns, medians of the rounds. Memory: growth of the peak in a process of its own.
"""
from __future__ import annotations

import argparse
import math
import multiprocessing
import os
import statistics
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")
import torch
from torch import nn

from posenc.lab.model import Model
from posenc.lab.train import optimiser, resident, update

SCHEMES = {"none": "nope", "rope": "rope", "alibi": "alibi", "t5": "t5", "kerple": "kerple kernel=log"}


class Dense(nn.Module):
    """What a script of one's own does: q.k of all pairs, a bias of all pairs, softmax, product."""

    def __init__(self, label: str, heads: int, head_dim: int, tokens: int) -> None:
        super().__init__()
        self.label, self.scale = label, head_dim ** -0.5
        at = torch.arange(tokens)
        self.far = (at[:, None] - at).clamp(min=0)
        self.hide = torch.full((tokens, tokens), -torch.inf).triu(1)
        turn = at[:, None] * 10000.0 ** (-torch.arange(0, head_dim, 2) / head_dim)
        self.cos, self.sin = turn.cos(), turn.sin()
        self.alibi = self.hide - 2.0 ** (-8 * (torch.arange(heads) + 1) / heads)[:, None, None] * self.far
        bucket = torch.where(self.far < 16, self.far, (16 + (self.far.clamp(min=1) / 16).log() / math.log(tokens / 16 if tokens > 16 else 2) * 16).long().clamp(max=31))
        self.bucket = bucket
        if label == "t5":
            self.table = nn.Parameter(torch.randn(32, heads) * 0.02)
        if label == "kerple":
            self.p, self.a = nn.Parameter(torch.rand(heads) * 2), nn.Parameter(torch.rand(heads))

    def _rotated(self, x: torch.Tensor) -> torch.Tensor:
        a, b = x.chunk(2, -1)
        return torch.cat([a * self.cos - b * self.sin, b * self.cos + a * self.sin], -1)

    def forward(self, q, k, v, hidden, positions=None):
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        bias = self.hide
        if self.label == "rope":
            q, k = self._rotated(q), self._rotated(k)
        elif self.label == "alibi":
            bias = self.alibi
        elif self.label == "t5":
            bias = self.hide + self.table[self.bucket].permute(2, 0, 1)
        elif self.label == "kerple":
            bias = self.hide - self.p.clamp(min=0.01)[:, None, None] * torch.log1p(self.a.clamp(min=0.01)[:, None, None] * self.far)
        return (torch.softmax(q @ k.transpose(-1, -2) * self.scale + bias, -1) @ v).transpose(1, 2)


def make(label: str, dense: bool, tokens: int) -> tuple[Model, torch.optim.AdamW]:
    model = Model(SCHEMES[label], 96, rows=tokens, trained=tokens)
    if dense:
        for block in model.blocks:
            block.parts = Dense(label, block.heads, model.scheme.sizes.head_dim, tokens)
    return model, optimiser(model, 1e-3)


def times(label: str, tokens: int, batch: int, rounds: int) -> tuple[float, float]:
    x = torch.randint(0, 96, (batch, tokens))
    both, took = [make(label, dense, tokens) for dense in (True, False)], ([], [])
    for i in range(rounds + 2):
        for (model, adam), list_ in zip(both, took):
            started = time.process_time()
            update(model, adam, model.loss(x, x), i)
            if i > 1:
                list_.append(1000 * (time.process_time() - started))
    return statistics.median(took[0]), statistics.median(took[1])


def _peak(label: str, dense: bool, tokens: int, batch: int, to) -> None:
    torch.set_num_threads(1)
    model, adam = make(label, dense, 64)
    x = torch.randint(0, 96, (1, 64))
    update(model, adam, model.loss(x, x), 0)  # what libraries load at their first call
    model, adam = make(label, dense, tokens)
    before, x = resident(), torch.randint(0, 96, (batch, tokens))
    update(model, adam, model.loss(x, x), 0)
    to.put(max(0, resident("VmHWM") - before) / 2 ** 20)


def peak(label: str, dense: bool, tokens: int, batch: int) -> float:
    context = multiprocessing.get_context("spawn")
    queue = context.SimpleQueue()
    process = context.Process(target=_peak, args=(label, dense, tokens, batch, queue))
    process.start()
    found = queue.get()
    process.join()
    return found


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--shapes", default="32x32,256x8,2048x1", help="TOKENSxBATCH, several by commas")
    p.add_argument("--rounds", type=int, default=25)
    p.add_argument("--schemes", default=",".join(SCHEMES))
    a = p.parse_args()
    torch.set_num_threads(1)
    print(f"{'tokens x batch':16} {'scheme':8} {'eager ms':>9} {'posenc ms':>9} {'ratio':>6} {'eager MiB':>10} {'posenc MiB':>10} {'ratio':>6}")
    for shape in a.shapes.split(","):
        tokens, batch = map(int, shape.split("x"))
        for label in a.schemes.split(","):
            eager, ours = times(label, tokens, batch, max(3, a.rounds if tokens < 1000 else a.rounds // 8))
            memory = [peak(label, dense, tokens, batch) for dense in (True, False)] if tokens >= 1000 else [math.nan, math.nan]
            print(f"{shape:16} {label:8} {eager:9.1f} {ours:9.1f} {ours / eager:6.2f} {memory[0]:10.0f} {memory[1]:10.0f} {memory[1] / memory[0]:6.2f}", flush=True)


if __name__ == "__main__":
    main()
