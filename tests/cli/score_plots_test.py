# SPDX-License-Identifier: Apache-2.0
"""plot --kind terms, decay and locality: the numbers of attend on the same arrays, added up in plain Python; refusals."""
import re

from command_line import *

TOKENS, HEADS, DIM = 5, 2, 4
SHAW = "shaw left=2 right=1 values=none key_term=true key_scale=0.5"
PARTS = ["content-content", "content-position", "position-content", "position-position"]


class ScorePlots(Case):
    def arrays(self):
        """q and k of five tokens, with Shaw's table; the words that name them."""
        draw = lambda seed, n: [math.sin(seed * (i + 1) ** 2) for i in range(n)]
        q, k = (self.write_npy(f"{n}.npy", draw(s, TOKENS * HEADS * DIM), (TOKENS, HEADS, DIM), "<f8", "d")
                for n, s in (("q", 1), ("k", 2)))
        header = json.dumps({"table": {"dtype": "F64", "shape": [4, DIM], "data_offsets": [0, 32 * DIM]}}).encode()
        self.table = self.folder / "shaw.safetensors"
        self.table.write_bytes(struct.pack("<Q", len(header)) + header + struct.pack(f"<{4 * DIM}d", *draw(3, 4 * DIM)))
        return ["--q", q, "--k", k]

    def attend(self, scheme, words, *more):
        out = self.folder / "out.safetensors"
        self.posenc("attend", scheme, *words, "--v", words[-1], *more, "--scores", "--terms", "--probabilities", "--locality",
                    "-o", out)
        size = (HEADS, TOKENS, TOKENS)
        return {n: v[2] if n.startswith("locality") else {
            (h, i, j): v[2][(h * TOKENS + i) * TOKENS + j] for h in range(size[0]) for i in range(size[1]) for j in range(size[2])}
            for n, v in read_safetensors_of(out).items() if n in ("locality", "content_key", "query_position", "position_key",
                                                                   "position_position", "scores", "content")}

    def test_terms(self):
        words = self.arrays()
        got = self.attend(SHAW, words, "--params", self.table, "--mask", "causal")
        (panel, shares), (_, sizes) = self.plot(SHAW, *words, "--params", self.table, "--mask", "causal", "--kind", "terms")
        self.assertEqual(self.labels(panel), ("head [index]", "share of the variance over keys [%]"))
        self.assertEqual([s["name"] for s in shares["series"]], PARTS)
        names = ["content_key", "query_position", "position_key", "position_position"]
        for h in range(HEADS):
            spread = []
            for n in names:
                sums = 0
                for i in range(TOKENS):
                    seen = [got[n][h, i, j] for j in range(i + 1)]
                    sums += sum((x - sum(seen) / len(seen)) ** 2 for x in seen)
                spread.append(sums)
            for part in range(4):
                self.assertAlmostEqual(shares["series"][part]["y"][h], 100 * spread[part] / sum(spread), delta=1e-11)
        self.assertEqual(sizes["series"][0]["x"], [0, 1, 2, 3, 4])
        for n, series in zip(names, sizes["series"]):
            for d in range(TOKENS):
                at = [got[n][h, j + d, j] ** 2 for h in range(HEADS) for j in range(TOKENS - d)]
                self.assertAlmostEqual(series["y"][d], math.sqrt(sum(at) / len(at)), delta=1e-14)
        self.assertGreater(shares["series"][2]["y"][0], 1)  # the key term
        self.assertEqual(shares["series"][3]["y"], [0, 0])
        bars = [g for g in panel.iter(f"{SVG}g") if g.get("class") == "series"]
        self.assertEqual([g.find(f"{SVG}path").get("d").count("V") for g in bars], [HEADS] * 4)
        # Every bar stands on the one before, and all four reach 100 %: the frame's top.
        pieces = [[float(x) for x in re.findall(r"[\d.]+", g.find(f"{SVG}path").get("d").split("M")[1])] for g in bars]
        for below, above in zip(pieces, pieces[1:]):
            self.assertAlmostEqual(below[2], above[1], delta=0.011)
        self.assertAlmostEqual(pieces[-1][2], 64, delta=0.011)

    def test_numbers_of_the_page(self):
        section = (SOURCE / "docs" / "four_terms.md").read_text().split("Shares show")[1]
        names, _, values = [x.strip("| ").split(" | ") for x in section.splitlines() if x.startswith("|")]
        schemes = (("alibi", "ALiBi"), ("deberta", "DeBERTa"), ("transformer_xl d_model=512", "Transformer-XL, width 512"),
                   ("shaw left=16 right=16", "Shaw, 16 distances"), ("t5 bidirectional=true", "T5"))
        for (scheme, name), column, value in zip(schemes, names, values, strict=True):
            (_, shares), _ = self.plot(scheme, "--start", "1", "--kind", "terms")
            self.assertTrue(column.startswith(name), column)
            self.assertEqual(value, f"{sum(shares['series'][0]['y']) / 8:.0f} %")

    def test_decay(self):
        words = self.arrays()
        got = self.attend(SHAW, words, "--params", self.table)
        (_, mean), (_, spread) = self.plot(SHAW, *words, "--params", self.table, "--kind", "decay")
        for h in range(HEADS):
            self.assertEqual(mean["series"][h]["x"], list(range(1 - TOKENS, TOKENS)))
            for at, d in enumerate(range(1 - TOKENS, TOKENS)):
                added = [got["scores"][h, i, i - d] - got["content"][h, i, i - d] for i in range(TOKENS) if 0 <= i - d < TOKENS]
                middle = sum(added) / len(added)
                self.assertAlmostEqual(mean["series"][h]["y"][at], middle, delta=1e-13)
                self.assertAlmostEqual(spread["series"][h]["y"][at],
                                       math.sqrt(sum((x - middle) ** 2 for x in added) / len(added)), delta=1e-7)
        # What reads neither query nor key is exact, and one picture.
        (panel, alone), = self.plot("alibi", "--kind", "decay", "--heads", "2", "--context", "4")
        self.assertEqual(alone["series"][0]["x"], list(range(-4, 5)))
        self.assertEqual(alone["series"][1]["y"], [-abs(d) / 256 for d in range(-4, 5)])
        self.assertEqual(self.labels(panel), ("distance, query - key [tokens]", "added to the score"))
        (_, usual), = self.plot("alibi", "--context", "4")  # without --kind
        self.assertEqual(usual["title"], alone["title"])
        # A model's layer, and one head that sees one side only.
        models = SOURCE / "conformance" / "model_attention" / "models"
        (panel, bloom), = self.plot(models / "bloom", "--kind", "decay", "--heads", "2", "--context", "3")
        self.assertIn("bloom: bloom layer 0, alibi", [t.text for t in panel.iter(f"{SVG}text")])
        (_, t5), = self.plot(models / "t5", "--kind", "decay", "--heads", "3", "--context", "3")  # its own table
        self.assertNotEqual(t5["series"][0]["y"][0], t5["series"][1]["y"][0])
        self.error("plot", models / "deberta_v2", "--kind", "decay", "-o", self.folder / "p.svg", code=3, says="e_rel needs")
        self.assertEqual(bloom["series"][1]["y"], [-d / 256 for d in range(4)])
        (_, half), = self.plot("alibi future=half_heads", "--kind", "decay", "--heads", "2", "--context", "2")
        self.assertEqual(half["series"][0]["y"][:2], [None, None])
        self.assertEqual(half["series"][1]["y"][3:], [None, None])

    def test_locality(self):
        words = self.arrays()
        got = self.attend("alibi", words, "--mask", "window=2,1")
        (panel, mass), (_, within) = self.plot("alibi", *words, "--mask", "window=2,1", "--kind", "locality")
        for h in range(HEADS):
            self.assertEqual(mass["series"][h]["x"], [-1, 0, 1, 2])
            want = got["locality"][h * 9 + 3:h * 9 + 7]
            for a, b in zip(mass["series"][h]["y"], want):
                self.assertAlmostEqual(a, b, delta=1e-14)
            self.assertEqual(within["series"][h]["x"], [0, 1, 2])
            for a, b in zip(within["series"][h]["y"], [want[1], want[0] + want[1] + want[2], 1]):
                self.assertAlmostEqual(a, b, delta=1e-14)
        self.assertIn("alibi, mask window=2,1", [t.text for t in panel.iter(f"{SVG}text")])
        # A layer of a model with grouped keys, rotation, a batch and padding.
        suite = SOURCE / "conformance" / "model_attention"
        words = [suite / "models" / "llama", "--layer", "0", "--order", "bhtd"] + [
            w for n in ("q", "k", "v") for w in (f"--{n}", f"{suite / 'arrays.safetensors'}:llama_layer0/{n}")]
        words += ["--mask", f"{suite / 'arrays.safetensors'}:llama_layer0/visible"]
        out = self.folder / "llama.safetensors"
        self.posenc("attend", *words, "--locality", "-o", out)
        _, (heads, count), want = read_safetensors_of(out)["locality"]
        (_, mass), _ = self.plot(*words, "--kind", "locality")
        for h in range(heads):
            for d, share in zip(mass["series"][h]["x"], mass["series"][h]["y"]):
                self.assertAlmostEqual(share, want[h * count + int(d) + 23], delta=1e-15)
        # With a rotation, and two schemes together.
        self.plot(SCHEME, "--kind", "locality", "--with", "alibi", "--heads", "2", "--context", "8")

    def test_cells_of_a_grid(self):
        """Distances of cells are lengths; the bias of Swin's table of a window is read by both axes."""
        (panel, data), = self.plot("swin height=2 width=3", "--start", "1", "--kind", "decay", "--grid", "2x3", "--heads", "1")
        self.assertEqual(self.labels(panel)[0], "distance of two cells, rounded [cells]")
        self.assertEqual(data["series"][0]["x"], [0, 1, 2])
        bias = self.folder / "bias.npy"
        at = self.write_npy("at.npy", [0, 0, 0, 1, 1, 1, 0, 1, 2, 0, 1, 2], (2, 1, 6), "<i8", "q")
        self.posenc("bias", "swin height=2 width=3", "--start", "1", "--heads", "1", "--positions", at, "-o", bias)
        values = read_npy(bias.read_bytes())[1]
        for r in range(3):
            here = [values[i * 6 + j] for i in range(6) for j in range(6)
                    if round(math.hypot(i // 3 - j // 3, i % 3 - j % 3)) == r]
            self.assertAlmostEqual(data["series"][0]["y"][r], sum(here) / len(here), delta=1e-15)

    def test_bias_of_a_grid(self):
        """The middle cell's query against all cells."""
        panels = self.plot("levit height=3 width=3 heads_first=false", "--arrays", self.numbers("table", (9, 2)), "--kind", "bias",
                           "--grid", "3x3", "--heads", "2")
        self.assertEqual(self.labels(panels[0][0]), ("column of the key [cells]", "row of the key [cells]"))
        for h, (_, data) in enumerate(panels):
            self.assertEqual(data["rows"], [[8 + h, 6 + h, 8 + h], [2 + h, h, 2 + h], [8 + h, 6 + h, 8 + h]])

    def numbers(self, name, shape):
        """0, 1, 2 ... as an array of that name and shape."""
        count = math.prod(shape)
        header = json.dumps({name: {"dtype": "F64", "shape": shape, "data_offsets": [0, 8 * count]}}).encode()
        path = self.folder / "numbers.safetensors"
        path.write_bytes(struct.pack("<Q", len(header)) + header + struct.pack(f"<{count}d", *range(count)))
        return path

    def test_numbers_are_drawn(self):
        """The same at every run, others with another seed, said under the picture; inputs too, and whole ones are asked for."""
        words = ["prophetnet d_model=8 num_buckets=8 max_distance=16", "--kind", "terms", "--heads", "2", "--head-dim", "4", "--context", "6"]
        one, again, other = (self.plot(*words, "--start", s)[0][1]["series"] for s in ("1", "1", "2"))
        self.assertEqual(one, again)
        self.assertNotEqual(one, other)
        page = self.folder / "p.html"
        self.posenc("plot", *words, "--start", "1", "-o", page)
        (_, data), = self.plot("alibi", "--kind", "decay", "--context", "4", "--heads", "1")
        self.assertNotIn("note", data)  # nothing of q and k is in it
        (_, data), _ = self.plot("alibi", "--kind", "locality", "--context", "4", "--heads", "1")
        self.assertEqual(data["note"], "q and k are random, seed 1")
        self.assertIn("q and k are normal random numbers of deviation 1, seed 1, and so hidden", page.read_text())
        self.error("plot", "cpmant", "--start", "1", "--kind", "terms", "-o", self.folder / "p.svg", code=2,
                   says="--input query_segment=F is needed")
        self.error("plot", "forgetting", "--kind", "terms", "-o", self.folder / "p.svg", code=2, says="--input log_gate=F is needed")
        segments = self.write_npy("s.npy", [0, 0, 1, 1], (1, 4), "<i8", "q")
        (_, data), _ = self.plot("cpmant", "--start", "1", "--kind", "terms", "--context", "4", "--input", f"query_segment={segments}",
                                 "--input", f"key_segment={segments}")
        self.assertGreater(data["series"][3]["y"][0], 0)

    def test_refusals(self):
        q, out = self.arrays(), self.folder / "p.svg"
        rope = "rope head_dim=8 pairing=half_split"
        for words, code, says in (
                (["alibi", "--kind", "terms", "--q", q[1]], 2, "--q and --k"), (["alibi", "--kind", "terms", *q, "--heads", "2"], 2, "--heads"),
                (["alibi", "--kind", "locality", "--context", "100000"], 2, "more pairs"), ([rope, "--kind", "decay", "--mask", "causal"], 2, "--mask"),
                ([rope, "--kind", "rows", "--with", "alibi"], 2, "--with"), (["alibi", "--kind", "bias", "--heads", "2", "--mask", "causal"], 2, "--mask"),
                ([rope, "--kind", "decay", "--heads", "2"], 2, "--heads"), ([rope, "--kind", "decay", "--positions", "0:4"], 2, "--positions"),
                (["sinusoidal width=8", "--kind", "terms"], 3, "must act in attention"), (["shaw left=2", "--kind", "decay"], 3, "learns table"),
                (["alibi", "--kind", "terms", "--order", "thd"], 2, "--order"), (["alibi", "--kind", "terms", "--input", "x"], 2, "--input"),
                (["alibi", "--kind", "terms", "--grid", "2x2", "--positions", "0:4"], 2, "one of the two"),
                (["alibi", "--kind", "terms", *q, "--grid", "2x2"], 3, "4 cells"),
                (["alibi", "--kind", "bias", "--heads", "1", "--grid", "2"], 2, "HxW"),
                (["alibi", "--kind", "bias", "--heads", "1", "--grid", "2x2", "--positions", "0:4"], 2, "one of the two"),
                (["alibi", "--kind", "decay", "--mask", self.write_npy("m.npy", [0.0] * 4, (2, 2)), "--context", "1"], 2, "--mask")):
            self.error("plot", *words, "-o", out, code=code, says=says)
        self.assertFalse(out.exists())


def read_safetensors_of(path):
    """Without the integers that locality_distance has."""
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    return {n: (e["dtype"], e["shape"], struct.unpack(f"<{(e['data_offsets'][1] - e['data_offsets'][0]) // 8}d",
                                                     data[8 + size + e["data_offsets"][0]:8 + size + e["data_offsets"][1]]))
            for n, e in json.loads(data[8:8 + size]).items() if e.get("dtype") == "F64"}


main()
