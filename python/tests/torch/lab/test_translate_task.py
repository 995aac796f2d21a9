# SPDX-License-Identifier: Apache-2.0
"""The task of translation: its text, how it is fetched and split, BLEU, batches, records. The pages are made up."""
import math
import os
import re
import subprocess

import pytest
import torch
from posenc.lab import tasks
from posenc.lab.errors import LabError
from posenc.lab.tasks import translate as task
from posenc.lab.train import Run

HELP = "usr/share/libreoffice/help"
PAGE = '<!DOCTYPE html>\n<html lang="{}">\n<body><header><p dir="auto">Help</p></header><div id="DisplayArea">\n{}\n</div></body>\n</html>\n'
VERBS = {"Open": "打开", "Close": "关闭", "Print": "打印", "Choose": "选择", "Delete": "删除"}
THINGS = {"file": "文件", "table": "表格", "picture": "图片", "chapter": "章节"}
COLOURS = {"red": "红色", "green": "绿色", "blue": "蓝色", "grey": "灰色"}
SHORT = [(f"{a} the {c} {b}.", f"{x}{z}{y}。") for a, x in VERBS.items() for b, y in THINGS.items() for c, z in COLOURS.items()]
LONG = [(f"{a} the {c} {b} before you print it again.", f"再次打印之前{x}{z}{y}。") for a, x in VERBS.items() for b, y in THINGS.items() for c, z in COLOURS.items()]
OPTIONS = {"train": 6, "test": 12, "steps": 4, "batch": 8, "width": 16, "heads": 2, "layers": 1, "lr": 1e-3}


def write(folder, pages):
    """pages: by name, lines of HTML in English and in Chinese."""
    for name, sides in pages.items():
        for side, lines in zip(("en-US", "zh-CN"), sides):
            path = folder / HELP / side / "text" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(PAGE.format(side, "\n".join(lines)), encoding="utf-8")
    return folder


def page(pairs):
    return [[f'<p id="par_id{i}" class="paragraph" dir="auto">{p[side]}</p>' for i, p in enumerate(pairs)] for side in (0, 1)]


@pytest.fixture
def text(tmp_path):
    return str(write(tmp_path / "text", {"swriter/01/a.html": page(SHORT), "scalc/b.html": page(LONG)}))


def options(text, **more):
    return tasks.Options(**{**tasks.defaults("translate"), **OPTIONS, "text": text, **more})


def test_paragraphs_meet_by_their_id(tmp_path):
    english = ['<h1 id="hd_1" dir="auto">Mail <em>Merge</em>\n  Toolbar</h1>', '<p id="a" class="x">Save &amp; close</p>', '<p id="only">Here</p>', '<p>No id</p>',
               '<p id="same">Writer</p>', '<p id="empty"> <br> </p>', '<p id="twice">First</p>', '<p id="twice">Second</p>', '<p id="again">Save &amp; close</p>']
    chinese = ['<h1 id="hd_1" dir="auto">邮件合并<em>工具栏</em></h1>', '<p id="a" class="x">保存&amp;关闭</p>', '<p id="other">那里</p>', '<p>没有</p>',
               '<p id="same">Writer</p>', '<p id="empty">空</p>', '<p id="twice">第二</p>', '<p id="again">保存&amp;关闭</p>']
    folder = write(tmp_path, {"shared/a.html": (english, chinese)})
    (folder / HELP / "en-US/text/shared/alone.html").write_text('<p id="a">Alone</p>')
    assert task.pairs(folder) == [("Mail Merge Toolbar", "邮件合并工具栏"), ("Save & close", "保存&关闭"), ("Second", "第二")]


def test_words_are_letters_digits_and_signs():
    assert task.words_of("Choose Data - Sub-totals (F12).") == "choose data - sub - totals ( f 1 2 ) .".split()


def test_sentences_are_split_by_their_source(tmp_path):
    more = [("Open  the RED file.", "开红文件。"), ("Word", "字"), ("No Chinese here", "none at all"), ("x " * 61, "长"), ("A long target", "长" * 81)]
    found = task.corpus(str(write(tmp_path, {"a.html": page(SHORT), "b.html": page(LONG), "c.html": page(more)})))
    every = found.train + found.held_out
    assert len(every) == len(SHORT) + len(LONG) and len(found.held_out) == len(every) // 18
    assert len({tuple(p.words) for p in every}) == len(every)
    assert {p.target for p in every if p.words == "open the red file .".split()} == {"开红文件。"}  # the first of the sorted pairs
    assert re.fullmatch("[0-9a-f]{16}", found.digest)
    other = task.corpus(str(write(tmp_path / "other", {"a.html": page(SHORT[1:]), "b.html": page(LONG)})))
    assert other.digest != found.digest
    both = {p.source for p in found.held_out} & {p.source for p in other.train}
    assert len(both) <= 1  # a source stays on its side whatever else there is


