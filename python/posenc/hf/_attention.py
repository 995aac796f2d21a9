# SPDX-License-Identifier: Apache-2.0
"""The attention of one model through posenc's engine, without scores, biases and masks of n x n numbers.

Attention that goes through transformers' AttentionInterface gets ours by the name in the model's config, of which the
model gets a copy of its own. What computes in place has an adapter a class (`_inline`). What a call asks for that the
engine has not (dropout in training, attentions as output, graphs) goes to the original, and so do layers whose own
function computes something else on random numbers.
"""
from __future__ import annotations

import copy
import functools
import inspect
import types
from typing import TYPE_CHECKING, Any, Callable

import torch
import transformers
from transformers import AttentionInterface, AttentionMaskInterface, masking_utils

from .. import torch as host
from . import _masks, _speed
from ._distance_map import MAP
from ._inline import not_eager, wants_attentions
from ._kept import bound, give_back, hook, put
from ._lazy import KeepsPadding, Lazy, Mask, Row, Zero, is_a, is_packed, made
from ._name import PREFIX, Name, original as without_ours
from ._probe import alone
from ._report import Count

if TYPE_CHECKING:
    from torch import Tensor

_ORIGINALS = ("eager", "sdpa")
_MASKS: dict[str, Any] = {"eager": masking_utils.eager_mask, "sdpa": masking_utils.sdpa_mask}
# Words of a call that say nothing about the numbers, or what the mask says already.
_SILENT = {"position_ids", "use_cache", "cache_position", "sliding_window", "output_hidden_states", "return_dict",
           "num_items_in_batch", "position_embeddings", "past_key_values", "cache", "logits_to_keep"}


def original_of(module: torch.nn.Module, name: str) -> Callable[..., Any] | None:
    """The attention that the module would call; None where it is not to be found."""
    seen = _interface(type(module))
    if seen is None:
        return None
    return seen.get_interface(name, _eager(type(module)))  # type: ignore[no-any-return]


def _class_of(module: Any) -> Any:
    """(mypy takes no type of Any as an argument of a function whose answers are kept.)"""
    return type(module)


@functools.lru_cache(None)
def _globals(cls: type) -> dict[str, Any] | None:
    """Of the method that goes through the interface."""
    for base in cls.__mro__:
        if base.__module__ == "transformers.modeling_utils":  # every model has that one
            continue
        for f in vars(base).values():
            f = inspect.unwrap(f) if isinstance(f, types.FunctionType) else f
            if isinstance(f, types.FunctionType) and "ALL_ATTENTION_FUNCTIONS" in f.__code__.co_names:
                return f.__globals__
    return None


def _interface(cls: type) -> Any:
    found = _globals(cls)
    return None if found is None else found.get("ALL_ATTENTION_FUNCTIONS")


def _eager(cls: type) -> Any:
    return (_globals(cls) or {}).get("eager_attention_forward")


class _Stub(torch.nn.Module):
    def __init__(self, groups: int, sinks: bool) -> None:
        super().__init__()
        self.num_key_value_groups, self.is_causal, self.attention_dropout = groups, True, 0.0
        if sinks:
            self.sinks = torch.nn.Parameter(torch.tensor([0.3, -0.2, 0.1, 0.5]))


@functools.lru_cache(None)
def understood(cls: type, name: str) -> str:
    """"" where the engine computes what this class's attention of that name does; else the reason why not."""
    interface = _interface(cls)
    if name != "eager":
        same = interface is not None and interface.get(name) is AttentionInterface._global_mapping.get(name)
        return "" if same else "its file has an attention of its own"
    function = _eager(cls)
    if function is None:
        return "its file has no eager_attention_forward"
    with alone():
        return _tried(function)


