# SPDX-License-Identifier: Apache-2.0
"""The report of stored results: one page of its own, files that parse back, folders that are joined."""
import copy
import csv
import html
import html.parser
import io
import json
import re
import subprocess
import sys
import xml.etree.ElementTree

import posenc
import pytest
import stored
from posenc.lab import report, sections, tables

@pytest.fixture
def rows():
    return stored.rows()


@pytest.fixture
def folder(tmp_path):
    return stored.write(tmp_path / "runs", stored.rows())


EMPTY = {"meta", "br", "img", "hr", "link", "input"}


class Page(html.parser.HTMLParser):
    """A page whose elements nest; collects what a reader sees."""

    def __init__(self, text):
        super().__init__()
        self.open, self.ids, self.links, self.outside, self.words = [], [], [], [], ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.handle_startendtag(tag, attributes)
        if tag not in EMPTY:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        for name, value in attributes:
            if name == "id":
                self.ids.append(value)
            elif name in ("href", "xlink:href", "src", "srcset", "data", "action", "poster"):
                (self.links if value.startswith("#") else self.outside).append(value)
            elif name != "xmlns" and re.search(r"https?:|url\(", value or ""):
                self.outside.append(value)

    def handle_endtag(self, tag):
        assert self.open and self.open.pop() == tag, (tag, self.getpos())

    def handle_data(self, data):
        if self.open and self.open[-1] == "style":
            self.outside += re.findall(r"@import|url\(", data)
        else:
            self.words += data


@pytest.fixture
def written(tmp_path, rows):
    paths = report.write(rows, tmp_path / "out")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted(path.name for path in paths)  # nothing temporary stays
    return {path.name: path.read_text(encoding="utf-8") for path in paths}


def test_one_page_with_every_section(written):
    page = Page(written["report.html"])
    assert page.ids == ["loss", "accuracy", "extension", "translate", "attention", "cost", "claims", "ran", "published", "limits"]
    assert [f"#{name}" for name in page.ids] == page.links and page.outside == []
    for words in ("do not overlap", "shift", "fine-tuned", "单击“确定”关闭对话框。", "Click <OK> & close the dialog.", "t5 bidirectional=false num_buckets=32 max_distance=32",
                  "AMD EPYC 7B13", "torch 2.15.0", "11 pass, 0 fail, 3 differ from the papers as expected, 0 not run", "A11. Translation needs the order of words",
                  "≠ differs from the paper, as expected", "compare the shapes of the curves, not the values", "Linear interpolation (PI) does not beat", "letter frequencies",
                  stored.rows()[0]["weights_sha256"][:12]):
        assert words in page.words, words


def test_pictures_and_tables_are_files(written):
    for name in ("loss", "windows", *stored.ACCURACY, "masked_loss", "masked", "extension", "attention", "cost"):
        picture = written[f"{name}.svg"]
        xml.etree.ElementTree.fromstring(picture)
        assert picture in written["report.html"]
    for name in ("loss", "windows", *stored.ACCURACY, "flipflop_sparse", "flipflop_dense", "extension_zero", "extension_tuned", "translate", "translations", "attention",
                 "cost", "claims", "schemes", "options", "machines"):
        assert {f"{name}.csv", f"{name}.tex"} <= set(written), name


def parsed(text):
    return list(csv.DictReader(io.StringIO(text)))


def test_csv_parses_back(written):
    loss = {row["scheme"]: row for row in parsed(written["loss.csv"])}
    assert set(loss) == set(stored.LM)
    for label, (first, second) in stored.LM.items():
        for i, length in enumerate(("32", "64", "128", "256")):
            assert float(loss[label][length]) == pytest.approx((first[i] + second[i]) / 2, abs=1e-12)
            assert float(loss[label][f"{length} least"]) == min(first[i], second[i]) and float(loss[label][f"{length} most"]) == max(first[i], second[i])
    shift = parsed(written["shift.csv"])
    assert shift[0] == {"scheme": "rope", "seeds": "1", "32": "1.0", "64": "0.96", "128": "0.65"}  # one seed: no band
    assert [row["made"] for row in parsed(written["translations.csv"])] == ["单击“确定”关闭对话框。"] * 15
    cost = parsed(written["cost.csv"])
    assert len(cost) == len(stored.rows()) and cost[0]["weights"] == stored.rows()[0]["weights_sha256"] and cost[0]["peak memory, MB"] == "123.456789"
    assert {row["SCHEME"] for row in parsed(written["schemes.csv"])} >= set(stored.SCHEMES.values())


