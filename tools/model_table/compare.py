# SPDX-License-Identifier: Apache-2.0
"""What posenc reads of a config against what transformers' own classes make of it.

    pip install transformers==5.23.0 torch
    python compare.py PATH/TO/posenc [--only MODEL_TYPE]...

Every model type of the table with a rotary of its own is given some thirty spellings of the same
questions (both generations, every scaling, heads and fractions stated or null, nested or not). For
each, transformers builds its configuration and its rotary module in double precision; posenc
explains the same file. Counted: the same number of layers, and for every layer that turns the same
frequencies and gain; refused by both; refused by one. What differs is listed. Known and right:
Ernie-4.5-VL hands out its frequencies in another order and puts them back when it composes them.
"""
import argparse
import collections
import copy
import json
import pathlib
import subprocess
import sys
import tempfile

here = pathlib.Path(__file__).resolve().parent
root = here.parent.parent
sys.path.insert(0, str(root / "conformance" / "make"))
import hugging_face_peer as peer  # noqa: E402
from table import model_types  # noqa: E402
from transformers.models.auto.configuration_auto import CONFIG_MAPPING  # noqa: E402

TABLE = model_types()
YARN = {"factor": 8.0, "original_max_position_embeddings": 512}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 1024}
NESTED = {"full_attention": {"rope_type": "linear", "factor": 2.0, "rope_theta": 3000.0},
          "sliding_attention": {"rope_type": "default", "rope_theta": 7000.0}}