def test_bleu():
    # By hand: "abcd x" has 4 of 5 characters, 3 of 4 pairs, 2 of 3 triples, 1 of 2 runs of four; "abcd" for "abcdabcd" is half as long.
    assert task.bleu(["abcd x"], ["abcd"]) == pytest.approx(100 * (4 / 5 * 3 / 4 * 2 / 3 * 1 / 2) ** 0.25, abs=1e-9)
    assert task.bleu(["abcd"], ["abcdabcd"]) == pytest.approx(100 * math.exp(-1), abs=1e-9)
    # Counts are clipped: of seven the, two are right (Papineni et al. 2002, example 2, of words; here characters).
    assert task.bleu(["ttttttt"], ["tcitomt"]) == 0
    # sacrebleu 2.6.0, corpus_bleu(made, [wanted], tokenize="char", smooth_method="none").
    made = ["选择「数据 - 选项」选项卡。", "定义 LibreOffice 文档的格式。", "在列表中选择一个项目。"]
    wanted = ["选择「数据 - 分类汇总 - 选项」选项卡。", "以 HTML 格式定义 LibreOffice 文档的基本设置。", "在列表中选择一个项目，然后点击箭头按钮移动该项目。"]
    assert task.bleu(made, wanted) == pytest.approx(47.657617470299634, abs=1e-9)
    assert task.bleu(wanted, made) == pytest.approx(52.779215293313364, abs=1e-9)
    assert task.bleu(wanted, wanted) == pytest.approx(100, abs=1e-9)
    assert task.bleu(["", ""], ["ab", "cd"]) == 0
    with pytest.raises(ValueError):
        task.bleu(made, wanted[:2])


def test_a_batch_is_of_trained_pairs(text):
    made = tasks.make("translate", options(text))
    assert all(len(p.words) <= 6 for p in made.learned + made.tests["short"]) and all(6 < len(p.words) <= 12 for p in made.tests["long"])
    assert not {p.source for p in made.learned} & {p.source for side in made.tests.values() for p in side}
    seen = {}

    class Model:
        def __call__(self, x, lengths, y):
            seen.update(x=x, lengths=lengths, y=y)
            return torch.zeros(*y.shape, made.vocabulary)
    loss = made.loss(Model(), 8, torch.Generator().manual_seed(1))
    assert float(loss) == pytest.approx(math.log(made.vocabulary), abs=1e-5)  # a mean over what is asked, padding left out
    targets = {p.target: p.words for p in made.learned}
    for x, n, y in zip(seen["x"], seen["lengths"], seen["y"].tolist()):
        target = "".join(made.characters[c - 4] for c in y if c > 3)
        assert y[0] == task.START and [made.words[w - 4] for w in x[:n]] == targets[target] and not x[n:].any()


def test_a_run_has_every_number(text):
    run = Run("translate", "alibi", 0, options(text, steps=30, lr=1e-2))
    found = run.result()
    values = found["values"]
    assert values["train_loss"] < 3 and values["beam"] == 4
    assert all(set(values[name]) == {"short", "long"} for name in ("loss", "bleu", "bleu_beam"))
    assert all(set(s) == {"source", "wanted", "made"} for s in values["samples"]) and 0 < len(values["samples"]) <= 5
    # The loss of the tests, sentence by sentence.
    total = asked = 0
    for p in run.task.tests["long"]:
        x, lengths = run.task._sources([p])
        y, out = run.task._targets([p])
        with torch.no_grad():
            total -= float(run.model(x, lengths, y).log_softmax(-1)[0].gather(1, out[0, :, None]).sum())
        asked += len(p.target) + 1
    assert values["loss"]["long"] == pytest.approx(total / asked, abs=2e-4)


def test_a_run_that_was_stopped_ends_with_the_same_bits(text, tmp_path):
    whole = Run("translate", "rope ;; forgetting", 1, options(text)).result()
    for steps in (2, 4):
        run = Run("translate", "rope ;; forgetting", 1, options(text, steps=4), tmp_path / "one.pt")
        if steps == 2:
            loss = run.task.loss
            def stopping(*words):
                if run.step == 2:
                    run._write()
                    raise KeyboardInterrupt
                return loss(*words)
            run.task.loss = stopping
            with pytest.raises(KeyboardInterrupt):
                run.train()
    assert run.result()["weights_sha256"] == whole["weights_sha256"]


