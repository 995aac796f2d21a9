# SPDX-License-Identifier: Apache-2.0
"""Writes the report of a folder's runs: report.html in one file, pictures as SVG, tables as CSV and LaTeX, claims.json."""
from __future__ import annotations

import json
import os
from html import escape
from pathlib import Path
from typing import Any, Mapping, Sequence

from . import results
from .claims import VERDICTS, judge
from .results import Row
from .sections import Claims, Picture, Published, Section, build
from .tables import Table

SIGNS = {"pass": "✓", "fail": "✗", "differs_as_expected": "≠", "not_run": "–"}
IN_TEXT = ("failed", "loss", "accuracy", "extension", "translate")  # sections that a terminal shows
STYLE = """
:root{color-scheme:light}
body{font:16px/1.5 Helvetica,Arial,sans-serif;color:#222;background:#fff;max-width:62rem;margin:2rem auto;padding:0 1rem}
h1{font-size:1.9rem;margin:0}h2{font-size:1.35rem;margin:2.6rem 0 .6rem;border-bottom:2px solid #0072b2;padding-bottom:.2rem}
p{max-width:46rem}nav a{margin-right:1.1em;white-space:nowrap}a{color:#0072b2}
figure{margin:1rem 0}figure svg{max-width:100%;height:auto}
.table{overflow-x:auto;margin:.8rem 0 1.4rem}.tall{max-height:32rem;overflow-y:auto}
table{border-collapse:collapse;font-size:.9rem}caption{text-align:left;color:#555;padding-bottom:.3rem}
th,td{padding:.22rem .75rem;border-bottom:1px solid #ddd;text-align:right;vertical-align:top;font-variant-numeric:tabular-nums}
thead th{border-bottom:2px solid #999;background:#fff;position:sticky;top:0}tbody th{font-weight:normal}
th:first-child,th.word,td.word{text-align:left}details{margin:1rem 0}summary{color:#0072b2;cursor:pointer}td.word{min-width:8rem}td small{display:block;color:#666;font-size:.75rem}
ul.claims,ul.claims ul{list-style:none;padding:0;margin:0}ul.claims ul{color:#444;font-size:.88rem}ul.claims>li{display:grid;grid-template-columns:9.5rem 1fr;gap:.8rem;padding:.5rem 0;border-bottom:1px solid #eee}
.verdict{font-weight:bold}.pass{color:#00664b}.fail{color:#a84300}.differs_as_expected{color:#005a8c;font-weight:normal}.not_run{color:#666;font-weight:normal}
aside{background:#f6f6f2;border-left:5px dotted #999;padding:.6rem 1rem;margin:1.6rem 0}
aside .set{display:flex;flex-wrap:wrap;gap:0 2.2rem;align-items:flex-start}aside .one{max-width:100%}aside table{font-size:.8rem}
aside .title,aside .source{font-size:.78rem;color:#555;max-width:26rem;margin:0}aside .source{margin:-1rem 0 1.4rem;overflow-wrap:anywhere}
@media print{body{margin:0;max-width:none;font-size:11pt}nav{display:none}.tall{max-height:none}aside .set{display:block}figure,tr,li{break-inside:avoid}h2{break-after:avoid}}
"""


def write(rows: Sequence[Row], folder: str | os.PathLike[str]) -> list[Path]:
    """Writes the report of these runs into a folder and returns the paths."""
    results.check(rows)
    return _write(rows, {"": judge(rows)}, Path(folder), "Train short, test long", [])


def compare(folders: Sequence[str | os.PathLike[str]], out: str | os.PathLike[str]) -> list[Path]:
    """One report of several folders. A run that several have is shown once where they agree, else once for each."""
    places = list(dict.fromkeys(Path(folder).resolve() for folder in folders))
    if len(places) < 2:
        raise ValueError(f"compare joins at least 2 different folders, got {len(places)}: {', '.join(map(str, folders)) or 'none'}")
    names = [place.name if sum(other.name == place.name for other in places) == 1 else str(place) for place in places]
    found: dict[str, list[tuple[str, Row]]] = {}
    judged = {}
    for name, place in zip(names, places):
        rows = results.read(place)
        judged[name] = judge(rows)
        for row in rows:
            found.setdefault(results.identity(row), []).append((name, row))
    joined, notes = [], [f"Runs of {', '.join(names)}."]
    for made in found.values():
        if len({results.numbers_of(row) for _, row in made}) == 1:
            joined.append(made[0][1])
        else:
            one = made[0][1]
            notes.append(f"{one['task']}, {one['label']}, seed {one['seed']}: the folders have different numbers, so each is shown with its folder's name.")
            joined += [{**row, "label": f"{row['label']} ({name})"} for name, row in made]
    return _write(joined, judged, Path(out), "Train short, test long: " + ", ".join(names), notes)


def text(rows: Sequence[Row]) -> str:
    """Tables and claims for a terminal."""
    results.check(rows)
    judged = judge(rows)
    parts = [f"{part.caption or section.title}\n{part.text()}\n" for section in build(rows, {"": judged}, []) if section.anchor in IN_TEXT
             for part in section.parts if isinstance(part, Table) and not part.tall and "_exact" not in part.name]
    missing = [claim["name"] for claim in judged if claim["verdict"] == "not_run"]
    for claim in judged:
        if claim["name"] in missing:
            continue
        parts.append(f"{claim['name']:4}{VERDICTS[claim['verdict']]}: {claim['title']}. {claim['note']}")
        parts += [f"      {SIGNS['pass' if check['holds'] else 'fail']} {check['text']}" for check in claim["checks"]]
    if missing:
        parts.append(f"Claims that were not run, because runs are missing or failed: {', '.join(missing)}. report.html says which.")
    return "\n".join(parts) + "\n"


