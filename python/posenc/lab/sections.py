# SPDX-License-Identifier: Apache-2.0
"""What the report shows of a folder's runs: sections of sentences, pictures and tables, before they become a page."""
from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Iterable, Mapping, Sequence, Union

from . import pictures
from .claims import VERDICTS
from .pictures import Line, Panel
from .results import ACCURACY_TASKS, Row, group_of, groups, scheme_of
from .tables import Long, Span, Table

Claims = Mapping[str, Sequence[Row]]  # judged claims, by the name of the folder that they judge


@dataclass(frozen=True)
class Picture:
    name: str
    svg: str


@dataclass(frozen=True)
class Published:
    """A table of a paper: shown apart from everything that was measured here."""
    title: str
    table: Table
    source: str


@dataclass
class Section:
    anchor: str
    title: str
    parts: list[Union[str, Picture, Table, Published, list[Row], list[str]]] = field(default_factory=list)


SHOWS = {
    "shift": "Each token is the one three places before it: relative addressing.",
    "first": "The answer is the first token of the text: absolute addressing.",
    "copy": "The text is repeated after a separator.", "reverse": "The text is repeated backwards after a separator.",
    "passkey": "One token far back has to be recalled at the end.", "flipflop": "The last written bit has to be recalled; most instructions are to be ignored.",
    "direction": "An encoder tells for each token whether the marker is to its left or to its right.",
    "masked": "An encoder fills in masked letters. A model that reads a bag of letters reaches the loss of the letter frequencies, and no less.",
}
LIMITS = (
    "Orders that hold for models with billions of parameters. The models here have about 100,000 (1.8 million for translation).",
    "The order of schemes whose loss exploded. They are all far worse than letter frequencies would be, and how much worse depends on seed and learning rate.",
    "Linear interpolation (PI) does not beat unscaled RoPE without fine-tuning: a small model of letters lives on distances of 1 to 8, which interpolation blurs.",
    "Copying: no positions and T5's bias do not copy longer texts than ALiBi does. ALiBi's preference for near tokens finds the previous token early in a short training.",
    "LongRoPE's gain over YaRN. The papers search long for the divisors of a trained model; the search of the lab has few trials.",
    "ALiBi's gain in windows that do not overlap is mostly that fewer targets have a short context. With the same targets after every context its curve is flat.",
    "Scores of WMT, GLUE or CoNLL, which need data and models that are not here. The BLEU of the lab is high because texts of a program's help repeat each other.",
    "Differences below 0.15 nats from one seed: seeds differ by 0.05 to 0.2.",
)


def build(rows: Sequence[Row], judged: Claims, published: Sequence[Mapping[str, Any]]) -> list[Section]:
    """The sections of a report on these runs."""
    sound = [row for row in rows if "failed" not in row]
    tasks = {row["task"] for row in sound}
    own = sorted(task for task in tasks if ":" in task)
    made = [
        _failed(rows), _loss(sound, [t for t in own if any("loss" in r["values"] for r in sound if r["task"] == t)]),
        _accuracy(sound, [t for t in own if any("accuracy" in r["values"] for r in sound if r["task"] == t)]), _extension(sound), _translate(sound),
        _attention(sound), _cost(sound), _claims(judged), _ran(sound)]
    found = [section for section in made if section.parts]
    limits = Section("limits", "What does not show at this size", ["A small model shows these neither way:", list(LIMITS)])
    rest = Section("published", "Published numbers", ["These numbers are from papers: other models, other sizes, other data. Compare the shapes of the curves, not the values."])
    places = {"lm": "loss", **dict.fromkeys((*ACCURACY_TASKS, "masked"), "accuracy"), "extension": "extension", "translate": "translate"}
    for table in published:
        place = next((s for s in found if table["task"] in tasks and s.anchor == places.get(table["task"])), rest)
        place.parts.append(_published(table))
    return [*found, rest, limits]


def spans(rows: Iterable[Row], *path: str) -> dict[str, dict[int, Span]]:
    """By label: the numbers of a curve by length over the seeds."""
    found: dict[str, dict[int, list[float]]] = {}
    for row in rows:
        curve: Any = row["values"]
        for name in path:
            curve = curve.get(name, {})
        for length, number in curve.items():
            found.setdefault(row["label"], {}).setdefault(int(length), []).append(float(number))
    return {label: {length: Span(tuple(numbers)) for length, numbers in sorted(curve.items())} for label, curve in found.items()}