def test_latex(written):
    lines = written["loss.tex"].splitlines()
    assert lines[0] == r"\begin{tabular}{lrrrrr}" and lines[-1] == r"\end{tabular}"
    assert lines[2] == r"scheme & seeds & 32 & 64 & 128 & 256 \\" and lines[8] == r"alibi & 2 & 2.100 [1.990, 2.210] & 2.130 [2.030, 2.230] & 2.135 [2.030, 2.240] & 2.140 [2.020, 2.260] \\"
    assert r"rope head\_dim=16 pairing=half\_split + linear factor=4" in written["schemes.tex"]
    special = tables.Table("x", ["a & b"], [["50 % of {x_1}#$"], ["~^\\"]])
    assert r"a \& b \\" in special.latex() and r"50 \% of \{x\_1\}\#\$ \\" in special.latex()
    assert r"\textasciitilde{}\textasciicircum{}\textbackslash{} \\" in special.latex()


def test_claims_json(written, tmp_path, rows):
    claims = json.loads(written["claims.json"])
    assert [claim["name"] for claim in claims] == [f"A{i}" for i in range(1, 12)] + ["D1", "D2", "D3"]
    assert all(set(claim) == {"name", "verdict", "value", "margin", "text"} for claim in claims)
    report.write([row for row in rows if row["task"] == "shift"], tmp_path / "shift")
    assert [claim["name"] for claim in json.loads((tmp_path / "shift/claims.json").read_text())] == ["A7"]
    assert "A1. ALiBi stays flat. Not run, because the task lm was not run." in Page((tmp_path / "shift/report.html").read_text()).words


def test_the_best_mean_is_bold(rows):
    found = {part.name: part.html() for section in sections.build(rows, {"": []}, []) for part in section.parts if isinstance(part, tables.Table)}
    assert re.findall(r"<b>(.*?)</b>", found["loss"]) == ["2.035", "2.105", "2.120", "2.135"]
    assert re.findall(r"<b>(.*?)</b>", found["extension_tuned"]) == ["1.700", *["1.660", "1.700", "1.730"] * 2]
    assert re.findall(r"<b>(.*?)</b>", found["passkey"]) == ["1.00", "0.99", "0.92", "1.00"]


def test_text_for_a_terminal(rows):
    text = report.text(rows)
    assert "alibi           2  2.100  2.130  2.135  2.140" in text
    assert "A1  PASS: ALiBi stays flat. Means of 2 seeds." in text and "      ✗ linear minus none at 4 ×, zero-shot is 0.61 (limit: below 0, not met)" in text
    assert "sha" not in text and "<" not in text and "not run" not in text
    alone = report.text([row for row in rows if row["task"] == "shift"])
    assert "A7  PASS" in alone and alone.endswith("failed: A1, A2, A3, A4, A5, A6, A8, A9, A10, A11, D1, D2, D3. report.html says which.\n")


def test_failed_runs_are_listed_not_plotted(tmp_path, rows):
    nan = {**stored.lm("fire", 0, [1.0] * 4), "values": {}, "failed": "the loss is nan at step 312"}
    written = {path.name: path.read_text() for path in report.write([*rows, nan], tmp_path)}
    page = Page(written["report.html"])
    assert page.ids[0] == "failed" and "the loss is nan at step 312" in page.words
    assert "fire" not in written["loss.svg"] and "fire" not in written["loss.csv"] and parsed(written["failed.csv"])[0]["scheme"] == "fire"
    report.write([nan], tmp_path / "only")
    assert Page((tmp_path / "only/report.html").read_text()).ids == ["failed", "claims", "published", "limits"]


