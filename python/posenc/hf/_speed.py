# SPDX-License-Identifier: Apache-2.0
"""Calls that stay with the model because its own attention is known to be faster.

The numbers were measured with python/bench/hf_attention.py and hf_adapters.py, one thread (docs/python.md has the table). A rule by length gives the
same numbers in every run, which a choice by the clock of each call would not. posenc's fast engine computes most calls. The one in
double computes float64 and a few kinds of terms; dense masks are read pair by pair.
"""
from __future__ import annotations

from typing import Any

import torch

from ._lazy import Mask, Row, is_a, is_packed

_OVERRIDE = "force=True overrides"
_DEFAULT = 2048
# Classes that compute in place, by the number of tokens from which posenc is at least as fast. 0: at every length.
_LEAST = {
    **dict.fromkeys(("BloomAttention", "MptAttention", "MPNetSelfAttention"), 128),
    **dict.fromkeys(("XLNetRelativeAttention", "VitsAttention", "FastSpeech2ConformerAttention"), 256),
    "DisentangledSelfAttention": 16,
    **dict.fromkeys(("WavLMAttention", "CpmAntAttention", "LayoutLMv3SelfAttention"), 512),
    **dict.fromkeys(("BrosSelfAttention", "LongT5LocalAttention", "LongT5TransientGlobalAttention"), 0),
    # Their own makes a vector for each pair of tokens, as BROS does.
    **dict.fromkeys(("SpeechT5Attention", "GraniteSpeechConformerAttention", "GraniteSpeechPlusConformerAttention"), 0),
}
# Those that the fast engine computes, gradients too.
_FAST = ("BloomAttention", "MptAttention", "MPNetSelfAttention", "LongT5LocalAttention", "LongT5TransientGlobalAttention")
# Those that it computes in float32 and less, by the number of tokens from which gradients are at least as fast. In float64 the
# engine in double computes them.
_GRADIENTS_FROM = {
    "DisentangledSelfAttention": 256, "BrosSelfAttention": 256, "XLNetRelativeAttention": 512, "SpeechT5Attention": 128, "VitsAttention": 256,
    "FastSpeech2ConformerAttention": 512, "GraniteSpeechConformerAttention": 128, "GraniteSpeechPlusConformerAttention": 128,
    "CpmAntAttention": 128, "LayoutLMv3SelfAttention": 1024,
}
# Short blocks, where projections take most of the time; Falcon's ALiBi is a dense mask.
_NEVER = ("Gemma3nAudioAttention", "Gemma4AudioAttention", "FalconAttention")
_ROW, _EAGER, _FUSED = 128, 256, 1024
_WINDOWS = 2  # others compute all pairs: so many windows of tokens
_SLOWER, _WINDOWS_SLOWER = 1024, 8
# A decode step reads all keys once. transformers' eager attention repeats keys that heads share, PyTorch's fused one reads them for each head.
DECODE = f"one query: its own is faster or as fast at every number of keys that was measured; {_OVERRIDE}"
_DECODE, _DECODE_FUSED = 512, 8192
_NOT_EAGER = f"its own is faster or as fast at every length that was measured; {_OVERRIDE}"
FUSED = f"PyTorch's fused attention of 16-bit numbers is faster or as fast at every length that was measured; {_OVERRIDE}"
FUSED_SLOWER = f"PyTorch's fused attention is faster at every length that was measured; {_OVERRIDE}"
GRADIENTS = f"its own gradients are faster at every length that was measured; {_OVERRIDE}"


def _fewer(tokens: int, least: int) -> str:
    return f"fewer than {least} tokens, for which its own is faster; {_OVERRIDE}" if tokens < least else ""


def in_place(module: Any, args: Any, given: dict[str, Any]) -> str:
    """Why a call of an adapter stays with the class; "": it does not."""
    x = next((x for x in (*args, *given.values()) if isinstance(x, torch.Tensor)), None)
    if x is None or any(map(is_packed, (*args, *given.values()))):
        return ""
    name = type(module).__name__
    if name in _NEVER or hasattr(module, "rel_pos_h"):  # SAM and its kin: rows of two tables, picked pair by pair
        return _NOT_EAGER
    gradients = torch.is_grad_enabled() and x.requires_grad
    in_float = name in _GRADIENTS_FROM and x.dtype != torch.float64
    if name not in _FAST and not in_float and gradients:
        return GRADIENTS
    if name == "XLNetRelativeAttention":  # [tokens, batch, heads, channels]
        tokens = x.shape[0]
    else:  # [batch, tokens, channels] or [batch, height, width, channels]
        tokens = x.shape[1] * x.shape[2] if x.dim() == 4 else x.shape[1]
    least = _LEAST.get(name, _DEFAULT)
    if in_float and gradients:
        least = _GRADIENTS_FROM[name]
    if x.dtype == torch.float64 and least > 0:
        least = _SLOWER if name in _FAST else _DEFAULT
    return DECODE if tokens == 1 and least > 0 else _fewer(tokens, least)


def _decode(name: str, query: torch.Tensor, key: torch.Tensor) -> str:
    """The same of one query in float, without a term of the score."""
    wide, keys = query.dtype == torch.float32, key.shape[2]
    if wide and query.shape[1] == key.shape[1]:
        return DECODE
    least = _DECODE_FUSED if wide and name == "sdpa" else _DECODE
    return f"one query with fewer than {least} keys, for which its own is faster; {_OVERRIDE}" if keys < least else ""


def in_interface(name: str, mask: Any, query: torch.Tensor, key: torch.Tensor, causal: bool, position_bias: Any) -> str:
    """The same of a call through transformers' AttentionInterface; query and key [batch, heads, tokens, channels]."""
    queries = query.shape[2]
    if is_packed(mask):
        return ""
    window = mask.what.window if is_a(mask, Mask) else None
    # In double, or a mask that is read pair by pair.
    slower = query.dtype == torch.float64 or (mask is not None and not is_a(mask, Mask))
    if queries == 1:
        return DECODE if slower or position_bias is not None else _decode(name, query, key)
    if is_a(position_bias, Row):
        return _fewer(queries, _SLOWER if slower else _ROW)
    if name == "eager" and not slower:
        return _fewer(queries, _EAGER)
    if name == "eager" and causal:
        return _fewer(queries, _SLOWER)
    if window is not None:
        tokens = 1 + sum(n for n in window if n < mask.what.keys)
        return _fewer(queries, _WINDOWS_SLOWER * tokens if slower else max(_EAGER, _WINDOWS * tokens))
    if slower:
        return FUSED_SLOWER if name == "sdpa" else _NOT_EAGER
    return _fewer(queries, _FUSED) if query.dtype == torch.float32 else FUSED


def whole_layer(module: Any, name: str) -> str:
    """Why no call of a layer can be worth it; "": one may be, such as a decode step."""
    has_window = getattr(module, "sliding_window", None) or getattr(module.config, "sliding_window", None)
    narrow = any(p.dtype in (torch.float16, torch.bfloat16) for p in module.parameters())
    decodes = getattr(module, "is_causal", False)
    return FUSED if name == "sdpa" and narrow and not has_window and not decodes and not hasattr(module, "compute_bias") else ""