def _lines(curves: Mapping[str, Mapping[int, Span]]) -> list[Line]:
    return [Line(label, [(length, s.mean, s.least, s.most) for length, s in curve.items()]) for label, curve in curves.items()]


def _table(name: str, curves: Mapping[str, Mapping[int, Span]], best: str, caption: str = "", first: str = "scheme", digits: int = 2) -> Table:
    lengths = sorted({length for curve in curves.values() for length in curve})
    seeds = {label: max(len(span.numbers) for span in curve.values()) for label, curve in curves.items()}
    return Table(name, [first, "seeds", *map(str, lengths)], [[label, seeds[label], *(curve.get(n) for n in lengths)] for label, curve in curves.items()],
                 best, digits, caption)


def _failed(rows: Sequence[Row]) -> Section:
    section = Section("failed", "Failed runs")
    failed = [row for row in rows if "failed" in row]
    if failed:
        section.parts = ["These runs ended early. They are in no picture, table or claim.",
                         Table("failed", ["task", "scheme", "seed", "reason", "SCHEME"], [[r["task"], r["label"], r["seed"], r["failed"], r["scheme"]] for r in failed])]
    return section


def _claims(judged: Claims) -> Section:
    section = Section("claims", "Claims")
    section.parts.append("Each claim compares means over seeds, of runs with the same seed and options, with a limit. 1 × is the trained length, 2 × twice that length. "
                         "Claims A are asserted. Claims D are orders of papers that are not expected at this size.")
    several = len(judged) > 1
    section.parts.append([{**claim, "title": f"{claim['title']} ({folder})" if several else claim["title"]}
                          for same in zip(*judged.values()) for folder, claim in zip(judged, same)])
    table = Table("claims", ["claim", *(["folder"] if several else []), "verdict", "check", "mean", "least", "most", "limit"],
                  [[claim["name"], *([folder] if several else []), VERDICTS[claim["verdict"]], check, v["mean"], v["least"], v["most"], claim["margin"][check]]
                   for folder, claims in judged.items() for claim in claims for check, v in claim["value"].items()], caption="Every check with its numbers", folded=True)
    if table.rows:
        section.parts.append(table)
    return section


def _loss(rows: Sequence[Row], own: Sequence[str]) -> Section:
    section = Section("loss", "Loss by length of the context")
    for task in ("lm", *own):
        for suffix, words, made in groups(r for r in rows if r["task"] == task):
            train, stem = made[0]["options"]["train"], ("" if task == "lm" else _file(task) + "_")
            name = "" if task == "lm" else f"{task}: "
            section.parts.append(f"{name}The same target letters are predicted after contexts of every length, so the text is the same in all points of a curve{words}. "
                                 "Bands span the seeds. Bold: the best mean.")
            for key, title in (("loss", "Loss of the same targets after longer contexts"), ("windows", "Loss in windows that do not overlap")):
                curves = spans(made, key)
                if curves:
                    section.parts.append(Picture(f"{stem}{key}{suffix}", pictures.curves(
                        f"{name}{title}{words}", [Panel(_lines(curves))], up="nats a character", across="context (characters)" if key == "loss" else "window (characters)", trained=train)))
                    section.parts.append(_table(f"{stem}{key}{suffix}", curves, "low", f"{name}{title}{words}, nats a character", digits=3))
                    if key == "windows":
                        section.parts.append("Windows that do not overlap are how ALiBi's paper evaluates. Targets near the start of a window have little context, and "
                                             "longer windows have fewer such targets: a curve may fall although the model gains nothing from what is far away.")
    return section


def _accuracy(rows: Sequence[Row], own: Sequence[str]) -> Section:
    section = Section("accuracy", "Accuracy by length")
    for task in (*ACCURACY_TASKS, "masked", *own):
        for suffix, words, made in groups(r for r in rows if r["task"] == task):
            train, stem = made[0]["options"]["train"], _file(task)
            section.parts.append(f"{task}{words}: {SHOWS.get(task, 'a task of your own.')}")
            if task == "masked":
                curves = spans(made, "loss")
                lines = _lines(curves)
                if letters := [r["values"]["unigram"] for r in made if "unigram" in r["values"]]:
                    lines.append(Line("letter frequencies", [(n, letters[0], letters[0], letters[0]) for n in next(iter(curves.values()))]))
                section.parts.append(Picture(f"masked_loss{suffix}", pictures.curves(
                    f"masked: loss of the masked letters{words}", [Panel(lines)], up="nats a letter", across="length (tokens)", trained=train)))
                section.parts.append(_table(f"masked_loss{suffix}", curves, "low", f"masked{words}: loss, nats a masked letter"))
            for key, caption in (("accuracy", "accuracy"), ("exact", "whole answers that are right"), ("sparse", "accuracy, sparse texts"), ("dense", "accuracy, dense texts")):
                curves = spans(made, key)
                if curves and key == "accuracy":
                    section.parts.append(Picture(f"{stem}{suffix}", pictures.curves(f"{task}: accuracy{words}", [Panel(_lines(curves))], up="accuracy",
                                                                                  across="length (tokens)", trained=train, share=True)))
                if curves:
                    section.parts.append(_table(f"{stem}{'' if key == 'accuracy' else '_' + key}{suffix}", curves, "high", f"{task}{words}: {caption}"))
    return section