def published() -> list[dict[str, Any]]:
    """The tables of published.json."""
    tables: list[dict[str, Any]] = json.loads(Path(__file__).with_name("published.json").read_text(encoding="utf-8"))["tables"]
    return tables


def _write(rows: Sequence[Row], judged: Claims, folder: Path, title: str, notes: Sequence[str]) -> list[Path]:
    if not rows:
        raise ValueError("a report needs at least one run, got none")
    made = build(rows, judged, published())
    files = {"report.html": _page(made, rows, judged, title, notes)}
    kept = [{key: claim[key] for key in ("name", "verdict", "value", "margin", "text")} | ({"folder": name} if name else {})
            for name, claims in judged.items() for claim in claims if claim["verdict"] != "not_run"]
    files["claims.json"] = json.dumps(kept, indent=1, ensure_ascii=False) + "\n"
    for section in made:
        for part in section.parts:
            if isinstance(part, Picture):
                files[f"{part.name}.svg"] = part.svg
            elif isinstance(part, Table):
                files |= {f"{part.name}.csv": part.csv(), f"{part.name}.tex": part.latex()}
    folder.mkdir(parents=True, exist_ok=True)
    return [_replace(folder / name, content) for name, content in files.items()]


def _replace(path: Path, content: str) -> Path:
    """The file appears whole or not at all."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(content, encoding="utf-8")
    os.replace(temporary, path)
    return path


def _page(made: Sequence[Section], rows: Sequence[Row], judged: Claims, title: str, notes: Sequence[str]) -> str:
    links = " ".join(f'<a href="#{section.anchor}">{escape(section.title)}</a>' for section in made)
    body = "\n".join(f'<section id="{section.anchor}"><h2>{escape(section.title)}</h2>\n{_parts(section)}</section>' for section in made)
    return (f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
            f"<title>{escape(title)}</title><style>{STYLE}</style></head>\n<body><h1>{escape(title)}</h1>\n"
            + "".join(f"<p>{escape(words)}</p>\n" for words in (*_summary(rows, judged), *notes)) + f"<nav>{links}</nav>\n{body}\n</body></html>\n")


def _summary(rows: Sequence[Row], judged: Claims) -> list[str]:
    tasks = list(dict.fromkeys(row["task"] for row in rows))
    hours = sum(row.get("seconds", 0) for row in rows) / 60
    seeds = len({row["seed"] for row in rows})
    words = [f"Small Transformers with different position encodings, trained on short texts and tested on longer ones. {len(rows)} runs of {', '.join(tasks)}; "
             f"{seeds} seed{'s' if seeds > 1 else ''}; {hours:.0f} minutes of processor time."]
    for folder, claims in judged.items():
        names = {"pass": "pass", "fail": "fail", "differs_as_expected": "differ from the papers as expected", "not_run": "not run"}
        counts = [f"{sum(claim['verdict'] == verdict for claim in claims)} {name}" for verdict, name in names.items()]
        failed = [claim["name"] for claim in claims if claim["verdict"] == "fail"]
        words.append(f"Claims{' of ' + folder if folder else ''}: {', '.join(counts)}." + (f" Failed: {', '.join(failed)}." if failed else ""))
    return words


def _parts(section: Section) -> str:
    made, apart = [], []
    for part in section.parts:
        if isinstance(part, str):
            made.append(f"<p>{escape(part)}</p>\n")
        elif isinstance(part, Picture):
            made.append(f"<figure>{part.svg}</figure>\n")
        elif isinstance(part, Table):
            made.append(part.html())
        elif isinstance(part, Published):
            apart.append(f'<div class="one"><p class="title">{escape(part.title)}</p>{part.table.html()}<p class="source">{escape(part.source)}</p></div>\n')
        else:
            items = [f"<li>{escape(item)}</li>\n" if isinstance(item, str) else _claim(item) for item in part]
            made.append("<ul" + (' class="claims"' if isinstance(part[0], dict) else "") + f">\n{''.join(items)}</ul>\n")
    if apart:
        made.append('<aside><p><b>Published numbers</b>, of other models, other sizes and other data: compare the shapes of the curves, not the values.</p>\n'
                    f'<div class="set">{"".join(apart)}</div></aside>\n')
    return "".join(made)


def _claim(claim: Mapping[str, Any]) -> str:
    verdict = claim["verdict"]
    checks = "".join(f"<li>{SIGNS['pass' if check['holds'] else 'fail']} {escape(check['text'])}</li>" for check in claim["checks"])
    return (f'<li><span class="verdict {verdict}">{SIGNS[verdict]} {escape(VERDICTS[verdict])}</span>'
            f'<div><b>{escape(claim["name"])}. {escape(claim["title"])}.</b> {escape(claim["note"])}{f"<ul>{checks}</ul>" if checks else ""}</div></li>\n')
