# SPDX-License-Identifier: Apache-2.0
"""How a trained model is measured: the same targets after contexts of every length, accuracy, attention by distance."""
from __future__ import annotations

from typing import Any, Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from .model import Model

_ROWS = 16  # sequences a call
_WINDOWS = 64


def _losses(model: Model, z: Tensor) -> Tensor:
    """Nats of every next character, [rows, tokens - 1]."""
    return torch.cat([F.cross_entropy(model(some[:, :-1]).transpose(1, 2), some[:, 1:], reduction="none") for some in torch.split(z, _ROWS)])


@torch.no_grad()
def same_targets(model: Model, text: Tensor, trained: int, lengths: list[int], windows: int = _WINDOWS) -> dict[str, float]:
    """Mean loss of the same target characters, the last half of a trained length, where texts of each length end there.

    Places of one window would show other characters at other places, and so the waves of the text.
    """
    ends = torch.linspace(lengths[-1] + 1, len(text) - 1, windows).long()
    targets = max(1, trained // 2)
    return {str(n): _mean(_losses(model, text[ends[:, None] + torch.arange(-n, 1)])[:, -targets:]) for n in lengths}


@torch.no_grad()
def own_windows(model: Model, text: Tensor, lengths: list[int], windows: int = _WINDOWS) -> dict[str, float]:
    """Mean loss of windows that do not overlap, as in Press et al. (ALiBi), appendix: early characters have little context.

    Every length is judged on the same characters: runs of the longest length, cut into windows.
    """
    longest = lengths[-1]
    runs = min(max(1, (len(text) - 1) // longest), max(1, windows * lengths[0] // longest))
    starts = torch.arange(runs) * ((len(text) - 1) // runs)
    found = {}
    for n in lengths:
        first = (starts[:, None] + torch.arange(0, longest - n + 1, n)).flatten()
        found[str(n)] = _mean(_losses(model, text[first[:, None] + torch.arange(n + 1)]))
    return found


@torch.no_grad()
def accuracies(model: Model, make: Callable[[int, int, torch.Generator], tuple[Tensor, Tensor]], lengths: list[int],
               count: int = 256) -> tuple[dict[str, float], dict[str, float]]:
    """By length, the share of asked tokens and of whole sequences that are right: the same sequences for every scheme and seed."""
    tokens, wholes = {}, {}
    for n in lengths:
        generator, right, asked, whole = torch.Generator().manual_seed(999 + n), 0, 0, 0
        for _ in range(count // 32):
            x, y = make(n, 32, generator)
            of = y != -100
            good = model(x).argmax(-1) == y
            right, asked, whole = right + int((good & of).sum()), asked + int(of.sum()), whole + int((good | ~of).all(1).sum())
        tokens[str(n)], wholes[str(n)] = _short(right / max(1, asked)), _short(whole / (count // 32 * 32))
    return tokens, wholes


@torch.no_grad()
def loss_and_accuracy(model: Model, x: Tensor, y: Tensor) -> tuple[float, float]:
    """Of the tokens that are asked for (y not -100)."""
    losses, right = [], []
    for a, b in zip(torch.split(x, _ROWS), torch.split(y, _ROWS)):
        logits, of = model(a), b != -100
        losses.append(F.cross_entropy(logits[of], b[of], reduction="none"))
        right.append(logits[of].argmax(-1) == b[of])
    return _mean(torch.cat(losses)), _mean(torch.cat(right).double())


def unigram(text: Tensor, targets: Tensor, vocabulary: int) -> float:
    """Loss of a guess by the frequency of each character alone."""
    counts = torch.bincount(text, minlength=vocabulary).double() + 1
    return _mean(-(counts / counts.sum()).log()[targets])


def by_distance(model: Model, text: Tensor, trained: int, rows: int = 8) -> dict[str, Any]:
    """Attention of a decoder by distance at the trained length, in bins that grow: left ends and [layer][head][bin]. Empty for
    attention of one's own, whose probabilities the library does not know."""
    if any(hasattr(kind, hook) for kind in model.scheme.own for hook in ("rotate", "bias", "attend")):
        return {}
    starts = torch.linspace(0, len(text) - trained, rows).long()
    distances, mass = model.attention_by_distance(text[starts[:, None] + torch.arange(trained)])
    longest = int(distances.max())
    left = [n for n in sorted({0, *(round(2 ** (i / 2)) for i in range(2 * longest.bit_length()))}) if n <= longest]
    bins = torch.bucketize(distances.double(), torch.tensor(left, dtype=torch.float64), right=True) - 1  # keys ahead have no share
    share = torch.zeros(*mass.shape[:2], len(left), dtype=torch.float64).index_add_(2, bins.clamp(min=0), mass.double())
    return {"distances": left, "attention": [[[_short(x) for x in head] for head in layer] for layer in share.tolist()]}


def _mean(x: Tensor) -> float:
    return _short(float(x.mean()))


def _short(x: float) -> float:
    return round(x, 4)
