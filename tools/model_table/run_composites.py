# SPDX-License-Identifier: Apache-2.0
"""What transformers 5.23.0 makes of files that leave things out or say them twice: tests/model's
composites.json.

    pip install transformers==5.23.0 torch
    python run_composites.py > ../../tests/model/composites.json

Of every model type that has parts: a file without them, with empty ones, with one key. Of CLIP and
its kin: a part stated in two dictionaries. Of every class with other names for its attributes: both
names with different values. Kept: layers, positions, and of the rotary its pairs, the second
frequency and the gain. Nothing here is posenc's but the list of model types.
"""
import copy
import json
import sys

import compare
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.utils import logging

logging.set_verbosity_error()
PAIRS = {"hidden_size": (768, 1536), "num_hidden_layers": (4, 8), "num_attention_heads": (4, 8),
         "max_position_embeddings": (300, 500), "head_dim": (32, 64)}
SMALL = {"hidden_size": 512, "num_hidden_layers": 3, "num_attention_heads": 8, "num_key_value_heads": 4,
         "max_position_embeddings": 999, "rope_theta": 777.0, "sliding_window": 64}
# Their defaults, or those with SMALL, have sections that are not the width of the head: the class is
# loaded, and its model fails. BLT has no text part.
NOT_RUN = """glm4v glm46v glmga glm4v_moe glm_image qwen3_omni_moe qwen3_omni_moe_thinker blt""".split()
MULTI_AXIS = ["qwen2_vl", "qwen2_5_vl"]


def clip(name, part, keys):
    first, second, third = keys
    yield {"model_type": name, f"{part}_config": first, f"{part}_config_dict": second}
    yield {"model_type": name, f"{part}_config": first, f"{part}_config_dict": None}
    yield {"model_type": name, f"{part}_config": first, f"{part}_config_dict": {}}
    yield {"model_type": name, f"{part}_config_dict": third}


def composites():
    for name, cls in sorted((n, CONFIG_MAPPING[n]) for n in CONFIG_MAPPING.keys()):
        specs = getattr(cls, "sub_configs_defaults", None) or {}
        if not specs:
            continue
        if name in NOT_RUN:
            continue
        yield {"model_type": name}
        text = next((p for p in ("text_config", "thinker_config", "decoder", "decoder_config") if p in specs), None)
        if not text:
            continue
        if text == "text_config":
            yield {"model_type": name, text: {}}
            yield {"model_type": name, text: {"num_hidden_layers": 4, "rope_theta": 777.0}}
            yield {"model_type": name, **SMALL, **({"hidden_size": 1024} if name in MULTI_AXIS else {})}
        if specs[text].config_class.__name__ == "AutoConfig":
            yield {"model_type": name, text: {"model_type": "qwen3", "num_hidden_layers": 4}}
        if "text_config_dict" in compare.TABLE.get(name, {}).get("parts", {}).get(text, {}).get("instead", ""):
            yield from clip(name, "text", ({"num_hidden_layers": 3, "max_position_embeddings": 50},
                                           {"num_hidden_layers": 5}, {"num_hidden_layers": 2}))
    for kind in ("exaone4_5_text", "exaone4"):
        yield {"model_type": "exaone4_5", "text_config": {"model_type": kind, "num_hidden_layers": 4}}
    for kind in ("kimi_k2", "deepseek_v3"):
        yield {"model_type": "kimi_k25", "text_config": {"model_type": kind, "num_hidden_layers": 4}}
    yield {"model_type": "nemotron_h"}
    yield {"model_type": "nemotron_h", "num_hidden_layers": 3, "hybrid_override_pattern": "M*-E"}
    yield {"model_type": "nemotron_h", "num_hidden_layers": 5, "layers_block_type": ["mamba", "attention"]}
    yield {"model_type": "unlimited_ocr", "language_config": {"num_hidden_layers": 4}}
    yield {"model_type": "fuyu", "rope_theta": 777.0, "rope_parameters": {"rope_theta": 5.0}}
    yield {"model_type": "llava", "text_config": {"model_type": None}}


def names():
    for name, cls in sorted((n, CONFIG_MAPPING[n]) for n in CONFIG_MAPPING.keys()):
        for common, own in cls.attribute_map.items():
            if common in PAIRS and name not in ("swin", "swinv2"):  # layers are depths there
                a, b = PAIRS[common]
                yield {"model_type": name, own: a, common: b}


def measure(config):
    rest = copy.deepcopy(config)
    name = rest.pop("model_type")
    try:
        text = CONFIG_MAPPING[name].from_dict(copy.deepcopy(rest)).get_text_config()
    except Exception as problem:  # of the parts' types; what else classes check is no position
        kind = type(problem).__name__
        return {"refused": kind} if kind == "KeyError" or "`model_type`" in str(problem) else None
    out = {}
    for key, attribute in (("layers", "num_hidden_layers"), ("context", "max_position_embeddings")):
        try:
            value = getattr(text, attribute, None)
        except Exception:  # dots3-note: another value on other layers
            value = None
        decoder = key == "layers" and getattr(text, "is_encoder_decoder", False)  # counts its encoder's
        if isinstance(value, int) and value >= 0 and not decoder:
            out[key] = value
    try:
        rotary = compare.theirs(name, rest)
    except Exception:
        rotary = None
    if isinstance(rotary, str):
        return None  # the class can be loaded, and its rotary not built
    if isinstance(rotary, dict) and name != "ernie4_5_vl_moe":  # hands its frequencies out in another order
        kinds = [k for k in rotary["inv_freq"] if k in (None, *rotary["types"][:1])]
        if kinds:
            frequencies = rotary["inv_freq"][kinds[0]]
            out.update(pairs=len(frequencies), second=frequencies[1], gain=rotary["gain"][kinds[0]])
    return out


def known(config):
    """The text part's model type is one that posenc reads."""
    at = compare.TABLE.get(config["model_type"], {})
    part = config
    for _ in range(3):
        key = next((k for k in ("text_config", "decoder", "thinker_config", "decoder_config") if k in at.get("parts", {})), None)
        if "scheme" in at or not key:
            break
        part = part.get(key) or {}
        kind = part.get("model_type") if at["parts"][key].get("by_model_type") else None
        at = compare.TABLE.get(kind or at["parts"][key]["type"], {})
    return "scheme" in at and "refused" not in at


lines = []
for config in [*composites(), *names()]:
    if known(config):
        facts = measure(config)
        if facts:
            lines.append(json.dumps({"config": config, **facts}))
    else:
        print("not read:", json.dumps(config), file=sys.stderr)
print('{"about": "measured with transformers 5.23.0 by tools/model_table/run_composites.py",\n "cases": [\n'
      + ",\n".join(lines) + "\n]}")
