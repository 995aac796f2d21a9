#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The tables of fields in the docs are what `posenc list NAME --json` says; links and pictures exist.

Between <!-- fields NAME --> and <!-- /fields --> stands the table of scheme NAME. --write makes them anew.
"""
import argparse
import json
import pathlib
import re
import subprocess
import sys

TABLE = re.compile(r"(<!-- fields (\w+) -->\n)(.*?)(<!-- /fields -->)", re.S)
LINK = re.compile(r"\]\(([^)#\s]+)(#[^)\s]*)?\)")


def table(posenc, name):
    scheme = json.loads(subprocess.run([posenc, "list", name, "--json"], check=True, stdout=subprocess.PIPE).stdout)
    lines = ["| field | default | |", "|---|---|---|"]
    for f in scheme["fields"]:
        default = "required" if f["required"] else "none" if f["default"] in (None, "") else f"`{f['default']}`"
        words = f["doc"] + (f", in {f['unit']}" if f["unit"] else "")
        if f["choices"]:
            words += ": " + ", ".join(f"`{c}`" for c in f["choices"])
        lines.append(f"| `{f['name']}` | {default} | {words} |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--source", required=True)
    parser.add_argument("--posenc", required=True)
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    root = pathlib.Path(args.source)
    wrong, tables = [], 0
    for page in [root / "README.md", root / "CONTRIBUTING.md", *sorted((root / "docs").rglob("*.md"))]:
        text = page.read_text()
        new = TABLE.sub(lambda m: m[1] + table(args.posenc, m[2]) + m[4], text)
        tables += len(TABLE.findall(text))
        if new != text and args.write:
            page.write_text(new)
        elif new != text:
            wrong.append(f"{page}: a table of fields is not what `posenc list` says; tests/docs/fields.py --write mends it")
        for target, _ in LINK.findall(text):
            if "://" not in target and not (page.parent / target).exists():
                wrong.append(f"{page}: {target} does not exist")
    shown = "".join(p.read_text() for p in [root / "README.md", *(root / "docs").rglob("*.md")])
    for picture in sorted((root / "docs/images").rglob("*.svg")):
        if picture.name not in shown:
            wrong.append(f"{picture}: no page shows it")
    print("\n".join(wrong) or f"{tables} tables of fields, every link and picture exists")
    sys.exit(1 if wrong or not tables else 0)


if __name__ == "__main__":
    main()
