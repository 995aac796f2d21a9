# SPDX-License-Identifier: Apache-2.0
"""Masks of transformers read back from the functions that they are made with; what is not understood is made dense."""
from __future__ import annotations

import functools
from typing import Any, Callable

import torch
from transformers import masking_utils

from ._lazy import Lazy, Mask


def read(function: Any) -> dict[str, Any] | None:
    """{causal, window, document} of a mask function of transformers; None: another one."""
    if function is masking_utils.causal_mask_function:
        return {"causal": True}
    if function is masking_utils.bidirectional_mask_function:
        return {}
    if getattr(function, "__module__", "") != masking_utils.__name__ or not getattr(function, "__closure__", None):
        return None
    cells = dict(zip(function.__code__.co_freevars, (c.cell_contents for c in function.__closure__)))
    match function.__qualname__.split(".")[0]:
        case "and_masks":
            return _all([read(f) for f in cells["mask_functions"]])
        case "sliding_window_overlay":
            return {"window": (int(cells["sliding_window"]) - 1, -2)}
        case "sliding_window_bidirectional_overlay":
            return {"window": (int(cells["sliding_window"]),) * 2}
        case "packed_sequence_mask_function":
            return {"document": cells["packed_sequence_mask"]}
        case "remap_positions_for_packed_sequence":  # inside a sequence distances are the same
            return read(cells["mask_function"])
    return None


def _all(parts: list[dict[str, Any] | None]) -> dict[str, Any] | None:
    both: dict[str, Any] = {}
    for part in parts:
        if part is None or not both.keys().isdisjoint(part):
            return None
        both.update(part)
    return both


def make(original: Callable[..., Any], batch_size: int, q_length: int, kv_length: int, q_offset: Any = 0, kv_offset: Any = 0,
         mask_function: Any = masking_utils.causal_mask_function, attention_mask: Any = None, **rest: Any) -> Any:
    """The mask of a model that was made by `original` before."""
    dense = functools.partial(original, batch_size=batch_size, q_length=q_length, kv_length=kv_length, q_offset=q_offset,
                              kv_offset=kv_offset, mask_function=mask_function, attention_mask=attention_mask, **rest)
    known = None if torch.compiler.is_compiling() else read(mask_function)
    if known is None:
        return dense()
    visible = masking_utils.prepare_padding_mask(attention_mask, kv_length, kv_offset)
    if visible is not None:
        visible = visible[:, int(kv_offset):int(kv_offset) + kv_length].bool()
        visible = None if bool(visible.all()) else visible
    window = known.get("window")
    if window is not None and window[1] == -2:
        window = (window[0], q_length + kv_length)
    what = Mask(q_length, kv_length, int(q_offset) - int(kv_offset), known.get("causal", False), window, visible,
                known.get("document"))
    return Lazy.of(what, dense, functools.partial(dense, allow_is_causal_skip=False, allow_is_bidirectional_skip=False))
