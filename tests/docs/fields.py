#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The tables of fields in the docs are what `posenc list NAME --json` says, and every scheme and scaling has one (those
that act on the score may); links and pictures exist, papers of arXiv are links and in the bibliography, and a scheme's page says
who uses it before it lists fields.

Between <!-- fields NAME --> and <!-- /fields --> stands the table of scheme NAME, without the rows that the README of its folder
has below "Common fields" or that an earlier table of the page has. <!-- fields NAME beside OTHER --> also leaves out the rows that
scheme OTHER has, whose page OTHER.md stands in the same folder. Between <!-- schemes --> and <!-- /schemes --> of the README stands the list of all. --write writes both.
"""
import argparse
import json
import pathlib
import re
import subprocess
import sys

TABLE = re.compile(r"(<!-- fields (\w+)(?: beside (\w+))? -->\n)(.*?)(<!-- /fields -->)", re.S)
SCHEMES = re.compile(r"(<!-- schemes -->\n)(.*?)(<!-- /schemes -->)", re.S)
ARXIV = re.compile(r"arXiv:\d{4}\.\d{4,5}(?:v\d+)?|(?<![\w./:\[])\d{4}\.\d{5}(?:v\d+)?(?![\w.])")
LINKED = re.compile(r"\[arXiv:([\dv.]+)\]\(https://arxiv\.org/abs/\1\)")
MADE = re.compile(r"<!-- (\w+)[^>]*-->.*?<!-- /\1 -->|^```.*?^```", re.S | re.M)
NUMBER = re.compile(r"arXiv:(\d{4}\.\d{4,5})")
LINK = re.compile(r"\]\(([^)#\s]*)(#[^)\s]*)?\)")


def listed(posenc, *words):
    return subprocess.run([posenc, "list", *words], check=True, stdout=subprocess.PIPE).stdout.decode()


def common(folder):
    """Rows of fields that the page of a family has for all its schemes, below "Common fields"."""
    readme = folder / "README.md"
    section = re.search(r"^## Common fields$(.*?)(?=^## |\Z)", readme.read_text() if readme.exists() else "", re.S | re.M)
    return re.findall(r"^\* `.*$", section[1], re.M) if section else []


LEAST_SHARED = 3  # fewer rows that an earlier table of the page has are repeated


def field_rows(posenc, name):
    """A line for each field of a scheme: what one types for its default, and what it is."""
    for f in json.loads(listed(posenc, name, "--json"))["fields"]:
        default = f"`{f['name']}`, required" if f["required"] else f"`{f['name']}={f['default'] or 'none'}`"
        words = f["doc"] + (f", in {f['unit']}" if f["unit"] else "")
        if f["choices"]:
            words += ": " + ", ".join(f"`{c}`" for c in f["choices"])
        yield f"* {default}: {words}"


def table(posenc, name, other, elsewhere, above):
    """The table of a scheme. `other`: a scheme whose page has the rows that both share. `above`: rows of earlier tables of the page,
    to which it adds its own."""
    rows = list(field_rows(posenc, name))
    ends = []

    def leave_out(known, where, least=1):
        shared = [row for row in rows if row in known]
        if len(shared) >= least:
            rows[:] = [row for row in rows if row not in known]
            ends.append(f"{names(shared)}: {where}.")

    leave_out(above, "as above", LEAST_SHARED)
    leave_out(elsewhere, "[common fields](README.md#common-fields)")
    leave_out(list(field_rows(posenc, other)) if other else [], f"as in [{other}]({other}.md#fields)")
    above += rows
    return "".join(line + "\n" for line in [*rows, *(f"* {end}" for end in ends)])


def names(rows):
    return ", ".join(f"`{re.search('[a-z0-9_]+', row)[0]}`" for row in rows)


def shape(text):
    """What is wrong with how a page is written: papers that are no links, fields before who uses the scheme."""
    for found in ARXIV.findall(LINKED.sub("", MADE.sub("", text))):
        yield f"{found} is no link [arXiv:N](https://arxiv.org/abs/N)"
    headings = re.findall(r"^## (.*)$", text, re.M)
    if "Fields" in headings and "Who uses it" in headings and headings.index("Fields") < headings.index("Who uses it"):
        yield "\"Who uses it\" stands behind \"Fields\""


def lacking(page, text):
    """What the page of a scheme of the score has not and should."""
    if page.parent.name != "relative" or page.name == "README.md":
        return
    readme = (page.parent / "README.md").read_text()
    memory = re.search(r"<!-- memory -->(.*?)<!-- /memory -->", readme, re.S)[1]
    for what, found in (("\"Formula\"", "## Formula" in text), ("\"Who uses it\"", "## Who uses it" in text), ("a picture", "![" in text),
                        ("code that runs", re.search(r"^```(cpp|sh)$", text, re.M))):
        if not found:
            yield f"lacks {what}"
    for _, name, *_ in TABLE.findall(text):
        if not re.search(rf"^\| `{name}[ `]", memory, re.M):
            yield f"has the scheme {name}, which the table of memory in README.md lacks"


def unlisted(readme, posenc):
    """A line of the table of pages for each page of a scheme of the score that docs/relative/README.md does not link."""
    text = readme.read_text()
    for page in sorted(readme.parent.glob("*.md")):
        if page == readme or f"({page.name})" in text:
            continue
        words = page.read_text()
        names = [n for _, n, *_ in TABLE.findall(words)] or [page.stem]
        cards = [json.loads(listed(posenc, n, "--json")) for n in names]
        yield f"| [{', '.join(f'`{n}`' for n in names)}]({page.name}) | {cards[0]['title']} |\n"


def list_pages(readme, posenc, write):
    """What is wrong with the table of pages; with `write` its missing lines are added at the end."""
    lines = list(unlisted(readme, posenc))
    if lines and write:
        text = readme.read_text()
        end = re.search(r"^\| scheme \| what it adds \|.*\n(?:\|.*\n)*", text, re.M).end()
        readme.write_text(text[:end] + "".join(lines) + text[end:])
    elif lines:
        yield from (f"{readme}: lacks a line for a page; tests/docs/fields.py --write adds {line.strip()}" for line in lines)


def anchors(page):
    """The parts of a page that a link may name, as GitHub makes them of its headings."""
    return {"#" + re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in re.findall(r"^#+ (.*)$", page.read_text(), re.M)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--source", required=True)
    parser.add_argument("--posenc", required=True)
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    root = pathlib.Path(args.source)
    wrong, tables = list(list_pages(root / "docs/relative/README.md", args.posenc, args.write)), set()
    schemes = listed(args.posenc, "--markdown")
    papers = set(NUMBER.findall((root / "docs/bibliography.md").read_text()))
    for page in [root / "README.md", root / "README.zh-CN.md", root / "CONTRIBUTING.md", *sorted((root / "docs").rglob("*.md"))]:
        text = page.read_text()
        elsewhere, above = common(page.parent), []
        new = TABLE.sub(lambda m: m[1] + table(args.posenc, m[2], m[3], elsewhere, above) + m[5], text)
        new = SCHEMES.sub(lambda m: m[1] + schemes + m[3], new)
        tables |= {m[1] for m in TABLE.findall(text)}
        if new != text and args.write:
            page.write_text(new)
        elif new != text:
            wrong.append(f"{page}: a table of fields or schemes is not what `posenc list` says; tests/docs/fields.py --write fixes it")
        wrong += [f"{page}: {what}" for what in [*shape(text), *lacking(page, text)]]
        wrong += [f"{page}: docs/bibliography.md lacks arXiv:{n}" for n in sorted(set(NUMBER.findall(text)) - papers)]
        for target, part in LINK.findall(text):
            other = page.parent / target if target else page
            if "://" not in target and (not other.exists() or part and part not in anchors(other)):
                wrong.append(f"{page}: {target}{part} does not exist")
    report = json.loads(listed(args.posenc, "--json"))
    for s in report["schemes"] + report["scalings"]:
        if s["family"] != "relative" and s["name"] not in tables:
            wrong.append(f"{s['name']}: no page of docs/rotary or docs/absolute has <!-- fields {s['name']} --> <!-- /fields -->")
    shown = "".join(p.read_text() for p in [root / "README.md", *(root / "docs").rglob("*.md")])
    for picture in sorted((root / "docs/images").rglob("*.svg")):
        if picture.name not in shown:
            wrong.append(f"{picture}: no page shows it")
    print("\n".join(wrong) or f"{len(tables)} tables of fields, every link and picture exists")
    sys.exit(1 if wrong or not tables else 0)


if __name__ == "__main__":
    main()