@pytest.mark.parametrize("more, message", [
    ({"test": 6}, r"--test of translate must be words above --train, 6, and at most 60, got 6"), ({"test": 61}, r"at most 60, got 61"),
    ({"held_out": "x.txt"}, r'--held-out does not belong to translate, got "x.txt"'), ({"positions": "randomized"}, r"--positions does not belong"),
    ({"measure": "passkey"}, r"--measure does not belong"), ({"batch": 999}, r"must have 999 pairs of at most 6 words"), ({"train": 2}, r"has 0, 0 and"),
])
def test_what_does_not_fit_is_refused(text, more, message):
    with pytest.raises(LabError, match=message):
        tasks.make("translate", options(text, **more))


# ---------------------------------------------------------------- fetching

APT = """#!/bin/sh
echo "$@" >> {log}
{body}
"""


@pytest.fixture
def apt(tmp_path, monkeypatch):
    """A program apt-get of the test: body -> the file of its calls. dpkg is the real one."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(task, "_has_pages", lambda path, real=task._has_pages: str(path) != "/" and real(path))

    def make(body):
        (folder / "apt-get").write_text(APT.format(log=tmp_path / "calls", body=body))
        (folder / "apt-get").chmod(0o755)
        return tmp_path / "calls"
    return make


def packages(folder):
    """Two packages of Debian with two pages each."""
    whole = write(folder / "whole", {"a.html": page(SHORT), "b.html": page(LONG)})
    for name, side in zip(task.PACKAGES, ("en-US", "zh-CN")):
        root = folder / name
        (root / "DEBIAN").mkdir(parents=True)
        (root / "DEBIAN/control").write_text(f"Package: {name}\nVersion: 1\nArchitecture: all\nMaintainer: Nobody <n@example.org>\nDescription: pages\n")
        (root / HELP).mkdir(parents=True)
        (whole / HELP / side).rename(root / HELP / side)
        subprocess.run(["dpkg-deb", "--root-owner-group", "-b", root, folder / f"{name}_1_all.deb"], check=True, capture_output=True)


def test_text_is_fetched_once(tmp_path, apt, capfd, monkeypatch):
    packages(tmp_path)
    calls = apt(f"cp {tmp_path}/*.deb .")
    folder = tmp_path / "cache/posenc/lab/libreoffice-help"
    assert task.folder_of("libreoffice") == folder and len(task.pairs(folder)) == len(SHORT) + len(LONG)
    assert [p.name for p in folder.iterdir()] == ["usr"]
    assert calls.read_text().splitlines() == ["-q -o Acquire::http::Timeout=30 -o Acquire::Retries=1 download libreoffice-help-en-us libreoffice-help-zh-cn"]
    assert "fetching libreoffice-help-en-us" in capfd.readouterr().err
    assert task.folder_of("libreoffice") == folder and len(calls.read_text().splitlines()) == 1
    monkeypatch.chdir(tmp_path)  # a relative folder: apt-get and dpkg run in another one
    assert task.folder_of("named") == tmp_path / "named" and (tmp_path / "named" / HELP).is_dir()


def test_text_that_cannot_be_fetched(tmp_path, apt, monkeypatch):
    apt('echo "W: slow" >&2; echo "E: Unable to locate package libreoffice-help-en-us" >&2; exit 100')
    with pytest.raises(LabError, match=r"apt-get ended with 100 \(E: Unable to locate package libreoffice-help-en-us\).*apt-get update.*--text FOLDER"):
        task.folder_of("libreoffice")
    assert not any((tmp_path / "cache/posenc/lab/libreoffice-help").iterdir())
    apt("touch nothing.txt")
    with pytest.raises(LabError, match=r"must have pages in usr/share/libreoffice/help/en-US/text"):
        task.folder_of("libreoffice")
    (tmp_path / "file").write_text("x")
    with pytest.raises(LabError, match=r"--text of translate must be a folder of the packages .*, got the file"):
        task.folder_of(str(tmp_path / "file"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(LabError, match=r"needs a folder that can be written"):
        task.folder_of("libreoffice")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(LabError, match=r"translate needs apt-get to fetch libreoffice-help-en-us and libreoffice-help-zh-cn; unpack both"):
        task.folder_of(str(tmp_path / "new"))
