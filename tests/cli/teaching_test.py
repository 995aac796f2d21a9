# SPDX-License-Identifier: Apache-2.0
"""Pictures and tables for teaching: dials of rotation, several schemes in one picture, rows of a table, .png, Chinese words,
SCHEMEs that lack what the sizes say, printed tables."""
import os
import re
import shutil

from command_line import *

ROPE = "rope head_dim=8 pairing=half_split"


class Rotation(Case):
    def hands(self, panel):
        """(x, y) of each hand, in units of the radius."""
        found = [p.get("d") for p in panel.iter(f"{SVG}path") if p.get("class") == "hand"]
        numbers = [[float(n) for n in re.findall(r"-?[\d.]+", d)] for d in found]
        return [((x - a) / 22, (b - y) / 22) for a, b, x, y in numbers]

    def test_every_hand_shows_position_times_frequency(self):
        (panel, data), = self.plot(ROPE, "--kind", "rotation")
        self.assertEqual((data["row_names"], data["column_names"]),
                         (["0", "1", "2", "3"], ["0", "1", "2", "4", "8", "16", "32", "64"]))
        want = [[p * 10000 ** (-i / 4) for p in (0, 1, 2, 4, 8, 16, 32, 64)] for i in range(4)]
        for row, line in zip(data["angle"], want):
            for a, b in zip(row, line):
                self.assertAlmostEqual(a, b, delta=1e-13)
        for (x, y), angle in zip(self.hands(panel), sum(want, [])):
            self.assertAlmostEqual(x, math.cos(angle), delta=4e-3)
            self.assertAlmostEqual(y, math.sin(angle), delta=4e-3)

    def test_positions_pairs_and_directions(self):
        (panel, data), = self.plot("rope head_dim=128 pairing=half_split + yarn factor=4 original_context=4096", "--kind", "rotation",
                                   "--positions=-1,4096")
        self.assertEqual(data["row_names"], ["0", "9", "18", "27", "36", "45", "54", "63"])
        self.assertEqual(data["column_names"], ["-1", "4,096"])
        self.assertEqual(data["note"], "8 of 64 pairs are drawn")
        self.assertAlmostEqual(data["angle"][7][1], 1024 * 10000 ** (-63 / 64), delta=1e-9)  # interpolated by 4
        (_, other), = self.plot("rope head_dim=8 pairing=interleaved direction=-1", "--kind", "rotation")
        self.assertAlmostEqual(other["angle"][1][3], -0.4, delta=1e-13)
        out = self.folder / "p.svg"
        self.error("plot", ROPE, "--kind", "rotation", "--positions", "0:13", "-o", out, code=2, says="1 to 12 positions")
        self.error("plot", "alibi", "--kind", "rotation", "-o", out, code=3, says="rotates nothing")
        self.posenc("plot", LLAMA, "--kind", "rotation", "-o", self.folder / "p.html")


class Compared(Case):
    def test_lines_of_several_schemes(self):
        more = "rope head_dim=8 base=500000 pairing=half_split"
        (panel, data), = self.plot(ROPE, "--compare", more, "--kind", "wavelengths")
        self.assertEqual([s["name"] for s in data["series"]], [ROPE, more])
        self.assertAlmostEqual(data["series"][1]["y"][3], 2 * math.pi * 500000 ** 0.75, delta=1e-6)
        (_, alone), = self.plot(more, "--kind", "decay")
        (_, both), = self.plot(ROPE, "--compare", more, "--kind", "decay")
        self.assertEqual(both["series"][1]["y"], alone["series"][0]["y"])  # the mean; bounds belong to one scheme alone

    def test_bias_draws_the_first_and_the_last_head(self):
        (_, data), = self.plot("alibi", "--compare", "alibi max_bias=4", "--kind", "bias", "--heads", "4", "--positions", "0:3")
        self.assertEqual([s["name"] for s in data["series"]],
                         ["alibi, head 0", "alibi, head 3", "alibi max_bias=4, head 0", "alibi max_bias=4, head 3"])
        self.assertEqual([s["y"][2] for s in data["series"]], [-2 / 4, -2 / 256, -2 / 2, -2 / 16])

    def test_what_no_picture_holds(self):
        out = self.folder / "p.svg"
        self.error("plot", ROPE, "--compare", "alibi", "--kind", "decay", "-o", out, code=3,
                   says=["no picture holds both", "distance [positions]", "distance, query - key [tokens]"])
        self.error("plot", ROPE, "--compare", ROPE, "--kind", "rows", "-o", out, code=2, says="--compare goes with pictures of lines")
        self.error("plot", ROPE, *["--compare", ROPE] * 7, "-o", out, code=2, says="at most 7 schemes, got 8")


