# SPDX-License-Identifier: Apache-2.0
"""results.jsonl: sound lines are read, damaged and foreign ones are named with line, rule and value."""
import json

import pytest
import stored
from posenc.lab import results


def changed(path, value):
    """The first lm run with one value changed; None removes it."""
    row = stored.rows()[0]
    *way, last = path.split("/")
    place = row
    for name in way:
        place = place[name]
    if value is None:
        del place[last]
    else:
        place[last] = value
    return row


def problem(tmp_path, row):
    stored.write(tmp_path, [stored.rows()[1], row])
    rows, problems = results.load(tmp_path)
    assert len(rows) == 1 and len(problems) == 1, problems
    file, words = problems[0].split(": ", 1)
    assert file == f"{tmp_path / 'results.jsonl'}, line 2"
    return words


def test_sound_runs_are_read(tmp_path):
    rows, folder = stored.rows(), stored.write(tmp_path, stored.rows())
    assert results.read(folder) == rows == results.read(folder / "results.jsonl")
    assert len({results.identity(row) for row in rows}) == len(rows)
    assert {row["task"] for row in rows} == set(results.TASKS)


@pytest.mark.parametrize("path, value, words", [
    ("schema", "posenc.lab/2", 'schema must be "posenc.lab/1", got "posenc.lab/2"; results of another version cannot be joined'),
    ("schema", None, 'schema must be "posenc.lab/1", got null; results of another version cannot be joined'),
    ("task", "llm", "task must be one of lm, shift, first, copy, reverse, passkey, flipflop, direction, masked, extension, translate or FILE.py:NAME, got \"llm\""),
    ("label", "", 'label must be a text, got ""'),
    ("seed", -1, "seed must be a whole number from 0 on, got -1"), ("seed", True, "seed must be a whole number from 0 on, got true"),
    ("options", [], "options must be an object, got []"), ("options/train", 0, "options.train must be the trained length, got 0"),
    ("options/train", None, "options.train is missing; it must be the trained length"),
    ("seconds", "17", 'seconds must be a finite number from 0 on, got "17"'), ("seconds", 10**400, f"seconds must be a finite number from 0 on, got 1{'0' * 56}..."),
    ("weights_sha256", "12", 'weights_sha256 must be 64 hex digits, got "12"'),
    ("values/loss", None, "values.loss is missing; it must be an object of lengths"), ("values/loss", {}, "values.loss must be an object of lengths, got {}"),
    ("values/loss", {"64": 2.0, "32": 2.0}, 'values.loss must have growing lengths as keys, got "32" after 64'),
    ("values/loss", {"long": 2.0}, 'values.loss must have growing lengths as keys, got "long" after 0'),
    ("values/loss/64", -0.5, 'values.loss["64"] must be a finite number from 0 on, got -0.5'),
    ("values/accuracy", {"32": 1.5}, 'values.accuracy["32"] must be a finite number from 0 to 1, got 1.5'),
    ("values/distances", None, "values.distances must be the left ends of the bins, got null"),
    ("values/attention", [[[1.0]]], "values.attention[0][0] must have 10 shares, one a bin, got [1.0]"),
    ("values/distances", [0.5] * 10, "values.distances must be the left ends of the bins, got [0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5]"),
    ("failed", 3, "failed must be the reason as a text, got 3"),
])
def test_a_wrong_value_is_named(tmp_path, path, value, words):
    assert problem(tmp_path, changed(path, value)) == words


@pytest.mark.parametrize("task, path, value, words", [
    ("translate", ("bleu",), {"short": 3}, 'values.bleu must have the numbers short and long, got {"short": 3}'),
    ("translate", ("samples",), [{"source": "a"}], 'values.samples[0] must have the texts source, wanted and made, got {"source": "a"}'),
    ("extension", ("factor",), 0, "values.factor must be a number above 0, got 0"),
    ("extension", ("modes",), {}, "values.modes must be an object of scalings, got {}"),
    ("extension", ("modes", "yarn"), {"zero": {}}, 'values.modes.yarn.scheme must be a text, got {"zero": {}}'),
    ("extension", ("modes", "yarn", "tuned"), {"64": None}, 'values.modes.yarn.tuned["64"] must be a finite number from 0 on, got null'),
    ("masked", ("accuracy",), 1, "values.accuracy must be an object of lengths, got 1"),
])
def test_a_wrong_value_of_a_task_is_named(tmp_path, task, path, value, words):
    row = next(row for row in stored.rows() if row["task"] == task)
    place = row["values"]
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = value
    assert problem(tmp_path, row) == words


@pytest.mark.parametrize("line, words", [
    (b'{"schema": "posenc.lab/1", "ta', "not JSON (column 28: Unterminated string starting at); the line is incomplete or damaged"),
    (b"[1]", "expected an object, got [1]"), (b"\xff\xfe", "'utf-8' codec can't decode byte 0xff in position 0: invalid start byte"),
    (b'{"seconds": NaN}', 'NaN is no number; a run whose loss is not finite has "failed" and no values'),
])
def test_a_damaged_line_is_named(tmp_path, line, words):
    (tmp_path / "results.jsonl").write_bytes(json.dumps(stored.rows()[0]).encode() + b"\n\n" + line)
    rows, problems = results.load(tmp_path)
    assert len(rows) == 1 and problems == [f"{tmp_path / 'results.jsonl'}, line 3: {words}"]
    with pytest.raises(ValueError, match="line 3: .*\nDelete these lines; the command that wrote the file runs them again"):
        results.read(tmp_path)


def test_repeated_runs(tmp_path):
    row = stored.rows()[0]
    stored.write(tmp_path, [row, {**row, "seconds": 99.0}])  # the same numbers, another time
    assert results.read(tmp_path) == [row]
    stored.write(tmp_path, [row, {**row, "weights_sha256": "0" * 64}])
    assert results.load(tmp_path)[1] == [f"{tmp_path / 'results.jsonl'}, line 2: the same run as line 1 with other numbers"]


def test_no_results(tmp_path):
    with pytest.raises(ValueError, match="results.jsonl does not exist. Expected the folder that a run of ./lab wrote"):
        results.read(tmp_path)
    (tmp_path / "results.jsonl").write_text("\n")
    with pytest.raises(ValueError, match="has no runs"):
        results.read(tmp_path)


def test_many_problems_are_counted(tmp_path):
    (tmp_path / "results.jsonl").write_text("x\n" * 8)
    with pytest.raises(ValueError, match="line 5: .*\nand 3 more lines\n"):
        results.read(tmp_path)


def test_tasks_of_ones_own(tmp_path):
    row = stored.row("my.py:Sort", "rope", 0, {"accuracy": stored.curve([1.0, .5])})
    assert results.read(stored.write(tmp_path, [row])) == [row]
    assert problem(tmp_path, {**row, "values": {}}) == "values must have loss or accuracy by length, got neither"
