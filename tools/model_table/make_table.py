# SPDX-License-Identifier: Apache-2.0
"""Writes src/model/data/hugging_face_models.json: what a model type of transformers 5.23 means.

    python make_table.py ../../conformance/rotary_hugging_face > ../../src/model/data/hugging_face_models.json

From layouts.json and class_defaults.json of the conformance suite, class_facts.json (written by
read_classes.py), facts.py, qk_norms.py and, for classes of a model's own repository, remote_code.py beside this script.
One model type a line. Adding a model: one line in the table by hand, or a fact here and this script again.
"""
import json
import pathlib
import sys

import facts as F
import file_keys as K
import qk_norms as Q
import remote_code as R
import text_and_sound as T

here = pathlib.Path(__file__).parent
suite = pathlib.Path(sys.argv[1])
layouts = json.loads((suite / "layouts.json").read_text())["model_types"]
defaults = json.loads((suite / "class_defaults.json").read_text())["model_types"]
classes = json.loads((here / "class_facts.json").read_text())
classes.update(F.OTHER_CLASSES)

NOT_ROTARY = {}
for names, scheme in ((F.T5, "t5"), (F.ALIBI, "alibi"), (F.NONE, "none")):
    for name in names:
        NOT_ROTARY[name] = {"scheme": scheme}
for name, kind in F.INPUT_KIND.items():
    NOT_ROTARY.setdefault(name, {"scheme": "none"})["input"] = kind
for name in F.LEARNED:
    NOT_ROTARY.setdefault(name, {"scheme": "none"})["input"] = "learned"
for name in F.SINUSOIDAL:
    NOT_ROTARY.setdefault(name, {"scheme": "none"})["input"] = "sinusoidal"
for name, scheme in F.RELATIVE.items():
    NOT_ROTARY.setdefault(name, {})["scheme"] = scheme
for name, entry in T.ENTRY.items():
    NOT_ROTARY[name] = entry
OTHER_ROTARY = """gptj codegen roformer esm clvp_encoder dinov3_vit sapiens2""".split()

# Facts that stand in the table as they are, of what acts at the input or in the score.
INPUT_FACTS = (
    (F.LAYERS, "layers"), (F.LAYER_COUNT, "layer_count"),
    (F.INPUT_OFFSET, "input_offset"),
    (F.INPUT_WIDTH, "input_width"), (F.INPUT_PATCHES, "input_patches"),
    (F.INPUT_TEXT, "input_text"), (F.DECODER, "decoder"),
    (F.DECODER_INPUT, "decoder_input"), (F.INPUT_IF, "input_if"),
    (F.INPUT_BOXES, "input_boxes"), (F.INPUT_TENSOR, "input_tensor"),
    (F.INPUT_SCALE, "input_scale"), (F.INPUT_KEEPS, "input_keeps"),
    (F.INPUT_ODD, "input_odd"), (F.INPUT_ROWS, "input_rows"),
    (F.INPUT_BOX_PARTS, "input_box_parts"), (F.INPUT_NOTE, "input_note"),
    (F.SCORE_IF, "score_if"), (F.SCORE_TERMS, "score_terms"),
    (F.INPUT_GRID, "input_grid"), (F.INPUT_ALSO, "input_also"),
    (F.INPUT_INSTEAD, "input_instead"), (F.INPUT_BASE, "input_base"),
    (F.VARIANTS, "variants"), (F.INPUT_AT, "input_at"),
    (F.INPUT_COORDINATES, "input_coordinates"), (F.OWN_DECODER, "own_decoder"),
    (F.INPUT_COLUMNS, "input_tensor_columns"), (F.INPUT_X_FIRST, "input_x_first"))

DROP = {"layer_types", "partial_rotary_factor", "rope_theta"}


