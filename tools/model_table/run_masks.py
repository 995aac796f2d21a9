# SPDX-License-Identifier: Apache-2.0
"""Who sees whom: every class that transformers 5.23.0 can build in small, against what posenc says of the same file.

    pip install transformers==5.23.0 torch
    python run_masks.py PATH/TO/posenc [--only MODEL_TYPE]... [--key KEY=VALUE]... [--eager] [--json FILE]

Each class of the table is built with a few layers, a window of 3 and chunks of 4 tokens. Of every
layer the gradient of each output token by all input tokens is taken: where it is not zero, the token
is seen. The same is made of `attention` (kind, left, right, chunk) of each layer of `posenc explain
--json`, of the model and of its towers. Classes that agree, that differ, and that could not be built or
run here are counted and listed. `--key is_causal=false` runs the same with a key more in every file;
KEYS below says which keys are tried where none is named. `--record` writes tests/model/masks.json: who
sees whom in the files of RECORDED, which the tests hold against the reader.
"""
import argparse
import collections
import json
import pathlib
import subprocess
import sys
import tempfile

from small_models import CONFIG_MAPPING, TABLE, TYPES, files_of, measured

KEYS = [{}, {"is_causal": False}, {"is_causal": True}, {"is_decoder": True}, {"is_decoder": False},
        {"use_bidirectional_attention": True}, {"use_bidirectional_attention": "all"},
        {"use_bidirectional_attention": "vision"}, {"causal": True}, {"bidirectional": True}]


NOTED = ("window", "within", "block", "pieces", "convolution", "the mask is the caller's")  # words of notes on masks


def explained(program, folder, file):
    path = pathlib.Path(folder) / "config.json"
    path.write_text(json.dumps(file))
    made = subprocess.run([program, "explain", str(path), "--json"], capture_output=True, text=True)
    return json.loads(made.stdout) if made.returncode == 0 else made.stderr.strip().replace("\n", " ")[:160]


RECORDED = [  # model type, keys more, whether its tokens have types
    *[(t, {"is_causal": False}, False) for t in
      "llama mistral qwen2 gemma2 gemma3_text llama4_text gpt2 gpt_neox bloom opt bart t5 stablelm imagegpt modernbert-decoder".split()],
    ("llava_next", {"is_causal": False}, False), ("aya_vision", {"is_causal": False}, False),
    *[(t, {"use_bidirectional_attention": True}, False) for t in "gemma gemma2 vaultgemma step3p5".split()],
    ("gemma3_text", {"use_bidirectional_attention": True, "sliding_window": 4}, False),
    ("gemma4_text", {"use_bidirectional_attention": "all"}, False),
    ("gemma4_unified_text", {"use_bidirectional_attention": "all"}, False),
    ("bert", {"is_decoder": True}, False), ("t5", {"is_decoder": True}, False), ("bart", {"is_decoder": True}, False),
    ("t5gemma", {}, False), ("t5gemma2", {}, False), ("t5gemma2", {"encoder": {"text_config": {"sliding_window": 4}}}, False),
    *[(t, {}, True) for t in "gemma3 gemma4_unified paligemma molmo2 hrm_text bert".split()],
    ("gemma4", {"text_config": {"use_bidirectional_attention": "vision"}}, True),
]


def merged(config, more):
    out = dict(config)
    for key, value in more.items():
        out[key] = merged(out.get(key, {}), value) if isinstance(value, dict) else value
    return out


def record(program, folder, file):
    """Every case of RECORDED with the rows of each layer: 1 where the token of the column is seen."""
    cases = []
    for model_type, more, types in RECORDED:
        for base in files_of(model_type):
            config = merged({"model_type": model_type, **base}, more)
            try:
                stacks = measured(model_type, config, None, types)
            except Exception:
                continue
            if isinstance(stacks, dict) and not isinstance(told := explained(program, folder, config), str):
                parts = {name: [["".join("1" if s else "." for s in seen) for _, seen in rows or []] for rows in calls]
                         for name, _, calls in pairs_of(told, stacks)}
                cases.append({"config": config, "types": TYPES if types else None, "parts": parts})
                break
        else:
            print("not run:", model_type, more, file=sys.stderr)
    text = ",\n".join(" " + json.dumps(c) for c in cases)
    pathlib.Path(file).write_text('{"transformers": "5.23.0", "cases": [\n' + text + "\n]}\n")


def block_of(mask, i):
    """None, or what tokens of i's block have in common."""
    if TYPES[i] not in mask["types"]:
        return None
    while mask["blocks"] == "runs" and i > 0 and TYPES[i - 1] in mask["types"]:
        i -= 1
    return i if mask["blocks"] == "runs" else 0


def allowed(attention, i, j, mask=None):
    if mask:
        if block_of(mask, i) is not None and block_of(mask, i) == block_of(mask, j) and (mask["left"] is None or i - j <= mask["left"]):
            return True
        attention = {**attention, "right": 0}
    if attention["chunk"] is not None and i // attention["chunk"] != j // attention["chunk"]:
        return False
    left, right = attention["left"], attention["right"]
    return (left is None or i - j <= left) and (right is None or j - i <= right)


