#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A page X.zh-CN.md has the snippets, numbers, links and tables of X.md: for each section the same code without its comments,
the same numbers outside of code, the same links (to the Chinese page where one exists) and as many rows of tables.

What is made from the library (<!-- NAME --> ... <!-- /NAME -->) stands in the English page alone; a Chinese page may repeat it.
"""
import argparse
import collections
import pathlib
import re
import sys

MADE = re.compile(r"<!-- (\w+)[^>]*-->.*?<!-- /\1 -->\n*", re.S)
FENCE = re.compile(r"^```[^\n]*\n(.*?)^```$", re.M | re.S)
INDENTED = re.compile(r"^ {4}.*$", re.M)
LINK = re.compile(r"\]\(([^)\s]*)\)")
NUMBER = re.compile(r"(?<![\w.])[-−]?\d+(?:[.,]\d+)*(?:e[-+]?\d+)?")
COMMENT = re.compile(r"\s*(?://|#(?!include)).*$", re.M)


def sections(text):
    """{number of the heading: text}, without what is made."""
    return re.split(r"^#+ .*$", MADE.sub("", FENCE.sub(lambda m: re.sub(r"^#", " #", m[0], flags=re.M), text)), flags=re.M)


def parts(section):
    code = [COMMENT.sub("", c).strip() for c in FENCE.findall(section)]
    prose = INDENTED.sub("", FENCE.sub("", section))
    links = [re.sub(r"\.zh-CN\.md", ".md", x).split("#")[0] for x in LINK.findall(prose)]
    words = re.sub(r"`[^`\n]*`", "", LINK.sub("]", prose))
    return {"snippets": code, "links": sorted(links), "numbers": sorted(x.replace("−", "-") for x in NUMBER.findall(words)),
            "rows of tables": len(re.findall(r"^\|", prose, re.M)), "code words": sorted(re.findall(r"`([^`\n]+)`", prose))}


def difference(a, b):
    if isinstance(a, int):
        return f"{a} and {b}"
    x, y = collections.Counter(a), collections.Counter(b)
    return f"only English: {list((x - y).elements())}, only Chinese: {list((y - x).elements())}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", type=pathlib.Path, required=True)
    root = parser.parse_args().source
    pages, wrong, checked = [root / "README.zh-CN.md", *sorted((root / "docs").rglob("*.zh-CN.md"))], [], 0
    for page in pages:
        ours, theirs = (sections(p.read_text()) for p in (page.with_name(page.name.replace(".zh-CN", "")), page))
        if len(ours) != len(theirs):
            wrong.append(f"{page.relative_to(root)}: {len(theirs) - 1} headings, the English page has {len(ours) - 1}")
            continue
        for number, (a, b) in enumerate(zip(map(parts, ours), map(parts, theirs))):
            checked += sum(len(v) for v in a.values() if not isinstance(v, int))
            wrong += [f"{page.relative_to(root)}: heading {number}: other {what} than the English page ({difference(a[what], b[what])})"
                      for what in a if a[what] != b[what]]
    print("\n".join(wrong) or f"{len(pages)} Chinese pages have the {checked} snippets, numbers, links and names of the English ones")
    sys.exit(1 if wrong or len(pages) < 3 or checked < 100 else 0)


if __name__ == "__main__":
    main()
