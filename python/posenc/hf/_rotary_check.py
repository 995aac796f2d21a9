# SPDX-License-Identifier: Apache-2.0
"""Frequencies of a rotary module beside what its config says: transformers' own functions compute those anew."""
from __future__ import annotations

from typing import Any, Iterator

import torch

from .._model import Finding

_CLOSE = 1e-6  # the float32 of another machine's pow


def _kinds(module: Any) -> Iterator[tuple[str, Any, str | None, str]]:
    """Prefix of the buffer, rope_type and layer type of each set of frequencies of a rotary module, as its config says now."""
    kind: Any = getattr(module, "rope_type", None)
    said: Any = getattr(module.config, "rope_parameters", None) or {}
    if isinstance(kind, dict):
        for layer_type, one in kind.items():
            now = (said.get(layer_type) or {}).get("rope_type", one)
            yield f"{layer_type}_", now, layer_type, f"rope_parameters[{layer_type!r}]"
    elif isinstance(kind, str):
        yield "", said.get("rope_type", kind), None, "rope_parameters"


def _function(module: Any, kind: str) -> Any:
    """What computes frequencies of this type for the module; None: nothing is known to."""
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    return ROPE_INIT_FUNCTIONS.get(kind) or getattr(module, f"compute_{kind}_rope_parameters", None)


def _of_config(module: Any, kind: str, layer_type: str | None, length: int | None = None) -> tuple[Any, float]:
    function = _function(module, kind)
    more: dict[str, Any] = {} if layer_type is None else {"layer_type": layer_type}
    if length is not None:
        more["seq_len"] = length
    values, gain = function(module.config, device=torch.device("cpu"), **more)
    return values.double(), float(gain)


def _differ(a: Any, b: Any) -> float:
    return float(((a - b).abs() / b.abs().clamp(min=1e-300)).max()) if a.shape == b.shape else float("inf")


def _judge(module: Any, prefix: str, kind: str, layer_type: str | None, buffer: Any) -> tuple[str, str, str, str] | None:
    """Severity, code, message and fix, where buffer and config do not agree."""
    if buffer.device.type == "meta":
        return "error", "frequencies_missing", "the frequencies are on the meta device and have no values", "load the weights"
    want, _ = _of_config(module, kind, layer_type)
    have = buffer.detach().to("cpu").double()
    if buffer.dtype in (torch.bfloat16, torch.float16):
        worst = float((have - want).abs().max()) if have.shape == want.shape else float("inf")
        length = getattr(module.config, "max_position_embeddings", 0)
        return ("error", "frequencies_cast", f"the frequencies are stored in {str(buffer.dtype)[6:]}; at position {length} an angle is "
                f"{worst * length:.3g} rad wrong", "load with dtype=..., or cast the model without its buffers")
    if not bool(have.isfinite().all()) or bool((have == 0).all()):
        return ("error", "frequencies_unset", "the frequencies are zero or not finite, because loading through the meta device did not set them",
                "compute them again from the config")
    if _differ(have, want) <= _CLOSE:
        return None
    for dtype in (torch.bfloat16, torch.float16):
        if _differ(have, want.to(dtype).double()) <= _CLOSE:
            return ("error", "frequencies_cast", f"the frequencies were rounded to {str(dtype)[6:]} and then converted back",
                    "compute them again from the config")
    longest = getattr(module, f"{prefix}max_seq_len_cached", None)
    if longest is not None and ("dynamic" in kind or kind == "longrope"):
        held, _ = _of_config(module, kind, layer_type, int(longest))
        if _differ(have, held) <= _CLOSE:
            return ("warning", "frequencies_held", f"the frequencies are those of the longest call so far, {int(longest)} tokens, so the same input "
                    "gives another result than in a fresh model", "compute them again before each sequence")
    if kind == "longrope":
        original = getattr(module.config, "original_max_position_embeddings", 0) or 0
        held, _ = _of_config(module, kind, layer_type, int(original) + 1)
        if _differ(have, held) <= _CLOSE:
            return "note", "frequencies_held", "the frequencies are those for long sequences, because the last call was long", "nothing to do: the next call selects its own"
    return ("error", "frequencies_stale", f"the frequencies differ from what {kind} of the config says, by a factor of up to "
            f"{1 + _differ(have, want):.6g}", "compute them again from the config, or put the values that the model was made with into the config")


def _gain(module: Any, prefix: str, kind: str, layer_type: str | None) -> str | None:
    have = getattr(module, f"{prefix}attention_scaling", None)
    _, want = _of_config(module, kind, layer_type)
    if have is None or abs(float(have) - want) <= _CLOSE * want:
        return None
    return f"cos and sin are scaled by {float(have):.6g}, the config says {want:.6g}"


def compared(name: str, module: Any) -> Iterator[tuple[str, list[Finding]]]:
    """Findings of each buffer of frequencies whose numbers transformers' functions compute from the module's config, by the
    buffer's own name. What they do not compute is not among them."""
    if not hasattr(module, "config"):
        return
    for prefix, kind, layer_type, where in _kinds(module):
        buffer = module._buffers.get(f"{prefix}inv_freq")
        if buffer is None or _function(module, kind) is None:
            continue
        yield f"{prefix}inv_freq", _found(module, prefix, kind, layer_type, buffer, f"{name}.{prefix}".lstrip("."), where)


def _found(module: Any, prefix: str, kind: str, layer_type: str | None, buffer: Any, place: str, where: str) -> list[Finding]:
    try:
        _of_config(module, kind, layer_type)
    except (KeyError, TypeError, ValueError) as e:
        return [Finding("error", "config_unusable", f"the frequencies cannot be computed from {where} of the config: {type(e).__name__}: {e}",
                        f"{place}inv_freq", "put the values that the model was made with into the config")]
    said = _judge(module, prefix, kind, layer_type, buffer)
    found = [] if said is None else [Finding(said[0], said[1], said[2], f"{place}inv_freq", said[3])]
    gain = _gain(module, prefix, kind, layer_type)
    if gain is not None and (said is None or said[1] != "frequencies_held"):
        found.append(Finding("error", "gain_stale", gain, f"{place}attention_scaling", f"set it again from {where}"))
    return found