def layout_of(name, entry):
    plain, inter = layouts.get(name), layouts.get(name + ".apply_rotary_pos_emb_interleave")
    pick = inter or plain
    if pick:
        entry["pairing"] = pick["pairing"]
        if pick["direction"] != 1:
            entry["direction"] = pick["direction"]
        if pick.get("output_order"):
            entry["output_order"] = "even_then_odd"
        if inter and "rope_interleave" in classes[name]["defaults"]:
            entry["interleave_key"] = "rope_interleave"
        if pick["bfloat16_products"] == "float32, rounded once":
            entry["bfloat16_once"] = True
    elif name in F.PAIRING:
        entry["pairing"] = F.PAIRING[name]


def rotary(name):
    c = classes[name]
    d = defaults.get(name, {})
    entry = {"class": c["class"], "scheme": "rope"}
    layout_of(name, entry)
    rp = d.get("rope_parameters") or {}
    theta = c.get("default_theta", 10000.0)
    if isinstance(theta, dict):
        theta = 10000.0  # by_layer_type rules carry their own
    entry["theta"] = theta
    own = c["defaults"].get("rope_theta")
    if isinstance(own, (int, float)) and "rope_parameters" not in d:
        theta = entry["theta"] = float(own)  # one top-level key: ESM, DINOv3
    flat = "rope_theta" in rp
    if flat and rp["rope_theta"] != theta and name not in F.ROPE_DEFAULT_FROM_CLASS:
        entry["theta"] = rp["rope_theta"]
    if flat and rp.get("partial_rotary_factor") is not None and name not in F.ROPE_DEFAULT_FROM_CLASS:
        entry["fraction"] = rp["partial_rotary_factor"]
    if name in F.FRACTION:
        entry["fraction"] = F.FRACTION[name]
    if name in F.PARTIAL:
        entry["partial"] = True
    if name in F.ROPE_DEFAULT_FROM_CLASS:
        entry["rope_parameters"] = rp
        if name in F.DEFAULT_WITHOUT_THETA:
            entry["rope_parameters"] = {k: v for k, v in rp.items() if k != "rope_theta"}
    for table, key in ((F.KEYS, "keys"), (F.ROPE, "rope"), (F.HEAD, "head"), (F.LAYERS, "layers"),
                       (F.ROTARY_ON, "rotary_on"), (F.ROTARY_IF, "rotary_if"),
                       (F.TEMPERATURE, "temperature"), (F.ROTATES_VALUE, "rotates_value"),
                       (F.NOT_A_ROTATION, "not_a_rotation"), (F.LAYER_COUNT, "layer_count"), (F.VISION, "vision"),
                       (F.HEAD_DIM_IS, "head_dim_is")):
        if name in table:
            entry[key] = table[name]
    for table, key in ((F.TYPES_FROM, "types_from"), (F.TYPES_PADDED, "types_padded")):
        if name in table:
            entry[key] = table[name]
    for names, key in ((F.TAIL, "tail"), (F.KEY_CACHE_UNKNOWN, "key_cache_unknown"),
                       (F.INDEXED_FULL, "indexed_full"), (F.FLAT_ONLY, "flat_only"),
                       (F.HEAD_STRICT, "head_strict"), (F.HEAD_NULL_FAILS, "head_null_fails"),
                       (F.STRICT_LABELS, "strict_labels"), (F.HEADS_DIVIDE, "heads_divide"),
                       (F.LABELS_IF_TYPED, "labels_if_typed"), (F.VISION_WINDOWS, "vision_windows"),
                       (F.SPLITS_BY_TABLE, "splits_by_table")):
        if name in names:
            entry[key] = True
    if name in F.VISION:
        for table, key in ((F.INPUT_BESIDE, "input"), *INPUT_FACTS):
            if name in table:
                entry[key] = table[name]
        if name in F.INPUT_SQUARE:
            entry["input_square"] = True
    if name in F.MROPE:
        entry["mrope"] = {"layout": F.MROPE[name][0], "sections": F.MROPE[name][1]}
    if name in F.LOGIT_FACTOR:
        entry["logit_factor"] = True
    if name in F.UNROTATES_OUTPUT:
        entry["unrotates_output"] = True
    window(name, entry, c)
    common(name, entry, c)
    return entry


