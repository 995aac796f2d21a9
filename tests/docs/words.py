# SPDX-License-Identifier: Apache-2.0
"""Words that were replaced by the field's own (CONTRIBUTING.md) and must not come back: identifiers in the code, and words and
phrases in the pages, outside of code and of what other programs write between <!-- and <!-- / there. No sentence of a page,
outside of tables, has more than 45 words."""
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
IN_PAGES = {
    r"mend(s|ed|ing)?": "fix", r"likeness": "similarity", r"kin": "similar models", r"(un)?turned": "rotated",
    r"(is|are|q|k|keys|queries|heads|pairs|channels|RotaryPlan`?) turns?": "rotate", r"turns? (q|k|queries|keys|pairs|channels|heads)\b": "rotate",
    r"do(es)? not turn": "does not rotate", r"asked? (for )?early": "prefetch", r"without neighbours|busy neighbours": "an idle machine",
    r"anew": "again", r"overrul(e|es|ed)": "override", r"upside down": "reversed", r"put(s)? out of force": "override",
    r"shared out": "divided", r"fluent at first": "say what goes wrong", r"memory way": "memory order", r"held against|hold \w+ against": "compare with",
    r"(is|are|be|and) refused": "rejected", r"in the place of": "instead of", r"at hand": "available", r"voids?": "disabled", r"(a|the) call brings": "inputs of the call",
    r"(a|the) scheme asks": "sets, requires", r"one's own": "the query's own",
}
MOST_WORDS = 45
LEFT_OUT = re.compile(r"<!-- (\w+)[^>]*-->.*?<!-- /\1 -->|^```.*?^```|^    [^\n]*$|`[^`\n]*`|\]\([^)\s]*\)", re.S | re.M)


def of_code(root):
    files = [p for folder in ("include", "src", "cli", "bench", "conformance/runner") for p in sorted((root / folder).rglob("*"))
             if p.suffix in (".h", ".cpp", ".cu")]
    word = re.compile(r"\b(" + "|".join(INSTEAD) + r")\b")
    wrong = []
    for path in files:
        for number, line in enumerate(path.read_text().splitlines(), 1):
            for found in word.findall(line.split("//")[0]):
                wrong.append(f"{path.relative_to(root)}:{number}: {found} is called {INSTEAD[found]}")
    return files, wrong


def of_pages(root):
    pages = [root / "README.md", *sorted((root / "docs").rglob("*.md"))]
    words = [(re.compile(rf"(?<![\w`]){word}\b", re.I), instead) for word, instead in IN_PAGES.items()]
    wrong = []
    for path in pages:
        text = LEFT_OUT.sub(lambda m: "\n" * m[0].count("\n") or "``", path.read_text())
        for number, line in enumerate(text.splitlines(), 1):
            for word, instead in words:
                if found := word.search(line):
                    wrong.append(f"{path.relative_to(root)}:{number}: \"{found[0]}\": say {instead}")
    return pages, wrong


def long_sentences(root, pages):
    for path in pages:
        if path.name in ("python_reference.md", "bibliography.md"):
            continue
        text = LEFT_OUT.sub("``", re.sub(r"^\|.*$", "", path.read_text(), flags=re.M))
        for paragraph in re.split(r"\n\n|\n(?=\s*[*#\d])", text):
            for sentence in re.split(r"(?<=[.:;])\s+", paragraph):
                if len(sentence.split()) > MOST_WORDS:
                    yield f"{path.relative_to(root)}: a sentence of {len(sentence.split())} words, at most {MOST_WORDS}: {sentence[:70]!r} ..."


def main():
    args = argparse.ArgumentParser(description=__doc__)
    args.add_argument("--source", type=pathlib.Path, required=True)
    root = args.parse_args().source
    files, wrong = of_code(root)
    pages, more = of_pages(root)
    wrong += [*more, *long_sentences(root, pages)]
    print("\n".join(wrong) or f"{len(files)} files without the {len(INSTEAD)} old names, {len(pages)} pages without the {len(IN_PAGES)} old words")
    sys.exit(1 if wrong or not files or len(pages) < 40 else 0)


if __name__ == "__main__":
    main()
