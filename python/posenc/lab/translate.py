# SPDX-License-Identifier: Apache-2.0
"""Encoder-decoder of the lab (Vaswani et al. 2017, sec. 3.1, pre-norm) and its search for translations.

A scheme acts in the encoder and in the decoder, each with its own completed SCHEME; "ENCODER ;; DECODER" gives two different ones.
Cross attention has no positions. While it decodes, each layer of the decoder keeps rotated keys, values and gates.
"""
from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import posenc.torch

from .errors import LabError
from .model import Block, seed_of, start
from .positions import AttentionParts, InputParts, Scheme, Sizes

PAD, UNKNOWN, END, START = 0, 1, 2, 3
SPECIAL = 4  # ids of words and characters begin here
# Of the length penalty (Wu et al. 2016, eq. 14, where it is 0.6 to 0.7). Models of this size leave words out: with 0.6 a beam of 4 loses
# up to 3 BLEU against greedy search, because it writes 0.7 of the wanted characters; with 1.5 it gains 1 to 4.
ALPHA = 1.5

Cache = dict[str, Tensor]  # keys, values and gates of one layer, [rows, tokens, ...]
Memory = list[tuple[Tensor, Tensor]]  # keys and values of the source for each layer of the decoder, [batch, words, heads, head_dim]


class Sides:
    """The schemes of the encoder and of the decoder. text: what runs, one SCHEME if both are the same."""

    def __init__(self, scheme: str, encoder: Sizes, decoder: Sizes) -> None:
        parts = [part.strip() for part in scheme.split(";;")]
        if len(parts) > 2 or not all(parts):
            raise LabError(f'scheme of a translation must be SCHEME or "ENCODER ;; DECODER", got "{scheme}"')
        self.encoder, self.decoder = Scheme(parts[0], encoder), Scheme(parts[-1], decoder)
        self.text = self.encoder.text if self.encoder.text == self.decoder.text else f"{self.encoder.text} ;; {self.decoder.text}"


class CachedAttention(AttentionParts):
    """Self attention that can continue from the keys of earlier calls.

    Rotary encodings rotate q and k before the cache, so that a cached key is never rotated again. Other scalings by length
    are resolved for the longest sentence, `rows`: the number of tokens of a call depends on padding and on the cache.
    """

    def __init__(self, scheme: Scheme, *, causal: bool) -> None:
        super().__init__(scheme, causal=causal, without=scheme.rotary, length=scheme.sizes.rows)
        self.rotary, self.rows = scheme.rotary, scheme.sizes.rows
        for text in self.rotary:
            x = torch.zeros(1, 1, scheme.sizes.heads, scheme.sizes.head_dim)
            try:
                posenc.torch.rotate(text, x, x, positions=torch.arange(1), layout="bthd", context=self.rows)
            except ValueError as e:  # frequencies that hold for one length of a call
                raise LabError(f"scheme {text} is scaled by the length of each call, which padding and the cache of keys change: a translation "
                               "needs a rule with a fixed length, such as length_rule=declared or switch_rule=always_long") from e

    def step(self, q: Tensor, k: Tensor, v: Tensor, hidden: Tensor, cache: Cache | None, **options: Any) -> Tensor:
        """Attention of new tokens, and of all before them if there is a cache, which then has the new ones too."""
        first = cache["k"].shape[1] if cache else 0
        places = torch.arange(first, first + q.shape[1])
        q, k = self.rotated(q, k, places)
        for text in self.rotary:
            q, k = posenc.torch.rotate(text, q, k, positions=places, layout="bthd", context=self.rows)
        gates = self.gates(hidden)
        if cache is not None:
            new = {"k": k, "v": v} if gates is None else {"k": k, "v": v, "gates": gates}
            cache.update({name: torch.cat([cache[name], x], 1) if first else x for name, x in new.items()})
            k, v, gates = cache["k"], cache["v"], cache.get("gates")
            options |= {"query_positions": places, "key_positions": torch.arange(k.shape[1])}
        return self.attended(q, k, v, self._inputs(hidden, k.shape[1], gates), **options)


