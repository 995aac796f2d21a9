# SPDX-License-Identifier: Apache-2.0
"""What the configuration classes of transformers 5.23.0 hold, as facts: names, defaults, parts.

    pip install transformers==5.23.0      (PyTorch is not needed)
    python read_classes.py > class_facts.json

For every model type: the class, what each attribute that decides positions holds when the file says
nothing (before the class fills it in), other names of those attributes in files, and the model
types of its parts. Nothing else is taken from transformers.
"""
import dataclasses
import json
import sys

from transformers.models.auto.configuration_auto import CONFIG_MAPPING

ATTRIBUTES = """hidden_size num_attention_heads num_hidden_layers head_dim max_position_embeddings
sliding_window sliding_window_size layer_types qk_rope_head_dim qk_nope_head_dim qk_head_dim
original_max_position_embeddings rope_theta partial_rotary_factor rotary_dim local_attention
attention_chunk_size no_rope_layer_interval attn_temperature_tuning floor_scale attn_scale
rope_interleave use_sliding_window max_window_layers sliding_window_pattern global_attn_every_n_layers
attention_window_size alibi position_embedding_type rotary_value use_bidirectional_attention
is_decoder num_nextn_predict_layers layer_group_size full_attn_idxs attn_layer_period
attn_layer_offset relative_attention_num_buckets relative_attention_max_distance
use_mem_rope cross_attention_layers embed_dim d_model temporal_patch_size spatial_merge_size
pos_emb_type rotary_embedding_base position_embeddings_type swa_head_dim num_key_value_heads
num_kv_heads num_global_key_value_heads num_kv_shared_layers multi_query new_decoder_architecture
kv_lora_rank compress_rope_theta rope_scaling_layers H_cycles L_cycles num_layers_per_stack
window_size fullatt_block_indexes patch_size decoder_layers decoder_attention_heads
num_decoder_layers max_source_positions max_target_positions max_seq_len embedding_size
input_embedding_size image_size pad_token_id scale_embedding rescale_embeddings
position_biased_input relative_attention pos_att_type max_relative_positions position_buckets
use_absolute_position_embeddings use_relative_position_bias use_shared_relative_position_bias
use_absolute_embeddings num_hash_buckets max_ep_len max_encoder_position_embeddings
max_decoder_position_embeddings max_2d_position_embeddings coordinate_size shape_size
num_conv_pos_embeddings num_conv_pos_embedding_groups conv_pos_batch_norm num_buckets
max_bucket_distance has_relative_attention_bias has_spatial_attention_bias rel_pos_bins
max_rel_pos rel_2d_pos_bins max_rel_2d_pos""".split()
# Of what a composite holds for a missing part, these too.
MORE = "rope_parameters rope_scaling hybrid_override_pattern layers_block_type".split()
PLAIN = (int, float, str, bool, list, dict, type(None))


def takes_null(cls, key):
    try:
        cls.from_dict({key: None})
        return True
    except Exception as problem:  # not of another check: null may stand there beside other keys
        return type(problem).__name__ != "StrictDataclassFieldValidationError"


def facts(name, cls):
    fields = {f.name: f for f in dataclasses.fields(cls)} if dataclasses.is_dataclass(cls) else {}
    defaults = {}
    for attribute in ATTRIBUTES:
        attribute = cls.attribute_map.get(attribute, attribute)
        f = fields.get(attribute)
        if f is not None and f.default is not dataclasses.MISSING and isinstance(f.default, PLAIN):
            defaults[attribute] = f.default
    # keys are written with the attribute's common name
    back = {}
    for k in ATTRIBUTES:  # the first name counts; a target that stands before its alias stays
        target = cls.attribute_map.get(k, k)
        if target not in ATTRIBUTES or ATTRIBUTES.index(target) > ATTRIBUTES.index(k):
            back.setdefault(target, k)
    out = {"class": cls.__name__, "defaults": {back.get(k, k): v for k, v in defaults.items()}}
    null = [back.get(k, k) for k, v in defaults.items() if v is not None and takes_null(cls, k)]
    if null:
        out["nullable"] = sorted(null)
    names = {k: v for k, v in cls.attribute_map.items() if k in ATTRIBUTES}
    if names:
        out["names"] = names
    # Beside each other: the common name counts, unless it alone is a field (set before the rest).
    first = [k for k, v in names.items() if k in fields and v not in fields]
    if first:
        out["own_first"] = first
    computed = [k for k, v in names.items()
                if isinstance(getattr(cls, v, None), property) and getattr(cls, v).fset is None]
    if computed:
        out["computed"] = computed
    theta = cls.__dict__.get("default_theta", getattr(cls, "default_theta", None))
    if theta is not None and theta != 10000.0:
        out["default_theta"] = theta
    try:
        out["is_rope"] = "rope_parameters" in fields or hasattr(cls(), "rope_parameters")
    except Exception:  # a class that cannot be built without its parts
        out["is_rope"] = "rope_parameters" in fields
    out.update(parts_of(cls))
    return out


def parts_of(cls):
    """The model types of the parts; what the class holds for a part that is missing; which stay
    missing then."""
    parts, auto, absent, optional = {}, {}, {}, []
    for part, spec in (getattr(cls, "sub_configs_defaults", None) or {}).items():
        if spec.config_class.__name__ == "AutoConfig":  # the model_type in the part says its class
            auto[part] = spec.model_type or ""
        elif spec.model_type:
            parts[part] = spec.model_type
        else:
            continue
        names = set(ATTRIBUTES) | set(MORE)
        if spec.model_type in CONFIG_MAPPING:
            names |= set(CONFIG_MAPPING[spec.model_type].attribute_map.values())
        held = {k: v for k, v in spec.init_kwargs.items() if k in names}
        if held:
            absent[part] = held
        if spec.optional:
            optional.append(part)
    found = {"parts": parts, "auto_parts": auto, "absent": absent, "optional": optional}
    return {k: v for k, v in found.items() if v}


table = {}
for name in sorted(CONFIG_MAPPING.keys()):
    try:
        table[name] = facts(name, CONFIG_MAPPING[name])
    except Exception as problem:  # said, not hidden
        print(name, repr(problem)[:200], file=sys.stderr)
lines = [f"{json.dumps(name)}: {json.dumps(table[name], sort_keys=True)}"
         for name in sorted(table)]
print("{\n" + ",\n".join(lines) + "\n}")