def _tried(function: Callable[..., Any]) -> str:
    g = torch.Generator().manual_seed(1)
    why = "its eager attention computes something else"
    for groups in (2, 1):
        q, k, v = (torch.randn(2, h, 5, 8, generator=g) for h in (4, 4 // groups, 4 // groups))
        mask = torch.zeros(2, 1, 5, 5).masked_fill(torch.ones(5, 5, dtype=torch.bool).triu(1), torch.finfo(torch.float32).min)
        for sinks in (False, True):
            stub = _Stub(groups, sinks).eval()
            try:
                want = function(stub, q, k, v, mask, scaling=0.3, dropout=0.0)[0]
                got = host.attend(None, q, k, v, order="bhtd", scale=0.3, causal=True, sink=getattr(stub, "sinks", None))
                if want.shape == (2, 5, 4, 8) and torch.allclose(want, got.transpose(1, 2), atol=1e-5):
                    return ""
            except Exception as e:  # whatever its function does with a stub
                why = f"its eager attention cannot be tried: {type(e).__name__}: {str(e)[:60]}"
    return why


def _reason(module: Any, q: Tensor, k: Tensor, v: Tensor, dropout: float, rest: dict[str, Any], name: str) -> str:
    """Why a call goes to the original; "": it does not."""
    if not_eager():
        return not_eager()
    if dropout and module.training:
        return "dropout in training"
    if rest.get("output_attentions") or wants_attentions(module):
        return "attentions as output"
    others = [n for n, x in rest.items() if x is not None and x is not False and n not in _SILENT and n not in ("softcap", "s_aux", "output_attentions")]
    if others:
        return f"the call has the argument {others[0]}"
    if q.device.type != "cpu" or not q.dtype == k.dtype == v.dtype or not q.is_floating_point():
        return "tensors that posenc does not support"
    if q.dim() != 4 or q.shape[0] != k.shape[0] or k.shape[1] != v.shape[1] or q.shape[1] % k.shape[1]:
        return "heads that posenc does not support"
    return understood(_class_of(module), name)


def _mask(mask: Any, q: Tensor, k: Tensor, causal: bool, eager: bool) -> dict[str, Any]:
    """Arguments of `attend` for a mask as it comes, and where keys end."""
    if mask is None:  # PyTorch's causal flag: the first query sees the first key
        return {"causal": True, "offset": "start"} if causal and not eager and q.shape[2] > 1 else {}
    if is_a(mask, Mask) and (mask.what.queries, mask.what.keys) == (q.shape[2], k.shape[2]):
        return mask.what.options()  # type: ignore[no-any-return]
    dense = made(mask)
    if dense is None:
        return _mask(None, q, k, causal, eager)
    dense = dense[..., :k.shape[2]]
    if dense.dtype == torch.bool:
        if dense.shape[1:3] == (1, 1):
            return {"key_visible": dense[:, 0, 0]}
        return {"visible": dense.expand(q.shape[0], -1, q.shape[2], -1)}
    return {"bias": dense.float().expand(q.shape[0], -1, q.shape[2], -1)}


def attention(original: str, module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Any, dropout: float = 0.0,
              scaling: float | None = None, is_causal: bool | None = None, position_bias: Any = None, **rest: Any) -> Any:
    """What stands in the interface."""
    report: Any = getattr(module, "_posenc_attention", None)
    if report is not None and torch.onnx.is_in_onnx_export():
        return _original(original, module, query, key, value, attention_mask, dropout, scaling, is_causal, position_bias, rest)
    why = "not of a layer that was taken over" if report is None else _reason(module, query, key, value, dropout, rest, original)
    if report is not None and MAP in module.__dict__:
        out = _by_distance(original, module, query, key, value, attention_mask, scaling, is_causal, rest, why)
        if out is not None:
            report.ran()
            return out, None
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    if not why and not report.force:
        why = _speed.in_interface(original, attention_mask, query, key, causal, position_bias)
    if why and is_packed(attention_mask):
        raise KeepsPadding(why)
    if why:
        if report is not None:
            report.left(why)
        return _original(original, module, query, key, value, attention_mask, dropout, scaling, is_causal, position_bias, rest)
    options = _mask(attention_mask, query, key, causal, original == "eager")
    encodings = None
    if is_a(position_bias, Row):
        if (position_bias.what.queries, position_bias.what.keys) == (query.shape[2], key.shape[2]):
            extra = position_bias.what.options()
            encodings = extra.pop("encodings")
            options.update(extra)
        else:
            position_bias = position_bias.dense()
    if position_bias is not None and encodings is None and not is_a(position_bias, Zero):
        dense = position_bias.float().expand(query.shape[0], -1, query.shape[2], key.shape[2])
        options["bias"] = dense + options["bias"] if "bias" in options else dense
    sink = rest.get("s_aux")
    # As the projections wrote them, so that no output and no gradient is copied.
    query, key, value = (x.transpose(1, 2) for x in (query, key, value))
    out = host.attend(encodings, query, key, value, order="bthd", softcap=rest.get("softcap"),
                      scale=query.shape[-1] ** -0.5 if scaling is None else float(scaling),
                      sink=getattr(module, "sinks", None) if sink is None else sink, **options)
    report.ran(is_packed(attention_mask))
    return out, None


def _by_distance(original: str, module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Any, scaling: float | None,
                 is_causal: bool | None, rest: dict[str, Any], why: str) -> Tensor | None:
    """Attention by a distance map; None: the layer rotates nothing."""
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    sink = rest.get("s_aux")
    return module.__dict__[MAP].attend(module, query, key, value, why, lambda: {  # type: ignore[no-any-return]
        **_mask(mask, query, key, causal, original == "eager"), "softcap": rest.get("softcap"),
        "scale": query.shape[-1] ** -0.5 if scaling is None else float(scaling), "sink": getattr(module, "sinks", None) if sink is None else sink})


def _original(name: str, module: Any, q: Tensor, k: Tensor, v: Tensor, mask: Any, dropout: float, scaling: Any, causal: Any,
              bias: Any, rest: dict[str, Any]) -> Any:
    function = getattr(module, "_posenc_original", None) or original_of(module, name)
    if function is None:
        raise RuntimeError(f"[posenc.hf] {type(module).__name__} has no attention function named {name}, which the call needs")
    for n, x in (("is_causal", causal), ("position_bias", bias)):
        if x is not None:
            rest[n] = made(x)
    return function(module, q, k, v, made(mask), dropout=dropout, scaling=scaling, **rest)


for _name in _ORIGINALS:
    AttentionInterface.register(f"posenc_{_name}", functools.partial(attention, _name))
    AttentionMaskInterface.register(f"posenc_{_name}", functools.partial(_masks.make, _MASKS[_name]))


def named(name: str) -> Name:
    """What a pickled config has."""
    return Name(name)


def _own_config(model: torch.nn.Module) -> None:
    """Copies of every config object of the model, which name our attention."""
    memo: dict[int, Any] = {}
    for module in model.modules():
        config = module.__dict__.get("config")
        if isinstance(config, transformers.PretrainedConfig):
            put(module, "config", copy.deepcopy(config, memo))
    for new in {id(x): x for x in memo.values() if isinstance(x, transformers.PretrainedConfig)}.values():
        if new._attn_implementation_internal in (None, *_ORIGINALS):
            new._attn_implementation_internal = Name(PREFIX + (new._attn_implementation_internal or "eager"))


def _why_not(module: Any) -> str:
    """Of a layer that goes through the interface; "": it is taken over."""
    if not isinstance(module.__dict__.get("config"), transformers.PretrainedConfig):
        return "it has no config"
    chosen = module.config._attn_implementation or "eager"
    if chosen not in _ORIGINALS:
        return f"its attention is {chosen}"
    if chosen == "eager" and getattr(module, "reorder_and_upcast_attn", False):
        return "it computes its scores in place, in float32"
    return understood(_class_of(module), chosen)


def replace_attention(model: torch.nn.Module, report: Any, force: bool = True, pack: bool = True) -> bool:
    """Hands the model's attention to posenc. report: gets attention(layer, count) of what was taken over and
    left(layer, reason). force: calls for which the model's own is known to be faster, too. pack: layers compute padded batches
    without their padding. `give_back` takes it back. Whether there was anything."""
    from . import _biased, _blocks, _inline, _left, _sound  # noqa: F401: the adapters
    from ._packed import pack_layers

    layers = {n: m for n, m in model.named_modules() if _globals(_class_of(m)) is not None}
    inline = {n: m for n, m in model.named_modules() if _inline.adapter(m) is not None and n not in layers}
    taken: dict[str, torch.nn.Module] = {}
    for name, module in layers.items():
        why = _why_not(module)
        if not why and not force and not pack:
            why = _speed.whole_layer(module, without_ours(module.config._attn_implementation or "eager"))
        if why:
            report.left(name, why)
        else:
            taken[name] = module
    if taken or inline:
        _own_config(model)
    for name, module in taken.items():
        config: Any = module.config
        put(module, "_posenc_original", original_of(module, without_ours(config._attn_implementation)))
        _small_bias(module)
    for name, module in inline.items():
        take_over: Any = _inline.adapter(module)
        reason = take_over(module)
        if reason:
            report.left(name, reason)
        elif reason is not None:  # else it only helps its layers
            taken[name] = module
    for name, module in model.named_modules():
        if name in taken:
            count = Count(force)
            put(module, "_posenc_attention", count)
            report.attention(name, count)
        elif name not in layers and name not in inline and _computes_in_place(_class_of(module)):
            report.left(name, _left.reason(type(module)))
    if not taken:
        give_back(model)
    elif pack:
        pack_layers(model, taken, set(inline), report)
    return bool(taken)


def has_attention(model: torch.nn.Module) -> bool:
    """Whether there is a layer that `replace_attention` may take over."""
    from . import _biased, _blocks, _inline, _sound  # noqa: F401: the adapters

    return any(_globals(_class_of(m)) is not None or _inline.adapter(m) is not None for m in model.modules())


@functools.lru_cache(None)
def _computes_in_place(cls: type) -> bool:
    words = {"softmax", "Softmax", "logsumexp", "scaled_dot_product_attention", "MultiheadAttention"}
    return cls.__module__.startswith("transformers.models.") and "Attention" in cls.__name__ and any(
        isinstance(f, types.FunctionType) and words & set(inspect.unwrap(f).__code__.co_names)
        for base in cls.__mro__ if base.__module__ == cls.__module__ for f in vars(base).values())


# T5 and its family make the bias before the call and hand it from layer to layer: a row, one number a distance, made by
# the class's own compute_bias for one query that sees all of them.
def _row(self: Any, query_length: int, key_length: int, device: Any = None, past_seen_tokens: Any = 0, **rest: Any) -> Any:
    whole = functools.partial(type(self).compute_bias, self, query_length, key_length, device=device,
                              past_seen_tokens=past_seen_tokens, **rest)
    if torch.compiler.is_compiling() or not isinstance(past_seen_tokens, int):
        return whole()
    row = type(self).compute_bias(self, 1, query_length + key_length - 1, device=device,
                                  past_seen_tokens=past_seen_tokens + query_length - 1, **rest)
    what = Row(row[:, :, 0], query_length, key_length)
    return Lazy.of(what, what.dense)


def _no_zeros(module: Any, args: Any, given: dict[str, Any]) -> Any:
    if given.get("key_value_states") is not None and given.get("position_bias") is None and not torch.compiler.is_compiling():
        zero = given["key_value_states"].new_zeros(1, module.n_heads, 1, 1)
        given["position_bias"] = Lazy.of(Zero(), lambda: zero)
    return args, given


def _small_bias(module: torch.nn.Module) -> None:
    method = getattr(type(module), "compute_bias", None)
    if method is None or tuple(method.__code__.co_varnames[:5]) != ("self", "query_length", "key_length", "device", "past_seen_tokens"):
        return
    if getattr(module, "has_relative_attention_bias", False):
        bound(module, "compute_bias", _row)
    elif hasattr(module, "n_heads"):
        hook(module, _no_zeros)
