#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every code of a finding in the sources of the reader has a paragraph in docs/doctor.md and no other code has."""
import argparse
import pathlib
import re
import sys

CALL = re.compile(r"\b(?:(error|warn|note|add|wrong)\(\s*\{?|Finding\{)")
LITERAL = re.compile(r'"([^"\\]*(?:\\.[^"\\]*)*)"')
CODE = re.compile(r"[a-z][a-z0-9_]+")


def arguments(text, at, most):
    """The first arguments of the call whose parenthesis ends before `at`."""
    depth, found, begin = 0, [], at
    while at < len(text) and depth >= 0 and len(found) < most:
        if text[at] == '"':
            at = LITERAL.match(text, at).end()
            continue
        depth += (text[at] in "([{") - (text[at] in ")]}")
        if depth < 0 or (depth == 0 and text[at] == ","):
            found.append(text[begin:at].strip())
            begin = at + 1
        at += 1
    return found


def codes_of(text):
    for call in CALL.finditer(text):
        given = arguments(text, call.end(), 2)
        if given and "everity" in given[0]:
            given = given[1:]
        elif call.group(1) in ("add", None):  # not of a finding
            continue
        if not given:
            continue
        expression = given[0]
        if re.fullmatch(r"code|k[A-Z]\w*", expression):  # a name: what the file gives it
            expression = " ".join(re.findall(r"\b%s\s*=\s*([^;]*);" % expression, text))
        for literal in LITERAL.findall(re.sub(r'==\s*"[^"]*"', "", expression)):
            if CODE.fullmatch(literal):
                yield literal


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--source", required=True)
    root = pathlib.Path(parser.parse_args().source)
    codes = set()
    for path in sorted((root / "src" / "model").rglob("*.cpp")):
        codes.update(codes_of(path.read_text()))
    emitted = len(codes)
    page = (root / "docs" / "doctor.md").read_text()
    explained = set(re.findall(r"\*\*([a-z0-9_]+)\*\*", page))
    missing = [f"docs/doctor.md has no paragraph on {code}" for code in sorted(codes - explained)]
    missing += [f"no finding has the code {code}" for code in sorted(explained - codes)]
    if emitted < 55:
        missing.append(f"only {emitted} codes were found in the sources")
    print("\n".join(missing) or f"{len(codes)} codes have a paragraph")
    sys.exit(1 if missing else 0)


if __name__ == "__main__":
    main()
