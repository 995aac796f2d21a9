# SPDX-License-Identifier: Apache-2.0
"""Training of one run: AdamW, warm-up, cosine to a tenth; checkpoints that continue with the same bits."""
from __future__ import annotations

import io
import math
import os
import time
from pathlib import Path
from typing import Any, Callable

import torch
from torch import Tensor, nn

from . import tasks
from .model import Model, weights_hash

CHECKPOINT_SECONDS = float(os.environ.get("POSENC_LAB_CHECKPOINT", "30"))
Progress = Callable[[float], None]


class NotFinite(Exception):
    """The loss of a run stopped being a number; that run ends, others go on."""


def rate(step: int, steps: int, warm: int) -> float:
    """What multiplies the learning rate: linear to 1 in `warm` steps, a cosine down to 0.1 at the end."""
    return min(1.0, (step + 1) / warm) * (0.1 + 0.45 * (1 + math.cos(math.pi * step / steps)))


def optimiser(model: nn.Module, lr: float) -> torch.optim.AdamW:
    return torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.01, betas=(0.9, 0.98))


def update(model: nn.Module, adam: torch.optim.AdamW, loss: Tensor, step: int) -> float:
    """One step of the optimiser; the loss as a number."""
    value = float(loss.detach())
    if not math.isfinite(value):
        raise NotFinite(f"the loss is {value} at step {step}")
    adam.zero_grad(set_to_none=True)
    torch.autograd.backward(loss)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    adam.step()
    return value


def fit(model: Model, make: Callable[[], tuple[Tensor, Tensor]], *, steps: int, lr: float, warm: int) -> float:
    """Trains without checkpoints, as short further training does; the last loss."""
    adam, value = optimiser(model, lr), math.nan
    model.train()
    for step in range(steps):
        for group in adam.param_groups:
            group["lr"] = lr * rate(step, steps, warm)
        value = update(model, adam, model.loss(*make()), step)
    model.eval()
    return value


class Run:
    """One run of a queue: a task, a scheme, a seed. checkpoint: the file that it continues from and writes to."""

    def __init__(self, task: str, scheme: str, seed: int, options: tasks.Options, checkpoint: Path | None = None) -> None:
        self.seed, self.options, self.checkpoint = seed, options, checkpoint
        self.before = resident()
        self.task = tasks.make(task, options)
        self.model = self.task.model(scheme, seed)
        self.adam = optimiser(self.model, options.lr)
        self.generator = torch.Generator().manual_seed(seed + 1000)
        self.step, self.seconds, self.mean = 0, 0.0, math.nan

    def loss(self) -> Tensor:
        return self.task.loss(self.model, self.options.batch, self.generator, (self.seed, self.step))

    def train(self, progress: Progress | None = None) -> None:
        """To the last step. The same bits whether it ran at once or was killed and continued."""
        o = self.options
        self._continue()
        self.model.train()
        written = time.monotonic()
        warm = min(50, max(1, o.steps // 4))
        while self.step < o.steps:
            started = time.process_time()
            for group in self.adam.param_groups:
                group["lr"] = o.lr * rate(self.step, o.steps, warm)
            value = update(self.model, self.adam, self.loss(), self.step)
            self.mean = value if math.isnan(self.mean) else 0.98 * self.mean + 0.02 * value
            self.step += 1
            self.seconds += time.process_time() - started
            if progress is not None and self.step % 10 == 0:
                progress(self.step / o.steps)
            if self.checkpoint is not None and time.monotonic() - written > CHECKPOINT_SECONDS:
                self._write()
                written = time.monotonic()
        self.model.eval()

    def result(self, progress: Progress | None = None) -> dict[str, Any]:
        """Trains and judges: what results.jsonl keeps beside the identity of the run."""
        found: dict[str, Any] = {"values": {}}
        try:
            self.train(progress)
            digest, started = weights_hash(self.model), time.process_time()
            found["values"] = {**self.task.judge(self.model, self.seed), "train_loss": round(self.mean, 4)}
            found |= {"weights_sha256": digest, "evaluation_seconds": round(time.process_time() - started, 2)}
        except NotFinite as e:
            found["failed"] = str(e)
        found |= {"seconds": round(self.seconds, 2), "step_ms": round(1000 * self.seconds / max(1, self.step), 2),
                  "parameters": sum(p.numel() for p in self.model.parameters()),
                  "peak_bytes": max(0, resident("VmHWM") - self.before)}
        return found

    def _write(self) -> None:
        assert self.checkpoint is not None
        state = {"model": self.model.state_dict(), "adam": self.adam.state_dict(), "generator": self.generator.get_state(),
                 "step": self.step, "seconds": self.seconds, "mean": self.mean}
        part, data = self.checkpoint.with_suffix(".part"), io.BytesIO()
        torch.save(state, data)  # into a file it would not say that the disk is full
        try:
            part.write_bytes(data.getbuffer())
            os.replace(part, self.checkpoint)
        except OSError:
            part.unlink(missing_ok=True)
            raise

    def _continue(self) -> None:
        if self.checkpoint is None or not self.checkpoint.exists():
            return
        state = torch.load(self.checkpoint, weights_only=True)
        self.model.load_state_dict(state["model"])
        self.adam.load_state_dict(state["adam"])
        self.generator.set_state(state["generator"])
        self.step, self.seconds, self.mean = state["step"], state["seconds"], state["mean"]


def warm_up() -> None:
    """Loads what PyTorch and posenc load at their first step, so that a run's memory is its own."""
    model = Model("rope", 4, width=8, layers=1, heads=1, rows=4, trained=4)
    ids = torch.zeros(1, 4, dtype=torch.int64)
    update(model, optimiser(model, 1e-3), model.loss(ids, ids), 0)


def resident(which: str = "VmRSS") -> int:
    """Bytes of memory that the process holds now, or has held at most (VmHWM)."""
    with open("/proc/self/status", encoding="ascii") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith(which))