class TableRows(Case):
    def test_t5_without_numbers_shows_its_buckets(self):
        for scheme, at, want in (("t5 bidirectional=false", "-2:3", [0, 0, 0, 1, 2]), ("t5 bidirectional=true", "-2:3", [18, 17, 0, 1, 2]),
                                 ("t5 bidirectional=true bias_scale=2 heads_first=true", "[127,128,1000]", [15, 15, 15]),
                                 ("clipped clip=3", "-5:6:5", [0, 3, 6])):
            (panel, data), = self.plot(scheme, f"--positions={at}", "--kind", "bias")
            self.assertEqual(self.labels(panel), ("distance, query - key [tokens]", "row of the table [index]"))
            self.assertEqual(data["series"][0]["y"], want, scheme)
        (_, usual), = self.plot("t5 bidirectional=true")
        self.assertEqual(usual["title"], "Row of the learned table by distance")
        (_, drawn), = self.plot("t5 bidirectional=true", "--start", "1", "--heads", "2")
        self.assertEqual(drawn["title"], "Bias of the score by distance")


class Formats(Case):
    def test_png_by_rsvg_convert(self):
        out = self.folder / "p.png"
        if shutil.which("rsvg-convert"):
            self.posenc("plot", ROPE, "-o", out)
            data = out.read_bytes()
            self.assertEqual((data[:8], struct.unpack(">I", data[16:20])[0]), (b"\x89PNG\r\n\x1a\n", 1720))
            self.assertEqual(self.posenc("plot", ROPE, "-o", "-", "--format", "png")[:4], b"\x89PNG")
        path = os.environ["PATH"]
        os.environ["PATH"] = str(self.folder)
        try:
            self.error("plot", ROPE, "-o", self.folder / "q.png", code=3, says=["rsvg-convert", "librsvg2-bin"])
            (self.folder / "rsvg-convert").write_text("#!/bin/sh\nexit 1\n")
            (self.folder / "rsvg-convert").chmod(0o755)
            self.error("plot", ROPE, "-o", self.folder / "q.png", code=3, says="did not make a .png")
        finally:
            os.environ["PATH"] = path
        self.assertFalse((self.folder / "q.png").exists())
        self.error("plot", ROPE, "-o", self.folder / "p.gif", code=2, says=".svg, .html or .png")

    def test_chinese_words(self):
        """No English is left but names: SCHEMEs, files and formulas."""
        models = SOURCE / "conformance" / "model_attention" / "models"
        calls = [[ROPE], [ROPE, "--kind", "rotation"], [ROPE, "--kind", "rows"], [ROPE, "--kind", "error"], [ROPE, "--kind", "decay"],
                 ["xpos head_dim=8 pairing=half_split center=0", "--kind", "decay"],
                 ["rope head_dim=80 rotary_dim=32 pairing=half_split", "--context", "64"],
                 [ROPE + " + yarn factor=4 original_context=64", "--kind", "scaling"],
                 ["alibi", "--kind", "bias", "--heads", "16"], ["alibi"], ["alibi", "--kind", "locality", "--mask", "causal"],
                 ["t5 bidirectional=true"], ["transformer_xl d_model=512", "--start", "1", "--kind", "terms"],
                 ["transformer_xl d_model=512", "--start", "1", "--kind", "decay"], ["sinusoidal width=8", "--kind", "rows"],
                 ["sinusoidal width=8", "--kind", "wavelengths", "--context", "64"], ["sinusoidal width=8", "--kind", "decay"],
                 ["swin height=4 width=4", "--start", "1", "--grid", "4x4", "--kind", "bias", "--heads", "1"],
                 ["learned width=8 rows=32", "--start", "1", "--kind", "decay"], [MODELS / "gemma-3-1b"],
                 [models / "bloom", "--kind", "locality", "--heads", "2"]]
        names = {"q", "k", "cos", "sin", "f32", "float32", "bfloat16", "hf_float32", "hf_bfloat16_table", "ggml", "exp", "softmax", "head_dim",
                 "start", "seed", "params", "f", "context", "n", "ln", "log2", "i"}
        for call in calls:
            html = self.folder / "p.html"
            self.posenc("plot", *call, "--language", "zh", "-o", html)
            text = html.read_text()
            title = re.search(r"<h1>(.*?)</h1>", text)[1]
            shown = re.findall(r"<(?:text|figcaption)[^>]*>(.*?)</", text, re.S)
            self.assertTrue(any("\u4e00" <= c <= "\u9fff" for c in "".join(shown)))
            subject = str(call[0]).rsplit("/", 1)[-1]
            for words in shown:
                if subject in words or "model layer" in words or "bloom" in words or "gemma" in words:
                    continue  # the line that names the subject
                left = {w.lower() for w in re.findall(r"[A-Za-z_]\w+", re.sub(r"&\w+;|\d(?:\.\d+)?e-?\d+", " ", words))} - names
                self.assertEqual(left, set(), (call, words, title))
        self.error("plot", ROPE, "--language", "de", "-o", self.folder / "p.svg", code=2, says="--language must be en or zh")


