#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The legend of the table of model types in tools/model_table/README.md is what the describe functions of
src/model/hugging_face/class_rules say: every member with its place and its meaning. --write makes it again."""
import argparse
import pathlib
import re
import sys

LEGEND = re.compile(r"(<!-- legend -->\n)(.*?)(<!-- /legend -->)", re.S)
STRUCT = re.compile(r"struct (\w+) \{\n((?:(?!\n\};).)*?)static void describe\(auto& s, auto&& v\) \{\n(.*?)\n  \}", re.S)
MEMBER = re.compile(r'v\("(\w+)", s\.(\w+),\s*((?:"(?:[^"\\]|\\.)*"\s*)+)\);')


def read(folder):
    """{struct: [(name, type of the member, meaning)]}"""
    rules = {}
    for header in sorted(folder.glob("*.h")):
        for name, declared, described in STRUCT.findall(header.read_text()):
            members = MEMBER.findall(described)
            if len(members) != described.count("v("):
                sys.exit(f"{header}: {name} has a member that does not read as v(\"name\", s.member, \"meaning\")")
            rules[name] = [(member, type_of(declared, variable), "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', text)))
                           for member, variable, text in members]
    return rules


def type_of(declared, variable):
    for statement in declared.split(";"):
        if re.search(rf"\s{variable}\b", statement):
            return statement
    sys.exit(f"{variable} is not declared")


def rows(rules, name, place=""):
    for member, kind, meaning in rules[name]:
        yield f"| `{place}{member}` | {meaning} |"
        for inner in rules:
            if re.search(rf"\b{inner}\b", kind):
                yield from rows(rules, inner, f"{place}{member}.")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--source", required=True)
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    root = pathlib.Path(args.source)
    page = root / "tools" / "model_table" / "README.md"
    legend = list(rows(read(root / "src" / "model" / "hugging_face" / "class_rules"), "ClassRules"))
    if len(legend) < 200:
        sys.exit(f"only {len(legend)} members are found")
    text = page.read_text()
    new, found = LEGEND.subn(lambda m: m[1] + "\n".join(["| member | |", "|---|---|", *legend]) + "\n" + m[3], text)
    if not found:
        sys.exit(f"{page} has no <!-- legend -->")
    if new != text and args.write:
        page.write_text(new)
    elif new != text:
        sys.exit(f"{page}: the legend is not what class_rules says; tests/docs/legend.py --write makes it again")


main()
