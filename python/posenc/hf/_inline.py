# SPDX-License-Identifier: Apache-2.0
"""Attention that its file computes in place: an adapter a class, which keeps the class's projections.

The biases are handed to the engine as SCHEME text and tables, positions are the keys' order; where a call asks for
more (attentions, dropout in training, a graph, an input that the scheme does not say) the class's own method runs.
"""
from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Callable

import torch
from transformers.utils.output_capturing import _active_collector as collector

from .. import torch as host
from ..torch._host import in_forward_mode
from . import _speed
from ._kept import bound, hook, put
from ._lazy import Distances, KeepsPadding, Lazy, Mask, Row, Turned, is_a, is_packed, made
from ._projected import Projections
from ._supported import RENAMED, unknown_argument

if TYPE_CHECKING:
    from torch import Tensor

# Takes over one module: "", or the reason why it stays as it was; None where it only helps its layers.
Adapter = Callable[[Any], "str | None"]
_FOUND: dict[str, Adapter] = {}
_active: Any = collector  # its methods have no types


def adapter(module: Any) -> Adapter | None:
    """What takes over this module's class. None: no such class."""
    cls = type(module)
    return _FOUND.get(cls.__name__) if cls.__module__.startswith("transformers.models.") else None


def takes(*names: str) -> Callable[[Adapter], Adapter]:
    """Of modules of these classes."""
    def kept(f: Adapter) -> Adapter:
        _FOUND.update((n, f) for n in names)
        return f

    return kept


