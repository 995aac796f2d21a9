# SPDX-License-Identifier: Apache-2.0
"""Identifiers that were replaced by the field's words (CONTRIBUTING.md) and must not come back."""
import argparse, pathlib, re, sys

INSTEAD = {
    "Sense": "RotateMode", "Way": "StrideRange", "check_apart": "check_no_self_overlap", "floor_modulo": "floor_divide",
    "mend_of": "default_fix", "shared_out": "parallel_for", "kMostTokens": "kMaxTokens",
    "MemoryWay": "AccessPattern", "memory_way": "access_pattern", "as_it_lies": "sequential", "several_pages": "interleave_pages",
    "Route": "RotatePath", "RouteOf": "PathOf", "Room": "CoefficientScratch", "StreamedRuns": "NonTemporalRuns",
    "AskFor": "PrefetchLines", "AskForHeads": "PrefetchHeads", "AskForRow": "PrefetchRow", "kAheadAlone": "kPrefetchBytes",
    "TurnPlain": "RotatePlain", "TurnHalf": "RotateHalf", "TurnInterleaved": "RotateInterleaved", "TurnRuns": "RotateRuns",
    "TurnBoth": "RotateQueryAndKey", "Zip": "InterleaveCoefficients", "NarrowWalk": "FloatRecurrence",
    "WideWalk": "DoubleRecurrence", "RowWalk": "RowRecurrence", "bend": "curvature", "Weigh": "WeightedSum",
    "weigh_kernels": "weighted_sum_kernels", "kMostRuns": "kMaxRuns", "kMostBlocks": "kMaxBlocks", "kMostGrown": "kMaxGrown",
    "ReadRow": "float_element",
}


def main():
    args = argparse.ArgumentParser(description=__doc__)
    args.add_argument("--source", type=pathlib.Path, required=True)
    root = args.parse_args().source
    files = [p for folder in ("include", "src", "cli", "bench", "conformance/runner") for p in sorted((root / folder).rglob("*"))
             if p.suffix in (".h", ".cpp", ".cu")]
    word = re.compile(r"\b(" + "|".join(INSTEAD) + r")\b")
    wrong = []
    for path in files:
        for number, line in enumerate(path.read_text().splitlines(), 1):
            for found in word.findall(line.split("//")[0]):
                wrong.append(f"{path.relative_to(root)}:{number}: {found} is called {INSTEAD[found]}")
    print("\n".join(wrong) or f"{len(files)} files without the {len(INSTEAD)} old names")
    sys.exit(1 if wrong or not files else 0)


if __name__ == "__main__":
    main()
