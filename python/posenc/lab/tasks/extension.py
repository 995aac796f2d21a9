# SPDX-License-Identifier: Apache-2.0
"""One rotary model whose frequencies are scaled to four times its trained length: without training, and after 40 steps.

Scalings: none, linear (Chen et al. 2023), NTK (bloc97 2023), NTK by parts, YaRN (Peng et al. 2023, eq. 21 to 25), LongRoPE
(Ding et al. 2024, sec. 3.2: a search for a divisor of each pair). YaRN's beta_fast follows the trained length: 32 turns
presume a length of thousands.
"""
from __future__ import annotations

import math
import time
from typing import Any

import torch
from torch import Tensor

import posenc

from .. import judge
from ..errors import LabError
from ..model import Model
from . import Options, Whole, lm, passkey
from .drawn import Drawn

_TUNED_STEPS, _TUNED_BATCH, _TUNED_RATE = 40, 8, 5e-4
_WINDOWS, _TRIALS = 48, 40


def scalings(trained: int, factor: int) -> dict[str, str]:
    """By name, what is added to the SCHEME of rope."""
    beta = min(32.0, trained / (2 * math.pi) / 5)
    own = f"original_context={trained} beta_fast={beta:.4g} beta_slow=1"
    return {"none": "", "linear": f" + linear factor={factor}", "ntk": f" + ntk factor={factor} formula=alpha",
            "by_parts": f" + ntk_by_parts factor={factor} {own}", "yarn": f" + yarn factor={factor} {own}",
            "yarn_default": f" + yarn factor={factor} original_context={trained}",
            "yarn_rotations": f" + yarn factor={factor} original_context={trained} ramp=rotations"}


class Task(Whole):
    defaults = {"train": 64, "test": 256, "steps": 1000, "lr": 2e-3, "heads": 2}

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        if options.measure not in ("loss", "passkey"):
            raise LabError(f'--measure must be loss or passkey, got "{options.measure}"')
        if options.test % options.train or options.test == options.train:
            raise LabError(f"extension needs --test to be a multiple of --train, {options.train}, got {options.test}")
        self.factor = options.test // options.train
        self.of: Whole = lm.Task(options) if options.measure == "loss" else Drawn(passkey.Task(), options)
        self.corpus, self.vocabulary = self.of.corpus, self.of.vocabulary

    def batch(self, length: int, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        return self.of.batch(length, count, generator)

    def model(self, scheme: str, seed: int) -> Model:
        made: Model = super().model(scheme, seed)
        rotary = made.scheme.rotary
        if len(rotary) != 1 or len(made.scheme.attention) != 1 or " + " in rotary[0]:
            raise LabError(f'extension needs a scheme that is one rotary encoding without a scaling, got "{made.scheme.text}"')
        return made

    def _measure(self, model: Model) -> dict[str, float]:
        o = self.options
        if self.corpus:
            return judge.same_targets(model, self.corpus.held_out, o.train, o.lengths(), _WINDOWS)
        return judge.accuracies(model, self.batch, o.lengths())[0]

    def judge(self, model: Model, seed: int) -> dict[str, Any]:
        from ..train import fit

        own, kept = model.scheme.rotary[0], {name: x.clone() for name, x in model.state_dict().items()}
        modes: dict[str, Any] = {}
        texts = {name: own + words for name, words in scalings(self.options.train, self.factor).items()}
        texts["longrope"] = own + self._searched(model, own, seed)
        for name, text in texts.items():
            model.load_state_dict(kept)
            model.rescale([text])
            zero, start = self._measure(model), time.process_time()
            generator = torch.Generator().manual_seed(seed + 1001)
            fit(model, lambda: self.batch(self.options.test, _TUNED_BATCH, generator), steps=_TUNED_STEPS, lr=_TUNED_RATE, warm=5)
            seconds = time.process_time() - start
            modes[name] = {"scheme": str(posenc.parse(text)), "zero": zero, "tuned": self._measure(model), "tuned_seconds": round(seconds, 2)}
        model.load_state_dict(kept)
        model.rescale([own])
        return {"factor": self.factor, "modes": modes}

    def _searched(self, model: Model, own: str, seed: int) -> str:
        """LongRoPE's search, small: divisors that grow with the wavelength, from those of NTK, by parts and linear, changed
        at random; the best by the loss on training text of the wanted length."""
        generator = torch.Generator().manual_seed(seed + 1002)
        x, y = self.batch(self.options.test, 16, generator)
        plain = torch.from_numpy(posenc.frequencies(own).copy())
        known = scalings(self.options.train, self.factor)
        start = [plain / torch.from_numpy(posenc.frequencies(own + known[name]).copy()) for name in ("linear", "ntk", "by_parts")]
        found = sorted(((self._loss(model, own, d, x, y), d) for d in start), key=lambda pair: pair[0])
        for _ in range(_TRIALS):
            parent = found[int(torch.randint(0, min(4, len(found)), (1,), generator=generator))][1]
            change = torch.exp(0.3 * torch.randn(parent.shape, generator=generator, dtype=torch.float64)) if len(parent) else parent
            keep = torch.rand(parent.shape, generator=generator) < 0.5
            child = torch.where(keep, parent, parent * change).clamp(1, 2.0 * self.factor).cummax(0).values
            found.append((self._loss(model, own, child, x, y), child))
            found = sorted(found, key=lambda pair: pair[0])[:8]
        return self._longrope(found[0][1])

    def _longrope(self, divisors: Tensor) -> str:
        words = ",".join(f"{d:.6g}" for d in divisors.tolist())
        return (f" + longrope long_factor=[{words}] short_factor=[{words}] original_context={self.options.train} factor={self.factor} "
                f"switch_rule=always_long")

    @torch.no_grad()
    def _loss(self, model: Model, own: str, divisors: Tensor, x: Tensor, y: Tensor) -> float:
        model.rescale([own + self._longrope(divisors)])
        logits = model(x)
        asked = y != -100
        asked[:, : self.options.train] &= self.corpus is None  # far characters alone
        return float(torch.nn.functional.cross_entropy(logits[asked], y[asked]))
