# SPDX-License-Identifier: Apache-2.0
"""Attention computed in place with a bias that the model makes itself: an adapter a class, which keeps the class's
projections and its bias. The engine adds the bias; scores and probabilities are not made."""
from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch

from .. import torch as host
from ._inline import asks_more, or_original, replaces, split_heads, takes, without_bias
from ._kept import bound
from ._lazy import Boxes, Lazy, is_a, made, mask_options

if TYPE_CHECKING:
    from torch import Tensor


def _attend(q: Tensor, k: Tensor, v: Tensor, bias: Any, scale: float, order: str = "bhtd", **options: Any) -> Tensor:
    """bias: what can be expanded to [batch, heads or 1, queries, keys], or None. Gives [batch, queries, heads * channels]."""
    if bias is not None:
        options["bias"] = bias.float().expand(q.shape[0], -1, q.shape[order.index("t")], -1)
    if order == "bhtd":  # as the projections wrote them, so that no output and no gradient is copied
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    return host.attend(None, q, k, v, order="bthd", scale=scale, **options).flatten(2)  # type: ignore[no-any-return]


def _falcon_reason(self: Any, hidden_states: Any, alibi: Any, attention_mask: Any, position_ids: Any = None, layer_past: Any = None,
                   use_cache: bool = False, output_attentions: bool = False, position_embeddings: Any = None, **rest: Any) -> str:
    return asks_more(self, output_attentions, self.attention_dropout) or ("no mask" if alibi is None or attention_mask is None else "")


@replaces("FalconAttention", why=_falcon_reason, unless=lambda module: "" if module.config.alibi else "it has no position in the score")
def _falcon_forward(self: Any, hidden_states: Any, alibi: Any, attention_mask: Any, position_ids: Any = None, layer_past: Any = None,
                    use_cache: bool = False, output_attentions: bool = False, position_embeddings: Any = None, **rest: Any) -> Any:
    q, k, v = (x.transpose(1, 2) for x in self._split_heads(self.query_key_value(hidden_states)))
    if layer_past is not None:
        k, v = layer_past.update(k, v, self.layer_idx)
    bias = made(attention_mask)
    if self.config._attn_implementation != "sdpa":  # there ALiBi, which the mask has, is added once more
        bias = bias + alibi.reshape(q.shape[0], self.num_heads, 1, -1) * self.inv_norm_factor
    out = _attend(q, k, v, bias, self.head_dim ** -0.5)
    return self.dense(out), None


def _swin_reason(self: Any, hidden_states: Any, attention_mask: Any = None, output_attentions: bool = False) -> str:
    return asks_more(self, output_attentions, self.dropout)


def _swin_bias(self: Any) -> Tensor:
    """[1, heads, tokens, tokens] of a window."""
    table = self.continuous_position_bias_mlp(self.relative_coords_table).view(-1, self.num_attention_heads)
    tokens = self.window_size[0] * self.window_size[1]
    rows = table[self.relative_position_index.view(-1)].view(tokens, tokens, -1)
    return 16 * torch.sigmoid(rows.permute(2, 0, 1))[None]


