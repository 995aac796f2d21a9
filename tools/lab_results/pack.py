#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Packs results of the lab into the file that `posenc advise` contains, src/report/data/lab_results.json.

    tools/lab_results/pack.py DIR/results.jsonl ... -o src/report/data/lab_results.json

Keeps what advise reads: task, label, scheme, seed, options, parameters and numbers by length, with four digits. A run that ended early
is left out. The file must stay below 300 kB.
"""
import argparse
import json
import pathlib
import sys

SCHEMA = "posenc.lab/1"
OF_TEXT = ("lm", "masked", "extension", "translate")
KEPT = ("task", "label", "scheme", "seed", "seeds", "options", "parameters", "provenance")
CURVES = ("loss", "accuracy", "exact", "bleu")
MOST_BYTES = 300_000


def short(value):
    """Numbers with four significant digits."""
    if isinstance(value, dict):
        return {k: short(v) for k, v in value.items()}
    return float(f"{value:.4g}") if isinstance(value, float) else value


def values_of(values):
    if "modes" not in values:
        return {name: short(values[name]) for name in CURVES if name in values}
    modes = {name: {k: short(mode[k]) for k in ("scheme", "zero", "tuned") if k in mode} for name, mode in values["modes"].items()}
    return {"factor": values["factor"], "modes": modes}


def packed(path):
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if not line.strip():
            continue
        row = json.loads(line)
        if row.get("schema") != SCHEMA:
            sys.exit(f'{path}, line {number}: schema must be "{SCHEMA}", got {row.get("schema")!r}')
        if "failed" not in row:
            if row["task"] not in OF_TEXT or row["options"].get("measure") == "passkey":  # drawn: the text of the options was not read
                row["options"] = {k: v for k, v in row["options"].items() if k != "text"}
            row["options"] = {k: v for k, v in row["options"].items() if v is not None}
            yield {"schema": SCHEMA, **{k: row[k] for k in KEPT if k in row}, "values": values_of(row["values"])}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=pathlib.Path, nargs="+")
    parser.add_argument("-o", dest="out", type=pathlib.Path, required=True)
    args = parser.parse_args()
    runs = [row for path in args.results for row in packed(path)]
    text = '{"runs": [\n' + ",\n".join(json.dumps(row, ensure_ascii=False) for row in runs) + "\n]}\n"
    if len(text.encode()) > MOST_BYTES:
        sys.exit(f"{len(text.encode())} bytes: the packaged results must have at most {MOST_BYTES}")
    args.out.write_text(text)
    print(f"{args.out}: {len(runs)} runs, {len(text.encode())} bytes")


if __name__ == "__main__":
    main()
