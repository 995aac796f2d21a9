# SPDX-License-Identifier: Apache-2.0
"""The encoder of LongT5: T5's bias in a window of tokens, and of summaries of blocks beside them."""
from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any

import torch

from .. import torch as host
from ._inline import asks_more, replaces, split_heads
from ._lazy import Lazy, LocalRow, is_a

if TYPE_CHECKING:
    from torch import Tensor


def _reason(self: Any, hidden_states: Any, mask: Any = None, position_bias: Any = None, output_attentions: bool = False) -> str:
    why = asks_more(self, output_attentions, self.dropout)
    if why or mask is None:
        return why or "no mask"
    if position_bias is None:
        return "" if self.has_relative_attention_bias else "no bias"
    return "" if is_a(position_bias, LocalRow) else "a bias that is not by distance"


def _row(self: Any) -> Tensor:
    """[heads, 2 radius + 1], from the key farthest on the left on."""
    size = self.block_len
    row: Tensor = self.compute_bias(size)[0, 0, :, 0, size - self.local_radius: size + self.local_radius + 1]
    return row


def _local(self: Any, q: Tensor, k: Tensor, v: Tensor, what: LocalRow, log_sum_exp: bool = False) -> Any:
    radius = self.local_radius
    return host.attend(f"clipped clip={radius} sign=key_minus_query heads_first=true", q, k, v, order="bthd", scale=1.0,
                       window=(radius, radius), key_visible=what.visible, parameters={"table": what.row.float()}, log_sum_exp=log_sum_exp)


def _given(self: Any, mask: Tensor, position_bias: Any, own: Any, visible: Tensor, side: Any) -> Any:
    """The bias as it goes from layer to layer; what makes the original's is the class's own forward on it."""
    if position_bias is not None:
        return position_bias
    return Lazy.of(LocalRow(_row(self), visible, side), functools.partial(_dense, self, own, mask))


def _dense(self: Any, hidden_states: Tensor, mask: Tensor) -> Any:
    return type(self).forward(self, hidden_states, mask=mask)[1]


@replaces("LongT5LocalAttention", why=_reason)
def _local_forward(self: Any, hidden_states: Any, mask: Any = None, position_bias: Any = None, output_attentions: bool = False) -> Any:
    q, k, v = (split_heads(p(hidden_states), self.n_heads) for p in (self.q, self.k, self.v))
    # mask: [batch, 1, blocks, tokens of a block, three blocks], of queries and keys that are there; a token meets itself in the middle one
    visible = mask[:, 0, :, :, self.block_len:-self.block_len].diagonal(dim1=-2, dim2=-1).flatten(1)[:, :hidden_states.shape[1]]
    bias = _given(self, mask, position_bias, hidden_states, visible, None)
    return self.o(_local(self, q, k, v, bias.what).flatten(2)), bias


def _global_reason(self: Any, hidden_states: Any, mask: Any = None, position_bias: Any = None, output_attentions: bool = False) -> str:
    whole = hidden_states.shape[1] >= self.global_block_size
    return _reason(self, hidden_states, mask, position_bias, output_attentions) if whole else "no whole block"


@replaces("LongT5TransientGlobalAttention", why=_global_reason)
def _global_forward(self: Any, hidden_states: Any, mask: Any = None, position_bias: Any = None, output_attentions: bool = False) -> Any:
    file = sys.modules[type(self).__module__]
    blocks, segments = file._make_global_fixed_block_ids(mask, self.global_block_size)
    sums = file._create_global_aggregates(hidden_states, blocks, segments.shape[-1])
    sums = self.global_input_layer_norm(sums)
    q, k, v = (split_heads(p(hidden_states), self.n_heads) for p in (self.q, self.k, self.v))
    if position_bias is None:
        side = self.compute_side_bias(mask, segments).float()
        position_bias = _given(self, mask, None, hidden_states, mask.bool(), side)
    what = position_bias.what
    out, local = _local(self, q, k, v, what, log_sum_exp=True)
    also, beside = host.attend(None, q, split_heads(self.k(sums), self.n_heads), split_heads(self.v(sums), self.n_heads), order="bthd",
                               scale=1.0, bias=what.side.expand(q.shape[0], -1, -1, -1), log_sum_exp=True)
    share = torch.sigmoid(local - beside).transpose(1, 2)[..., None].to(out.dtype)  # one softmax over tokens and summaries
    return self.o((out * share + also * (1 - share)).flatten(2)), position_bias