@replaces("Swinv2SelfAttention", "Swin2SRSelfAttention", why=_swin_reason)
def _swin_forward(self: Any, hidden_states: Any, attention_mask: Any = None, output_attentions: bool = False) -> Any:
    q, k, v = (split_heads(p(hidden_states), self.num_attention_heads).transpose(1, 2) for p in (self.query, self.key, self.value))
    q = torch.nn.functional.normalize(q, dim=-1) * torch.clamp(self.logit_scale, max=torch.tensor(100.0).log().item()).exp()
    bias = _swin_bias(self)
    if attention_mask is not None:  # of the windows of one image; it is added twice
        bias = bias + 2 * attention_mask.repeat(q.shape[0] // attention_mask.shape[0], 1, 1)[:, None]
    out = _attend(q, torch.nn.functional.normalize(k, dim=-1), v, bias, 1.0)
    return (out,)


@replaces("DonutSwinSelfAttention", "ClapAudioSelfAttention", "MaskFormerSwinSelfAttention", why=_swin_reason)
def _first_swin_forward(self: Any, hidden_states: Any, attention_mask: Any = None, output_attentions: bool = False) -> Any:
    q, k, v = (split_heads(p(hidden_states), self.num_attention_heads).transpose(1, 2) for p in (self.query, self.key, self.value))
    tokens = self.window_size[0] * self.window_size[1]
    bias = self.relative_position_bias_table[self.relative_position_index.view(-1)].view(tokens, tokens, -1).permute(2, 0, 1)[None]
    if attention_mask is not None:  # of the windows of one image
        bias = bias + attention_mask.repeat(q.shape[0] // attention_mask.shape[0], 1, 1)[:, None]
    out = _attend(q, k, v, bias, self.attention_head_size ** -0.5)
    return (out,)


def _data2vec_reason(self: Any, hidden_states: Any, output_attentions: bool = False, relative_position_bias: Any = None,
                     interpolate_pos_encoding: bool = False, resolution: Any = None) -> str:
    return _swin_reason(self, hidden_states, None, output_attentions)


@replaces("Data2VecVisionSelfAttention", "Data2VecVisionSdpaSelfAttention", why=_data2vec_reason)
def _data2vec_forward(self: Any, hidden_states: Any, output_attentions: bool = False, relative_position_bias: Any = None,
                      interpolate_pos_encoding: bool = False, resolution: Any = None) -> Any:
    q, k, v = (split_heads(p(hidden_states), self.num_attention_heads).transpose(1, 2) for p in (self.query, self.key, self.value))
    bias = None
    if self.has_relative_position_bias:
        window = tuple(n // self.config.patch_size for n in resolution)
        bias = self.relative_position_bias(window, interpolate_pos_encoding, dim_size=hidden_states.shape[1])
    if relative_position_bias is not None:
        bias = relative_position_bias if bias is None else bias + relative_position_bias
    if bias is not None and bias.dim() == 3:
        bias = bias[None]
    return (_attend(q, k, v, bias, self.attention_head_size ** -0.5),)


def _layout_reason(self: Any, hidden_states: Any, attention_mask: Any = None, rel_pos: Any = None, rel_2d_pos: Any = None,
                   **rest: Any) -> str:
    return asks_more(self, rest.get("output_attentions"), self.dropout)


def _layout_bias(self: Any, rel_pos: Any, rel_2d_pos: Any, alone: bool) -> Any:
    """alone: the spatial bias acts without the other one too."""
    bias = rel_pos if self.has_relative_attention_bias else None
    if self.has_spatial_attention_bias and (alone or bias is not None):
        bias = rel_2d_pos if bias is None else bias + rel_2d_pos
    return bias


@replaces("LayoutLMv3SelfAttention", why=_layout_reason)
def _layout3_forward(self: Any, hidden_states: Any, attention_mask: Any = None, rel_pos: Any = None, rel_2d_pos: Any = None,
                     **rest: Any) -> Any:
    q, k, v = (split_heads(p(hidden_states), self.num_attention_heads) for p in (self.query, self.key, self.value))
    scale, bias, mask = self.attention_head_size ** -0.5, _layout_bias(self, rel_pos, rel_2d_pos, alone=False), made(attention_mask)
    bias = None if bias is None else bias * scale
    bias = bias if mask is None else mask if bias is None else bias + mask
    return _attend(q, k, v, bias, scale, "bthd"), None


@replaces("LayoutLMv2SelfAttention", why=_layout_reason)
def _layout2_forward(self: Any, hidden_states: Any, attention_mask: Any = None, rel_pos: Any = None, rel_2d_pos: Any = None,
                     **rest: Any) -> Any:
    q, k, v = (split_heads(x, self.num_attention_heads) for x in self.compute_qkv(hidden_states))
    bias, hidden = _layout_bias(self, rel_pos, rel_2d_pos, alone=True), made(attention_mask).bool()
    bias = q.new_zeros(1, 1, 1, k.shape[1], dtype=torch.float32) if bias is None else bias.float()
    bias = bias.masked_fill(hidden, torch.finfo(q.dtype).min)
    return _attend(q, k, v, bias, self.attention_head_size ** -0.5, "bthd"), None


@replaces("PPDocLayoutV2ReadingOrderSelfAttention", why=_layout_reason)
def _reading_forward(self: Any, hidden_states: Any, attention_mask: Any = None, rel_pos: Any = None, rel_2d_pos: Any = None,
                     **rest: Any) -> Any:
    q, k, v = (split_heads(p(hidden_states), self.num_attention_heads) for p in (self.query, self.key, self.value))
    scale, mask, bias = self.attention_head_size ** -0.5, made(attention_mask), rel_2d_pos  # which is not scaled
    if bias is None and self.has_relative_attention_bias:
        bias = rel_pos * scale
    bias = bias if mask is None else mask if bias is None else bias + mask
    return _attend(q, k, v, bias, scale, "bthd"), None


def _bros_reason(self: Any, hidden_states: Any, bbox_pos_emb: Any, attention_mask: Any = None, encoder_hidden_states: Any = None,
                 encoder_attention_mask: Any = None) -> str:
    why = asks_more(self, False, self.dropout)
    if why:
        return why
    if encoder_hidden_states is not None:
        return "keys at other positions than the queries"
    return "" if is_a(bbox_pos_emb, Boxes) else "boxes that are vectors already"


@replaces("BrosSelfAttention", why=_bros_reason)
def _bros_forward(self: Any, hidden_states: Any, bbox_pos_emb: Any, attention_mask: Any = None, encoder_hidden_states: Any = None,
                  encoder_attention_mask: Any = None) -> Any:
    q, k, v = (split_heads(p(hidden_states), self.num_attention_heads) for p in (self.query, self.key, self.value))
    boxes, weight, frequencies = bbox_pos_emb.what
    out = host.attend(f"bros coordinates={boxes.shape[-1]} frequencies={frequencies} unit=1", q, k, v, order="bthd",
                      scale=self.attention_head_size ** -0.5, parameters={"w_bbox": weight},
                      inputs={"query_bbox": boxes, "key_bbox": boxes}, **mask_options(attention_mask, q))
    return out.flatten(2), None


def _boxes_only(self: Any, bbox: Any) -> Any:
    whole = functools.partial(type(self).forward, self, bbox)
    one = self.bbox_sinusoid_emb.x_pos_emb.inv_freq
    usual = 10000.0 ** -(torch.arange(one.shape[0]) / one.shape[0])
    if torch.compiler.is_compiling() or not torch.allclose(one.float(), usual, rtol=1e-5, atol=0):
        return whole()
    return Lazy.of(Boxes(bbox, self.bbox_projection.weight, one.shape[0]), whole)


@takes("BrosBboxEmbeddings")
def _bros_boxes(module: Any) -> None:
    """The boxes themselves, in place of a vector for each pair of tokens."""
    bound(module, "forward", _boxes_only)


def _cpm_reason(self: Any, hidden_q: Any, hidden_kv: Any, attention_mask: Any, position_bias: Any, output_attentions: bool = False,
                past_key_values: Any = None, use_cache: Any = None, **rest: Any) -> str:
    return asks_more(self, output_attentions, self.dropout or 0)


@replaces("CpmAntAttention", why=_cpm_reason)
def _cpm_forward(self: Any, hidden_q: Any, hidden_kv: Any, attention_mask: Any, position_bias: Any, output_attentions: bool = False,
                 past_key_values: Any = None, use_cache: Any = None, **rest: Any) -> Any:
    q, k, v = (split_heads(p(x), self.num_heads).transpose(1, 2) for p, x in (
        (self.project_q, hidden_q), (self.project_k, hidden_kv), (self.project_v, hidden_kv)))
    if past_key_values is not None:
        k, v = past_key_values.update(k, v, self.layer_idx)
    seen = made(attention_mask).view(q.shape[0], 1, q.shape[2], k.shape[2]).bool()
    out = _attend(q, k, v, position_bias, self.dim_head ** -0.5, visible=seen)
    return self.attention_out(out), None


def _wavlm_reason(self: Any, hidden_states: Any, attention_mask: Any, gated_position_bias: Any) -> str:
    return asks_more(self, False, self.dropout)


@replaces("WavLMAttention", why=_wavlm_reason, method="torch_multi_head_self_attention")
def _wavlm_core(self: Any, hidden_states: Any, attention_mask: Any, gated_position_bias: Any) -> Any:
    q, k, v = (split_heads(p(hidden_states), self.num_heads) for p in (self.q_proj, self.k_proj, self.v_proj))
    seen = {} if attention_mask is None else {"key_visible": made(attention_mask).eq(1)}
    bias = gated_position_bias.unflatten(0, (q.shape[0], self.num_heads))
    return self.out_proj(_attend(q, k, v, bias, self.head_dim ** -0.5, "bthd", **seen)), None


@or_original("forward", lambda self, hidden_state: "")
def _levit_forward(self: Any, hidden_state: Any) -> Any:
    parts = split_heads(self.queries_keys_values(hidden_state), self.num_attention_heads)
    q, k, v = torch.split(parts, [self.key_dim, self.key_dim, self.attention_ratio * self.key_dim], dim=3)
    out = _attend(q, k, v, self.get_attention_biases(hidden_state.device)[None], self.scale, "bthd")
    return self.projection(self.activation(out))


@or_original("forward", lambda self, hidden_state: "")
def _levit_smaller_forward(self: Any, hidden_state: Any) -> Any:
    parts = split_heads(self.keys_values(hidden_state), self.num_attention_heads)
    k, v = torch.split(parts, [self.key_dim, self.attention_ratio * self.key_dim], dim=3)
    q = split_heads(self.queries(self.queries_subsample(hidden_state)), self.num_attention_heads)
    out = _attend(q, k, v, self.get_attention_biases(hidden_state.device)[None], self.scale, "bthd")
    return self.projection(self.activation(out))


@takes("LevitAttention", "LevitAttentionSubsample")
def _levit(module: Any) -> str:
    bound(module, "forward", _levit_forward if type(module).__name__ == "LevitAttention" else _levit_smaller_forward)
    return ""


def _vits_reason(self: Any, hidden_states: Any, key_value_states: Any = None, attention_mask: Any = None,
                 output_attentions: bool = False) -> str:
    return asks_more(self, output_attentions, self.dropout)


@replaces("VitsAttention", why=_vits_reason, unless=without_bias("window_size"))
def _vits_forward(self: Any, hidden_states: Any, key_value_states: Any = None, attention_mask: Any = None,
                  output_attentions: bool = False) -> Any:
    q, k, v = (split_heads(p(hidden_states), self.num_heads) for p in (self.q_proj, self.k_proj, self.v_proj))
    tables = {"table_k": self.emb_rel_k, "table_v": self.emb_rel_v}
    out = host.attend(f"shaw preset=vits distance={self.window_size} head_dim={self.head_dim}", q, k, v, order="bthd",
                      scale=self.scaling, parameters=tables, **mask_options(attention_mask, q))
    return self.out_proj(out.flatten(2)), None


def _sam_reason(self: Any, hidden_states: Any, output_attentions: Any = None) -> str:
    return asks_more(self, output_attentions, getattr(self, "dropout", 0))


def _on_a_grid(self: Any, hidden_states: Any, heads: int) -> Any:
    batch, height, width, _ = hidden_states.shape
    q, k, v = self.qkv(hidden_states).reshape(batch, height * width, 3, heads, -1).unbind(2)
    grid = torch.stack(torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")).reshape(2, 1, -1)
    rows = f"table_rows=[{self.rel_pos_h.shape[0]},{self.rel_pos_w.shape[0]}]"  # resized where they are others
    out = host.attend(f"decomposed size=[{height},{width}] {rows}", q, k, v, order="bthd", scale=self.scale,
                      parameters={"rel_pos_h": self.rel_pos_h, "rel_pos_w": self.rel_pos_w}, query_positions=grid, key_positions=grid)
    return self.proj(out.reshape(batch, height, width, -1))


@or_original("forward", _sam_reason)
def _sam_forward(self: Any, hidden_states: Any, output_attentions: Any = None) -> Any:
    return _on_a_grid(self, hidden_states, self.num_attention_heads), None


@or_original("forward", lambda self, hidden_state, output_attentions=False: _sam_reason(self, hidden_state, output_attentions))
def _vitdet_forward(self: Any, hidden_state: Any, output_attentions: bool = False) -> Any:
    return (_on_a_grid(self, hidden_state, self.num_heads),)


@takes("SamVisionAttention", "SamVisionSdpaAttention", "SamHQVisionAttention", "SamHQVisionSdpaAttention", "GotOcr2VisionAttention",
       "DeepseekOcr2SamVisionAttention", "DeepseekOcr2SamVisionSdpaAttention", "UnlimitedOcrSamVisionAttention",
       "UnlimitedOcrSamVisionSdpaAttention", "SLANeXtVisionAttention", "PPFormulaNetVisionAttention", "SegGptAttention", "VitDetAttention")
def _sam(module: Any) -> str:
    if not (module.use_rel_pos if hasattr(module, "use_rel_pos") else module.use_relative_position_embeddings):
        return "it has no position in the score"
    bound(module, "forward", _vitdet_forward if type(module).__name__ == "VitDetAttention" else _sam_forward)
    return ""
