# SPDX-License-Identifier: Apache-2.0
"""Decoder and encoder of the lab: pre-norm, GELU, four times as wide inside; their positions come from a scheme.

Radford et al. 2019 (GPT-2), sec. 2.3, for the arrangement; Devlin et al. 2018 (BERT), sec. 3, for `segments`: the sum of
token, segment and position, normalised, before the first layer. Weights that no scheme brings depend on the seed alone,
so runs of different schemes start from the same numbers.
"""
from __future__ import annotations

import hashlib
import zlib
from typing import Any, Iterable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import posenc
import posenc.torch

from .positions import AttentionParts, InputParts, Scheme, Sizes


class Block(nn.Module):
    """One layer: attention and two linear maps, each behind its norm."""

    def __init__(self, scheme: Scheme, causal: bool) -> None:
        super().__init__()
        d = scheme.sizes.width
        self.heads = scheme.sizes.heads
        self.norm_1, self.norm_2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.out = nn.Linear(d, 3 * d, bias=False), nn.Linear(d, d, bias=False)
        self.up, self.down = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)
        self.parts = AttentionParts(scheme, causal=causal)
        self.seen: list[tuple[Tensor, ...]] | None = None  # a list collects q, k, v and the hidden states of calls

    def forward(self, x: Tensor, positions: Tensor | None) -> Tensor:
        batch, tokens, d = x.shape
        hidden = self.norm_1(x)
        q, k, v = self.qkv(hidden).view(batch, tokens, 3, self.heads, d // self.heads).unbind(2)
        if self.seen is not None:
            self.seen.append((q, k, v, hidden))
        x = x + self.out(self.parts(q, k, v, hidden, positions).reshape(batch, tokens, d))
        y: Tensor = x + self.down(F.gelu(self.up(self.norm_2(x))))
        return y


class Model(nn.Module):
    """ids [batch, tokens] to logits [batch, tokens, vocabulary].

    scheme: see positions.py. vocabulary: how many tokens. rows: the longest text that is read. segments: how many kinds of
    tokens BERT's arrangement has; 0: GPT's. positions of a call: [tokens] or [batch, tokens] in place of 0, 1, 2 ...; with
    `drawn`, in place of some of 0 to rows - 1, the same for every call of a length (Ruoss et al. 2023 draw in tests too).
    """

    def __init__(self, scheme: str, vocabulary: int, *, width: int = 64, layers: int = 2, heads: int = 4, rows: int, trained: int,
                 causal: bool = True, segments: int = 0, seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed_of(seed, "own"))  # what constructors of one's own modules draw
        self.scheme, self.drawn = Scheme(scheme, Sizes(width, heads, rows, trained, causal)), False
        self.embedding = nn.Embedding(vocabulary, width)
        self.segment = nn.Embedding(segments, width) if segments else None
        self.input_norm = nn.LayerNorm(width) if segments else None
        self.positions = InputParts(self.scheme)
        self.blocks = nn.ModuleList(Block(self.scheme, causal) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)
        start(self, seed, std={"embedding.weight": width ** -0.5} if any("input_gain" in t for t in self.scheme.input) else {})

    def forward(self, ids: Tensor, positions: Tensor | None = None, segments: Tensor | None = None) -> Tensor:
        if self.drawn and positions is None:
            positions = draw(self.scheme.sizes.rows, ids.shape[1], 999, ids.shape[1])
        x = self.embedding(ids)
        if self.segment is not None:
            x = x + self.segment(torch.zeros_like(ids) if segments is None else segments)
        x = self.positions(x, torch.arange(ids.shape[1]) if positions is None else positions)
        if self.input_norm is not None:
            x = self.input_norm(x)
        for block in self.blocks:
            x = block(x, positions)
        logits: Tensor = self.head(self.norm(x))
        return logits

    def loss(self, ids: Tensor, wanted: Tensor, positions: Tensor | None = None) -> Tensor:
        """Mean nats of the outputs that are asked for, not -100."""
        return F.cross_entropy(self(ids, positions).flatten(0, 1), wanted.flatten(), ignore_index=-100)

    def rescale(self, texts: Iterable[str]) -> None:
        """Other scalings of what acts on q, k and the score, for the weights that are there."""
        for block in self.blocks:
            block.parts.rescale(texts)  # type: ignore[union-attr, operator]

    @torch.no_grad()
    def attention_by_distance(self, ids: Tensor, positions: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Distances, and the share of the attention at each, [layers, heads, distances]: means over the rows of ids."""
        blocks: list[Any] = list(self.blocks)
        for block in blocks:
            block.seen = []
        try:
            if self.drawn and positions is None:
                positions = draw(self.scheme.sizes.rows, ids.shape[1], 999, ids.shape[1])
            self(ids, positions)
            found = []
            for block in blocks:
                (q, k, v, hidden), = block.seen
                parts = block.parts
                inputs = parts._inputs(hidden)
                found.append(parts.attention.locality(q, k, v, **parts.placed(ids.shape[1], positions), **({"inputs": inputs} if inputs else {})))
        finally:
            for block in blocks:
                block.seen = None
        return found[0][0], torch.stack([mass for _, mass in found])


def draw(rows: int, tokens: int, seed: int, step: int) -> Tensor:
    """Distinct positions of 0 to rows - 1 in order, [tokens]."""
    return torch.from_numpy(posenc.random_positions(rows, tokens, seed=seed, step=step)).flatten()


def start(model: nn.Module, seed: int, std: dict[str, float] | None = None) -> None:
    """Every weight as it starts, drawn by the seed and its own name: normal with deviation 0.02, or that of `std`.

    What belongs to a scheme of posenc starts as published, drawn by the seed and the name of its module; a module of one's
    own starts as its constructor leaves it.
    """
    of_schemes = {id(p) for module in model.modules() if isinstance(module, (InputParts, AttentionParts)) for p in module.parameters()}
    for name, module in model.named_modules():
        if isinstance(module, (posenc.torch.Attention, posenc.torch.InputPositions)):
            torch.manual_seed(seed_of(seed, name))
            module.reset_parameters()
        for linear in (getattr(module, "gate", None), getattr(module, "back", None)):
            if isinstance(linear, nn.Linear):
                torch.manual_seed(seed_of(seed, name))
                linear.reset_parameters()
    with torch.no_grad():
        for name, p in model.named_parameters():
            if id(p) in of_schemes:
                continue
            if p.dim() > 1:
                p.normal_(0, (std or {}).get(name, 0.02), generator=torch.Generator().manual_seed(seed_of(seed, name)))
            elif name.endswith("bias"):
                p.zero_()
            else:
                p.fill_(1)


def seed_of(seed: int, name: str) -> int:
    return (seed * 0x9E3779B97F4A7C15 + zlib.crc32(name.encode())) % 2 ** 62


def weights_hash(model: nn.Module) -> str:
    """SHA-256 of every weight by name."""
    digest = hashlib.sha256()
    for name, x in sorted(model.state_dict().items()):
        digest.update(name.encode() + str(x.dtype).encode() + x.detach().contiguous().numpy().tobytes())
    return digest.hexdigest()
