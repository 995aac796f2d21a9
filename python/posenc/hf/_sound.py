# SPDX-License-Identifier: Apache-2.0
"""Attention of speech models that is computed in place with vectors by distance: SpeechT5, FastSpeech 2's Conformer, Granite,
Gemma 3n and 4."""
from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any

import torch

from .. import torch as host
from ._inline import asks_more, replaces, split_heads, takes
from ._kept import bound
from ._lazy import Lazy, VectorRows, is_a, mask_options

if TYPE_CHECKING:
    from torch import Tensor


def _speecht5_reason(self: Any, hidden_states: Any, key_value_states: Any = None, past_key_values: Any = None, attention_mask: Any = None,
                     position_bias: Any = None, output_attentions: bool = False, **rest: Any) -> str:
    why = asks_more(self, output_attentions, self.dropout)
    if why:
        return why
    if key_value_states is not None or past_key_values is not None:
        return "keys at other positions than the queries"
    return "" if is_a(position_bias, VectorRows) else "positions that are not by distance"


@replaces("SpeechT5Attention", why=_speecht5_reason, unless=lambda module: "it has no position in the score" if module.is_decoder else "")
def _speecht5_forward(self: Any, hidden_states: Any, key_value_states: Any = None, past_key_values: Any = None, attention_mask: Any = None,
                      position_bias: Any = None, output_attentions: bool = False, **rest: Any) -> Any:
    q, k, v = (split_heads(p(hidden_states), self.num_heads) for p in (self.q_proj, self.k_proj, self.v_proj))
    rows = position_bias.what.rows  # of distances -rows/2 to rows/2 - 1, query minus key
    half = rows.shape[0] // 2
    out = host.attend(f"shaw left={half - 1} right={half} sign=query_minus_key values=none", q, k, v, order="bthd", scale=self.scaling,
                      parameters={"table": rows}, **mask_options(attention_mask, q))
    return self.out_proj(out.flatten(2)), None


def _rows_only(self: Any, hidden_states: Any) -> Any:
    whole = functools.partial(type(self).forward, self, hidden_states)
    return whole() if torch.compiler.is_compiling() else Lazy.of(VectorRows(self.pe_k.weight), whole)


@takes("SpeechT5RelativePositionalEncoding")
def _speecht5_rows(module: Any) -> None:
    """The table itself, in place of a vector for each pair of tokens."""
    bound(module, "forward", _rows_only)


def _fastspeech_reason(self: Any, hidden_states: Any, attention_mask: Any = None, pos_emb: Any = None, output_attentions: Any = False) -> str:
    why = asks_more(self, output_attentions, self.dropout)
    return why if why else "" if pos_emb is not None and pos_emb.shape[0] == 1 else "positions that differ in the batch"


@replaces("FastSpeech2ConformerAttention", why=_fastspeech_reason)
def _fastspeech_forward(self: Any, hidden_states: Any, attention_mask: Any = None, pos_emb: Any = None, output_attentions: Any = False) -> Any:
    # (q + u).k + (q + v).R = q'.k + q'.R + (v - u).R with q' = q + u: vectors by distance, and a number by distance.
    q, k, v = (split_heads(p(hidden_states), self.num_heads) for p in (self.linear_q, self.linear_k, self.linear_v))
    tokens, scale = q.shape[1], 1 / math.sqrt(self.dim_key)
    rows = (tokens - 1 - torch.arange(-tokens, tokens)).clamp(0, pos_emb.shape[1] - 1)  # of distances -tokens to tokens - 1
    table = split_heads(self.linear_pos(pos_emb[0]), self.num_heads)[rows].transpose(0, 1)
    number = (table * (self.pos_bias_v - self.pos_bias_u)[:, None]).sum(-1) * scale
    schemes = (f"deberta max_relative_positions={tokens} position_buckets=0 p2c=false projection=tables count=1",
               f"clipped clip={tokens} heads_first=true")
    seen = {} if attention_mask is None else {"key_visible": attention_mask[:, 0].ne(0)}
    out = host.attend(schemes, q + self.pos_bias_u, k, v, order="bthd", scale=scale, **seen,
                      parameters={"pos_key": table, "table": torch.nn.functional.pad(number, (0, 1)).float()})
    return self.linear_out(out.flatten(2)), None