def window(name, entry, c):
    known = c["defaults"]
    if name in F.WINDOW_BOTH:
        entry["window"] = dict(F.WINDOW_BOTH[name], both=True)
    elif name in F.WINDOW_HALVED:
        entry["window"] = dict(F.WINDOW_HALVED[name])
    elif name == "mimo_v2_flash":
        entry["window"] = {"key": "sliding_window", "first": "sliding_window_size"}
    elif "sliding_window" in known or "sliding_window_size" in known:
        entry["window"] = {"key": "sliding_window"}
    if "window" in entry:
        if name in F.WINDOW_ON_ALL:
            entry["window"]["on"] = "all"
        if name in F.WINDOW_SWITCH:
            entry["window"]["switch"] = "use_sliding_window"


def common(name, entry, c):
    entry["defaults"] = {k: v for k, v in c["defaults"].items() if k not in DROP}
    longest = defaults.get(name, {}).get("max_position_embeddings")
    if longest and "max_position_embeddings" not in entry["defaults"] and c["is_rope"]:
        entry["defaults"]["max_position_embeddings"] = longest
    if c.get("nullable"):
        entry["nullable"] = c["nullable"]
    if c.get("names"):
        entry["names"] = {k: v for k, v in c["names"].items() if v != "qk_rope_head_dim"}
        if "head_dim" in entry["defaults"] and c["names"].get("head_dim") == "qk_rope_head_dim":
            entry["defaults"]["qk_rope_head_dim"] = entry["defaults"].pop("head_dim")
    entry["defaults"].update(F.EXTRA_DEFAULTS.get(name, {}))
    if name in F.EXTRA_NAMES:
        entry["names"] = {**entry.get("names", {}), **F.EXTRA_NAMES[name]}
    first = c.get("own_first", []) + [k for k in F.EXTRA_NAMES.get(name, {}) if name in F.OWN_FIRST]
    if first:
        entry["own_first"] = first
    if name in F.OWN_UNLESS_NULL:
        entry["own_unless_null"] = list(F.EXTRA_NAMES[name])
    if name in F.OWN_ONLY:
        entry["own_only"] = list(F.EXTRA_NAMES[name])
    if c.get("computed"):
        entry["computed"] = c["computed"]
    if "head_dim" in c["defaults"] and c["defaults"]["head_dim"] is None and (
            defaults.get(name, {}).get("head_dim", 1) is None):
        entry["head_null"] = True  # the class leaves it null
    if "layer_types" in c["defaults"] or "layer_types" in c.get("names", {}) or (
            F.LAYERS.get(name, {}).get("rule", "repeated") != "repeated"):
        entry["typed"] = True  # the class reads layer_types, and rope_parameters nested by them
    if name in F.TYPE_WORDS:
        entry["type_words"] = F.TYPE_WORDS[name]
    if name in F.BIDIRECTIONAL:
        entry["bidirectional"] = True


def parts_of(name, c):
    parts = {}
    for part, kind in c.get("parts", {}).items():
        parts[part] = {"type": kind}
    for part, kind in c.get("auto_parts", {}).items():
        parts[part] = {"by_model_type": True, "type": kind}
    for part, about in parts.items():
        place = f"{name}.{part}"
        if part in c.get("absent", {}):
            about["absent"] = c["absent"][part]
        if part in c.get("optional", []):
            about["optional"] = True
        for names, key in ((F.PART_MERGED, "merged"), (F.PART_MAIN, "main"), (F.PART_TYPED, "needs_model_type")):
            if place in names:
                about[key] = True
        for facts_of, key in ((F.PART_RENAMED, "renamed"), (F.PART_INSTEAD, "instead"),
                              (F.PART_OLD_KEY, "old_key"), (F.PART_REPLACES, "replaces_unless")):
            if place in facts_of:
                about[key] = facts_of[place]
        if place in F.PART_FLAT:
            about["flat"] = flat_keys(F.PART_FLAT[place], about)
        if place in F.PART_FLAT_HELD:
            about["flat_held"] = F.PART_FLAT_HELD[place]
    return parts


