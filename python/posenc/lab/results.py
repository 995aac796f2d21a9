# SPDX-License-Identifier: Apache-2.0
"""Reads results.jsonl: one run a line, every line checked by name. Needs neither torch nor numpy."""
from __future__ import annotations

import json
import math
import os
import re
from pathlib import Path
from typing import Any, Callable, Iterable, Iterator

SCHEMA = "posenc.lab/1"
FILE = "results.jsonl"
ACCURACY_TASKS = ("shift", "first", "copy", "reverse", "passkey", "flipflop", "direction")
TASKS = ("lm", *ACCURACY_TASKS, "masked", "extension", "translate")

Row = dict[str, Any]
Problems = Iterator[str]
Rule = tuple[Callable[[Any], bool], str]  # whether a value is sound, and what it must be


def identity(row: Row) -> str:
    """The key of a run: a run that is there is not run again."""
    return json.dumps([row[name] for name in ("schema", "task", "scheme", "seed", "options")], sort_keys=True)


def group_of(row: Row) -> str:
    """Runs of one group differ in scheme, drawn positions and seed alone, so they are compared with each other."""
    return json.dumps([row["task"], {name: value for name, value in row["options"].items() if name != "positions"}], sort_keys=True)


def scheme_of(row: Row) -> str:
    """The SCHEME that ran, and whether its positions were drawn in training."""
    positions = row["options"].get("positions", "counted")
    return str(row["scheme"]) if positions == "counted" else f"{row['scheme']}, {positions} positions"