def test_other_options_have_their_own_pictures(tmp_path, rows):
    rows += [stored.lm("rope", 0, [1.9, 2.0, 2.1, 2.2], train=64), stored.lm("alibi", 0, [1.9] * 4, train=64)]
    written = {path.name: path.read_text() for path in report.write(rows, tmp_path)}
    assert "(train 64)" in written["loss_2.svg"] and "(train 32)" in written["loss.svg"] and len(parsed(written["loss_2.csv"])) == 2


def test_one_label_of_two_schemes_is_told_apart(tmp_path, rows):
    rows += [{**row, "scheme": "alibi offset=1"} for row in rows if row["task"] == "lm" and row["label"] == "alibi"]
    written = {path.name: path.read_text() for path in report.write(rows, tmp_path)}
    assert {"alibi: alibi", "alibi: alibi offset=1"} <= {row["scheme"] for row in parsed(written["loss.csv"])}


def test_attention_of_a_decoder_leaves_out_what_is_ahead(tmp_path):
    row = stored.lm("alibi", 0, [2.0, 2.1])
    row["values"] |= {"distances": [-4, -1, 0, 2, 8], "attention": [[[0, 0, .5, .5, 0], [0, 0, 1.0, 0, 0]]]}
    written = {path.name: path.read_text() for path in report.write([row], tmp_path)}
    assert written["attention.csv"] == "scheme,layer,head,from 0,from 2\nalibi,1,1,0.5,0.5\nalibi,1,2,1.0,0.0\n" and "ahead" not in written["attention.svg"]
    row["values"]["attention"][0][1][0] = .25
    written = {path.name: path.read_text() for path in report.write([row], tmp_path)}
    assert written["attention.csv"].startswith("scheme,layer,head,from -4,from -1,from 0,from 2\n") and "ahead" in written["attention.svg"]


def test_drawn_positions_are_a_scheme_of_their_own(tmp_path, rows):
    """They stand beside the others, and their SCHEME says so."""
    rows += [{**stored.lm("randomized", 0, [2.3] * 4, positions="randomized"), "scheme": stored.SCHEMES["rope"]}]
    written = {path.name: path.read_text() for path in report.write(rows, tmp_path)}
    assert "loss_2.csv" not in written and {*stored.LM, "randomized"} == {row["scheme"] for row in parsed(written["loss.csv"])}
    assert {"label": "randomized", "SCHEME": stored.SCHEMES["rope"] + ", randomized positions"} in parsed(written["schemes.csv"])


def test_tasks_of_ones_own(tmp_path):
    rows = [stored.row("work/my.py:Sort", "rope", 0, {"accuracy": stored.curve([1.0, .5])}), stored.row("work/my.py:Read", "rope", 0, {"loss": stored.curve([1.0, .5])})]
    names = {path.name for path in report.write(rows, tmp_path)}
    assert {"my_Sort.svg", "my_Sort.csv", "my_Read_loss.svg", "my_Read_loss.csv"} <= names


def test_labels_are_text_and_not_markup(tmp_path):
    label = "rope | <script>alert('&')</script>"
    written = {path.name: path.read_text() for path in report.write([stored.lm(label, 0, [2.0, 2.1])], tmp_path)}
    assert "<script" not in written["report.html"] and label in Page(written["report.html"]).words
    xml.etree.ElementTree.fromstring(written["loss.svg"])
    assert parsed(written["loss.csv"])[0]["scheme"] == label


@pytest.mark.parametrize("call", [report.text, lambda rows: report.write(rows, "never_written")])
def test_wrong_runs(call, rows):
    del rows[9]["values"]["loss"]
    with pytest.raises(ValueError, match="the run of lm, alibi, seed 1: values.loss is missing; it must be an object of lengths"):
        call(rows)


def test_no_runs(tmp_path):
    with pytest.raises(ValueError, match="a report needs at least one run, got none"):
        report.write([], tmp_path)


