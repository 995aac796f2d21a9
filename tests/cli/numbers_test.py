# SPDX-License-Identifier: Apache-2.0
"""table and apply: forms of INTERFACES section 3, values against Python's own doubles."""
from fractions import Fraction

from command_line import *


class Table(Case):
    def table(self, *arguments, suffix="npy"):
        path = self.folder / f"out.{suffix}"
        self.posenc("table", *arguments, "-o", path)
        return path

    def test_inv_freq(self):
        shape, values = read_npy(self.table(SCHEME, "--what", "inv_freq").read_bytes())
        self.assertEqual(shape, (4,))
        for i, v in enumerate(values):
            self.assertAlmostEqual(v, 10000 ** (-2 * i / 8), delta=1e-15)

    def test_cos_in_every_layout(self):
        angles = [[p * 10000 ** (-2 * i / 8) for i in range(4)] for p in range(-2, 3)]
        order = {"half": [0, 1, 2, 3], "duplicated": [0, 1, 2, 3] * 2, "repeated": [0, 0, 1, 1, 2, 2, 3, 3]}
        for layout, pairs in order.items():
            path = self.table(SCHEME, "--positions=-2:3", "--what", "cos", "--layout", layout)
            shape, values = read_npy(path.read_bytes())
            self.assertEqual(shape, (5, len(pairs)))
            want = [math.cos(row[i]) for row in angles for i in pairs]
            for got, expected in zip(values, want):
                self.assertAlmostEqual(got, expected, delta=1e-15)

    def test_pairs_layout(self):
        path = self.table(SCHEME, "--positions", "1,3", "--what", "cos_sin", "--layout", "pairs")
        shape, values = read_npy(path.read_bytes())
        self.assertEqual(shape, (2, 8))
        self.assertAlmostEqual(values[0], math.cos(1), delta=1e-15)
        self.assertAlmostEqual(values[1], math.sin(1), delta=1e-15)
        self.assertAlmostEqual(values[8], math.cos(3), delta=1e-15)

    def test_turns_are_128_bit_fractions(self):
        shape, values = read_npy(self.table(SCHEME, "--what", "turns").read_bytes())
        self.assertEqual(shape, (4, 16))
        fraction = sum(b << (8 * i) for i, b in enumerate(values[:16])) / 2 ** 128
        self.assertAlmostEqual(fraction, 1 / (2 * math.pi), delta=1e-16)

    def test_angles_and_dtypes_and_formats(self):
        _, values = read_npy(self.table(SCHEME, "--positions", "0:9:4", "--what", "angles").read_bytes())
        self.assertEqual(list(values[0::4]), [0.0, 4.0, 8.0])
        for dtype, code in [("f32", "F32"), ("f16", "F16"), ("bf16", "BF16"), ("f64", "F64")]:
            path = self.table(SCHEME, "--positions", "0:4", "--what", "cos", "--dtype", dtype, suffix="safetensors")
            self.assertEqual(read_safetensors(path)["cos"][0], code)
        text = self.table(SCHEME, "--positions", "0:2", "--what", "cos", suffix="csv").read_text()
        self.assertEqual(text.splitlines()[:2], ["cos_0,cos_1,cos_2,cos_3", "1,1,1,1"])
        text = self.posenc("table", SCHEME, "--what", "inv_freq", "-o", "-", "--format", "csv").decode()
        self.assertEqual(text.splitlines()[:2], ["inv_freq", "1"])
        data = self.posenc("table", SCHEME, "--positions", "0:2", "--what", "cos", "-o", "-", "--format", "npy")
        self.assertEqual(read_npy(data)[0], (2, 4))

    def test_a_table_without_more_prints_the_frequencies(self):
        lines = self.posenc("table", SCHEME).decode().splitlines()
        self.assertEqual(lines[0].split(), ["pair", "frequency", "[rad/position]", "wavelength", "[positions]"])
        self.assertEqual([line.split() for line in lines[1:3]], [["0", "1", "6.28319"], ["1", "0.1", "62.8319"]])
        report = json.loads(self.posenc("table", SCHEME, "--json"))
        self.assertEqual((report["shape"], report["inv_freq"][:2]), ([4], [1, 0.1]))
        lines = self.posenc("table", "rope head_dim=8 pairing=half_split + frequencies values=[1,0,0,0]").decode().splitlines()
        self.assertEqual(lines[2].split(), ["1", "0", "never", "rotates"])
        self.error("table", SCHEME, "--layout", "pairs", code=2, says="--positions")
        self.error("table", "sinusoidal width=8", code=2, says="no frequencies to print")

    def test_rows_of_schemes_at_the_input(self):
        shape, values = read_npy(self.table("sinusoidal width=4", "--positions", "0:2").read_bytes())
        self.assertEqual(shape, (2, 4))
        want = [0, 1, 0, 1, math.sin(1), math.cos(1), math.sin(0.01), math.cos(0.01)]
        for got, expected in zip(values, want):
            self.assertAlmostEqual(got, expected, delta=1e-15)
        path = self.table("sinusoidal width=6 compose=one_plus", "--positions", "0,7", "--dtype", "bf16", suffix="safetensors")
        self.assertEqual(read_safetensors(path)["rows"][0], "BF16")
        out = self.folder / "x.npy"
        at = ["--positions", "0:2", "-o", out]
        self.error("table", "sinusoidal width=4", *at, "--what", "cos", code=2, says="--what rows")
        self.error("table", "sinusoidal width=4", *at, "--layout", "pairs", code=2, says=["--layout", "--what rows"])
        self.error("table", "learned width=4 rows=8", *at, code=3, says="learned learns its")
        self.error("table", "sinusoidal width=7", *at, code=3, says="width must be even")
        self.assertFalse(out.exists())

    def test_a_scheme_may_be_longer_than_the_name_of_a_file(self):
        """A whole list of divisors, up to 100 thousand characters: Linux ends names at 255 bytes, paths at 4096."""
        for pairs in [32, 400, 5000]:
            divisors = [1 + i / 7 for i in range(pairs)]
            scheme = f"rope head_dim={2 * pairs} pairing=half_split + divisors values=[{','.join(map(repr, divisors))}]"
            _, values = read_npy(self.table(scheme, "--what", "inv_freq").read_bytes())
            for i in [0, 1, pairs - 1]:
                want = 10000 ** (-i / pairs) / divisors[i]
                self.assertAlmostEqual(values[i], want, delta=1e-14 * want)
        out = self.folder / "o.svg"
        self.posenc("plot", scheme, "-o", out)
        long = "rope head_dim=8 pairing=half_split divisors=" + "x" * 5000
        self.error("table", long, "--positions", "0:2", "-o", out.with_suffix(".npy"), code=3, says="SCHEME")
        self.error("explain", "a/" * 300 + "config.json", code=3, says="no such file")

    def test_arrays_that_the_scheme_does_not_take(self):
        lists = self.folder / "lists.safetensors"
        self.posenc("table", SCHEME, "--what", "inv_freq", "-o", lists)
        self.table(SCHEME + " + divisors values=@inv_freq", "--what", "inv_freq", "--arrays", lists)
        self.error("table", SCHEME, "--what", "inv_freq", "--arrays", lists, "-o", self.folder / "o.npy", code=2,
                   says=["--arrays", "@"])

    def test_angles_are_products_rounded_once(self):
        """Whole positions of all 64 bits and fractions against rational arithmetic."""
        scheme = "rope head_dim=64 pairing=half_split base=500000"
        _, frequencies = read_npy(self.table(scheme, "--what", "inv_freq").read_bytes())
        whole = [2 ** 53 + 1, -2 ** 53 - 1, 2 ** 62 + 2 ** 8 + 1, 2 ** 63 - 1, -2 ** 63, 137438953472, 0, -7, 9007199254740995]
        text = ",".join(map(str, whole))
        _, got = read_npy(self.table(scheme, f"--positions={text}", "--what", "angles").read_bytes())
        self.assertEqual(list(got), [float(Fraction(p) * Fraction(f)) for p in whole for f in frequencies])
        part = [0.1, -2.5, 1e15 + 0.125, 3e200]
        path = self.write_npy("p.npy", part, (4,), "<f8", "d")
        _, got = read_npy(self.table(scheme, "--positions", path, "--what", "angles").read_bytes())
        self.assertEqual(list(got), [p * f for p in part for f in frequencies])
        path = self.write_npy("p.npy", [1e300], (1,), "<f8", "d")
        self.error("table", "rope head_dim=4 pairing=half_split + linear factor=1e-20", "--positions", path, "--what",
                   "angles", "-o", self.folder / "o.npy", code=3, says="beyond")

    def test_options_that_a_kind_does_not_read(self):
        out = self.folder / "o.npy"
        positions, layout, precision = ["--positions", "0:4"], ["--layout", "half"], ["--precision", "exact"]
        for what, unread in [("inv_freq", [layout, precision]), ("turns", [layout, precision]), ("angles", [layout, precision])]:
            read = positions if what == "angles" else []
            for option in unread:
                self.error("table", SCHEME, "--what", what, *read, *option, "-o", out, code=2, says=[option[0], what])
        for what, dtype in [("inv_freq", "f16"), ("inv_freq", "bf16"), ("turns", "f64"), ("angles", "f32")]:
            read = positions if what == "angles" else []
            self.error("table", SCHEME, "--what", what, *read, "--dtype", dtype, "-o", out, code=2, says=["--dtype", what])
        self.error("table", SCHEME, "--what", "angles", "-o", out, code=2, says="--positions")
        self.error("table", SCHEME, "--what", "rows", *positions, "-o", out, code=2, says="rows")
        self.error("table", SCHEME, "--what", "all", *positions, "-o", out, code=2, says=["--what", "all"])
        self.error("table", "sinusoidal width=8", "--context", "9", *positions, "-o", out, code=2, says="--context")
        self.assertFalse(out.exists())

    def test_what_has_no_positions_takes_them(self):
        """The form of every table has --positions; frequencies are the same at all of them, and say so."""
        for what in ["inv_freq", "turns"]:
            without = self.table(SCHEME, "--what", what).read_bytes()
            self.assertEqual(self.table(SCHEME, "--what", what, "--positions", "7").read_bytes(), without)
            self.assertIn(b"the same at every position", self.last.stderr)
            self.error("table", SCHEME, "--what", what, "--positions", "x", "-o", self.folder / "n.npy", code=2, says="x")

    def test_a_layer_that_turns_nothing(self):
        """Llama-4 keeps q and k of every fourth layer as they are, and multiplies q by a temperature of position."""
        model = SOURCE / "conformance" / "rotary_hugging_face" / "configs" / "llama_4_scout"
        q = self.write_npy("q.npy", [0.5 + 0.25 * i for i in range(2 * 128)], (2, 1, 128))
        out = self.folder / "o.npy"
        words = ["apply", model, "--layer", "3", "--q", q, "--positions", "24574:24576", "-o", out]
        self.posenc(*words)
        self.assertIn(b"layer 3 rotates nothing", self.last.stderr)
        self.assertEqual(read_npy(out.read_bytes()), read_npy(q.read_bytes()))
        self.posenc(*words, "--temperature")
        _, got = read_npy(out.read_bytes())
        _, was = read_npy(q.read_bytes())
        beta = 0.1  # 1 + beta ln(1 + floor((p + 1) / 8192)): 1 + 0.1 ln 3 and 1 + 0.1 ln 4
        for g, w, f in zip(got, was, [1 + beta * math.log(3)] * 128 + [1 + beta * math.log(4)] * 128):
            self.assertAlmostEqual(g, w * f, delta=1e-6 * abs(w))
        self.error("apply", model, "--layer", "3", "--q", q, "--positions", "8190,24575", "--temperature", "-o", out, code=3,
                   says="the positions must count up by 1, which 24575 after 8190 does not")
        self.error("apply", model, "--layer", "0", "--q", q, "--positions", "0,1", "--temperature", "-o", out, code=3,
                   says="layer 0 has no query temperature")
        bert = SOURCE / "conformance" / "tiny_models" / "bert"
        self.error("apply", bert, "--q", q, "--positions", "0,1", "-o", out, code=3, says="no rotary encoding")

    def test_pope(self):
        """y = [mu cos phi | mu sin phi], mu = ln(1 + e^x), phi = p base^(-i/d), of keys + the bias clamped to [-2 pi, 0]."""
        x = [-3.0, 0.5, 2.0, -0.25, 1.0, 0.0, 4.0, -1.5]
        bias = [-0.5, 0.3, -7.0, -1.0]
        q = self.write_npy("q.npy", x, (2, 1, 4), "<f8", "d")
        b = self.write_npy("b.npy", bias, (1, 4), "<f8", "d")
        out = self.folder / "o.safetensors"
        scheme, words = "pope head_dim=4 base=100", ["--positions", "3,70000", "-o", out]
        self.posenc("apply", scheme, "--q", q, "--k", q, "--bias", b, *words)
        got = read_safetensors(out)
        for name, added in (("q", [0.0] * 4), ("k", [min(0.0, max(-2 * math.pi, v)) for v in bias])):
            _, shape, values = got[name]
            self.assertEqual(list(shape), [2, 1, 8])
            for t, p in enumerate((3, 70000)):
                for i in range(4):
                    mu, phi = math.log1p(math.exp(x[4 * t + i])), p * 100 ** (-i / 4) + added[i]
                    self.assertAlmostEqual(values[8 * t + i], mu * math.cos(phi), delta=1e-10)
                    self.assertAlmostEqual(values[8 * t + 4 + i], mu * math.sin(phi), delta=1e-10)
        self.posenc("apply", scheme + " + linear factor=2", "--q", q, *words)
        self.assertAlmostEqual(read_safetensors(out)["q"][2][0], math.log1p(math.exp(-3)) * math.cos(1.5), delta=1e-14)
        for more, code, says in ((["--mode", "inverse"], 2, "forward only"), (["--precision", "ggml"], 2, "exact only"),
                                 (["--temperature"], 2, "--temperature"), (["--bias", b], 2, "give --k"),
                                 (["--k", q, "--bias", q], 3, "bias")):
            self.error("apply", scheme, "--q", q, *more, *words, code=code, says=says)
        self.error("apply", SCHEME, "--k", self.write_npy("k.npy", [0.5] * 16, (2, 1, 8)), "--bias", b, *words, code=2,
                   says="--bias is an option of pope only")
        self.error("apply", scheme, "--k", q, "--bias", b, "--positions", "3,4", "-o", b, code=2, says="is the file that is read")

    def test_which_of_differing_layers(self):
        """Gemma-3's sliding layers turn by another base than the others: nobody chose, so it is said which was taken."""
        model = SOURCE / "examples" / "models" / "gemma-3-1b"
        for words in (["table", model, "--what", "inv_freq", "-o", self.folder / "f.npy"],
                      ["table", model],
                      ["plot", model, "--kind", "error", "-o", self.folder / "w.svg"]):
            self.posenc(*words)
            self.assertEqual(self.last.stderr.count(b"layers rotate differently; this is layer 0 (sliding), --layer 5"), 1)
            self.posenc(*words, "--layer", "5")
            self.assertNotIn(b"differently", self.last.stderr)
        # Llama-4's fourth layer turns nothing.
        model = SOURCE / "conformance" / "rotary_hugging_face" / "configs" / "llama_4_scout"
        q = self.write_npy("q.npy", [0.5] * 128, (1, 1, 128))
        self.posenc("apply", model, "--q", q, "--positions", "0", "-o", self.folder / "o.npy")
        self.assertEqual(self.last.stderr.count(b"this is layer 0 (chunked), --layer 3 another"), 1)

    def test_scalings_act_on_rows_at_the_input(self):
        path = self.folder / "rows.csv"
        self.posenc("table", "sinusoidal width=8 + linear factor=4", "--positions", "1", "-o", path)
        self.assertAlmostEqual(float(path.read_text().splitlines()[1].split(",")[0]), 0.24740395925452294, places=15)
        self.error("table", "learned width=2 rows=4 + linear factor=4", "--positions", "1", "--start", "1", "-o", path, code=3,
                   says="scalings act on frequencies")

    def test_an_input_is_never_overwritten(self):
        q = self.write_npy("q.npy", [0.5] * 8, (1, 1, 8))
        p = self.write_npy("p.npy", [3], (1,), "<i8", "q")
        packed = self.folder / "qk.safetensors"
        self.posenc("apply", SCHEME, "--q", q, "--k", q, "--positions", "3", "-o", packed)
        before = [f.read_bytes() for f in (q, p, packed)]
        for words in [["apply", SCHEME, "--q", q, "--positions", "3", "-o", q],
                      ["apply", SCHEME, "--q", q, "--positions", p, "-o", p],
                      ["apply", SCHEME, "--q", f"{packed}:q", "--positions", "3", "-o", packed],
                      ["table", SCHEME, "--positions", p, "-o", p]]:
            self.error(*words, code=2, says=["is the file that is read", words[-1].name])
        self.assertEqual([f.read_bytes() for f in (q, p, packed)], before)
        # Nor are a model's weights; another file beside them may be.
        model = self.folder / "model"
        model.mkdir()
        (model / "config.json").write_bytes((LLAMA / "config.json").read_bytes())
        weights = model / "model-00001-of-00002.safetensors"
        weights.write_bytes(packed.read_bytes())
        for subject in (model, model / "config.json"):
            self.error("table", subject, "--positions", "3", "-o", weights, code=2, says="holds weights of the model")
            self.posenc("table", subject, "--positions", "3", "-o", model / "rows.safetensors")
        self.assertEqual(weights.read_bytes(), packed.read_bytes())

    def test_far_positions_stay_exact(self):
        path = self.table(SCHEME, "--positions", "131071", "--what", "cos")
        _, values = read_npy(path.read_bytes())
        self.assertAlmostEqual(values[0], math.cos(131071), delta=1e-15)

    def test_refusals(self):
        out = self.folder / "o.npy"
        self.error("table", SCHEME, "--positions", "0:4", "--dtype", "bf16", "-o", out, code=2, says=["bf16", ".npy"])
        self.error("table", SCHEME, "--positions", "0:4", "-o", "-", code=2, says="--format")
        self.error("table", SCHEME, "-o", out, code=2, says="--positions")
        self.error("table", SCHEME, "--positions", "0:4:0", "-o", out, code=2, says="step")
        self.error("table", SCHEME, "--positions", "0:99999999999999", "-o", out, code=2, says="at most")
        self.error("table", SCHEME, "--positions", "a:b", "-o", out, code=2, says="positions")
        self.error("table", SCHEME, "--positions", "0:4", "--layout", "wide", "-o", out, code=2, says="half")
        self.error("table", "rope head_dim=7 pairing=half_split", "--positions", "0:4", "-o", out, code=3, says="7")
        self.error("table", "rope head_dim=8", "--positions", "0:4", "-o", out, code=3, says="pairing")
        self.error("table", "rope head_dim=8 pairing=half_split base=nan", "--positions", "0:4", "-o", out, code=3, says="base")
        self.error("table", "rope head_dim=8 pairing=half_split base=1e308", "--positions", "0:4", "-o", out, code=3,
                   says=["base", "1e-300", "1e+300", "1e308"])
        self.error("table", "rope head_dim=8 pairing=half_split base=0", "--positions", "0:4", "-o", out, code=3,
                   says="base must be finite and at least 1e-300")
        self.error("table", "rpoe head_dim=8", "--positions", "0:4", "-o", out, code=3, says=["rpoe", "rope"])
        self.assertFalse(out.exists())
        self.error("table", SCHEME, "--positions", "0:4", "-o", self.folder / "no" / "o.npy", code=3, says="no")


