# SPDX-License-Identifier: Apache-2.0
"""What the report shows of a folder's runs: sections of sentences, pictures and tables, before they become a page."""
from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Iterable, Iterator, Mapping, Sequence, Union

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


Parts = list[Union[str, Picture, Table, Published, list[Row], list[str]]]
Curves = Mapping[str, Mapping[int, Span]]  # by label and length


@dataclass
class Section:
    anchor: str
    title: str
    parts: Parts


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
    with_ = {key: [t for t in own if any(key in r["values"] for r in sound if r["task"] == t)] for key in ("loss", "accuracy")}
    found = [Section(anchor, title, parts) for anchor, title, parts in (
        ("failed", "Failed runs", _failed(rows)), ("loss", "Loss by length of the context", _loss(sound, ["lm", *with_["loss"]])),
        ("accuracy", "Accuracy by length", _accuracy(sound, [*ACCURACY_TASKS, "masked", *with_["accuracy"]])),
        ("extension", "RoPE beyond its trained length", _extension(sound)), ("translate", "Translation", _translate(sound)),
        ("attention", "Attention by distance", _attention(sound)), ("cost", "Cost of each run", _cost(sound)), ("claims", "Claims", _claims(judged)),
        ("ran", "What ran", _ran(sound))) if parts]
    rest = Section("published", "Published numbers", ["These numbers are from papers: other models, other sizes, other data. Compare the shapes of the curves, not the values."])
    places = {"lm": "loss", **dict.fromkeys((*ACCURACY_TASKS, "masked"), "accuracy"), "extension": "extension", "translate": "translate"}
    for table in published:
        place = next((s for s in found if table["task"] in tasks and s.anchor == places.get(table["task"])), rest)
        place.parts.append(_published(table))
    return [*found, rest, Section("limits", "What does not show at this size", ["A small model shows these neither way:", list(LIMITS)])]


def spans(rows: Iterable[Row], *path: str) -> Curves:
    """By label: the numbers of a curve by length over the seeds."""
    found: dict[str, dict[int, list[float]]] = {}
    for row in rows:
        curve: Any = row["values"]
        for name in path:
            curve = curve.get(name, {})
        for length, number in curve.items():
            found.setdefault(row["label"], {}).setdefault(int(length), []).append(float(number))
    return {label: {length: Span(tuple(numbers)) for length, numbers in sorted(curve.items())} for label, curve in found.items()}


def _lines(curves: Curves) -> list[Line]:
    return [Line(label, [(length, s.mean, s.least, s.most) for length, s in curve.items()]) for label, curve in curves.items()]


def _picture(name: str, title: str, panels: Sequence[Panel], of: Sequence[Row], up: str, across: str) -> Picture:
    return Picture(name, pictures.curves(title, panels, up=up, across=across, trained=of[0]["options"]["train"], share=up == "accuracy"))


def _table(name: str, curves: Curves, best: str, caption: str = "", first: str = "scheme", digits: int = 2) -> Table:
    lengths = sorted({length for curve in curves.values() for length in curve})
    seeds = {label: max(len(span.numbers) for span in curve.values()) for label, curve in curves.items()}
    return Table(name, [first, "seeds", *map(str, lengths)], [[label, seeds[label], *(curve.get(n) for n in lengths)] for label, curve in curves.items()],
                 best, digits, caption)


def _grouped(rows: Iterable[Row], tasks: Iterable[str]) -> Iterator[tuple[str, str, str, list[Row]]]:
    """Task, suffix of files, words and runs of each set that may be compared."""
    kept = list(rows)
    for task in tasks:
        for suffix, words, made in groups(r for r in kept if r["task"] == task):
            yield task, suffix, words, made


def _failed(rows: Sequence[Row]) -> Parts:
    failed = [[r["task"], r["label"], r["seed"], r["failed"], r["scheme"]] for r in rows if "failed" in r]
    return ["These runs ended early. They are in no picture, table or claim.",
            Table("failed", ["task", "scheme", "seed", "reason", "SCHEME"], failed)] if failed else []


def _claims(judged: Claims) -> Parts:
    several = len(judged) > 1
    parts: Parts = ["Each claim compares means over seeds, of runs with the same seed and options, with a limit. 1 × is the trained length, 2 × twice that length. "
                    "Claims A are asserted. Claims D are orders of papers that are not expected at this size.",
                    [{**claim, "title": f"{claim['title']} ({folder})" if several else claim["title"]}
                     for same in zip(*judged.values()) for folder, claim in zip(judged, same)]]
    checks = [[claim["name"], *([folder] if several else []), VERDICTS[claim["verdict"]], check, v["mean"], v["least"], v["most"], claim["margin"][check]]
              for folder, claims in judged.items() for claim in claims for check, v in claim["value"].items()]
    head = ["claim", *(["folder"] if several else []), "verdict", "check", "mean", "least", "most", "limit"]
    return [*parts, Table("claims", head, checks, caption="Every check with its numbers", folded=True)] if checks else parts


