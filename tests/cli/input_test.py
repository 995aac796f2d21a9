# SPDX-License-Identifier: Apache-2.0
"""table, plot and explain of what stands at a model's input; learned rows come from its weights."""
from weights import *

NAME = "embeddings.position_embeddings.weight"


class Input(ModelCase):
    def test_learned_rows_in_every_dtype(self):
        v = values(16, 8)
        for dtype in ["F32", "F16", "BF16"]:
            path = self.model(BERT, {"bert." + NAME: (dtype, [16, 8], v), "bert.x": ("F32", [1], [0])})
            for more in [[], ["--what", "rows"]]:
                shape, got = self.rows(path, "--positions", "3:6", *more)
                self.assertEqual((shape, list(got)), ((3, 8), v[24:48]))
            _, got = self.rows(path / "config.json", "--positions", "15,0")
            self.assertEqual(list(got), v[120:] + v[:8])

    def test_offsets(self):
        v = values(18, 8)
        roberta = dict(BERT, model_type="roberta", max_position_embeddings=18, pad_token_id=1)
        path = self.model(roberta, {"roberta." + NAME: ("F32", [18, 8], v)})
        self.assertEqual(list(self.rows(path, "--positions", "0:16")[1]), v[16:])
        self.assertEqual(list(self.rows(path, "--positions=-1:0")[1]), v[8:16])  # padding's row
        self.error("table", path, "--positions", "16", "-o", self.folder / "x.npy", code=3, says=["18", "doctor"])
        bart = {"model_type": "bart", "d_model": 8, "encoder_layers": 1, "decoder_layers": 1,
                "encoder_attention_heads": 2, "decoder_attention_heads": 2, "max_position_embeddings": 16}
        path = self.model(bart, {"model.encoder.embed_positions.weight": ("F32", [18, 8], [-x for x in v]),
                                 "model.decoder.embed_positions.weight": ("F32", [18, 8], v)}, "bart")
        self.assertEqual(list(self.rows(path, "--positions", "0:2")[1]), v[16:32])
        self.assertEqual(list(self.rows(path, "--tower", "encoder", "--positions", "0:2")[1]), [-x for x in v[16:32]])
        self.error("table", path, "--tower", "vision", "--positions", "0", "-o", "-", "--format", "csv", code=3, says="encoder")

    def test_rules_of_length(self):
        grows = "sinusoidal width=4 + dynamic_linear trained_length=16 length_rule=per_call"
        want = self.rows("sinusoidal width=4 scale=0.25", "--positions", "60:62")
        self.assertEqual(self.rows(grows, "--context", "64", "--positions", "60:62"), want)
        out = ["--positions", "60:62", "-o", self.folder / "x.npy"]
        self.error("table", grows, *out, code=3, says="give the context length")
        self.error("table", "sinusoidal width=4", "--context", "64", *out, code=2, says="rules of length")

    def test_sinusoids_of_models(self):
        marian = {"model_type": "marian", "d_model": 8, "encoder_layers": 1, "decoder_layers": 1,
                  "encoder_attention_heads": 2, "decoder_attention_heads": 2, "max_position_embeddings": 512}
        path = self.model(marian)
        shape, got = self.rows(path, "--positions", "5,1000")
        self.assertEqual(shape, (2, 8))
        for row, p in enumerate([5, 1000]):
            for m in range(4):
                self.assertAlmostEqual(got[8 * row + m], math.sin(p * 10000 ** (-m / 4)), delta=1e-12)
                self.assertAlmostEqual(got[8 * row + 4 + m], math.cos(p * 10000 ** (-m / 4)), delta=1e-12)
        m2m = dict(marian, model_type="m2m_100", d_model=10, encoder_attention_heads=2, pad_token_id=1)
        _, got = self.rows(self.model(m2m), "--positions=-1,0,3")
        self.assertEqual(set(got[:10]), {0})  # padding
        for row, p in [(1, 2), (2, 5)]:
            self.assertAlmostEqual(got[10 * row + 1], math.sin(p * 10000 ** (-1 / 4)), delta=1e-12)

    def test_shards(self):
        path = self.model(BERT)
        v = values(16, 8)
        (path / "a.safetensors").write_bytes(safetensors({"bert.x": ("F32", [1], [0])}))
        (path / "b.safetensors").write_bytes(safetensors({"bert." + NAME: ("F16", [16, 8], v)}))
        (path / "model.safetensors.index.json").write_text(json.dumps(
            {"metadata": {}, "weight_map": {"bert.x": "a.safetensors", "bert." + NAME: "b.safetensors"}}))
        self.assertEqual(list(self.rows(path, "--positions", "2")[1]), v[16:24])
        (path / "b.safetensors").unlink()
        self.error("table", path, "--positions", "2", "-o", "-", "--format", "csv", code=3, says="b.safetensors")

    def test_gguf(self):
        v = values(16, 8)
        keys = {"general.architecture": "gpt2", "gpt2.context_length": 16, "gpt2.embedding_length": 8,
                "gpt2.block_count": 1, "gpt2.attention.head_count": 2, "gpt2.feed_forward_length": 16}
        path = self.folder / "model.gguf"
        for kind, content in [(0, PACK["F32"](v)), (1, PACK["F16"](v)), (30, PACK["BF16"](v))]:
            path.write_bytes(gguf(keys, {"position_embd.weight": (kind, [8, 16], content)}))
            self.assertEqual(list(self.rows(path, "--positions", "4:6")[1]), v[32:48])
            self.posenc("doctor", path)
        path.write_bytes(gguf(keys, {"position_embd.weight": (8, [32, 4], bytes(34 * 4))}))
        self.error("table", path, "--positions", "4", "-o", "-", "--format", "csv", code=3, says="position_embd.weight")
        path.write_bytes(gguf(keys, {"token_embd.weight": (0, [8, 2], bytes(64))}))
        self.error("table", path, "--positions", "4", "-o", "-", "--format", "csv", code=3, says="position_embd.weight")
        report = json.loads(self.posenc("doctor", path, "--json", code=1))
        self.assertIn("table_missing", [f["code"] for f in report["findings"]])

    def test_clear_refusals(self):
        out = ["-o", self.folder / "x.npy"]
        path = self.model(BERT)
        self.error("table", path, "--positions", "0:4", *out, code=3, says=[NAME, "safetensors"])
        self.error("table", "-", "--positions", "0:4", *out, code=3, says=NAME, stdin=json.dumps(BERT).encode())
        path = self.model(BERT, {"bert.word.weight": ("F32", [2, 8], [0] * 16)})
        self.error("table", path, "--positions", "0:4", *out, code=3, says=["no tensor", NAME])
        path = self.model(BERT, {"a." + NAME: ("F32", [16, 8], values(16, 8)), "b." + NAME: ("F32", [16, 8], values(16, 8))})
        self.error("table", path, "--positions", "0:4", *out, code=3, says=["several", "a." + NAME])
        path = self.model(BERT, {"bert." + NAME: ("F32", [12, 8], values(12, 8))})
        self.error("table", path, "--positions", "0:4", *out, code=3, says=["[12, 8]", "[16, 8]"])
        path = self.model(BERT, {"bert." + NAME: ("I8", [16, 8], values(16, 8))})
        self.error("table", path, "--positions", "0:4", *out, code=3, says="I8")
        self.error("table", path, "--what", "cos", "--positions", "0:4", *out, code=3, says="--what rows")
        self.error("table", path, "--what", "rows", "--layer", "0", "--positions", "0:4", *out, code=2, says="--layer")
        self.error("table", path, "--what", "rows", "--input", "2", "--positions", "0:4", *out, code=3, says="--input")
        self.error("table", LLAMA, "--what", "rows", "--positions", "0:4", *out, code=3, says="no rows")
        self.error("table", SCHEME, "--input", "0", "--positions", "0:4", *out, code=2, says="--input")
        self.error("table", "learned width=4 rows=8", "--positions", "0", *out, code=3, says=["weights", "--arrays"])
        self.error("table", "complex_order width=4 vocabulary=3", "--positions", "0", *out, code=3, says=["complex_order", "module"])
        self.assertFalse((self.folder / "x.npy").exists())

    def test_what_a_scheme_learns_from_a_file(self):
        v = values(8, 4)
        path = self.folder / "learned.safetensors"
        path.write_bytes(safetensors({"table": ("BF16", [8, 4], v), "other": ("F32", [4, 8], v)}))
        self.assertEqual(list(self.rows("learned width=4 rows=8 offset=1", "--arrays", path, "--positions", "2:4")[1]), v[12:20])
        out = ["--positions", "0", "-o", self.folder / "x.npy"]
        self.error("table", "learned width=4 rows=9", "--arrays", path, *out, code=3, says=["[9, 4]", "[8, 4]"])
        self.error("table", "learned_axes width=4 shape=[2,4]", "--arrays", path, *out, code=3, says="axis0")
        (panel, data), = self.plot("learned width=4 rows=8", "--arrays", path, "--kind", "rows", "--positions", "0:8")
        self.assertAlmostEqual(data["rows"][7][3], v[31], delta=1e-4)

    def test_what_a_scheme_learns_as_it_starts(self):
        """--start SEED: the same numbers on every machine, another seed others, frozen rows zero."""
        first = self.rows("learned width=4 rows=512 init=0.1 frozen_row=3", "--start", "7", "--positions", "0:512")[1]
        self.assertEqual(list(first), list(self.rows("learned width=4 rows=512 init=0.1 frozen_row=3", "--start", "7", "--positions", "0:512")[1]))
        self.assertNotEqual(list(first), list(self.rows("learned width=4 rows=512 init=0.1", "--start", "8", "--positions", "0:512")[1]))
        self.assertEqual(list(first[12:16]), [0] * 4)
        deviation = (sum(v * v for v in first) / len(first)) ** 0.5
        self.assertAlmostEqual(deviation, 0.1, delta=0.01)
        # Each of several parameters has draws of its own: two tables of one shape differ.
        rows = self.rows("learned_axes shape=[2,2] width=4 widths=[2,2]", "--start", "7", "--positions", "0:1")[1]
        self.assertNotEqual(list(rows[:2]), list(rows[2:]))
        for scheme in ["continuous_axial width=4 hidden=3", "learnable_fourier width=4 features=4 hidden=2", "boxes width=4 rows=9",
                       "crossmodal width=4 modalities=2 widths=[4]", "hierarchy width=4 rows=[4,4]"]:
            self.plot(scheme, "--start", "7", "--kind", "rows", "--positions", "0:2")
        (_, data), = self.plot("learned width=64 rows=512", "--start", "7", "--kind", "decay")
        self.assertEqual(data["series"][0]["x"][-1], 511)
        self.assertTrue(all(abs(v) < 0.05 for v in data["series"][0]["y"][:-20]), "no notion of distance")
        (_, data), = self.plot("learned width=4 rows=12 offset=2", "--start", "7")  # as many positions as it has
        self.assertEqual(len(data["rows"]), 10)
        out = ["--positions", "0", "-o", self.folder / "x.npy"]
        self.error("table", "sinusoidal width=4", "--start", "7", *out, code=2, says=["--start", "has none: omit --start"])
        self.error("table", SCHEME, "--start", "7", *out, code=2, says=["--start", "has none"])
        self.error("table", LLAMA, "--start", "7", *out, code=2, says=["--start", "is a model"])
        self.error("table", "learned width=4 rows=8", "--start", "7", "--arrays", "a", *out, code=2, says="one of the two")
        self.error("table", "learned width=4 rows=8", "--start", "-1", *out, code=2, says="--start")

    def test_two_encodings(self):
        config = dict(BERT, model_type="layoutlm", max_2d_position_embeddings=6)
        tensors = {"layoutlm." + NAME: ("F32", [16, 8], values(16, 8))}
        for k, axis in enumerate("xyhw"):
            tensors[f"layoutlm.embeddings.{axis}_position_embeddings.weight"] = ("F32", [6, 8], [(k + 1) * x for x in values(6, 8)])
        path = self.model(config, tensors)
        self.error("table", path, "--positions", "0", "-o", "-", "--format", "csv", code=3, says=["--input", "boxes"])
        self.assertEqual(list(self.rows(path, "--input", "0", "--positions", "1")[1]), values(16, 8)[8:16])
        box = self.write_npy("box.npy", [1, 2, 4, 5], [4, 1, 1], "<i8", "q")  # x0 y0 x1 y1
        v = [values(6, 8)[8 * r:8 * r + 8] for r in range(6)]
        want = [v[1][c] + 2 * v[2][c] + v[4][c] + 2 * v[5][c] + 3 * v[3][c] + 4 * v[3][c] for c in range(8)]
        for got, expected in zip(self.rows(path, "--input", "1", "--positions", box)[1], want):
            self.assertAlmostEqual(got, expected, delta=1e-12)

    def test_explain_says_what_a_program_needs(self):
        roberta = dict(BERT, model_type="roberta", max_position_embeddings=18, pad_token_id=1)
        path = self.model(roberta)
        entry = json.loads(self.posenc("explain", path, "--json"))["input"][0]
        self.assertEqual(entry["text"], "learned width=8 rows=18 offset=2")
        self.assertEqual((entry["positions"], entry["counts"], entry["padding_row"], entry["tensors"]), (16, "tokens", 1, [NAME]))
        text = self.posenc("explain", path).decode()
        for words in ["positions 0 to 15", "not padding", "padding reads row 1", NAME]:
            self.assertIn(words, text)

    # Plots.
    def test_pictures_of_learned_rows(self):
        v = values(16, 8)
        path = self.model(BERT, {"bert." + NAME: ("F32", [16, 8], v)})
        (panel, data), = self.plot(path, "--kind", "rows")
        self.assertEqual(self.labels(panel), ("channel [index]", "position [tokens]"))
        self.assertEqual((len(data["rows"]), len(data["rows"][0])), (16, 8))
        self.assertAlmostEqual(data["rows"][3][5], v[29], delta=1e-4)
        (panel, data), = self.plot(path, "--kind", "decay")
        self.assertEqual(self.labels(panel), ("distance [positions]", "cosine similarity"))

        def similarity(a, b):
            x, y = v[8 * a:8 * a + 8], v[8 * b:8 * b + 8]
            return sum(p * q for p, q in zip(x, y)) / math.hypot(*x) / math.hypot(*y)
        mean = sum(similarity(p, p + 1) for p in range(15)) / 15
        self.assertAlmostEqual(data["series"][0]["y"][0], mean, delta=1e-12)
        self.assertAlmostEqual(data["series"][0]["y"][-1], similarity(0, 15), delta=1e-12)
        out = self.folder / "q.svg"
        self.error("plot", path, "--kind", "wavelengths", "-o", out, code=2, says=["rows or decay", "wavelengths"])
        # Unasked: rows, where there are no wavelengths.
        (_, data), = self.plot(path)
        self.assertEqual(len(data["rows"]), 16)
        for scheme in [SCHEME, "sinusoidal width=8", "sinusoidal_nd widths=[4,4]"]:
            self.assertIn("wavelength", self.labels(self.plot(scheme)[0][0])[1])
            self.assertIn("position", self.labels(self.plot(scheme, "--positions", "0:4")[0][0])[1])
        # What is not finite is said and left out.
        v[3 * 8 + 2] = math.nan
        path = self.model(BERT, {"bert." + NAME: ("F32", [16, 8], v)})
        (_, data), = self.plot(path, "--kind", "rows")
        self.assertEqual((data["rows"][3][2], data["note"]), (None, "not finite, and grey: 1 of 128 numbers"))
        (_, data), = self.plot(path, "--kind", "decay")
        self.assertIn("1 of 16 rows", data["note"])
        mean = sum(similarity(p, p + 1) for p in range(15) if p not in (2, 3)) / 13
        self.assertAlmostEqual(data["series"][0]["y"][0], mean, delta=1e-12)
        (panel, data), = self.plot("sinusoidal_nd widths=[4,4]", "--kind", "rows")
        self.assertAlmostEqual(data["rows"][2][4], math.sin(2), delta=1e-4)
        self.error("plot", "learned width=4 rows=8", "--kind", "rows", "-o", out, code=3, says="weights")

    def test_before_and_after_a_line(self):
        v = values(16, 8)
        path = self.model(BERT, {"bert." + NAME: ("F32", [16, 8], v)}) / "model.safetensors"
        extend = [path, "--kind", "extend", "--tensor", "bert." + NAME]
        similar, channels = self.plot(*extend, "--to", "32", "--how", "linear", "--at", "5")
        self.assertEqual(self.labels(similar[0]), ("position [tokens]", "cosine similarity"))
        self.assertEqual(self.labels(channels[0]), ("position [rows of the old table]", "value"))
        before, after = similar[1]["series"]
        self.assertEqual(before["name"], "before, to position 5 of 16")
        self.assertEqual(after["name"], "after, to position 11 of 32")  # 5.5 * 2 - 0.5, to the nearest
        self.assertEqual((len(before["y"]), len(after["y"])), (16, 32))
        self.assertAlmostEqual(before["y"][5], 1, delta=1e-12)
        self.assertAlmostEqual(after["y"][11], 1, delta=1e-12)
        # What `posenc extend` writes is what is drawn.
        out = self.folder / "longer.safetensors"
        self.posenc("extend", path, "--tensor", "bert." + NAME, "--to", "32", "--how", "linear", "-o", out)
        rows = read_safetensors(out)["bert." + NAME][2]
        self.assertEqual([s["name"].split()[2] for s in channels[1]["series"]], ["before", "after"] * 3)
        for s in channels[1]["series"][1::2]:
            channel = int(s["name"].split()[1])
            for x, y in zip(s["x"], s["y"]):
                row = round((x + 0.5) * 2 - 0.5)
                self.assertAlmostEqual(y, rows[8 * row + channel], delta=1e-12)
        legend = [g for g in channels[0].iter(f"{SVG}g") if g.get("class") == "legend"]
        self.assertEqual(len(legend[0].findall(f"{SVG}text")), 6)
        similar, channels = self.plot(*extend, "--to", "100", "--how", "hierarchical")
        before, after = similar[1]["series"]
        self.assertEqual(before["y"], after["y"][:16])
        self.assertEqual(self.labels(channels[0])[0], "position [tokens]")

    def test_before_and_after_a_grid(self):
        v = values(10, 8)
        path = self.model(BERT, {"vit.pos": ("F32", [1, 10, 8], v)}) / "model.safetensors"
        extend = [path, "--kind", "extend", "--tensor", "vit.pos", "--prefix", "1", "--how", "bicubic"]
        before, after = self.plot(*extend, "--to", "6x7", "--at", "0x2")
        self.assertEqual(self.labels(before[0]), ("column [patches]", "row [patches]"))
        self.assertEqual((len(before[1]["rows"]), len(after[1]["rows"]), len(after[1]["rows"][0])), (3, 6, 7))
        self.assertEqual(before[1]["rows"][0][2], 1)
        self.assertEqual(before[1]["title"], "Cosine similarity to patch (0, 2), before")
        self.assertEqual(max(max(row) for row in after[1]["rows"]), 1)
        out = ["-o", self.folder / "q.svg"]
        self.error("plot", *extend, "--to", "6x7", "--at", "3x0", *out, code=2, says="--at")
        self.error("plot", *extend, "--to", "6x7", "--at", "3", *out, code=2, says="YxX")

    def test_options_that_do_not_belong(self):
        path = self.model(BERT, {"bert." + NAME: ("F32", [16, 8], values(16, 8))})
        out = ["-o", self.folder / "q.svg"]
        weights = path / "model.safetensors"
        self.error("plot", weights, "--kind", "extend", "--to", "3", "--how", "linear", *out, code=2, says="--tensor")
        self.error("plot", weights, "--kind", "extend", "--tensor", "bert.pos", "--to", "3", "--how", "linear", *out, code=3, says="nearest")
        self.error("plot", path, "--kind", "rows", "--to", "3", *out, code=2, says="--kind extend")
        self.error("plot", path, "--kind", "rows", "--align-corners", *out, code=2, says="--kind extend")
        self.error("plot", weights, "--kind", "extend", "--tensor", "bert." + NAME, "--to", "32", "--how", "linear",
                   "--context", "5", *out, code=2, says="--context")
        self.error("plot", LLAMA, "--kind", "extend", "--tensor", "x", "--to", "32", "--how", "linear", *out, code=3, says="llama")


main()