class Sizes(Case):
    def test_attend_and_plot_fill_in_what_a_scheme_lacks(self):
        q = self.write_npy("q.npy", [math.sin(i) for i in range(4 * 2 * 8)], (4, 2, 8), "<f8", "d")
        words = ["--q", q, "--k", q, "--v", q, "--mask", "causal"]
        for short, whole, more in (("rope pairing=half_split", "rope head_dim=8 pairing=half_split", []),
                                   ("t5", "t5 bidirectional=false", ["--start", "1"]),
                                   ("transformer_xl", "transformer_xl d_model=16", ["--start", "1"])):
            made = []
            for scheme in (short, whole):
                self.posenc("attend", scheme, *words, *more, "-o", self.folder / "o.safetensors")
                made.append(read_safetensors(self.folder / "o.safetensors"))
            self.assertEqual(*made)
            pictures = [self.plot(scheme, "--kind", "locality", *words[:4], *words[6:], *more) for scheme in (short, whole)]
            self.assertEqual(*[[d["series"] for _, d in panels] for panels in pictures])
        self.posenc("attend", "alibi", "--with", "t5", "--start", "1", *words, "-o", self.folder / "o.safetensors")
        (_, wide), = self.plot("rope pairing=half_split", "--head-dim", "8", "--kind", "wavelengths")
        self.assertEqual(len(wide["series"][0]["y"]), 4)
        self.error("attend", "t5", *words[:6], "--start", "1", "-o", self.folder / "o.safetensors", code=3,
                   says="bidirectional must be given")
        self.error("plot", "rope pairing=half_split", "-o", self.folder / "p.svg", code=3, says="head_dim must be given")
        self.error("plot", ROPE, "--head-dim", "8", "-o", self.folder / "p.svg", code=2, says="--heads")


class Printed(Case):
    def lines(self, *words):
        return [line.split() for line in self.posenc("table", *words).decode().splitlines()]

    def test_a_table_is_printed_without_a_file(self):
        head, *rows = self.lines("rope head_dim=4 pairing=half_split", "--positions", "0:2")
        self.assertEqual(head, ["position", "cos_0", "cos_1", "sin_0", "sin_1"])
        self.assertEqual(rows[0], ["0", "1", "1", "0", "0"])
        for got, want in zip(rows[1], [1, math.cos(1), math.cos(0.01), math.sin(1), math.sin(0.01)]):
            self.assertAlmostEqual(float(got), want, delta=1e-6)
        head, row = self.lines("rope head_dim=4 pairing=half_split", "--positions=-3", "--what", "angles")
        self.assertEqual((head, row), (["position", "angles_0", "angles_1"], ["-3", "-3", "-0.03"]))
        head, row = self.lines("rope head_dim=4 pairing=half_split", "--positions", "1", "--layout", "pairs")
        self.assertEqual(head, ["position", "cos_0", "sin_0", "cos_1", "sin_1"])
        head, *rows = self.lines("alibi", "--what", "bias", "--heads", "2", "--positions", "0:3")
        self.assertEqual((head, rows), (["head", "0", "1", "2"], [["0", "0", "-0.0625", "-0.125"], ["1", "0", "-0.00390625", "-0.0078125"]]))
        head, *rows = self.lines("sinusoidal width=4 layout=halves", "--positions", "0:2")
        self.assertEqual((head[1:], rows[0]), ([f"rows_{i}" for i in range(4)], ["0", "0", "0", "1", "1"]))

    def test_as_json(self):
        got = json.loads(self.posenc("table", "rope head_dim=4 pairing=half_split", "--positions", "0:2", "--json"))
        self.assertEqual((got["schema"], got["shape"]), ("posenc.table/1", [2, 4]))
        self.assertEqual(got["cos_sin"], [1, 1, 0, 0, math.cos(1), math.cos(0.01), math.sin(1), math.sin(0.01)])

    def test_what_needs_a_file(self):
        self.error("table", "rope head_dim=128 pairing=half_split", "--positions", "0:1000", code=2, says=["-o F.npy", "65536 numbers"])
        self.error("table", ROPE, "--what", "turns", code=2, says="-o F.npy")
        self.error("table", ROPE, "--layout", "pairs", code=2, says="--positions")
        self.error("table", ROPE, "--positions", "0:2", "--format", "csv", code=2, says="--format goes with -o -")


main()
