# SPDX-License-Identifier: Apache-2.0
"""A scheme is not told by a word: what code must know of it is a fact of its struct, of the registry or of the tables of
src/model/data. `scheme == "alibi"`, `card.name != "yarn"` and contains({"rope", ...}, scheme) are refused."""
import pathlib, re, sys

NAME = r"(?:\bscheme_?(?:\(\))?|\bcard(?:\([^()]*\))?\.name)"
COMPARED = re.compile(rf'{NAME}\s*[!=]=\s*"|"\s*[!=]=\s*[\w.>()-]*{NAME}|contains\(\s*\{{[^{{}}]*"[^{{}}]*\}},\s*[\w.>()-]*{NAME}')
FOLDERS = ("src/model", "src/registry", "src/report", "src/c", "cli", "python/src")


def main(root):
    wrong, read = [], 0
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix not in (".h", ".cpp"):
                continue
            read += 1
            text = path.read_text()
            wrong += [f"{path.relative_to(root)}:{text.count(chr(10), 0, m.start()) + 1}: a scheme is compared as a word: {m[0]}"
                      for m in COMPARED.finditer(text)]
    print("\n".join(wrong) or f"no scheme is compared as a word in {read} files")
    sys.exit(1 if wrong or read < 200 else 0)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