@replaces("GraniteSpeechConformerAttention", "GraniteSpeechPlusConformerAttention", why=lambda self, hidden_states, attention_dists: "")
def _granite_forward(self: Any, hidden_states: Any, attention_dists: Any) -> Any:
    x, size, tokens = self.pre_norm(hidden_states), self.context_size, hidden_states.shape[1]
    blocks = -(-tokens // size)
    x = torch.nn.functional.pad(x, (0, 0, 0, blocks * size - tokens)).reshape(-1, size, x.shape[-1])
    q, k, v = (split_heads(y, self.num_heads) for y in (self.to_q(x), *self.to_kv(x).chunk(2, dim=-1)))
    there = (torch.arange(blocks * size) < tokens).reshape(blocks, size).repeat(hidden_states.shape[0], 1)
    out = host.attend(f"shaw left={self.max_pos_emb} right={self.max_pos_emb} sign=query_minus_key values=none", q, k, v, order="bthd",
                      scale=self.scale, key_visible=there, parameters={"table": self.rel_pos_emb.weight})
    out = out.reshape(hidden_states.shape[0], blocks * size, -1)[:, :tokens]
    return self.dropout(self.to_out(out))


def _capped(q: Tensor, k: Tensor, v: Tensor, rows: Tensor, past: int, cap: Any, **mask: Any) -> Tensor:
    """cap(q.k + q.rows[past - distance]), where rows [count, heads, channels] go from the distance `past` down; distances without
    a row add nothing."""
    clip = max(past + 1, rows.shape[0] - 1 - past, 1)  # the table has the distances -clip to clip - 1
    table = torch.nn.functional.pad(rows.flip(0).permute(1, 0, 2), (0, 0, clip + past + 1 - rows.shape[0], clip - 1 - past))
    return host.attend(f"deberta max_relative_positions={clip} position_buckets=0 p2c=false projection=tables count=1", q, k, v,  # type: ignore[no-any-return]
                       order="bthd", scale=1.0, softcap=float(cap), softcap_after_terms=True, parameters={"pos_key": table}, **mask)


@replaces("Gemma3nAudioAttention", why=lambda self, hidden_states, mask: asks_more(self, False))
def _gemma3n_forward(self: Any, hidden_states: Any, mask: Any) -> Any:
    q, k, v = (split_heads(p(hidden_states), self.num_heads) for p in (self.q_proj, self.k_proj, self.v_proj))
    q = q * self.q_scale * torch.nn.functional.softplus(self.per_dim_scale)
    made, past, future = self.relative_position_embedding, self.max_past_horizon, self.max_future_horizon
    rows = made._get_timing_signal_1d_pos(torch.arange(past, -future - 1, -1)[None], dtype=q.dtype)[0]
    return _capped(q, k, v, split_heads(made.pos_proj(rows), self.num_heads), past, self.softcap, window=(past, future), key_visible=~mask)


def _gemma4_window(self: Any, mask: Tensor, tokens: int) -> tuple[Tensor, tuple[int, int]] | None:
    """The visible keys [batch, tokens] and the window of a mask [batch, 1, blocks, chunk, context]; None where they do not make it."""
    past, future = self.max_past_horizon, self.max_future_horizon
    seen = mask[:, 0] == 0
    visible = seen[..., past:past + self.chunk_size].diagonal(dim1=-2, dim2=-1).flatten(1)  # of each key by itself
    keys = torch.nn.functional.pad(visible, (past, future)).unfold(1, self.context_size, self.chunk_size)
    # Gemma4AudioModel: 0 <= distance < past or 0 < -distance < future.
    distance = past + torch.arange(self.chunk_size)[:, None] - torch.arange(self.context_size)
    window = (max(past - 1, 0), max(future - 1, 0))
    inside = (-distance <= window[1]) & (distance <= window[0])
    differ = (seen != (keys[:, :, None] & inside)).flatten(1, 2)[:, :tokens]  # the last block has queries that are none
    return None if differ.shape[1] < tokens or bool(differ.any()) else (visible[:, :tokens], window)


def _gemma4_reason(self: Any, hidden_states: Any, position_embeddings: Any, attention_mask: Any = None) -> str:
    why = asks_more(self, False)
    if why or attention_mask is None:
        return why or "no mask"
    return "" if _gemma4_window(self, attention_mask, hidden_states.shape[1]) else "a mask that does not follow the order of the tokens"


@replaces("Gemma4AudioAttention", why=_gemma4_reason)
def _gemma4_forward(self: Any, hidden_states: Any, position_embeddings: Any, attention_mask: Any = None) -> Any:
    q, k, v = (split_heads(p(hidden_states).float(), self.num_heads) for p in (self.q_proj, self.k_proj, self.v_proj))
    q = q * self.q_scale * torch.nn.functional.softplus(self.per_dim_scale)
    rows = split_heads(self.relative_k_proj(position_embeddings)[0], self.num_heads).to(q.dtype)
    visible, window = _gemma4_window(self, attention_mask, q.shape[1])  # type: ignore[misc]
    past = self.max_past_horizon
    out = _capped(q, k * self.k_scale, v, rows[:self.context_size - self.chunk_size + 1], past, self.softcap, window=window, key_visible=visible)
    return self.post(out.flatten(2).to(hidden_states.dtype)), None