def flat_keys(rule, about):
    """Which keys at the top level of the file are taken for a part that is missing; true: all."""
    if rule == "all":
        return True
    if rule == "absent":
        return sorted({*about["absent"], "rope_scaling", "rope_theta"})
    c = classes[about["type"]]
    names = c.get("names", {})
    keys = {names.get(k, k) for k in c["defaults"]} | {"rope_parameters", "rope_scaling", "rope_theta"}
    return sorted(keys | set(names) if rule == "fields and names" else keys)


table = {}
for name in sorted(classes):
    c = classes[name]
    if name in F.REFUSED:
        table[name] = {"class": c["class"], "refused": F.REFUSED[name]}
        continue
    if name in NOT_ROTARY:
        entry = {"class": c["class"], **NOT_ROTARY[name]}
        for facts_of, key in INPUT_FACTS:
            if name in facts_of:
                entry[key] = facts_of[name]
        if name in F.WINDOW_NAMED:
            entry["window"] = dict(F.WINDOW_NAMED[name])
        if name in F.INPUT_SQUARE:
            entry["input_square"] = True
        if name in F.OTHER_LAYER_TYPES:
            entry["other_layer_types"] = True
        if name in F.DECODER_UNSCALED:
            entry["decoder_is"] = {"input_scale": None}
        if name in F.INPUT_MASK:
            entry["input_mask"] = True
        if name in F.DECODER:
            entry["bidirectional"] = True
        common(name, entry, c)
    elif (c["is_rope"] or name in OTHER_ROTARY) and name not in F.NOT_THE_TEXT:
        entry = rotary(name)
    elif c.get("parts") or c.get("auto_parts") or name in T.EXTRA_PARTS:
        entry = {"class": c["class"]}
        if name in F.AROUND:
            entry["input_note"] = F.AROUND[name]
    else:
        continue
    parts = {**parts_of(name, c), **T.EXTRA_PARTS.get(name, {})}
    if parts:
        entry["parts"] = parts
    if name in F.INPUT_PADDING:
        entry["input_padding"] = True
    table[name] = entry

for name, entry in R.ENTRY.items():
    assert name not in table, name
    table[name] = entry
table = dict(sorted(table.items()))

for facts_of, key in ((K.USES, "uses"), (F.BIAS_SCALED, "bias_scaled"), (F.SCORE_NOTE, "score_note"),
                      (F.ALIBI_ALWAYS, "alibi_always")):
    for name in facts_of:
        table[name][key] = facts_of[name] if isinstance(facts_of, dict) else True

for name, rule in Q.QK_NORM.items():
    table[name]["qk_norm"] = rule
    if "switch" in rule:
        table[name]["defaults"][rule["switch"]] = Q.SWITCHES[name]
        if name in Q.NULLABLE:
            table[name]["nullable"] = sorted([*table[name].get("nullable", []), rule["switch"]])

for names in (NOT_ROTARY, F.PAIRING, F.HEAD, F.LAYERS, F.ROPE, F.MROPE):
    for name in names:
        assert name in table, name
for name in layouts:
    assert name.split(".")[0] in table, name

print('{"about": "what a model type means to transformers 5.23.0; written by tools/model_table/make_table.py",')
for key, value in K.TOP.items():
    print(f' "{key}": {json.dumps(value)},')
print(' "model_types": {')
print(",\n".join(f"  {json.dumps(k)}: {json.dumps(v, separators=(', ', ': '))}"
                 for k, v in table.items()))
print(" }\n}")
