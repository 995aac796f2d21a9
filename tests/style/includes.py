# SPDX-License-Identifier: Apache-2.0
"""What the files of a folder may include. Kernels know no plan and no scheme. The parts of attention build on each other in one
direction: the call and what is lowered know no engine, and engines do not know each other."""
import pathlib, re, sys

INCLUDE = re.compile(r"^\s*#\s*include\s+(\S+)", re.M)
# Headers of src, by their folder there: "core/element.h".
INTERNAL = r'"(absolute|attention|c|core|cuda|io|kernels|model|phase|positions|registry|relative|rotary|scaling)/[^"]+"'
STANDARD = r"<[a-z0-9_]+>"

# Folder, the includes that its files may have (all of them must match), why.
ALLOWED = [
    ("src/kernels", rf'"(core|posenc/core|kernels)/[^"]+"|<hwy/[^>]+>|{STANDARD}',
     "kernels include core, kernels, Highway and the standard library"),
]
# Folder, the includes that its files may not have, why.
FORBIDDEN = [
    ("include", r'"kernels/.*', "only plans and what stands above them include kernels"),
    ("src/core", r'"kernels/.*', "only plans and what stands above them include kernels"),
    ("src/attention/call", r'"attention/(?!call/).*', "a call knows nothing of plans and engines"),
    ("src/attention/lowered", r'"attention/(?!(call|lowered)/).*', "lowered terms know nothing of plans and engines"),
    ("src/attention/exact", r'"attention/(?!(call|lowered|exact)/).*', "an engine knows the call and the lowered terms, no other engine"),
    ("src/attention/fast", r'"attention/(?!(call|lowered|fast)/).*', "an engine knows the call and the lowered terms, no other engine"),
    ("src/report", INTERNAL, "reports, the command line and Python use the public headers"),
    ("cli", INTERNAL, "reports, the command line and Python use the public headers"),
    ("python/src", INTERNAL, "reports, the command line and Python use the public headers"),
    ("include/posenc/report", INTERNAL, "public headers include public headers"),
    ("src/model/hugging_face/rope_dictionary", r'".*/rotary_definition/.*',
     "a dictionary of rope_parameters is brought into one form before a definition is made of it"),
    ("src/model/hugging_face/rotary_definition", r'".*/rope_dictionary/.*',
     "a definition is made of a dictionary in one form, however the file writes it"),
    ("src/attention/plan", r'"attention/(exact|fast)/.*', "plans reach engines by the list of engines"),
]


def files_of(folder):
    return [p for p in sorted(folder.rglob("*")) if p.suffix in (".h", ".cpp", ".in")] if folder.is_dir() else []


def main(root):
    wrong, read = [], 0
    for rules, matches_are_wrong in ((ALLOWED, False), (FORBIDDEN, True)):
        for folder, pattern, reason in rules:
            for path in files_of(root / folder):
                read += 1
                wrong += [f"{path.relative_to(root)} includes {name}: {reason}" for name in INCLUDE.findall(path.read_text())
                          if bool(re.fullmatch(pattern, name)) == matches_are_wrong]
    print("\n".join(wrong) or f"{read} files include what they may")
    sys.exit(1 if wrong or not files_of(root / "src/kernels") else 0)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