def _loss(rows: Sequence[Row], tasks: Iterable[str]) -> Parts:
    parts: Parts = []
    for task, suffix, words, made in _grouped(rows, tasks):
        stem, name = ("", "") if task == "lm" else (f"{_file(task)}_", f"{task}: ")
        parts.append(f"{name}The same target letters are predicted after contexts of every length, so the text is the same in all points of a curve{words}. "
                     "Bands span the seeds. Bold: the best mean.")
        for key, across, title in (("loss", "context", "Loss of the same targets after longer contexts"), ("windows", "window", "Loss in windows that do not overlap")):
            if curves := spans(made, key):
                parts.append(_picture(f"{stem}{key}{suffix}", f"{name}{title}{words}", [Panel(_lines(curves))], made, "nats a character", f"{across} (characters)"))
                parts.append(_table(f"{stem}{key}{suffix}", curves, "low", f"{name}{title}{words}, nats a character", digits=3))
        if curves:
            parts.append("Windows that do not overlap are how ALiBi's paper evaluates. Targets near the start of a window have little context, and "
                         "longer windows have fewer such targets: a curve may fall although the model gains nothing from what is far away.")
    return parts


def _accuracy(rows: Sequence[Row], tasks: Iterable[str]) -> Parts:
    parts: Parts = []
    for task, suffix, words, made in _grouped(rows, tasks):
        stem = _file(task)
        parts.append(f"{task}{words}: {SHOWS.get(task, 'a task of your own.')}")
        if task == "masked":
            curves = spans(made, "loss")
            lines = _lines(curves)
            if letters := [r["values"]["unigram"] for r in made if "unigram" in r["values"]]:
                lines.append(Line("letter frequencies", [(n, letters[0], letters[0], letters[0]) for n in next(iter(curves.values()))]))
            parts.append(_picture(f"masked_loss{suffix}", f"masked: loss of the masked letters{words}", [Panel(lines)], made, "nats a letter", "length (tokens)"))
            parts.append(_table(f"masked_loss{suffix}", curves, "low", f"masked{words}: loss, nats a masked letter"))
        for key, caption in (("accuracy", "accuracy"), ("exact", "whole answers that are right"), ("sparse", "accuracy, sparse texts"), ("dense", "accuracy, dense texts")):
            if curves := spans(made, key):
                if key == "accuracy":
                    parts.append(_picture(f"{stem}{suffix}", f"{task}: accuracy{words}", [Panel(_lines(curves))], made, "accuracy", "length (tokens)"))
                parts.append(_table(f"{stem}{'' if key == 'accuracy' else '_' + key}{suffix}", curves, "high", f"{task}{words}: {caption}"))
    return parts


def _extension(rows: Sequence[Row]) -> Parts:
    parts: Parts = []
    for _, suffix, words, made in _grouped(rows, ["extension"]):
        up, best, across = ("accuracy", "high", "length (tokens)") if made[0]["options"].get("measure") == "passkey" else ("nats a character", "low", "context (characters)")
        alone = len({row["label"] for row in made}) == 1
        panels, tables = [], []
        for which, title in (("zero", "zero-shot"), ("tuned", "fine-tuned")):
            curves = {mode if alone else f"{label}, {mode}": curve for mode in dict.fromkeys(mode for row in made for mode in row["values"]["modes"])
                      for label, curve in spans(made, "modes", mode, which).items()}
            if curves:
                panels.append(Panel(_lines(curves), title))
                tables.append(_table(f"extension_{which}{suffix}", curves, best, f"{title}{words}", "scaling", 3))
        parts += [f"One trained model{words}, its rotary frequencies replaced for {made[0]['values']['factor']:g} times its length: without any training (zero-shot), "
                  "and after a short fine-tuning at the longer length.",
                  _picture(f"extension{suffix}", f"Rotary frequencies for longer texts{words}", panels, made, up, across), *tables]
    return parts