def test_compare_joins(tmp_path, rows):
    """The same runs are shown once, new ones are added, those that differ are shown with the folder's name."""
    mine, other = stored.write(tmp_path / "mine", [row for row in rows if row["task"] in ("lm", "shift")]), copy.deepcopy(rows)
    different = next(row for row in other if row["task"] == "lm" and row["label"] == "alibi" and row["seed"] == 0)
    different["values"]["loss"]["256"] = 9.0
    for row in other:
        row["seconds"] += 1  # another machine's times are no difference
    paths = report.compare([mine, stored.write(tmp_path / "theirs", other)], tmp_path / "both")
    written = {path.name: path.read_text() for path in paths}
    labels = [row["scheme"] for row in parsed(written["loss.csv"])]
    assert sorted(labels) == sorted([*stored.LM, "alibi (mine)", "alibi (theirs)"])
    assert len(parsed(written["cost.csv"])) == len(rows) + 1 and [row["scheme"] for row in parsed(written["shift.csv"])] == list(stored.ACCURACY["shift"])
    claims = {(claim["folder"], claim["name"]): claim["verdict"] for claim in json.loads(written["claims.json"])}
    assert claims["mine", "A1"] == "pass" and claims["theirs", "A1"] == "fail" and ("mine", "A8") not in claims
    words = Page(written["report.html"]).words
    assert "lm, alibi, seed 0: the folders have different numbers" in words and "ALiBi stays flat (theirs)" in words and "Claims of theirs: 9 pass, 2 fail" in words


def test_compare_needs_two_folders(tmp_path, folder):
    for folders in ([folder], [folder, folder / "."]):
        with pytest.raises(ValueError, match="compare joins at least 2 different folders, got 1"):
            report.compare(folders, tmp_path / "out")
    with pytest.raises(ValueError, match="other does not exist. Expected the folder"):
        report.compare([folder, tmp_path / "other"], tmp_path / "out")
    same = stored.write(tmp_path / "more", []) / "runs"
    report.compare([folder, stored.write(same, stored.rows())], tmp_path / "out")  # two folders of one name: told by their paths
    assert str(same) in (tmp_path / "out/report.html").read_text()


def test_the_report_needs_no_package():
    code = "import sys, posenc.lab.report; print(sorted({'torch', 'numpy', 'matplotlib'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_published_numbers():
    found = {table["id"]: table for table in report.published()}
    assert len(found) == len(report.published())
    known = {one["name"] for kind in ("schemes", "scalings") for one in posenc.schemes()[kind]}
    for table in found.values():
        assert re.fullmatch("arXiv:[0-9]{4}[.][0-9]{5}|https://[^ ]+", table["source"]), table["id"]
        assert table["metric"] and table["model"] and table["data"] and table["authors"] and isinstance(table["higher_is_better"], bool)
        assert table["axis"] != "tokens" or all(isinstance(c, int) for c in table["columns"])
        assert table["trained"] is None or table["trained"] > 0
        for row in table["rows"]:
            assert len(row["values"]) == len(table["columns"]) and all(v is None or isinstance(v, (int, float)) for v in row["values"])
            assert row["scheme"] is None or row["scheme"] in known, row
    # data/proofpile-long-small-8k.csv of github.com/jquesnelle/yarn, whose hundredths the paper prints
    data = {"yarn": [3.9184463, 3.5097883, 3.3563895, 6.0485148], "ntk": [4.2025566, 3.7506669, 3.5865967, 6.2354345], "linear": [3.9218569, 3.5095384, 3.3441181, 8.0711002]}
    for row in found["yarn_1"]["rows"]:
        assert row["values"] == pytest.approx(data[row["scheme"]], abs=0.01)
    assert found["alibi_2"]["rows"][2]["values"][-1] is None  # out of memory
    (part,) = (p for s in sections.build(stored.rows(), {"": []}, [found["yarn_2"]]) for p in s.parts if isinstance(p, sections.Published))
    assert part.table.rows[0] == ["Together, linear to 32k", "2.64", "> 100", "> 10000"] and part.table.rows[3] == ["YaRN to 128k", "2.70", "2.45", "2.37"]


@pytest.mark.parametrize("task", ["lm", "direction", "translate", "extension"])
def test_published_numbers_stand_apart(tmp_path, rows, task):
    page = html.unescape(report.write([row for row in rows if row["task"] == task], tmp_path)[0].read_text())
    for table in report.published():
        assert page.count(table["source"] + ", " + table["table"]) >= 1
    outside = re.sub(r"<aside>.*?</aside>", "", page, flags=re.S)
    assert "406.01" in page and "406.01" not in outside and "Published numbers" in page