def groups(rows: Iterable[Row]) -> list[tuple[str, str, list[Row]]]:
    """Runs that may be compared: (suffix of file names, words for what sets the group apart, runs)."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(group_of(row), []).append(row)
    options = [made[0]["options"] for made in found.values()]
    differing = sorted({name for one in options for name in one if name != "positions" and any(other.get(name) != one[name] for other in options)})
    words = [", ".join(f"{name} {one.get(name)}" for name in differing) for one in options]
    return [(f"_{i}" if i > 1 else "", f" ({apart})" if apart else "", _told_apart(made))
            for i, (apart, made) in enumerate(zip(words, found.values()), 1)]


def _told_apart(rows: list[Row]) -> list[Row]:
    """Where a label names several schemes, it becomes label and SCHEME."""
    schemes: dict[str, set[str]] = {}
    for row in rows:
        schemes.setdefault(row["label"], set()).add(scheme_of(row))
    return [{**row, "label": f"{row['label']}: {scheme_of(row)}"} if len(schemes[row["label"]]) > 1 else row for row in rows]


def numbers_of(row: Row) -> str:
    """What a repeated run has to repeat: its numbers and weights, not its times."""
    return json.dumps([row.get("values"), row.get("failed"), row.get("weights_sha256")], sort_keys=True)


def read(path: str | os.PathLike[str]) -> list[Row]:
    """The runs of a folder or of a file; raises ValueError that lists the damaged lines."""
    rows, problems = load(path)
    if problems:
        shown = "\n".join(problems[:5]) + (f"\nand {len(problems) - 5} more lines" if len(problems) > 5 else "")
        raise ValueError(f"{shown}\nDelete these lines; the command that wrote the file runs them again.")
    if not rows:
        raise ValueError(f"{path} has no runs. Start some first, for example: ./lab quick -o {path}")
    return rows


def load(path: str | os.PathLike[str]) -> tuple[list[Row], list[str]]:
    """The sound runs, and a sentence for each line that is not one. Equal repetitions are read once."""
    file = Path(path) / FILE if Path(path).is_dir() else Path(path)
    if not file.exists():
        raise ValueError(f"{file} does not exist. Expected the folder that a run of ./lab wrote (-o FOLDER).")
    problems: list[str] = []
    seen: dict[str, tuple[int, Row]] = {}
    for number, line in enumerate(file.read_bytes().split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            row = _row(line)
            earlier, same = seen.setdefault(identity(row), (number, row))
            if numbers_of(same) != numbers_of(row):
                raise ValueError(f"the same run as line {earlier} with other numbers")
        except (ValueError, RecursionError) as error:  # UnicodeDecodeError is a ValueError
            problems.append(f"{file}, line {number}: {error}")
    return [row for _, row in seen.values()], problems


def check(rows: Iterable[Row]) -> None:
    """Raises ValueError for the first run that results.jsonl must not have."""
    for row in rows:
        for problem in _problems(row):
            raise ValueError(f"the run of {row.get('task')}, {row.get('label')}, seed {row.get('seed')}: {problem}")


def _row(line: bytes) -> Row:
    def constant(word: str) -> float:
        raise ValueError(f'{word} is no number; a run whose loss is not finite has "failed" and no values')

    try:
        row = json.loads(line.decode(), parse_constant=constant)
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON (column {error.colno}: {error.msg}); the line is incomplete or damaged") from None
    if not isinstance(row, dict):
        raise ValueError(f"expected an object, got {_shown(row)}")
    for problem in _problems(row):
        raise ValueError(problem)
    return row


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _measure(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < 1e300


def _filled(value: Any) -> bool:
    return isinstance(value, dict) and value != {}


TEXT: Rule = (lambda x: isinstance(x, str) and x != "", "a text")
OBJECT: Rule = (lambda x: isinstance(x, dict), "an object")
NUMBER: Rule = (_measure, "a finite number from 0 on")
ROW: dict[str, Rule] = {**dict.fromkeys(("task", "label", "scheme", "processor"), TEXT), "seed": (_whole, "a whole number from 0 on"),
                        **dict.fromkeys(("options", "versions", "values"), OBJECT)}
FINISHED: dict[str, Rule] = {**dict.fromkeys(("seconds", "step_ms", "peak_bytes"), NUMBER),
                             "weights_sha256": (lambda x: isinstance(x, str) and re.fullmatch("[0-9a-f]{64}", x) is not None, "64 hex digits")}
TRAIN: dict[str, Rule] = {"train": (lambda x: _whole(x) and x > 0, "the trained length")}
EXTENSION: dict[str, Rule] = {"factor": (lambda x: _measure(x) and x > 0, "a number above 0"), "modes": (_filled, "an object of scalings")}
SHARES = ("accuracy", "exact", "sparse", "dense")  # curves from 0 to 1


def _problems(row: Row) -> Problems:
    if row.get("schema") != SCHEMA:
        yield f'schema must be "{SCHEMA}", got {_shown(row.get("schema"))}; results of another version cannot be joined'
    yield from _need(row, ROW)
    if "failed" in row:
        yield from _need(row, {"failed": (TEXT[0], "the reason as a text")})
        return
    yield from _need(row, FINISHED)
    task, values = row["task"], row["values"]
    if task not in TASKS and ":" not in task:
        yield f'task must be one of {", ".join(TASKS)} or FILE.py:NAME, got {_shown(task)}'
    if task != "translate":
        yield from _need(row["options"], TRAIN, "options.")
    yield from {"translate": _translated, "extension": _extended}.get(task, _by_length)(values, task)


def _translated(values: Row, _: str) -> Problems:
    for name in ("loss", "bleu", *(["bleu_beam"] if "bleu_beam" in values else [])):
        pair = values.get(name)
        if not isinstance(pair, dict) or not all(_measure(pair.get(n)) for n in ("short", "long")):
            yield f"values.{name} must have the numbers short and long, got {_shown(pair)}"
    for i, sample in enumerate(_listed(values.get("samples", []))):
        if not isinstance(sample, dict) or not all(isinstance(sample.get(n), str) for n in ("source", "wanted", "made")):
            yield f"values.samples[{i}] must have the texts source, wanted and made, got {_shown(sample)}"


def _extended(values: Row, _: str) -> Problems:
    yield from _need(values, EXTENSION, "values.")
    for name, mode in values["modes"].items():
        place = f"values.modes.{name}."
        if not isinstance(mode, dict) or not isinstance(mode.get("scheme"), str):
            yield f"{place}scheme must be a text, got {_shown(mode)}"
        for which in ("zero", *(["tuned"] if "tuned" in mode else [])):
            yield from _curve(mode, which, place)


def _by_length(values: Row, task: str) -> Problems:
    wanted = {"lm": ("loss",), "masked": ("loss", "accuracy")}.get(task, ("accuracy",) if task in ACCURACY_TASKS else ())
    found = [name for name in ("loss", *SHARES, "windows") if name in values]
    if not wanted and not {"loss", "accuracy"} & set(found):
        yield "values must have loss or accuracy by length, got neither"
    for name in dict.fromkeys((*wanted, *found)):
        yield from _curve(values, name)
    if "attention" not in values:
        return
    distances: Any = values.get("distances")
    if not isinstance(distances, list) or not distances or not all(isinstance(x, int) for x in distances):
        yield f"values.distances must be the left ends of the bins, got {_shown(distances)}"
    for i, layer in enumerate(_listed(values["attention"])):
        for j, head in enumerate(_listed(layer)):
            if not isinstance(head, list) or len(head) != len(distances) or not all(map(_measure, head)):
                yield f"values.attention[{i}][{j}] must have {len(distances)} shares, one a bin, got {_shown(head)}"


def _curve(values: Row, name: str, place: str = "values.") -> Problems:
    yield from _need(values, {name: (_filled, "an object of lengths")}, place)
    last, most = 0, 1.0 if name in SHARES else math.inf
    for length, number in values[name].items():
        if not re.fullmatch("[1-9][0-9]*", length) or int(length) <= last:
            yield f'{place}{name} must have growing lengths as keys, got "{length}" after {last}'
        last = int(length)
        if not _measure(number) or number > most:
            yield f'{place}{name}["{length}"] must be a finite number from 0 {"to 1" if most == 1 else "on"}, got {_shown(number)}'


def _need(row: Row, rules: dict[str, Rule], place: str = "") -> Problems:
    for name, (good, words) in rules.items():
        if name not in row:
            yield f"{place}{name} is missing; it must be {words}"
        elif not good(row[name]):
            yield f"{place}{name} must be {words}, got {_shown(row[name])}"


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _shown(value: Any) -> str:
    words = json.dumps(value)
    return words if len(words) <= 60 else words[:57] + "..."