def differs(layer, rows, types):
    """What of a layer is not as it is said; "" where all is."""
    a = layer["attention"]
    mask = next((r["value"] for r in layer["must_honour"] if r["what"] == "mask_by_token_type"), None)
    if mask and not types:
        a, mask = {**a, "right": 0}, None
    if rows is None or a["kind"] == "none":
        return ""
    for i, seen in rows:
        for j, s in enumerate(seen):
            if a["kind"] == "linear":
                if s and j > i:
                    return f"layer {layer['index']} (linear): token {i} sees {j}"
            elif s != allowed(a, i, j, mask):
                return (f"layer {layer['index']} ({a['kind']}, left {a['left']}, right {a['right']}, chunk {a['chunk']}): "
                        f"token {i} {'sees' if s else 'does not see'} {j}; it sees {''.join('1' if v else '.' for v in seen)}")
    return ""


def pairs_of(told, stacks):
    """(name, layers, calls): each stack of the explanation beside the measured one that has its place."""
    parts = {"": told["layers"], **{n: t["layers"] for n, t in told["towers"].items()}}
    parts = {n: l for n, l in parts.items() if l}
    left, out = dict(stacks), []
    if len(stacks) > 1 and len(parts) == 1:  # stages, cycles: all layers in the order of their calls
        left["all"] = [rows for _, rows in sorted((n, rows) for calls in stacks.values() for n, rows in calls)]
    left = {s: [c[1] if isinstance(c, tuple) else c for c in calls] for s, calls in left.items()}
    for name in sorted(parts, reverse=True):
        words = [name] if name else ["decoder", "language_model", "text"]
        fits = [s for s in left if len(left[s]) == len(parts[name])]
        named = [s for s in fits if any(w in s for w in words)]
        if not name and not named and "encoder" not in parts:
            named = fits
        if named:
            out.append((name, parts[name], left.pop(named[0])))
    return out


def compare(told, stacks, types):
    pairs = pairs_of(told, stacks)
    if not pairs:
        shape = {n: len(c) for n, c in stacks.items()}
        return "no layers in common", f"{len(told['layers'])} layers, towers {[(n, len(t['layers'])) for n, t in told['towers'].items()]}; run: {shape}"
    for name, layers, calls in pairs:
        for layer, rows in zip(layers, calls):
            if why := differs(layer, rows, types):
                noted = any(f["code"] == "one_kernel" or f["code"] == "encoding_not_covered" and any(w in f["message"] for w in NOTED)
                            for f in told["findings"])
                return "differs, and a note says so" if noted else "differs", (name + ": " if name else "") + why
    return "agrees", ", ".join(name or "model" for name, _, _ in pairs)


def verdict(program, folder, model_type, more, kernel, types):
    problem = "nothing ran"
    for file in files_of(model_type):
        file = {"model_type": model_type, **file, **more}
        try:
            stacks = measured(model_type, file, kernel, types)
        except Exception as e:
            problem = f"{type(e).__name__}: {e}".replace("\n", " ")[:160]
            continue
        if isinstance(stacks, list):
            problem = "; ".join(dict.fromkeys(stacks))[:300]
            continue
        told = explained(program, folder, file)
        if isinstance(told, str):
            problem = "posenc: " + told
            continue
        return compare(told, stacks, types)
    return ("not read by posenc" if problem.startswith("posenc") else "not built or run here"), problem


def holds(model_type, key):
    held = CONFIG_MAPPING[model_type]()
    return key in vars(held) or hasattr(type(held), key)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--only", action="append")
    parser.add_argument("--key", action="append", help="KEY=VALUE, a key more in every file")
    parser.add_argument("--eager", action="store_true", help="the eager kernel, not the class's default")
    parser.add_argument("--token-types", action="store_true", help="feed types of tokens: images, a prefix")
    parser.add_argument("--record", help="write the cases of RECORDED here, and nothing else")
    parser.add_argument("--json", help="write every verdict here")
    options = parser.parse_args()
    keys = KEYS
    if options.key is not None:
        keys = [dict((k, json.loads(v)) for k, v in [text.split("=", 1)]) if text else {} for text in options.key]
    all_of = {}
    if options.record:
        with tempfile.TemporaryDirectory() as folder:
            return record(options.program, folder, options.record)
    with tempfile.TemporaryDirectory() as folder:
        for name in options.only or TABLE:
            if name not in CONFIG_MAPPING:
                continue
            for more in keys:
                key = next(iter(more), "")
                if key not in ("", "is_causal") and not holds(name, key) and not options.key:
                    continue
                try:
                    got = verdict(options.program, folder, name, more, "eager" if options.eager else None, options.token_types)
                except Exception as e:
                    got = "not built or run here", f"{type(e).__name__}: {e}".replace("\n", " ")[:160]
                all_of.setdefault(json.dumps(more), {})[name] = got
                print(f"{name} {json.dumps(more)}: {got[0]}: {got[1]}", file=sys.stderr, flush=True)
    for more, of in all_of.items():
        counts = collections.Counter(v for v, _ in of.values())
        print(more, dict(counts.most_common()))
        for name, (v, why) in of.items():
            if v != "agrees":
                print(f"  {v}: {name}: {why}")
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(all_of, indent=1))


if __name__ == "__main__":
    main()