class Layer(Block):
    """A layer of the encoder, or, where causal, one of the decoder: with attention to the source behind its own."""

    def __init__(self, scheme: Scheme, causal: bool) -> None:
        super().__init__(scheme, causal)  # its attention has all parts of the scheme and rejects those that do not fit together
        d = scheme.sizes.width
        self.parts: CachedAttention = CachedAttention(scheme, causal=causal)
        if causal:
            self.norm_source = nn.LayerNorm(d)
            self.source_q, self.source_kv, self.source_out = nn.Linear(d, d, bias=False), nn.Linear(d, 2 * d, bias=False), nn.Linear(d, d, bias=False)

    def memory(self, encoded: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values of the source."""
        batch, words, d = encoded.shape
        k, v = self.source_kv(encoded).view(batch, words, 2, self.heads, d // self.heads).unbind(2)
        return k, v

    def forward(self, x: Tensor, lengths: Tensor, memory: tuple[Tensor, Tensor] | None = None,  # type: ignore[override]
                cache: Cache | None = None) -> Tensor:
        """lengths: words of each source, of which the encoder pads the rest. x [rows, tokens, d]; rows may be several for each of memory."""
        rows, tokens, d = x.shape
        hidden = self.norm_1(x)
        q, k, v = self.qkv(hidden).view(rows, tokens, 3, self.heads, d // self.heads).unbind(2)
        padding: dict[str, Any] = {"key_length": lengths} if memory is None else {}
        x = x + self.out(self.parts.step(q, k, v, hidden, cache, **padding).reshape(rows, tokens, d))
        if memory is not None:
            # Hypotheses of one source are queries of one call: the source has no order among them.
            q = self.source_q(self.norm_source(x)).view(len(lengths), -1, self.heads, d // self.heads)
            found = posenc.torch.attend(None, q, *memory, order="bthd", key_length=lengths)
            x = x + self.source_out(found.reshape(rows, tokens, d))
        out: Tensor = x + self.down(F.gelu(self.up(self.norm_2(x))))
        return out


class Translator(nn.Module):
    """Words of a source and characters so far to logits of the next characters.

    rows: the longest sentence of either side; trained: the longest that is trained, of each side. Weights that no scheme
    brings depend on the seed alone.
    """

    def __init__(self, scheme: str, words: int, characters: int, *, width: int, layers: int, heads: int, rows: int,
                 trained: tuple[int, int], seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed_of(seed, "own"))  # what constructors of one's own modules draw
        self.scheme = Sides(scheme, Sizes(width, heads, rows, trained[0], False), Sizes(width, heads, rows, trained[1], True))
        encoder, decoder = self.scheme.encoder, self.scheme.decoder
        self.source, self.target = nn.Embedding(words, width), nn.Embedding(characters, width)
        self.source_positions, self.target_positions = InputParts(encoder), InputParts(decoder)
        self.encoder = nn.ModuleList(Layer(encoder, False) for _ in range(layers))
        self.decoder = nn.ModuleList(Layer(decoder, True) for _ in range(layers))
        self.source_norm, self.target_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.head = nn.Linear(width, characters, bias=False)
        # Linear maps start as those of torch: with deviations of 0.02, as the other models have, a few hundred steps at this width do not suffice.
        deviations = {f"{name}.weight": (3 * m.in_features) ** -0.5 for name, m in self.named_modules() if isinstance(m, nn.Linear)}
        for name, side in (("source.weight", encoder), ("target.weight", decoder)):
            if any("input_gain" in text for text in side.input):
                deviations[name] = width ** -0.5
        start(self, seed, deviations)

    def encode(self, x: Tensor, lengths: Tensor) -> Memory:
        """x: ids of words [batch, words], of which lengths [batch] are no padding."""
        h = self.source_positions(self.source(x), torch.arange(x.shape[1]))
        for layer in self.encoder:
            h = layer(h, lengths)
        h = self.source_norm(h)
        return [layer.memory(h) for layer in self.decoder]  # type: ignore[operator]

    def decode(self, y: Tensor, memory: Memory, lengths: Tensor, caches: list[Cache] | None = None) -> Tensor:
        """Logits behind each character of y [rows, characters]; caches: one for each layer, of the characters before y."""
        first = caches[0]["k"].shape[1] if caches and caches[0] else 0
        h = self.target_positions(self.target(y), torch.arange(first, first + y.shape[1]))
        for i, layer in enumerate(self.decoder):
            h = layer(h, lengths, memory[i], caches[i] if caches else None)
        logits: Tensor = self.head(self.target_norm(h))
        return logits

    def forward(self, x: Tensor, lengths: Tensor, y: Tensor) -> Tensor:
        return self.decode(y, self.encode(x, lengths), lengths)


def penalty(length: int | Tensor, alpha: float = ALPHA) -> Any:
    """What divides the log probability of a hypothesis of that many characters, its end counted."""
    return ((5 + length) / 6) ** alpha


class Search:
    """Beam search of a batch; with one hypothesis each it is greedy. limits [batch]: the most characters of each sentence.

    Finished hypotheses are kept apart from those that go on: an end counts if it is among the best `beam` continuations. A
    sentence is done when no hypothesis that goes on can become better than its best finished one; greedy search at the first end.
    """

    def __init__(self, model: Translator, x: Tensor, lengths: Tensor, limits: Tensor, beam: int = 1) -> None:
        self.model, self.beam, self.lengths, self.limits = model, beam, lengths, limits
        self.sentence = torch.arange(len(x))  # of each row that goes on
        self.memory = model.encode(x, lengths)
        self.caches: list[Cache] = [{} for _ in model.decoder]
        self.y = torch.full((len(x), beam, 1), START)
        self.sums = torch.full((len(x), beam), -math.inf)
        self.sums[:, 0] = 0
        self.score = torch.full((len(x),), -math.inf)
        self.best: list[list[int]] = [[] for _ in range(len(x))]

    def run(self) -> list[list[int]]:
        """The best hypothesis of each sentence, without its end."""
        for step in range(1, int(self.limits.max()) + 1):
            self._step(step)
            if not len(self.sentence):
                break
        return self.best

    def _step(self, step: int) -> None:
        rows, beam = len(self.sentence), self.beam
        logits = self.model.decode(self.y[:, :, -1:].flatten(0, 1), self.memory, self.lengths, self.caches)[:, -1]
        p = F.log_softmax(logits, -1)
        p[:, [PAD, UNKNOWN, START]] = -math.inf
        # At most one continuation of a hypothesis ends: `beam` of twice as many go on.
        value, pick = (self.sums[:, :, None] + p.view(rows, beam, -1)).flatten(1).topk(2 * beam)
        parent, character = pick // p.shape[1], pick % p.shape[1]
        ends = character == END
        self._finish(step, torch.where(ends, value, -math.inf)[:, :beam], parent)
        order = torch.where(ends, -math.inf, value).topk(beam).indices
        self.sums, parent, character = (t.gather(1, order) for t in (value, parent, character))
        self.y = torch.cat([self.y.gather(1, parent[:, :, None].expand(-1, -1, step)), character[:, :, None]], 2)
        self._cut(step)
        score = self.score[self.sentence]
        can_win = self.sums[:, 0] / penalty(self.limits) > score if beam > 1 else score.isinf()
        self._keep(((self.limits > step) & can_win).nonzero().flatten(), parent)

    def _finish(self, step: int, value: Tensor, parent: Tensor) -> None:
        """Keeps the best of the hypotheses that end here."""
        score, at = (value / penalty(step)).max(1)
        for row in (score > self.score[self.sentence]).nonzero().flatten().tolist():
            sentence = int(self.sentence[row])
            self.score[sentence] = score[row]
            self.best[sentence] = self.y[row, parent[row, at[row]], 1:].tolist()

    def _cut(self, step: int) -> None:
        """Sentences that reach their limit without an end: the best of what there is."""
        for row in ((self.limits == step) & self.score[self.sentence].isinf()).nonzero().flatten().tolist():
            self.best[int(self.sentence[row])] = self.y[row, 0, 1:].tolist()

    def _keep(self, rows: Tensor, parent: Tensor) -> None:
        """Goes on with these rows, each hypothesis with the cache of its parent."""
        every = len(rows) == len(self.sentence)
        if not every:
            self.memory = [(k[rows], v[rows]) for k, v in self.memory]
            self.sentence, self.lengths, self.limits, self.sums, self.y, parent = (
                t[rows] for t in (self.sentence, self.lengths, self.limits, self.sums, self.y, parent))
        if not every or self.beam > 1:
            index = (rows[:, None] * self.beam + parent).flatten()
            for cache in self.caches:
                cache.update({name: x[index] for name, x in cache.items()})


@torch.no_grad()
def search(model: Translator, x: Tensor, lengths: Tensor, limits: Tensor, beam: int = 1) -> list[list[int]]:
    """Characters of the translation of each row of x: greedy, or the best that a beam finds. limits: the most characters of each."""
    return Search(model, x, lengths, limits, beam).run()
