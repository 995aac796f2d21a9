# SPDX-License-Identifier: Apache-2.0
"""Plots are read back: labels, units, legend, number of series, values."""
from command_line import *

YARN = "rope head_dim=64 pairing=half_split + yarn factor=4 original_context=2048"


class Plots(Case):
    def test_wavelengths(self):
        (panel, data), = self.plot(YARN, "--kind", "wavelengths", "--context", "8192")
        self.assertEqual(self.labels(panel), ("pair [index]", "wavelength [positions a rotation]"))
        self.assertEqual([s["name"] for s in data["series"]], ["as the model rotates", "before scaling"])
        before = data["series"][1]
        self.assertAlmostEqual(before["y"][0], 2 * math.pi, delta=1e-12)
        self.assertAlmostEqual(before["y"][16], 2 * math.pi * 100, delta=1e-9)
        self.assertAlmostEqual(data["series"][0]["y"][31], 4 * before["y"][31], delta=1e-6)
        self.assertIn("context 8,192", [t.text for t in panel.iter(f"{SVG}text")])
        self.assertEqual(len([g for g in panel.iter(f"{SVG}g") if g.get("class") == "series"]), 2)

    def test_decay(self):
        (panel, data), = self.plot("rope head_dim=64 pairing=half_split", "--kind", "decay")
        self.assertEqual(self.labels(panel)[0], "distance [positions]")
        mean, least, largest, bound = [s["y"] for s in data["series"]]
        first = sum(math.cos(10000 ** (-i / 32)) for i in range(32)) / 32
        self.assertAlmostEqual(mean[0], first, delta=1e-12)
        # Near 0 every distance is drawn; later a point stands for those up to the next.
        at = data["series"][0]["x"]
        self.assertEqual(at[:5], [1, 2, 3, 4, 5])
        score = lambda d: sum(math.cos(d * 10000 ** (-i / 32)) for i in range(32)) / 32
        i = next(i for i in range(len(at)) if at[i + 1] - at[i] > 5)
        here = [score(d) for d in range(int(at[i]), int(at[i + 1]))]
        self.assertAlmostEqual(mean[i], sum(here) / len(here), delta=1e-12)
        self.assertAlmostEqual(least[i], min(here), delta=1e-12)
        self.assertAlmostEqual(largest[i], max(here), delta=1e-12)
        for j in range(len(at)):  # the bound bounds
            self.assertLessEqual(largest[j], bound[j] + 1e-12)
            self.assertGreaterEqual(least[j], -bound[j] - 1e-12)
            self.assertLessEqual(bound[j], 1 + 1e-12)

    def test_decay_of_xpos(self):
        rope, xpos = [self.plot(f"{name} head_dim=64 pairing=interleaved", "--kind", "decay", "--context", "16384")[0][1]
                      for name in ["rope", "xpos center=0"]]
        self.assertAlmostEqual(xpos["series"][0]["y"][0], rope["series"][0]["y"][0], delta=0.01)
        self.assertLess(max(map(abs, xpos["series"][0]["y"][-20:])), 0.02)
        self.assertLess(xpos["series"][3]["y"][-1], 0.5 * rope["series"][3]["y"][-1])

    def test_words_of_the_picture(self):
        done = subprocess.run([PROGRAM, "plot", SCHEME], cwd=self.folder, stderr=subprocess.PIPE, timeout=120)
        self.assertEqual((done.returncode, done.stderr), (0, b"plot.svg: wavelengths\n"))
        self.assertTrue((self.folder / "plot.svg").exists())
        words = lambda panel: [t.text for t in panel.iter(f"{SVG}text")]
        (panel, _), = self.plot(LLAMA)
        self.assertIn("llama-3.1-8b: llama layer 0", words(panel))
        (panel, _), = self.plot(LLAMA / "config.json", "--title", "Mine & yours")
        self.assertIn("Mine & yours", words(panel))
        self.assertIn("Wavelength of every pair; llama-3.1-8b/config.json: llama layer 0", words(panel))

    def test_layers_that_differ_share_a_picture(self):
        gemma = MODELS / "gemma-3-1b"
        (_, data), = self.plot(gemma)
        self.assertEqual([s["name"] for s in data["series"]],
                         ["sliding: layers 0-4, 6-10, 12-16 ...", "full: layers 5, 11, 17 ..."])
        self.assertEqual(self.last.stderr.count(b"differently"), 0)
        for name, layer in [(0, 0), (1, 5)]:
            (_, one), = self.plot(gemma, "--layer", layer)
            self.assertEqual(one["series"][0]["y"], data["series"][name]["y"])
        (_, data), = self.plot(gemma, "--kind", "decay")
        self.assertEqual(len(data["series"]), 2)

    def test_usual_rows_show_a_turn_of_half_of_the_pairs(self):
        for base, rows in [(1e4, 545), (1e6, 1024), (4, 64)]:
            panels = self.plot(f"rope head_dim=128 base={base:g} pairing=half_split", "--kind", "rows")
            self.assertEqual(len(panels[0][1]["rows"]), rows)

    def test_error(self):
        (panel, data), = self.plot("rope head_dim=128 pairing=half_split", "--kind", "error")
        names = [s["name"] for s in data["series"]]
        self.assertEqual(names, ["exact rows, f32", "hf_float32", "hf_bfloat16_table", "ggml"])
        self.assertLess(max(data["series"][0]["y"]), 3.1e-8)
        self.assertGreater(data["series"][1]["y"][-1], 0.1)

    def test_error_reaches_the_context(self):
        """The last point is the length that was asked for: one position below it, and its neighbours."""
        rope = "rope head_dim=8 pairing=half_split"
        for context in [2, 3000, 1 << 26]:
            (panel, data), = self.plot(rope, "--kind", "error", "--context", context)
            self.assertEqual(data["series"][0]["x"][-1], context)
            self.assertEqual(self.rules(panel), [f"context {context:,}"])
        (panel, data), = self.plot(rope, "--kind", "error")
        self.assertEqual(data["series"][0]["x"][-1], 1 << 24)
        self.assertEqual(self.rules(panel), [])
        for kind in ["error", "decay"]:
            self.error("plot", rope, "--kind", kind, "--context", "1", "-o", self.folder / "p.svg", code=2,
                       says="at least 2")

    def test_kinds_are_checked_before_what_is_drawn(self):
        for subject in ["alibi", "rope head_dim=64 pairing=half_split", "sinusoidal width=16 layout=halves"]:
            self.error("plot", subject, "--kind", "foo", "-o", self.folder / "p.svg", code=2,
                       says='--kind must be rows, wavelengths, rotation, decay, error, scaling, bias, terms, locality or extend, got "foo"')

    def test_what_does_not_rotate_is_counted(self):
        partial = "rope head_dim=80 rotary_dim=32 pairing=half_split"
        for kind in ["wavelengths", "decay", "rows"]:
            for panel, data in self.plot(partial, "--kind", kind, "--context", "64"):
                self.assertIn("48 of 80 channels do not rotate", data["note"])
                self.assertIn(data["note"], [t.text for t in panel.iter(f"{SVG}text")])
        proportional = "rope head_dim=128 pairing=half_split + proportional fraction=0.25"
        (_, data), = self.plot(proportional, "--kind", "wavelengths")
        self.assertEqual(data["note"], "96 of 128 channels do not rotate: 48 pairs are of frequency 0")
        self.assertEqual(len(data["series"][0]["x"]), 16)
        # The score of the channels that turn: of the first 16 pairs.
        (_, data), = self.plot(proportional, "--kind", "decay")
        mean = sum(math.cos(10000 ** (-i / 64)) for i in range(16)) / 16
        self.assertAlmostEqual(data["series"][0]["y"][0], mean, delta=1e-12)
        (_, data), = self.plot("rope head_dim=8 pairing=half_split", "--kind", "wavelengths")
        self.assertNotIn("note", data)
        self.error("plot", "rope head_dim=8 pairing=half_split + frequencies values=[0,0,0,0]", "--kind", "decay", "-o",
                   self.folder / "p.svg", code=3, says="no pair rotates")

    def test_labels_hide_nothing(self):
        """Inside the plot, off the axes, and not on each other; 0 is a tick and needs no label."""
        for arguments in [("--kind", "wavelengths", "--context", "1"), ("--kind", "wavelengths", "--context", str(1 << 50)),
                          ("--kind", "error", "--context", "2"), ("--kind", "decay",)]:
            for panel, _ in self.plot("rope head_dim=64 pairing=half_split", *arguments):
                for t in panel.iter(f"{SVG}text"):
                    if t.get("class") == "rule-label":
                        self.assertGreaterEqual(float(t.get("x")), 84)
                        self.assertLessEqual(float(t.get("x")) + 6.2 * len(t.text), 834)
                        self.assertLess(float(t.get("y")), 418)
                        self.assertGreater(float(t.get("y")), 64 + 9)
        (panel, _), = self.plot("rope head_dim=64 pairing=half_split", "--kind", "decay")
        self.assertEqual(self.rules(panel), [])
        self.assertEqual(len([p for p in panel.iter(f"{SVG}path") if p.get("class") == "rule"]), 1)

    def test_axes_have_lines_of_their_own(self):
        (_, data), = self.plot(MODELS / "qwen2-vl-2b", "--kind", "wavelengths")
        self.assertEqual([len(s["x"]) for s in data["series"]], [16, 24, 24])
        self.assertEqual([s["name"] for s in data["series"]], [f"wavelength along {a}" for a in ["time", "height", "width"]])
        # A tower counts patches: the decoder's context is not its.
        (panel, data), = self.plot(MODELS / "qwen2-vl-2b", "--tower", "vision", "--kind", "wavelengths")
        self.assertEqual([s["x"][0] for s in data["series"]], [0, 20])
        self.assertEqual([s["name"] for s in data["series"]], ["wavelength along rows", "wavelength along columns"])
        self.assertEqual(self.rules(panel), [])

    def test_scaling(self):
        panels = self.plot(YARN, "--kind", "scaling")
        self.assertEqual(len(panels), 2)
        ratio = panels[0][1]["series"][0]["y"]
        self.assertAlmostEqual(ratio[0], 1, delta=1e-12)
        self.assertAlmostEqual(ratio[-1], 0.25, delta=1e-12)

    def test_rows(self):
        panels = self.plot("rope head_dim=16 pairing=interleaved", "--kind", "rows", "--positions", "0:12")
        self.assertEqual([d["value"] for _, d in panels], ["cos", "sin"])
        self.assertEqual(len(panels[0][1]["rows"]), 12)
        self.assertAlmostEqual(panels[0][1]["rows"][3][0], math.cos(3), delta=1e-4)
        self.assertAlmostEqual(panels[1][1]["rows"][3][0], math.sin(3), delta=1e-4)

    def test_rows_stand_at_their_positions(self):
        def drawn(scheme, positions):
            panel, data = self.plot(scheme, "--kind", "rows", f"--positions={positions}")[0]
            return data["positions"], [t.text for t in panel.iter(f"{SVG}text") if t.get("class") == "y-tick"], self.labels(panel)[1]

        for scheme in ["rope head_dim=8 pairing=half_split", "sinusoidal width=8", "coordinates axes=1"]:
            self.assertEqual(drawn(scheme, "1000:1064"),
                             (list(range(1000, 1064)), [f"1,0{t}0" for t in "0123456"], "position [tokens]"), scheme)
            self.assertEqual(drawn(scheme, "5,3,9,100")[1], ["5", "3", "9", "100"])
            self.assertEqual(drawn(scheme, "-20:20")[1], ["-20", "-15", "-10", "-5", "0", "5", "10", "15"])
        rope = "rope head_dim=8 pairing=half_split"
        self.assertEqual(drawn(rope, "63:-1:-1")[1], ["60", "50", "40", "30", "20", "10", "0"])
        self.assertEqual(drawn(rope, "0.5,1.25")[:2], ([0.5, 1.25], ["0.5", "1.25"]))
        # Too long to print: from the first.
        far = 1 << 53
        at, ticks, label = drawn(rope, f"{far}:{far + 40}:10")
        self.assertEqual((at, ticks), ([far, far + 10, far + 20, far + 30], ["+0", "+10", "+20", "+30"]))
        self.assertIn(f"{far:,}", label)

    def test_schemes_at_the_input(self):
        """Every one whose rows can be made has a picture of them, with the numbers of the table."""
        for scheme in ["sinusoidal_nd widths=[8,8]", "fourier_features axes=2 bands=4 law=log last=[8,8]", "cape2d width=8",
                       "hierarchy width=12 rows=[0,0] widths=[8,4]", "coordinates axes=2 compose=add",
                       "paragraph_offset width=4 mode=shift omega=100"]:
            csv = self.posenc("table", scheme, "--positions", "0:5", "-o", "-", "--format", "csv").decode()
            rows = [[float(v) for v in line.split(",")] for line in csv.split()[1:]]
            (_, data), = self.plot(scheme, "--kind", "rows", "--positions", "0:5")
            self.assertEqual([len(r) for r in data["rows"]], [len(r) for r in rows], scheme)
            for got, want in zip(sum(data["rows"], []), sum(rows, [])):
                self.assertAlmostEqual(got, want, delta=1e-4)
        self.plot("coordinates axes=1", "--kind", "rows")

    def test_tables_are_drawn_as_far_as_they_go(self):
        """Without --positions: the lowered tables say how many rows there are, whatever the scheme."""
        for scheme, rows in [("learned width=8 rows=40 offset=2", 38), ("learned_axes width=8 shape=[6,5]", 5),
                             ("learned_axes width=8 shape=[6,5] flat=true", 30),
                             ("hierarchy width=12 rows=[20,10] widths=[8,4]", 10)]:
            (_, data), = self.plot(scheme, "--start", "1", "--kind", "rows")
            self.assertEqual(len(data["rows"]), rows, scheme)

    def test_phases_at_the_input(self):
        scheme = "sinusoidal_nd widths=[8,4] layout=halves"
        (_, data), = self.plot(scheme, "--kind", "wavelengths")
        self.assertEqual([s["name"] for s in data["series"]], ["wavelength along axis 0", "wavelength along axis 1"])
        self.assertEqual([s["x"] for s in data["series"]], [[0, 1, 2, 3], [4, 5]])
        self.assertAlmostEqual(data["series"][0]["y"][1], 2 * math.pi * 10, delta=1e-9)
        # The inner product of two rows themselves, from the table.
        (_, data), = self.plot(scheme, "--kind", "decay", "--context", "50")
        first, second = data["series"]
        self.assertEqual(first["x"][:3], [1, 2, 3])
        at = self.write_npy("at.npy", [0, 3, 0, 0, 0, 3], (2, 1, 3), "<i8", "q")
        csv = self.posenc("table", scheme, "--positions", at, "-o", "-", "--format", "csv").decode()
        base, along, across = [[float(v) for v in line.split(",")] for line in csv.split()[1:]]
        dot = lambda a, b: sum(x * y for x, y in zip(a, b))
        self.assertAlmostEqual(first["y"][2], dot(base, along) / dot(base, base), delta=1e-12)
        self.assertAlmostEqual(second["y"][2], dot(base, across) / dot(base, base), delta=1e-12)
        # Without a length: over all wavelengths, real distances.
        (_, data), = self.plot("fourier_features axes=1 bands=4 law=log last=[8] layout=interleaved", "--kind", "decay")
        self.assertLess(data["series"][0]["x"][0], 0.1)
        out = self.folder / "p.svg"
        self.error("plot", "coordinates axes=1", "--kind", "decay", "-o", out, code=2, says=["coordinates", "rows"])
        self.error("plot", scheme, "--kind", "error", "-o", out, code=2, says="wavelengths or decay")
        self.error("plot", "learned width=4 rows=8", "--kind", "rows", "-o", out, code=3, says="learned")

    def test_cells_of_an_image(self):
        """--grid draws the rows that table --grid writes: all cells, or those that positions count."""
        detr = self.folder / "detr"
        detr.mkdir()
        (detr / "config.json").write_text('{"model_type": "detr", "d_model": 8, "encoder_layers": 1, "decoder_layers": 1,'
                                          ' "encoder_attention_heads": 2, "decoder_attention_heads": 2}')
        for subject in [detr, "sinusoidal_nd widths=[4,4]"]:
            for positions in [[], ["--positions", "5,2"]]:
                csv = self.posenc("table", subject, "--grid", "2x3", *(positions or ["--positions", "0:6"]), "--what",
                                  "rows", "-o", "-", "--format", "csv").decode()
                want = [[float(v) for v in line.split(",")] for line in csv.split()[1:]]
                (panel, data), *maps = self.plot(subject, "--grid", "2x3", *positions)
                self.assertEqual(len(maps), 0 if positions else 1)
                for panel_of_map, numbers in maps:  # the grid as a grid, from the table's own rows
                    self.assertEqual(self.labels(panel_of_map), ("column [cells]", "row [cells]"))
                    dot = lambda a, b: sum(x * y for x, y in zip(a, b))
                    like = [dot(r, want[4]) / math.sqrt(dot(r, r) * dot(want[4], want[4])) for r in want]
                    self.assertEqual([len(r) for r in numbers["rows"]], [3, 3])
                    for got, expected in zip(sum(numbers["rows"], []), like):
                        self.assertAlmostEqual(got, expected, delta=1e-3)
                self.assertEqual(self.labels(panel), ("channel [index]", "cell [row by row]"))
                self.assertEqual([len(r) for r in data["rows"]], [8] * (2 if positions else 6))
                for got, expected in zip(sum(data["rows"], []), sum(want, [])):
                    self.assertAlmostEqual(got, expected, delta=1e-3)
        (_, data), _ = self.plot(detr, "--grid", "50x100")
        self.assertEqual(len(data["rows"]), 2048)
        out = self.folder / "p.svg"
        self.error("plot", detr, "--kind", "rows", "-o", out, code=3, says="give --grid HxW")
        self.error("plot", detr, "--grid", "4x4", "--kind", "decay", "-o", out, code=2, says="--grid goes with")
        self.error("plot", "sinusoidal width=8", "--grid", "4x4", "-o", out, code=3, says="2 axes, the encoding has 1")
        for grid in ["0x5", "5", "x"]:
            self.error("plot", detr, "--grid", grid, "-o", out, code=2, says="--grid must be")
        rope = "rope head_dim=8 pairing=half_split"
        self.error("plot", rope, "--grid", "4x4", "-o", out, code=2, says="--grid goes with")
        self.assertFalse(out.exists())

    def test_pope(self):
        """Its phase in every kind; it is no rotation, so no bound of rotations is drawn."""
        pope = "pope head_dim=8 base=100"
        cosine, sine = self.plot(pope, "--kind", "rows", "--positions", "0:5")
        self.assertEqual(len(cosine[1]["rows"][0]), 8)
        self.assertAlmostEqual(sine[1]["rows"][3][2], math.sin(3 * 100 ** (-2 / 8)), delta=1e-4)
        (_, data), = self.plot(pope, "--kind", "wavelengths")
        self.assertAlmostEqual(data["series"][0]["y"][7], 2 * math.pi * 100 ** (7 / 8), delta=1e-9)
        (_, data), = self.plot(pope, "--kind", "decay", "--context", "64")
        self.assertEqual(len(data["series"]), 3)
        mean = sum(math.cos(100 ** (-i / 8)) for i in range(8)) / 8
        self.assertAlmostEqual(data["series"][0]["y"][0], mean, delta=1e-12)
        self.plot(pope, "--kind", "error")
        self.error("plot", pope, "--kind", "scaling", "-o", self.folder / "p.svg", code=3, says="no scaling")

    def test_what_has_no_picture_says_where_it_acts(self):
        out = self.folder / "p.svg"
        for scheme, says in [("alibi", ["alibi acts in the score", "plot --kind bias"]),
                             ("t5 bidirectional=true", ["t5 acts in the score", "plot --kind bias"]),
                             ("kerple kernel=log", ["kerple acts in the score", "table --what bias"]),
                             ("shaw left=4 right=4", ["shaw acts in the score", "plot --kind terms"]),
                             ("convolutional width=8", ["convolutional", "weights of its own"]),
                             ("distance_offset width=8", ["distance_offset", "more than a position"])]:
            for kind in ["rows", "wavelengths", "scaling"] if "acts in the score" in says[0] else ["rows", "decay", "wavelengths"]:
                self.error("plot", scheme, "--kind", kind, "-o", out, code=3, says=says)
            self.error("table", scheme, "--positions", "0:2", "-o", self.folder / "o.npy", code=3, says=says)
        q = self.write_npy("q.npy", [0.0] * 8, (1, 1, 8))
        self.error("apply", "sinusoidal width=8", "--q", q, "--positions", "0", "-o", self.folder / "o.safetensors", code=3,
                   says=["acts at the input", "--what rows"])
        self.assertFalse(out.exists())

    def test_bias_by_distance(self):
        """ALiBi's slopes of 8 heads are 1/2 .. 1/256 (the paper's section 3); T5's buckets as mesh-tensorflow has them."""
        (panel, data), = self.plot("alibi", "--heads", "8", "--positions=-2:4")
        self.assertEqual(self.labels(panel)[0], "distance, query - key [tokens]")
        self.assertEqual([s["name"] for s in data["series"]][::6], ["head 0", "head 7"])
        self.assertEqual(data["series"][0]["y"], [-1, -0.5, 0, -0.5, -1, -1.5])
        self.assertEqual(data["series"][-1]["y"], [d / 256 for d in [-2, -1, 0, -1, -2, -3]])
        self.assertEqual(data["note"], "7 of 8 heads are drawn")
        out = self.folder / "b.npy"
        self.posenc("table", "alibi", "--what", "bias", "--heads", "2", "--positions", "0:3", "-o", out)
        self.assertEqual(read_npy(out.read_bytes()), ((2, 3), (0, -0.0625, -0.125, 0, -0.00390625, -0.0078125)))
        table = [float(100 * b + h) for b in range(8) for h in range(2)]
        header = json.dumps({"table": {"dtype": "F64", "shape": [8, 2], "data_offsets": [0, 128]}}).encode()
        arrays = self.folder / "t5.safetensors"
        arrays.write_bytes(struct.pack("<Q", len(header)) + header + struct.pack("<16d", *table))
        self.posenc("table", "t5 bidirectional=true num_buckets=8 max_distance=16", "--arrays", arrays, "--what", "bias", "--heads", "2",
                    "--positions=-20,-2,-1,0,1,2,20", "-o", out)
        self.assertEqual(read_npy(out.read_bytes())[1][:7], (700, 600, 500, 0, 100, 200, 300))
        (_, data), = self.plot("t5 bidirectional=true", "--start", "1", "--heads", "2")
        self.assertEqual(len(data["series"]), 2)
        self.error("table", "alibi", "--what", "bias", "--positions", "0:3", "-o", out, code=2, says="--heads")
        self.error("plot", SCHEME, "--kind", "bias", "--heads", "2", "-o", self.folder / "p.svg", code=3, says="adds nothing to the score")
        self.error("plot", "kerple", "--heads", "2", "-o", self.folder / "p.svg", code=3, says="learns")

    def test_sinusoids(self):
        (panel, data), = self.plot("sinusoidal width=4", "--kind", "rows", "--positions", "0:2")
        self.assertEqual(self.labels(panel)[0], "channel [index]")
        for got, want in zip(data["rows"][1], [math.sin(1), math.cos(1), math.sin(0.01), math.cos(0.01)]):
            self.assertAlmostEqual(got, want, delta=1e-4)
        (panel, data), = self.plot("sinusoidal width=512", "--kind", "decay", "--context", "10000")
        exact, law = data["series"]
        self.assertAlmostEqual(exact["y"][0], 0.97306, delta=5e-6)
        self.assertAlmostEqual(exact["y"][-1], -0.06442, delta=5e-6)
        self.assertAlmostEqual(law["y"][law["x"].index(100)], 0.4373, delta=5e-5)
        (panel, data), = self.plot("sinusoidal width=512", "--kind", "wavelengths")
        self.assertAlmostEqual(data["series"][0]["y"][-1], 60611.5, delta=0.05)
        out = self.folder / "p.svg"
        self.error("plot", "sinusoidal width=512", "--kind", "error", "-o", out, code=2, says="sinusoid")

    def test_html_is_self_contained(self):
        path = self.folder / "p.html"
        self.posenc("plot", YARN, "--kind", "scaling", "-o", path)
        text = path.read_text()
        self.assertEqual(text.count("<figure>"), 2)
        for outside in ["src=", "@import", "<link"]:
            self.assertNotIn(outside, text)
        self.assertNotIn("https://", text)

    def test_refusals(self):
        out = self.folder / "p.svg"
        self.error("plot", YARN, "--kind", "pie", "-o", out, code=2, says="wavelengths")
        self.error("plot", YARN, "-o", self.folder / "p.gif", code=2, says=".svg")
        self.error("plot", SCHEME, "--kind", "scaling", "-o", out, code=3, says="no scaling")
        self.error("plot", SCHEME, "--kind", "rows", "--positions", "0:99999", "-o", out, code=2, says="2048")
        self.assertFalse(out.exists())


main()
