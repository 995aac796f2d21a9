# SPDX-License-Identifier: Apache-2.0
"""Texts: whole files are held out, what is missing is named."""
import struct
import zlib

import pytest
import torch
from posenc.lab import data, judge
from posenc.lab.errors import LabError
from posenc.lab.model import Model
from posenc.lab.tasks import Options, make


@pytest.fixture(autouse=True)
def nothing_kept():
    data.corpus.cache_clear()
    yield
    data.corpus.cache_clear()


def text_of(corpus, numbers):
    return "".join(corpus.letters[i] for i in numbers.tolist())


def test_the_last_file_of_a_folder_is_held_out(tmp_path):
    for name, text in (("a.txt", "first "), ("b.txt", "second "), ("c.txt", "held out")):
        (tmp_path / name).write_text(text)
    corpus = data.corpus(str(tmp_path))
    assert text_of(corpus, corpus.train) == "first second " and text_of(corpus, corpus.held_out) == "held out"
    other = data.corpus(str(tmp_path), str(tmp_path / "a.txt"))
    assert text_of(other, other.train) == "second held out" and text_of(other, other.held_out) == "first "
    assert corpus.digest != other.digest


def test_the_licences_hold_out_the_mozilla_public_license():
    corpus = data.corpus("licences")
    assert text_of(corpus, corpus.held_out[:34]).startswith("Mozilla Public License Version 2.0")
    assert "Mozilla Public License Version 2.0" not in text_of(corpus, corpus.train)[:100]


def test_books_of_a_bible_module(tmp_path, monkeypatch):
    """One compressed block a book; marks of the module are left out."""
    for part, count in (("ot", 39), ("nt", 27)):
        blocks = [zlib.compress(f"<w>{part}{i}</w> ".encode() * 400) for i in range(count)]
        index, at = b"", 0
        for b in blocks:
            index, at = index + struct.pack("<III", at, len(b), 0), at + len(b)
        (tmp_path / f"{part}.bzs").write_bytes(index)
        (tmp_path / f"{part}.bzz").write_bytes(b"".join(blocks))
    monkeypatch.setattr(data, "BIBLE", str(tmp_path))
    corpus = data.corpus("bible")
    held, learnt = text_of(corpus, corpus.held_out), text_of(corpus, corpus.train)
    assert held[:4] == "ot7 " and "ot18 " in held and "nt1 " in held and "<" not in held
    assert "ot7 " not in learnt and "ot8 " in learnt


@pytest.mark.parametrize("text, message", [("bible", "sword-text-web"), ("none.txt", "can be read")])
def test_what_is_missing_is_named(monkeypatch, text, message):
    monkeypatch.setattr(data, "BIBLE", "/none")
    with pytest.raises(LabError, match=message):
        data.corpus(text)


@pytest.mark.parametrize("task", ("shift", "first", "copy", "reverse", "passkey", "flipflop", "direction", "masked", "lm"))
def test_batches_ask_for_what_the_page_says(task):
    options = Options(train=16, test=32)
    made = make(task, options)
    x, y = made.batch(16, 8, torch.Generator().manual_seed(1))
    asked = y != -100
    assert x.shape == y.shape and asked.any(1).all() and int(x.max()) < made.vocabulary and int(y.max()) < made.vocabulary
    again = made.batch(16, 8, torch.Generator().manual_seed(1))
    assert torch.equal(x, again[0]) and torch.equal(y, again[1])
    for row, wanted in zip(x.tolist(), y.tolist()):
        if task == "shift":
            assert wanted[:3] == [-100] * 3 and wanted[3:] == row[:-3]
        if task == "first":
            assert wanted[1:] == [row[1]] * 15
        if task in ("copy", "reverse"):
            n = row.index(17)
            word = row[1:n]
            assert row[0] == 16 and wanted[n:] == (word if task == "copy" else word[::-1]) + [18]
        if task == "passkey":
            mark = row.index(10)
            assert wanted[-4:] == row[mark + 1:mark + 5] and row[-4] == 11
        if task == "flipflop":
            bit = None
            for i in range(0, 16, 2):
                bit = row[i + 1] if row[i] == 2 else bit
                assert wanted[i] == (bit if row[i] == 4 else -100)
            assert row[0] == 2 and row[14] == 4
        if task == "direction":
            m = row.index(3)
            assert wanted == [0] * m + [2] + [1] * (15 - m)
        if task == "masked":
            assert all(a == made.mask for a, b in zip(row, wanted) if b != -100)


def test_the_same_targets_at_every_length():
    """A model that ignores its context has one loss at all lengths; one that looks one character back has another."""
    model = Model("nope", 5, width=16, layers=1, heads=2, rows=64, trained=8)
    text = torch.randint(0, 5, (500,), generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        model.blocks[0].out.weight.zero_()
    found = judge.same_targets(model, text, 8, [8, 16, 64], windows=20)
    assert len(set(found.values())) == 1
    ends = torch.linspace(65, 499, 20).long()
    targets = torch.stack([text[e - 3:e + 1] for e in ends.tolist()])
    before = torch.stack([text[e - 4:e] for e in ends.tolist()])
    wanted = torch.nn.functional.cross_entropy(model(before).flatten(0, 1), targets.flatten()).item()
    assert abs(found["8"] - wanted) < 1e-4


def test_attention_by_distance_adds_up_to_one():
    model = Model("alibi", 5, width=16, layers=2, heads=2, rows=32, trained=16)
    text = torch.randint(0, 5, (200,), generator=torch.Generator().manual_seed(2))
    found = judge.by_distance(model, text, 16)
    assert found["distances"] == [0, 1, 2, 3, 4, 6, 8, 11]
    shares = torch.tensor(found["attention"])
    assert shares.shape == (2, 2, 8) and (shares.sum(-1) - 1).abs().max() < 1e-3
    with torch.no_grad():  # of zero q and k, ALiBi's slopes alone: 2^-4 and 2^-8
        for block in model.blocks:
            block.qkv.weight.zero_()
    place = torch.arange(16)
    far = (place[:, None] - place).double()
    weights = torch.softmax(torch.where(far >= 0, -far / 16, -torch.inf), -1)
    wanted = sum(float(weights[far == d].sum()) / 16 for d in (4, 5))  # the bin from 4 to 5
    assert abs(judge.by_distance(model, text, 16)["attention"][0][0][4] - wanted) < 1e-4