def _extension(rows: Sequence[Row]) -> Section:
    section = Section("extension", "RoPE beyond its trained length")
    for suffix, words, made in groups(r for r in rows if r["task"] == "extension"):
        share = made[0]["options"].get("measure") == "passkey"
        section.parts.append(f"One trained model{words}, its rotary frequencies replaced for {made[0]['values']['factor']:g} times its length: without any training (zero-shot), "
                             "and after a short fine-tuning at the longer length.")
        panels, tables = [], []
        for which, title in (("zero", "zero-shot"), ("tuned", "fine-tuned")):
            curves: dict[str, dict[int, Span]] = {}
            labels = {row["label"] for row in made}
            for mode in dict.fromkeys(mode for row in made for mode in row["values"]["modes"]):
                for label, curve in spans(made, "modes", mode, which).items():
                    curves[mode if len(labels) == 1 else f"{label}, {mode}"] = curve
            if curves:
                panels.append(Panel(_lines(curves), title))
                tables.append(_table(f"extension_{which}{suffix}", curves, "high" if share else "low", f"{title}{words}", "scaling", 3))
        section.parts.append(Picture(f"extension{suffix}", pictures.curves(f"Rotary frequencies for longer texts{words}", panels, up="accuracy" if share else "nats a character",
                                                                        across="length (tokens)" if share else "context (characters)", trained=made[0]["options"]["train"], share=share)))
        section.parts += tables
    return section


def _translate(rows: Sequence[Row]) -> Section:
    section = Section("translate", "Translation")
    for suffix, words, made in groups(r for r in rows if r["task"] == "translate"):
        body: dict[str, list[list[float]]] = {}
        for row in made:
            v = row["values"]
            beam = v.get("bleu_beam", {})
            numbers = [v["loss"]["short"], v["loss"]["long"], v["bleu"]["short"], v["bleu"]["long"], beam.get("short"), beam.get("long")]
            columns = body.setdefault(row["label"], [[] for _ in numbers])
            for column, number in zip(columns, numbers):
                column += [] if number is None else [number]
        section.parts.append(f"English to Chinese{words}. Short sentences have at most 16 words, as in training; long ones have 17 to 32. BLEU counts characters.")
        head = ["scheme", "loss, short", "loss, long", "BLEU, short", "BLEU, long", "BLEU, short, beam", "BLEU, long, beam"]
        section.parts.append(Table(f"translate{suffix}", head, [[label, *(Span(tuple(c)) if c else None for c in columns)] for label, columns in body.items()]))
        samples = [{"scheme": row["label"], **sample} for row in made if row["seed"] == made[0]["seed"] for sample in row["values"].get("samples", [])]
        if samples:
            section.parts.append("Sentences that were not in training:")
            section.parts.append(Table(f"translations{suffix}", ["scheme", "source", "wanted", "made"], [[s["scheme"], s["source"], s["wanted"], s["made"]] for s in samples], tall=True))
    return section