def _translate(rows: Sequence[Row]) -> Parts:
    parts: Parts = []
    columns = [(name, side) for name in ("loss", "bleu", "bleu_beam") for side in ("short", "long")]
    head = ["scheme", "loss, short", "loss, long", "BLEU, short", "BLEU, long", "BLEU, short, beam", "BLEU, long, beam"]
    for _, suffix, words, made in _grouped(rows, ["translate"]):
        body: dict[str, list[list[float]]] = {}
        for row in made:
            for column, (name, side) in zip(body.setdefault(row["label"], [[] for _ in columns]), columns):
                column += [row["values"][name][side]] if name in row["values"] else []
        parts.append(f"English to Chinese{words}. Short sentences have at most 16 words, as in training; long ones have 17 to 32. BLEU counts characters.")
        parts.append(Table(f"translate{suffix}", head, [[label, *(Span(tuple(c)) if c else None for c in found)] for label, found in body.items()]))
        samples = [[row["label"], s["source"], s["wanted"], s["made"]] for row in made if row["seed"] == made[0]["seed"] for s in row["values"].get("samples", [])]
        if samples:
            parts += ["Sentences that were not in training:", Table(f"translations{suffix}", ["scheme", "source", "wanted", "made"], samples, tall=True)]
    return parts


def _attention(rows: Sequence[Row]) -> Parts:
    parts: Parts = []
    for suffix, words, made in groups(r for r in rows if "attention" in r["values"]):
        distances = made[0]["values"]["distances"]
        shares: dict[str, list[Any]] = {}
        for row in made:
            if row["values"]["distances"] == distances:
                shares.setdefault(row["label"], []).append(row["values"]["attention"])
        means = {label: [[[sum(bins) / len(bins) for bins in zip(*heads)] for heads in zip(*layers)] for layers in zip(*runs)] for label, runs in shares.items()}
        seen = [i for i in range(len(distances)) if any(heads[i] > 0 for layers in means.values() for layer in layers for heads in layer)]
        bins = slice(min(seen, default=0), max(seen, default=0) + 1)  # a decoder sees nothing ahead
        means, distances = {label: [[heads[bins] for heads in layer] for layer in layers] for label, layers in means.items()}, distances[bins]
        body: list[list[Any]] = [[label, i, j, *heads] for label, layers in means.items() for i, layer in enumerate(layers, 1) for j, heads in enumerate(layer, 1)]
        parts += [f"{made[0]['task']}{words}: how far back each head looks at the trained length. Each row is a head; its shares add up to 1. Means over the seeds.",
                  Picture(f"attention{suffix}", pictures.attention(f"Attention by distance{words}", means, distances)),
                  Table(f"attention{suffix}", ["scheme", "layer", "head", *(f"from {d:g}" for d in distances)], body, caption="Every share", tall=True, folded=True)]
    return parts


def _cost(rows: Sequence[Row]) -> Parts:
    seconds: dict[str, dict[str, list[float]]] = {}
    for row in rows:
        seconds.setdefault(row["label"], {}).setdefault(row["task"], []).append(row["seconds"])
    means = {label: {task: sum(x) / len(x) for task, x in tasks.items()} for label, tasks in seconds.items()}
    return ["Processor time of training, in seconds of one core. Evaluation is extra. The weights are named by their SHA-256: the same command on the same processor makes the same weights.",
            Picture("cost", pictures.cost("Processor time of training", means)),
            Table("cost", ["scheme", "task", "seed", "training, s", "evaluation, s", "step, ms", "parameters", "peak memory, MB", "weights"],
                  [[r["label"], r["task"], r["seed"], float(r["seconds"]), r.get("evaluation_seconds"), float(r["step_ms"]), r.get("parameters"),
                    r["peak_bytes"] / 1e6, Long(r["weights_sha256"])] for r in rows], digits=1, tall=True)] if rows else []


def _ran(rows: Sequence[Row]) -> Parts:
    schemes = dict.fromkeys((r["label"], scheme_of(r)) for r in rows)
    modes = dict.fromkeys((f"{r['label']}, {mode}", found["scheme"]) for r in rows if r["task"] == "extension" for mode, found in r["values"]["modes"].items())
    options = [json.loads(text) for text in dict.fromkeys(map(group_of, rows))]
    places = dict.fromkeys((r["processor"], ", ".join(f"{k} {v}" for k, v in sorted(r["versions"].items()))) for r in rows)
    parts: Parts = ["The complete SCHEME of every run: defaults that follow from the model are filled in.", Table("schemes", ["label", "SCHEME"], [*schemes, *modes]),
                    Table("options", ["task", "options"], [[task, ", ".join(f"{k} {v}" for k, v in given.items() if v is not None)] for task, given in options]),
                    Table("machines", ["processor", "versions"], [*places])]
    if len(places) > 1:
        parts.append("These runs are of several machines or versions: weights need not agree bit for bit, times cannot be compared.")
    return parts if rows else []


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
