# SPDX-License-Identifier: Apache-2.0
"""Every scaling of the library as a rope_type of transformers. Fields, defaults and ranges are the library's."""
from __future__ import annotations

import functools
import json
from typing import Any

import torch

from .. import _posenc

_PREFIX = "posenc_"
_COMMON = {"rope_type", "type", "rope_theta", "partial_rotary_factor"}  # transformers' own keys of rope_parameters
# Who asks when about the length is transformers: it keeps the frequencies of the longest call of a dynamic type.
_RULES = {"length_rule": ("held", "declared"), "switch_rule": ("declared", "always_short", "always_long")}


@functools.lru_cache(None)
def _fields() -> dict[str, frozenset[str]]:
    registry = json.loads(_posenc.registry_json())
    return {s["name"]: frozenset(f["name"] for f in s["fields"]) for s in registry["scalings"]}


def _encoding(config: Any, parameters: dict[str, Any], ignore: Any = ()) -> str:
    """The SCHEME text of what rope_parameters say."""
    kind = parameters["rope_type"]
    name = kind.removeprefix(_PREFIX)
    given = {k: v for k, v in parameters.items() if k not in _COMMON and k not in (ignore or ())}
    unknown = sorted(set(given) - _fields()[name])
    if unknown:
        raise ValueError(f'[hf {kind}] rope_parameters must have fields of {name} only, got "{unknown[0]}"')
    for rule, words in _RULES.items():
        if rule in given and given[rule] not in words:
            raise ValueError(f'[hf {kind}] {rule} must be {" or ".join(words)}, got "{given[rule]}"')
    base = parameters.get("rope_theta")
    if base is None:
        raise ValueError(f"[hf {kind}] rope_parameters must have rope_theta")
    dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    dim = int(dim * parameters.get("partial_rotary_factor", 1.0))
    rope = _posenc.part_text("rope", {"head_dim": dim, "base": float(base), "pairing": "half_split"})
    return _posenc.encoding_text(f"{rope} + {_posenc.part_text(name, given)}")


def _frequencies(config: Any, device: Any = None, seq_len: Any = None, layer_type: str | None = None) -> tuple[Any, float]:
    """What ROPE_INIT_FUNCTIONS holds: frequencies in float32 and the factor on cos and sin."""
    parameters = config.rope_parameters if layer_type is None else config.rope_parameters[layer_type]
    kind, text = parameters["rope_type"], _encoding(config, parameters)
    context = int(config.max_position_embeddings if seq_len is None else seq_len)
    plan = _posenc.RotaryPlan(text, "float64", context=context)
    if plan.logit_factor != 1:
        raise ValueError(f"[hf {kind}] must not scale the logits, which rope_parameters cannot say, got {plan.logit_factor:g}")
    gains = _posenc.cos_sin(text, [0], dtype="float64", context=context)[0].reshape(-1)
    if (gains != gains[0]).any():
        raise ValueError(f"[hf {kind}] must have one factor on cos and sin for all pairs")
    frequencies = torch.from_numpy(_posenc.frequencies(text, context=context).copy())
    return frequencies.to(device=device, dtype=torch.float32), float(gains[0])


def _validate(self: Any, rope_parameters: dict[str, Any], ignore_keys: Any = None) -> None:
    _encoding(self, rope_parameters, ignore_keys)


def register_scalings() -> list[str]:
    """Adds every scaling as a rope_type of transformers, its name with the prefix posenc_, and returns these names:
    rope_parameters={"rope_type": "posenc_yarn", "rope_theta": 1e4, "factor": 4, "original_context": 4096}.

    The fields are the library's (`help(posenc.Yarn)`); what is wrong is refused when the config is made. A model that was saved with such a
    type needs this call before it is loaded.
    """
    from transformers import modeling_rope_utils as theirs

    names = [_PREFIX + name for name in _fields()]
    for name in names:
        theirs.ROPE_INIT_FUNCTIONS[name] = _frequencies
        setattr(theirs.RotaryEmbeddingConfigMixin, f"_validate_{name}_rope_parameters", _validate)
    return names