def _attention(rows: Sequence[Row]) -> Section:
    section = Section("attention", "Attention by distance")
    for suffix, words, made in groups(r for r in rows if "attention" in r["values"]):
        section.parts.append(f"{made[0]['task']}{words}: how far back each head looks at the trained length. Each row is a head; its shares add up to 1. Means over the seeds.")
        first = made[0]["values"]
        shares: dict[str, list[Any]] = {}
        for row in made:
            if row["values"]["distances"] == first["distances"]:
                shares.setdefault(row["label"], []).append(row["values"]["attention"])
        means = {label: [[[sum(bins) / len(bins) for bins in zip(*heads)] for heads in zip(*layers)] for layers in zip(*runs)] for label, runs in shares.items()}
        seen = [i for i in range(len(first["distances"])) if any(heads[i] > 0 for layers in means.values() for layer in layers for heads in layer)]
        bins = slice(min(seen, default=0), max(seen, default=0) + 1)  # a decoder sees nothing ahead
        means, distances = {label: [[heads[bins] for heads in layer] for layer in layers] for label, layers in means.items()}, first["distances"][bins]
        section.parts.append(Picture(f"attention{suffix}", pictures.attention(f"Attention by distance{words}", means, distances)))
        body: list[list[Any]] = [[label, i, j, *heads] for label, layers in means.items() for i, layer in enumerate(layers, 1) for j, heads in enumerate(layer, 1)]
        section.parts.append(Table(f"attention{suffix}", ["scheme", "layer", "head", *(f"from {d:g}" for d in distances)], body,
                                   caption="Every share", tall=True, folded=True))
    return section


def _cost(rows: Sequence[Row]) -> Section:
    section = Section("cost", "Cost of each run")
    if not rows:
        return section
    seconds: dict[str, dict[str, list[float]]] = {}
    for row in rows:
        seconds.setdefault(row["label"], {}).setdefault(row["task"], []).append(row["seconds"])
    section.parts.append("Processor time of training, in seconds of one core. Evaluation is extra. The weights are named by their SHA-256: the same command on the same processor makes the same weights.")
    section.parts.append(Picture("cost", pictures.cost("Processor time of training", {label: {task: sum(x) / len(x) for task, x in tasks.items()} for label, tasks in seconds.items()})))
    section.parts.append(Table("cost", ["scheme", "task", "seed", "training, s", "evaluation, s", "step, ms", "parameters", "peak memory, MB", "weights"],
                               [[r["label"], r["task"], r["seed"], float(r["seconds"]), r.get("evaluation_seconds"), float(r["step_ms"]), r.get("parameters"),
                                 r["peak_bytes"] / 1e6, Long(r["weights_sha256"])] for r in rows], digits=1, tall=True))
    return section


def _ran(rows: Sequence[Row]) -> Section:
    section = Section("ran", "What ran")
    if not rows:
        return section
    schemes = dict.fromkeys((r["label"], scheme_of(r)) for r in rows)
    modes = dict.fromkeys((f"{r['label']}, {mode}", found["scheme"]) for r in rows if r["task"] == "extension" for mode, found in r["values"]["modes"].items())
    section.parts.append("The complete SCHEME of every run: defaults that follow from the model are filled in.")
    section.parts.append(Table("schemes", ["label", "SCHEME"], [list(pair) for pair in (*schemes, *modes)]))
    options = [json.loads(text) for text in dict.fromkeys(map(group_of, rows))]
    section.parts.append(Table("options", ["task", "options"], [[task, ", ".join(f"{k} {v}" for k, v in given.items() if v is not None)] for task, given in options]))
    places = dict.fromkeys((r["processor"], *(f"{k} {v}" for k, v in sorted(r["versions"].items()))) for r in rows)
    section.parts.append(Table("machines", ["processor", "versions"], [[place[0], ", ".join(place[1:])] for place in places]))
    if len(places) > 1:
        section.parts.append("These runs are of several machines or versions: weights need not agree bit for bit, times cannot be compared.")
    return section


def _published(table: Mapping[str, Any]) -> Published:
    digits = max((len(str(v).partition(".")[2]) for row in table["rows"] for v in row["values"] if isinstance(v, float) and v < 100), default=0)
    rows: list[list[Any]] = []
    for row in table["rows"]:
        cells: list[str | None] = [None if v is None else f"{v:.{digits}f}" if v < 100 else f"{v:g}" if v < 1000 else f"{v:.0f}" for v in row["values"]]
        for i, bound in enumerate(row.get("at_least", [])):
            cells[i] = f"> {row['values'][i]:g}" if bound else cells[i]
        rows.append([row["label"], *cells])
    trained = f", trained on {table['trained']}" if table["trained"] else ""
    return Published(f"{table['metric']}, {table['data']}; {table['model']}{trained}", Table(f"published_{table['id']}", ["", *map(str, table["columns"])], rows),
                     f"{table['authors']}, {table['source']}, {table['table']}. {table['note']}".strip())


def _file(task: str) -> str:
    """A task's name as part of a file name."""
    return "".join(c if c.isalnum() else "_" for c in Path(task).name.replace(".py:", "_"))
