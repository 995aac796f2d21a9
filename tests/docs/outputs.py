#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Blocks of output in the README and the docs are what `posenc` prints.

Between <!-- output ARGS --> and <!-- /output --> stands the command as one types it and what it prints. --write makes the blocks again.
"""
import argparse
import pathlib
import re
import shlex
import subprocess
import sys

BLOCK = re.compile(r"(<!-- output ([^\n]*) -->\n)(.*?)(<!-- /output -->)", re.S)


def block(posenc, root, words):
    """The fenced block of one command; 0 and 1 (the doctor's answer) are the exit codes of one that worked."""
    done = subprocess.run([posenc, *shlex.split(words)], cwd=root, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if done.returncode not in (0, 1) or done.stderr or not done.stdout:
        sys.exit(f"posenc {words}: exit code {done.returncode}\n{done.stderr.decode()}")
    return f"```text\n$ posenc {words}\n{done.stdout.decode()}```\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", required=True)
    parser.add_argument("--posenc", required=True)
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    root = pathlib.Path(args.source)
    verbs, wrong = set(), []
    for page in [root / "README.md", *sorted((root / "docs").rglob("*.md"))]:
        text = page.read_text()
        verbs |= {m[1].split()[0] for m in BLOCK.findall(text)} if page.name == "README.md" and page.parent == root else set()
        new = BLOCK.sub(lambda m: m[1] + block(args.posenc, root, m[2]) + m[4], text)
        if new != text and args.write:
            page.write_text(new)
        elif new != text:
            wrong.append(f"{page}: a block of output is not what posenc prints; tests/docs/outputs.py --write makes it again")
    if not {"explain", "doctor"} <= verbs:
        wrong.append("README.md shows no output of explain and of doctor")
    print("\n".join(wrong) or "blocks of output are what posenc prints")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
