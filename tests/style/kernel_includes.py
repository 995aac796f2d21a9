# SPDX-License-Identifier: Apache-2.0
"""Kernels know no plan and no scheme: files of src/kernels include core/, posenc/core/, kernels/, Highway, compilers'
intrinsics and the standard library, and nothing else; public headers and src/core include no kernel."""
import pathlib, re, sys

ALLOWED = re.compile(r'"(core|posenc/core|kernels)/[^"]+"|<hwy/[^>]+>|<[a-z_]+>')
INCLUDE = re.compile(r"^\s*#\s*include\s+(\S+)", re.M)


def main(root):
    wrong, count = [], 0
    for path in sorted((root / "src/kernels").iterdir()):
        if path.suffix not in (".h", ".cpp", ".in"):
            continue
        count += 1
        wrong += [f"{path.relative_to(root)}: kernels do not include {name}" for name in INCLUDE.findall(path.read_text())
                  if not ALLOWED.fullmatch(name)]
    below = [p for folder in ("include", "src/core") for p in sorted((root / folder).rglob("*")) if p.suffix in (".h", ".cpp")]
    for path in below:
        wrong += [f"{path.relative_to(root)}: only plans and what stands above them include {name}"
                  for name in INCLUDE.findall(path.read_text()) if name.startswith('"kernels/')]
    print("\n".join(wrong) or f"{count} files of src/kernels include what they may")
    sys.exit(1 if wrong or not count or not below else 0)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