def spellings(pairs):
    short = [1 + 0.01 * i for i in range(pairs)]
    long = [1 + 0.5 * i for i in range(pairs)]
    lists = {"short_factor": short, "long_factor": long, "original_max_position_embeddings": 1024}
    return {
        "default": {}, "layers": {"num_hidden_layers": 8}, "theta": {"rope_theta": 123456.0},
        "theta null": {"rope_theta": None}, "head": {"head_dim": 64}, "head null": {"head_dim": None},
        "linear 4": {"rope_scaling": {"type": "linear", "factor": 4.0}},
        "linear 5": {"rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 54321.0}},
        "dynamic": {"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}},
        "llama3": {"rope_scaling": dict(LLAMA3)},
        "yarn": {"rope_theta": 200000.0, "rope_scaling": {"rope_type": "yarn", **YARN}},
        "yarn without length": {"rope_scaling": {"rope_type": "yarn", "factor": 4.0}},
        "yarn, length beside": {"original_max_position_embeddings": 512, "rope_scaling": {
            "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1024}},
        "yarn, mscale": {"rope_scaling": {"type": "yarn", **YARN, "mscale": 0.7, "mscale_all_dim": 1.2,
                                          "beta_fast": 24, "beta_slow": 2}},
        "yarn, gain given": {"rope_scaling": {"rope_type": "yarn", **YARN, "attention_factor": 1.25,
                                              "truncate": False}},
        "yarn, nulls": {"rope_scaling": {"rope_type": "yarn", **YARN, "factor": None, "beta_fast": 0,
                                         "beta_slow": None}},
        "longrope 4": {"rope_scaling": {"type": "longrope", **lists}},
        "longrope 5": {"original_max_position_embeddings": 2048, "rope_parameters": {
            "rope_type": "longrope", "rope_theta": 20000.0, "factor": 4.0, **lists}},
        "proportional": {"rope_parameters": {"rope_type": "proportional", "rope_theta": 10000.0,
                                             "partial_rotary_factor": 0.25}},
        "fraction": {"partial_rotary_factor": 0.5},
        "fraction inside": {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0,
                                                "partial_rotary_factor": 0.5}},
        "fraction, yarn": {"partial_rotary_factor": 0.5, "rope_scaling": {"rope_type": "yarn", **YARN}},
        "both": {"rope_theta": 3000.0, "rope_scaling": {"rope_type": "linear", "factor": 2.0},
                 "rope_parameters": {"rope_type": "linear", "factor": 3.0, "rope_theta": 7000.0}},
        "both types": {"rope_theta": 2222.0, "rope_scaling": {"type": "linear", "rope_type": "dynamic",
                                                              "factor": 2.0}},
        "theta inside and beside": {"rope_theta": 3000.0, "rope_scaling": {
            "rope_type": "linear", "factor": 2.0, "rope_theta": 5000.0}},
        "empty scaling": {"rope_scaling": {}, "rope_theta": 2222.0},
        "null parameters": {"rope_parameters": None, "rope_theta": 2222.0},
        "nested": {"rope_parameters": NESTED},
        "nested null": {"rope_parameters": {**NESTED, "full_attention": None}},
        "nested without theta": {"rope_theta": 4444.0, "rope_parameters": {
            "full_attention": {"rope_type": "default"}, "sliding_attention": {"rope_type": "default"}}},
    }


def theirs(model_type, extra):
    """-> facts, or the text of what was raised."""
    try:
        with peer.double_precision():
            text = CONFIG_MAPPING[model_type].from_dict(copy.deepcopy(extra)).get_text_config()
            cls = peer.rotary_class(text)
            if cls is None:
                return None
            module = cls(text)
            out = {"layers": getattr(text, "num_hidden_layers", None), "inv_freq": {}, "gain": {},
                   "types": list(getattr(text, "layer_types", None) or [])}
            for kind in peer.layer_types_of(module):
                rope_type = module.rope_type[kind] if kind else module.rope_type
                if rope_type in ("dynamic", "longrope"):
                    peer.call_rotary(module, [text.max_position_embeddings - 1], kind)
                out["inv_freq"][kind] = peer.inv_freq_of(module, kind).double().tolist()
                out["gain"][kind] = peer.scaling_of(module, kind)
        return out
    except Exception as problem:  # what a user would see on loading the file
        return f"{type(problem).__name__}: {problem}".replace("\n", " ")[:160]


def ours(program, folder, model_type, extra):
    path = pathlib.Path(folder) / "config.json"
    path.write_text(json.dumps({"model_type": model_type, **extra}))
    run = subprocess.run([program, "explain", str(path), "--json"], capture_output=True, text=True)
    return json.loads(run.stdout) if run.returncode == 0 else run.stderr.strip().replace("\n", " ")[:200]


def compare(want, got):
    if want is None:
        return "no rotary module", ""
    if isinstance(want, str) or isinstance(got, str):
        if isinstance(want, str) and isinstance(got, str):
            return "refused by both", ""
        return ("read by posenc only", want) if isinstance(want, str) else ("read by transformers only", got)
    if want["layers"] not in (None, len(got["layers"])):
        return "different", f"{want['layers']} layers there, {len(got['layers'])} here"
    for layer in got["layers"]:
        rotary = layer["rotary"]
        if not rotary:
            continue
        kind = want["types"][layer["index"]] if None not in want["inv_freq"] else None
        if kind not in want["inv_freq"] and "compress" in want["inv_freq"]:  # DeepSeek-V4's labels
            kind = "main" if kind == "sliding_attention" else "compress"
        freq = want["inv_freq"].get(kind, [])
        same = len(freq) == len(rotary["inv_freq"]) and all(
            abs(a - b) <= 1e-12 * abs(b) for a, b in zip(rotary["inv_freq"], freq))
        if not same or abs(rotary["attention_factor"] - want["gain"][kind]) > 1e-12:
            return "different", f"layer {layer['index']} ({kind})"
    return "same", ""


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--only", action="append")
    options = parser.parse_args()
    counts, listed = collections.Counter(), []
    with tempfile.TemporaryDirectory() as folder:
        for name, entry in TABLE.items():
            if entry.get("scheme") != "rope" or "pairing" not in entry:
                continue
            if options.only and name not in options.only:
                continue
            first = theirs(name, {})
            widths = [len(f) for f in first["inv_freq"].values()] if isinstance(first, dict) else [32]
            for label, extra in spellings(max(widths)).items():
                verdict, why = compare(theirs(name, extra), ours(options.program, folder, name, extra))
                counts[verdict] += 1
                if verdict not in ("same", "refused by both", "no rotary module"):
                    listed.append(f"{verdict}: {name}, {label}: {why}")
    print("\n".join(sorted(listed)))
    for verdict, count in counts.most_common():
        print(f"{count:6} {verdict}")


if __name__ == "__main__":
    main()