class Apply(Case):
    def test_e1_of_the_reference(self):
        # d = 8, base 10000, x = [1..8], position 3; half-split and interleaved.
        q = self.write_npy("q.npy", [float(i) for i in range(1, 9)], (1, 1, 8), "<f8", "d")
        want = {"half_split": [-1.69559253689978, 0.137551738283174, 2.78868159982949, 3.97598203601348,
                               -4.80884247494236, 6.32305934807632, 7.0868367368504, 8.01196398202701],
                "interleaved": [-1.27223251272018, -1.83886498514102, 1.68392864073146, 4.70790657648644,
                                4.81777716752996, 6.1472777035064, 6.97596853602361, 8.02096396852701]}
        for pairing, values in want.items():
            out = self.folder / "o.safetensors"
            self.posenc("apply", f"rope head_dim=8 pairing={pairing}", "--q", q, "--positions", "3", "-o", out)
            dtype, shape, got = read_safetensors(out)["q"]
            self.assertEqual((dtype, shape), ("F64", [1, 1, 8]))
            for a, b in zip(got, values):
                self.assertAlmostEqual(a, b, delta=1e-12)

    def test_inverse_undoes_forward(self):
        values = [((i * 37) % 19) / 7 - 1 for i in range(2 * 3 * 8)]
        q = self.write_npy("q.npy", values, (2, 3, 8), "<f8", "d")
        turned, back = self.folder / "t.safetensors", self.folder / "b.safetensors"
        scheme = SCHEME + " + yarn factor=4 original_context=256"
        self.posenc("apply", scheme, "--q", q, "--positions", "5,9", "-o", turned)
        self.posenc("apply", scheme, "--q", turned, "--positions", "5,9", "--sense", "inverse", "-o", back)
        for a, b in zip(read_safetensors(back)["q"][2], values):
            self.assertAlmostEqual(a, b, delta=1e-14)

    def test_refusals(self):
        q = self.write_npy("q.npy", [0.0] * 16, (1, 1, 2, 8))
        out = self.folder / "o.safetensors"
        self.error("apply", SCHEME, "--q", q, "--positions", "0", "-o", out, code=2, says="--order")
        self.error("apply", SCHEME, "--q", q, "--order", "thd", "--positions", "0", "-o", out, code=2, says="order")
        self.error("apply", SCHEME, "--positions", "0", "-o", out, code=2, says="--q")
        self.error("apply", SCHEME, "--q", q, "--order", "bthd", "--positions", "0:5", "-o", out, code=3, says="5")
        self.error("apply", SCHEME, "--q", self.folder / "none.npy", "--positions", "0", "-o", out, code=3, says="none.npy")
        whole = self.write_npy("i.npy", [0] * 8, (1, 1, 8), "<i8", "q")
        self.error("apply", SCHEME, "--q", whole, "--positions", "0", "-o", out, code=3, says="i64")
        heads = self.write_npy("h.npy", [0.0] * 8, (1, 1, 8))
        self.error("apply", SCHEME, "--q", heads, "--k", heads, "--positions", "0", "-o", self.folder / "o.npy", code=2,
                   says="two arrays")
        self.error("apply", SCHEME, "--q", self.folder / "none.npy", "--positions", "0", "-o", self.folder / "o.txt", code=2,
                   says="o.txt")
        wide = self.write_npy("w.npy", [0.0] * 10, (1, 1, 10))
        self.error("apply", SCHEME, "--q", wide, "--positions", "0", "-o", out, code=3, says="10")
        self.error("apply", SCHEME, "--q", wide, "--positions", "0", "--temperature", "-o", out, code=3, says="10")
        cut = self.folder / "cut.npy"
        cut.write_bytes(q.read_bytes()[:-3])
        self.error("apply", SCHEME, "--q", cut, "--order", "bthd", "--positions", "0", "-o", out, code=3, says="cut.npy")
        self.assertFalse(out.exists())

    def test_no_tokens_is_nothing_to_do(self):
        q = self.write_npy("q.npy", [], (0, 2, 8))
        out = self.folder / "o.safetensors"
        self.posenc("apply", SCHEME, "--q", q, "--positions", "0:0", "-o", out)
        self.assertEqual(read_safetensors(out)["q"][1], [0, 2, 8])


main()
