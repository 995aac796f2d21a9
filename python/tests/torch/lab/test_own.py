# SPDX-License-Identifier: Apache-2.0
"""Schemes and tasks of one's own, as docs/lab.md shows them."""
import json
import pathlib
import re

import pytest
import torch

DOCS = pathlib.Path(__file__).resolve().parents[4] / "docs" / "lab.md"


def examples():
    """The two files that the page shows."""
    return dict(re.findall(r"```python\n# (\w+\.py)\n(.*?)```", DOCS.read_text(), re.S))


@pytest.mark.parametrize("name", ("my_scheme.py", "my_task.py"))
def test_the_page_shows_each_in_twenty_lines(name):
    assert len(examples()[name].strip().splitlines()) <= 20


def test_they_run(lab, tmp_path):
    for name, text in examples().items():
        (tmp_path / name).write_text(text)
    small = ("--steps", 3, "--width", 16, "--heads", 2, "--layers", 1, "--train", 8, "--test", 16, "--batch", 4, "-o", "out")
    assert lab("lm", "--scheme", "my_scheme.py:LogBias", "--scheme", "my_scheme.py:LogBias | rope", *small) == 0
    assert lab("--task", "my_task.py:Parity", "--scheme", "alibi", "--scheme", "my_scheme.py:LogBias", *small) == 0
    rows = [json.loads(line) for line in (tmp_path / "out" / "results.jsonl").read_text().splitlines()]
    assert sorted(r["scheme"] for r in rows if r["task"] == "lm") == ["my_scheme.py:LogBias", "my_scheme.py:LogBias | rope head_dim=8 pairing=half_split"]
    assert {r["task"] for r in rows} == {"lm", "my_task.py:Parity"}


OWN = """
import torch
class All(torch.nn.Module):
    seen = []
    def __init__(self, width, heads):
        super().__init__()
        self.shift = torch.nn.Parameter(torch.zeros(width))
        self.slope = torch.nn.Parameter(torch.ones(heads))
    def embed(self, x, positions):
        self.seen.append("embed"); return x + self.shift
    def rotate(self, q, k, positions):
        self.seen.append("rotate"); return q, k
    def bias(self, distances):
        self.seen.append("bias"); return -distances.abs()[:, None] * self.slope
    def attend(self, q, k, v, call):
        self.seen.append("attend"); return call(q, k, v)
class None_(torch.nn.Module):
    pass
class Square(torch.nn.Module):
    def bias(self, distances):
        return distances
class Narrow(torch.nn.Module):
    def bias(self, distances):
        return distances[:, None].float()
class Short(torch.nn.Module):
    def embed(self, x, positions):
        return x[:, :1]
class Alone(torch.nn.Module):
    def rotate(self, q, k, positions):
        return q
class Nothing(torch.nn.Module):
    def attend(self, q, k, v, call):
        call(q, k, v)
class Leaves(torch.nn.Module):
    def bias(self, distances):
        raise SystemExit(3)
class Silent:
    vocabulary = 4
    def batch(self, length, count, generator):
        x = torch.zeros(count, length, dtype=torch.int64)
        return x, x - 100
class Negative(Silent):
    def batch(self, length, count, generator):
        x = torch.zeros(count, length, dtype=torch.int64)
        return x, x - 3
class Lists(Silent):
    def batch(self, length, count, generator):
        return [[1] * length] * count, [[1] * length] * count
class Single(Silent):
    def batch(self, length, count, generator):
        return torch.zeros(count, length)
"""


def test_each_hook_is_used_and_has_gradients(tmp_path, monkeypatch):
    from posenc.lab.model import Model

    monkeypatch.chdir(tmp_path)
    pathlib.Path("own.py").write_text(OWN)
    model = Model("own.py:All", 9, width=16, layers=2, heads=2, rows=12, trained=8)
    model(torch.randint(0, 9, (2, 12))).square().sum().backward()
    assert type(model.positions.own[0]).seen == ["embed", "rotate", "bias", "attend"] * 0 + ["embed"] + ["rotate", "attend", "bias"] * 2
    assert model.positions.own[0].shift.grad.abs().sum() > 0
    assert all(b.parts.own[0].slope.grad.abs().sum() > 0 for b in model.blocks)


def test_a_bias_of_ones_own_is_the_librarys(tmp_path, monkeypatch):
    """-|distance| / 2^(8 (h + 1) / heads) is ALiBi."""
    from posenc.lab.model import Model

    monkeypatch.chdir(tmp_path)
    pathlib.Path("line.py").write_text("import torch\nclass Line(torch.nn.Module):\n    def bias(self, d):\n"
                                       "        return -d.abs()[:, None] * torch.tensor([2.0 ** -4, 2.0 ** -8])\n")
    ids = torch.randint(0, 9, (2, 12))
    made = [Model(text, 9, width=16, layers=2, heads=2, rows=12, trained=8)(ids) for text in ("line.py:Line", "alibi")]
    assert (made[0] - made[1]).abs().max() < 1e-5


@pytest.mark.parametrize("scheme, message", [
    ("own.py:Missing", "must name a class"), ("none.py:Name", "must name a file that exists"), ("own.py:None_", "embed, rotate, bias, attend"),
    ("own.py:Square", r"\[distances, heads\]"), ("own.py:a b", "FILE.py:Name"),
    ("own.py:Narrow", r"bias of your own must return \[63, 4\], \[distances, heads\], got \[63, 1\]"),
    ("own.py:Short", r"embed of your own must return \[32, 32, 64\], got \[32, 1, 64\]"), ("own.py:Alone", "rotate of your own must return q and k, got Tensor"),
    ("own.py:Nothing", r"attend of your own must return \[32, 32, 4, 16\], got NoneType"), ("own.py:Leaves", r"SystemExit: 3 \(.*own.py, line \d+\)")])
def test_what_is_wrong_with_ones_own_is_said_before_anything_runs(lab, tmp_path, capsys, scheme, message):
    (tmp_path / "own.py").write_text(OWN)
    assert lab("lm", "--scheme", scheme, "-o", "out") == 2
    assert re.search(message, capsys.readouterr().err)
    assert not (tmp_path / "out" / "results.jsonl").exists()


@pytest.mark.parametrize("task, message", [
    ("Silent", "y of a batch must ask for an output, got -100 everywhere"), ("Negative", "y of a batch must have tokens from 0 to 3, got -3"),
    ("Lists", r"x of a batch must be int64 \[1, tokens\], got list"), ("Single", "batch must return x and y, got Tensor"),
    ("Square", r"must have batch\(length, count, generator\)")])
def test_what_is_wrong_with_a_task_is_said_before_anything_runs(lab, tmp_path, capsys, task, message):
    (tmp_path / "own.py").write_text(OWN)
    assert lab("--task", f"own.py:{task}", "--scheme", "alibi", "-o", "out") == 2
    assert re.search(message, capsys.readouterr().err)
    assert not (tmp_path / "out" / "results.jsonl").exists()