def or_original(cls_method: str, why: Callable[..., str]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A method that is ours where `why` has no reason; else the class's own."""
    def wrap(ours: Any) -> Any:
        @functools.wraps(ours)
        def method(self: Any, *args: Any, **given: Any) -> Any:
            known = {RENAMED.get(n, n): x for n, x in given.items()}
            reason = not_eager() or why(self, *args, **known)
            if not reason and not self._posenc_attention.force:
                reason = _speed.in_place(self, args, known)
            packed = any(map(is_packed, (*args, *known.values())))
            if reason and packed:
                raise KeepsPadding(reason)
            if reason:
                self._posenc_attention.left(reason)
                return getattr(type(self), cls_method)(self, *map(made, args), **{n: made(x) for n, x in given.items()})
            self._posenc_attention.ran(packed)
            return ours(self, *args, **known)

        return method

    return wrap


def _class(module: Any) -> Any:
    return type(module)


def replaces(*names: str, why: Callable[..., str], method: str = "forward",
             unless: Callable[[Any], str] = lambda module: "") -> Callable[[Any], Any]:
    """One method of modules of these classes, where `why` has no reason for the class's own; `unless`: a reason of a whole module."""
    def kept(ours: Any) -> Any:
        replacement = or_original(method, why)(ours)

        def take_over(module: Any) -> str:
            reason = unless(module) or unknown_argument(_class(module), method, ours)
            if not reason:
                bound(module, method, replacement)
            return reason

        takes(*names)(take_over)
        return replacement

    return kept


def without_bias(switch: str) -> Callable[[Any], str]:
    """For `unless`: modules whose attribute `switch` says that they have no position term."""
    return lambda module: "" if getattr(module, switch) else "it has no position in the score"


def not_eager() -> str:
    """Why the engine is not asked, whatever the layer."""
    if torch.compiler.is_compiling():
        return "a graph is compiled"
    if torch.onnx.is_in_onnx_export():
        return "an ONNX graph is exported"
    if torch._C._get_tracing_state() is not None:
        return "a trace is recorded"
    return "a forward-mode derivative" if in_forward_mode() else ""


def split_heads(x: Tensor, heads: int) -> Tensor:
    """[..., heads * dim] as [..., heads, dim]."""
    return x.reshape(*x.shape[:-1], heads, -1)


def wants_attentions(self: Any) -> bool:
    """The model collects its layers' attentions in this call, or the layer's config asks for them."""
    collected = _active.get() or {}
    return bool(getattr(getattr(self, "config", None), "output_attentions", False)) or any("attentions" in n for n in collected)


def captures_more() -> bool:
    """The model collects more in this call than what its layers give."""
    return any(n not in ("hidden_states", "_hidden_states_layers") for n in _active.get() or {})


def dropped(self: Any, *parts: Any) -> bool:
    """parts: probabilities, or modules that hold one."""
    def probability(p: Any) -> float:
        return float(p if isinstance(p, (int, float)) else getattr(p, "p", None) or getattr(p, "drop_prob", None) or 0)

    return bool(self.training and any(probability(p) > 0 for p in parts))


def asks_more(self: Any, output_attentions: Any, *dropouts: Any) -> str:
    """What a call wants that no layer of the engine has."""
    if output_attentions or wants_attentions(self):
        return "attentions as output"
    return "dropout in training" if dropped(self, *dropouts) else ""


def _reason(self: Any, mask: Any, output_attentions: bool, *dropouts: Any) -> str:
    why = asks_more(self, output_attentions, *dropouts)
    if why:
        return why
    if mask is not None and not is_a(mask, Mask) and not is_a(mask, Turned):
        return "a mask that does not follow the order of the tokens"
    return ""


# ALiBi by the keys' places among those that are there is ALiBi by distance, but for a number a row that the softmax drops:
# padding on the left or on the right moves all places alike. A hole in the middle does not.
def _holes(mask: Any) -> bool:
    visible = mask.key_visible
    return visible is not None and bool((visible.int().diff(dim=-1) != 0).sum(-1).max() > 1)


def _alibi(scheme: str, q: Tensor, k: Tensor, v: Tensor, mask: Any, scale: float) -> Tensor:
    """[batch, tokens, heads * channels] of [batch, heads, tokens, channels]."""
    what = mask.what.mask if is_a(mask, Turned) else mask.what
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    return host.attend(scheme, q, k, v, order="bthd", scale=scale, **what.options()).flatten(2)  # type: ignore[no-any-return]


def _bloom_reason(self: Any, hidden_states: Any, residual: Any, alibi: Any, attention_mask: Any, layer_past: Any = None,
                  use_cache: bool = False, output_attentions: bool = False, **rest: Any) -> str:
    why = _reason(self, attention_mask, output_attentions, self.attention_dropout)
    if why or attention_mask is None:
        return why or "no mask"
    return "padding between tokens" if _holes(attention_mask.what) else ""


@replaces("BloomAttention", why=_bloom_reason, unless=lambda module: (
    "its sums are split for tensor parallelism" if module.pretraining_tp > 1 and module.slow_but_exact else ""))
def _bloom_forward(self: Any, hidden_states: Any, residual: Any, alibi: Any, attention_mask: Any, layer_past: Any = None,
                   use_cache: bool = False, output_attentions: bool = False, **rest: Any) -> Any:
    q, k, v = self._reshape(self.query_key_value(hidden_states))
    if layer_past is not None:
        k, v = layer_past.update(k, v, self.layer_idx)
    out = _alibi("alibi future=signed_distance", q, k, v, attention_mask, self.inv_norm_factor)
    out = self.dense(out)
    return residual + torch.nn.functional.dropout(out, p=self.hidden_dropout, training=self.training), None


def _mpt_reason(self: Any, hidden_states: Any, position_bias: Any, past_key_values: Any = None, attention_mask: Any = None,
                **rest: Any) -> str:
    why = _reason(self, attention_mask, bool(rest.get("output_attentions")) or self.__dict__.get("_posenc_wanted", False), self.attn_dropout_p)
    if why or attention_mask is None:
        return why or "no mask"
    keys = (attention_mask.what.mask if is_a(attention_mask, Turned) else attention_mask.what).keys
    return "more keys than max_seq_len" if position_bias is None or keys > position_bias.shape[-1] else ""


@replaces("MptAttention", why=_mpt_reason)
def _mpt_forward(self: Any, hidden_states: Any, position_bias: Any, past_key_values: Any = None, attention_mask: Any = None,
                 **rest: Any) -> Any:
    qkv = self.Wqkv(hidden_states)
    if self.clip_qkv:
        qkv = qkv.clamp(min=-self.clip_qkv, max=self.clip_qkv)
    q, k, v = (x.unflatten(-1, (self.n_heads, self.head_dim)).transpose(1, 2) for x in qkv.chunk(3, dim=2))
    if past_key_values is not None:
        k, v = past_key_values.update(k, v, self.layer_idx)
    out = _alibi("alibi future=signed_distance", q, k, v, attention_mask, self.softmax_scale)
    return self.out_proj(out), None


def _note_attentions(block: Any, args: Any, given: dict[str, Any]) -> None:
    block.attn._posenc_wanted = bool(given.get("output_attentions", args[5] if len(args) > 5 else False))


@takes("MptBlock")
def _mpt_block(module: Any) -> None:
    """It gives its attention's probabilities back, but does not say to it that they are wanted."""
    put(module.attn, "_posenc_wanted", False)
    hook(module, _note_attentions)


def _deberta_reason(self: Any, hidden_states: Any, attention_mask: Any, output_attentions: bool = False,
                    query_states: Any = None, relative_pos: Any = None, rel_embeddings: Any = None) -> str:
    if output_attentions:
        return "attentions as output"
    if dropped(self, self.dropout, self.pos_dropout):
        return "dropout in training"
    given = relative_pos is not None and not is_a(relative_pos, Distances)
    if given or (query_states is not None and query_states.shape != hidden_states.shape):
        return "relative positions, or queries at other positions than the keys"
    return ""


def _visible(mask: Tensor, batch: int, queries: int) -> dict[str, Any]:
    """A mask of zeros and ones, [batch, 1, queries or 1, keys], or one of ours."""
    if is_a(mask, Mask):
        return mask.what.options()  # type: ignore[attr-defined, no-any-return]
    seen = mask.bool()
    return {"key_visible": seen[:, 0, 0]} if seen.shape[2] == 1 else {"visible": seen.expand(batch, -1, queries, -1)}


def _disentangled(self: Any, hidden_states: Any, attention_mask: Any, query_states: Any, rel_embeddings: Any) -> Any:
    split = functools.partial(split_heads, heads=self.num_attention_heads)
    q, k, v = (split(p(hidden_states if x is None else x)) for p, x in (
        (self.query_proj, query_states), (self.key_proj, None), (self.value_proj, None)))
    rows = self.pos_dropout(rel_embeddings)[: 2 * self.pos_ebd_size]
    own = "pos_" if not self.share_att_key else ""
    of_key: Any = getattr(self, f"{own}key_proj", None)
    of_query: Any = getattr(self, f"{own}query_proj", None)
    tables = {}
    if "c2p" in self.pos_att_type:
        tables["pos_key"] = split(self._posenc_projections.of("key", of_key, rows)).transpose(0, 1)
    if "p2c" in self.pos_att_type:
        tables["pos_query"] = split(self._posenc_projections.of("query", of_query, rows)).transpose(0, 1)
    scheme = (f"deberta max_relative_positions={self.max_relative_positions} position_buckets={max(self.position_buckets, 0)} "
              f"c2p={str('pos_key' in tables).lower()} p2c={str('pos_query' in tables).lower()} projection=tables")
    out = host.attend(scheme, q, k, v, order="bthd", parameters=tables,
                      **_visible(attention_mask, q.shape[0], q.shape[1]))
    return out.flatten(2), None


@or_original("forward", _deberta_reason)
def _deberta_forward(self: Any, hidden_states: Any, attention_mask: Any, output_attentions: bool = False,
                     query_states: Any = None, relative_pos: Any = None, rel_embeddings: Any = None) -> Any:
    return _disentangled(self, hidden_states, attention_mask, query_states, rel_embeddings)


def _first_reason(self: Any, hidden_states: Any, attention_mask: Any, output_attentions: bool = False,
                  query_states: Any = None, relative_pos: Any = None, rel_embeddings: Any = None) -> str:
    if query_states is not None:
        return "queries at other positions than the keys"
    return _deberta_reason(self, hidden_states, attention_mask, output_attentions, None,
                           None if is_a(relative_pos, Distances) else hidden_states)


@or_original("forward", _first_reason)
def _first_forward(self: Any, hidden_states: Any, attention_mask: Any, output_attentions: bool = False,
                   query_states: Any = None, relative_pos: Any = None, rel_embeddings: Any = None) -> Any:
    split = functools.partial(split_heads, heads=self.num_attention_heads)
    q, k, v = split(self.in_proj(hidden_states)).chunk(3, dim=-1)
    rows, tables = self.pos_dropout(rel_embeddings), {}
    if "c2p" in self.pos_att_type:
        tables["pos_key"] = split(self._posenc_projections.of("key", self.pos_proj, rows)).transpose(0, 1)
    if "p2c" in self.pos_att_type:
        tables["pos_query"] = split(self._posenc_projections.of("query", self.pos_q_proj, rows)).transpose(0, 1)
    scheme = (f"deberta max_relative_positions={self.max_relative_positions} position_buckets=0 projection=tables "
              f"c2p={str('pos_key' in tables).lower()} p2c={str('pos_query' in tables).lower()} count={1 + len(self.pos_att_type)}")
    out = host.attend(scheme, q + split(self.q_bias), k, v + split(self.v_bias), order="bthd", parameters=tables,
                      **_visible(attention_mask, q.shape[0], q.shape[1]))
    return out.flatten(2), None


def _sew_reason(self: Any, hidden_states: Any, attention_mask: Any, query_states: Any = None, relative_pos: Any = None,
                rel_embeddings: Any = None, **rest: Any) -> str:
    return _deberta_reason(self, hidden_states, attention_mask, wants_attentions(self), query_states, relative_pos)


@or_original("forward", _sew_reason)
def _sew_forward(self: Any, hidden_states: Any, attention_mask: Any, query_states: Any = None, relative_pos: Any = None,
                 rel_embeddings: Any = None, **rest: Any) -> Any:
    return _disentangled(self, hidden_states, attention_mask, query_states, rel_embeddings)


@takes("DisentangledSelfAttention")
def _deberta(module: Any) -> str:
    if not module.relative_attention or not {"c2p", "p2c"} & set(module.pos_att_type):
        return "it has no position in the score"
    if getattr(module, "talking_head", False):
        return "its heads are mixed"
    put(module, "_posenc_projections", Projections())
    if type(module).__module__.endswith("modeling_deberta"):
        bound(module, "forward", _first_forward)
    elif type(module).__module__.endswith("modeling_deberta_v2"):
        bound(module, "forward", _deberta_forward)
    elif type(module).__module__.endswith("modeling_sew_d"):
        bound(module, "forward", _sew_forward)
    else:
        return "its class is neither DeBERTa's nor SEW-D's"
    return ""


def _lazy_distances(self: Any, hidden_states: Any, query_states: Any = None, relative_pos: Any = None) -> Any:
    whole = functools.partial(type(self).get_rel_pos, self, hidden_states, query_states, relative_pos)
    if relative_pos is not None or query_states is not None or torch.compiler.is_compiling():
        return whole()
    return Lazy.of(Distances(), whole)


def _keys_only(self: Any, attention_mask: Any) -> Any:
    if attention_mask.dim() > 2 or torch.compiler.is_compiling():
        return type(self).get_attention_mask(self, attention_mask)
    return attention_mask[:, None, None, :]


@takes("DebertaEncoder", "DebertaV2Encoder", "SEWDTransformerEncoder")
def _deberta_encoder(module: Any) -> None:
    """Neither distances nor a mask of n x n are made for the layers."""
    if module.relative_attention:
        bound(module, "get_rel_pos", _lazy_distances)
        bound(module, "get_attention_mask", _keys_only)


def _xlnet_reason(self: Any, q_head: Any, k_head_h: Any, v_head_h: Any, k_head_r: Any, seg_mat: Any = None,
                  attn_mask: Any = None, output_attentions: bool = False) -> str:
    if output_attentions:
        return "attentions as output"
    if dropped(self, self.dropout):
        return "dropout in training"
    if k_head_r.shape[1] > 1 and not torch.equal(k_head_r[:, 0], k_head_r[:, -1]):
        return "positions that differ in the batch"
    return ""


@replaces("XLNetRelativeAttention", why=_xlnet_reason, method="rel_attn_core")
def _xlnet_core(self: Any, q_head: Any, k_head_h: Any, v_head_h: Any, k_head_r: Any, seg_mat: Any = None,
                attn_mask: Any = None, output_attentions: bool = False) -> Any:
    # (q + u).k + (q + v).R = q'.k + q'.R + (v - u).R with q' = q + u: vectors by distance, and a number by distance.
    keys = k_head_h.shape[0]
    rows = (2 * keys - torch.arange(2 * keys)).clamp(0, k_head_r.shape[0] - 1)  # of distances -keys .. keys - 1
    table, q, k = k_head_r[rows, 0].transpose(0, 1), q_head + self.r_w_bias, k_head_h
    number = (table * (self.r_r_bias - self.r_w_bias)[:, None]).sum(-1) * self.scale
    if seg_mat is not None:
        q, k, table = _with_segments(q, k, table, ((q_head + self.r_s_bias) * (self.seg_embed[0] - self.seg_embed[1])).sum(-1), seg_mat)
    schemes = (f"deberta max_relative_positions={keys} position_buckets=0 p2c=false projection=tables count=1",
               f"clipped clip={keys} heads_first=true")
    seen = {} if attn_mask is None else {
        "visible": (attn_mask == 0).permute(2, 3, 0, 1).expand(q_head.shape[1], -1, -1, -1)}
    return host.attend(schemes, q, k, v_head_h, order="tbhd", scale=self.scale, **seen,
                       parameters={"pos_key": table, "table": torch.nn.functional.pad(number, (0, 1)).float()})


def _with_segments(q: Tensor, k: Tensor, table: Tensor, same: Tensor, seg_mat: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(q + s).E_different for every key adds one number to a row, which the softmax drops; what is left is (q + s).(E_same -
    E_different), `same`, where both are of one segment: a channel a segment, in which a key has 1 and a query that number."""
    equal = seg_mat[..., 1] == 0  # [queries, keys, batch]
    first = equal.int().argmax(1)  # of its segment: the first key
    numbers = torch.unique(first)
    of_query = (first[..., None] == numbers).to(q.dtype)  # [queries, batch, segments]
    of_key = (equal[..., None] & (first[:, None, :, None] == numbers)).any(0).to(q.dtype)
    wide = of_query[:, :, None] * same[..., None]
    k = torch.cat([k, of_key[:, :, None].expand(-1, -1, k.shape[2], -1)], -1)
    return torch.cat([q, wide], -1), k, torch.nn.functional.pad(table, (0, numbers.numel()))


def _mpnet_reason(self: Any, hidden_states: Any, attention_mask: Any = None, position_bias: Any = None,
                  output_attentions: bool = False, **rest: Any) -> str:
    why = _reason(self, attention_mask, output_attentions, self.dropout)
    return why or ("" if is_a(position_bias, Row) else "a bias that is not by distance")


@replaces("MPNetSelfAttention", why=_mpnet_reason)
def _mpnet_forward(self: Any, hidden_states: Any, attention_mask: Any = None, position_bias: Any = None,
                   output_attentions: bool = False, **rest: Any) -> Any:
    q, k, v = (p(hidden_states).unflatten(-1, (-1, self.attention_head_size)) for p in (self.q, self.k, self.v))
    options = {} if attention_mask is None else attention_mask.what.options()
    by_distance = position_bias.what.options()
    out = host.attend(by_distance.pop("encodings"), q, k, v, order="bthd", scale=self.attention_head_size ** -0.5,
                      **options, **by_distance)
    return (self.o(out.flatten(2)),)


def _mpnet_row(self: Any, x: Any, position_ids: Any = None, num_buckets: int = 32) -> Any:
    whole = functools.partial(type(self).compute_position_bias, self, x, position_ids, num_buckets)
    if position_ids is not None or torch.compiler.is_compiling():
        return whole()
    n = x.shape[1]
    bucket = self.relative_position_bucket(torch.arange(1 - n, n), num_buckets=num_buckets)  # key minus query
    return Lazy.of(Row(self.relative_attention_bias(bucket).transpose(0, 1)[None], n, n), whole)


@takes("MPNetEncoder")
def _mpnet_encoder(module: Any) -> None:
    """One row of distances for all layers."""
    bound(module, "compute_position_bias", _mpnet_row)
