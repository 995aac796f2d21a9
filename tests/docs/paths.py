# SPDX-License-Identifier: Apache-2.0
"""Files of the project that a page names in backticks exist, and on the pages on the inside of the code so do its names."""
import argparse, pathlib, re, sys

PATH = re.compile(r"`((?:src|include|tests|bench|cli|cmake|tools|fuzz)/[A-Za-z0-9_./-]+\.[A-Za-z]+)[`:]")
NAME = re.compile(r"`([A-Za-z_]\w*(?:::\w+)*)(?:<[^`]*>)?`")
MADE = {"src/kernels/rotate_f64_f32.cpp"}  # by the build


def main():
    args = argparse.ArgumentParser(description=__doc__)
    args.add_argument("--source", type=pathlib.Path, required=True)
    root = args.parse_args().source
    pages = [root / "README.md", root / "CONTRIBUTING.md", *sorted((root / "docs").rglob("*.md"))]
    wrong, count = [], 0
    for page in pages:
        for path in PATH.findall(page.read_text()):
            count += 1
            if path not in MADE and not (root / path).exists():
                wrong.append(f"{page.relative_to(root)}: {path} does not exist")
    code = "\n".join(p.read_text() for folder in ("include", "src/core", "src/kernels", "src/rotary", "src/absolute", "src/attention")
                     for p in sorted((root / folder).rglob("*")) if p.suffix in (".h", ".cpp", ".in", ".cmake"))
    words = set(re.findall(r"\w+", code))
    for page in ("docs/kernels.md", "docs/attention_engine.md"):
        for name in NAME.findall((root / page).read_text()):
            count += 1
            wrong += [f"{page}: nothing is called {part}" for part in name.split("::") if part not in words]
    print("\n".join(wrong) or f"{count} names of files and of the code exist")
    sys.exit(1 if wrong or count < 100 else 0)


if __name__ == "__main__":
    main()
