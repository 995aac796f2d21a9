# SPDX-License-Identifier: Apache-2.0
"""attend and bias: layers of transformers' models from their own arrays, the plain softmax of Python's doubles, refusals."""
from command_line import *

SUITE = SOURCE / "conformance" / "model_attention"
ARRAYS = SUITE / "arrays.safetensors"
T5 = "t5 bidirectional=true num_buckets=8 max_distance=12"


def stored(path, name):
    """An array of numbers of a .safetensors file, flat."""
    raw = path.read_bytes()
    size = struct.unpack("<Q", raw[:8])[0]
    entry = json.loads(raw[8:8 + size])[name]
    form, width = {"F64": ("d", 8), "F32": ("f", 4), "U8": ("B", 1), "I64": ("q", 8)}[entry["dtype"]]
    begin, end = (8 + size + x for x in entry["data_offsets"])
    return struct.unpack(f"<{(end - begin) // width}{form}", raw[begin:end])


def shape_of(path, name):
    raw = path.read_bytes()
    return json.loads(raw[8:8 + struct.unpack("<Q", raw[:8])[0]])[name]["shape"]


class Attend(Case):
    def attend(self, *arguments):
        path = self.folder / "out.safetensors"
        self.posenc("attend", *arguments, "-o", path)
        return path

    def tensors(self, case, *names):
        return [word for n in names for word in (f"--{n}", f"{ARRAYS}:{case}/{n}")]

    def test_layers_of_models(self):
        """ALiBi, values that rotate, a norm and chunks behind the rotation, a factor on q, a scale and a soft cap; what
        the layer learns from the model's weights: T5's table, sinks, DeBERTa's projections and norm."""
        for case, model, positions, learned in (
                ("bloom_layer0", "bloom", False, {}), ("roformer_value_layer0", "roformer_value", False, {}),
                ("llama4_layer0", "llama4", True, {}), ("llama4_layer1", "llama4", True, {}),
                ("gemma2_layer0", "gemma2", True, {}), ("gpt_oss_layer0", "gpt_oss", True, {}),
                ("t5_decoder_layer1", "t5", False, {"table": "table"}),
                ("deberta_v2_layer1", "deberta_v2", False, {"e_rel": "relative_embedding"})):
            words = self.tensors(case, "q", "k", "v") + ["--order", "bhtd", "--mask", f"{ARRAYS}:{case}/visible"]
            if positions:
                words += ["--positions", self.positions(case)]
            path = self.attend(SUITE / "models" / model, "--layer", case[-1], *words, "--gradient",
                               f"{ARRAYS}:{case}/grad_out")
            batch, heads, tokens, dim = shape_of(ARRAYS, case + "/out")
            hidden = case.startswith("t5")
            visible = [1] * batch * tokens if hidden else stored(ARRAYS, case + "/query_visible")
            for name in ("out", "grad_q"):
                got, want = stored(path, name), stored(ARRAYS, f"{case}/{name}")
                for i, (g, w) in enumerate(zip(got, want)):
                    if visible[i // (heads * tokens * dim) * tokens + i // dim % tokens]:
                        self.assertAlmostEqual(g, w, delta=1e-11, msg=f"{case} {name} {i}")
                self.assertEqual(len(got), len(want))
            for ours, theirs in learned.items():
                for g, w in zip(stored(path, "grad_" + ours), stored(ARRAYS, f"{case}/grad_{theirs}")):
                    self.assertAlmostEqual(g, w, delta=1e-11, msg=f"{case} {ours}")

    def positions(self, case):
        values = stored(ARRAYS, case + "/positions")
        return self.write_npy("p.npy", list(values), (2, 24), "<i8", "q")

    def plain(self):
        numbers = [math.sin(3 * i + 1) for i in range(3 * 2 * 2)]
        return [self.write_npy(f"{n}.npy", [x * f for x in numbers], (3, 2, 2), "<f8", "d")
                for n, f in (("q", 1), ("k", 2), ("v", 3))], numbers

    def test_explain_names_the_engine_and_the_terms(self):
        (q, k, v), _ = self.plain()
        call = ["alibi", "--q", q, "--k", k, "--v", v, "--explain"]
        told = json.loads(self.posenc("attend", *call, "--json"))
        self.assertEqual((told["engine"], told["others"]), ("exact", [{"engine": "fast", "why_not": "q, k or v is f64"}]))
        self.assertEqual(told["terms"], [{"name": "alibi", "class": "linear"}])
        self.assertGreaterEqual(told["workspace_bytes"], 3 * 2 * 2 * 8)
        text = self.posenc("attend", *call)
        self.assertIn(b"term alibi: linear", text)
        self.assertNotIn(b"backward not", text)  # for the same reason
        narrow = [self.write_npy(f"{n}32.npy", [0.5] * 12, (3, 2, 2), "<f4", "f") for n in "qkv"]
        call = ["fire width=200", "--start", "1", "--q", narrow[0], "--k", narrow[1], "--v", narrow[2], "--explain"]
        told = json.loads(self.posenc("attend", *call, "--json"))
        self.assertEqual((told["engine"], told["others"], told["backward_engine"]), ("fast", [], "exact"))
        self.assertIn("more than 128 units", told["backward_others"][0]["why_not"])
        self.assertIn(b"backward not fast: it computes no gradients of a function of the distance", self.posenc("attend", *call))
        call = ["alibi", "--q", q, "--k", k, "--v", v, "--explain"]
        self.error("attend", *call, "-o", "out.safetensors", code=2, says="--explain")
        self.error("attend", *call[:-1], code=2, says="--output is required")

    def test_against_a_softmax(self):
        (q, k, v), x = self.plain()
        path = self.attend("alibi", "--q", q, "--k", k, "--v", v, "--mask", "causal", "--scores", "--terms",
                           "--probabilities", "--locality", "--scale", "0.5")
        out, content, term = (stored(path, n) for n in ("out", "content", "position_position"))
        mass = stored(path, "locality")
        distances = stored(path, "locality_distance")
        self.assertEqual(distances, (-2, -1, 0, 1, 2))
        for h, slope in enumerate((0.0625, 0.00390625)):
            seen = [0.0] * 5
            for i in range(3):
                score = [0.5 * 2 * sum(x[(i * 2 + h) * 2 + c] * x[(j * 2 + h) * 2 + c] for c in (0, 1)) for j in range(i + 1)]
                weights = [math.exp(s - slope * (i - j)) for j, s in enumerate(score)]
                for j, s in enumerate(score):
                    at = (h * 3 + i) * 3 + j
                    self.assertAlmostEqual(content[at], s, delta=1e-14)
                    self.assertAlmostEqual(term[at], -slope * (i - j), delta=1e-16)
                    seen[i - j + 2] += weights[j] / sum(weights) / 3
                for c in (0, 1):
                    want = sum(w * 3 * x[(j * 2 + h) * 2 + c] for j, w in enumerate(weights)) / sum(weights)
                    self.assertAlmostEqual(out[(i * 2 + h) * 2 + c], want, delta=1e-14)
            for got, want in zip(mass[h * 5:h * 5 + 5], seen):
                self.assertAlmostEqual(got, want, delta=1e-14)

    def ministral(self):
        path = self.folder / "ministral"
        path.mkdir()
        (path / "config.json").write_text(json.dumps({
            "model_type": "ministral3", "hidden_size": 8, "num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": 8,
            "num_hidden_layers": 1, "max_position_embeddings": 64, "sliding_window": None, "rope_parameters": {
                "rope_type": "default", "rope_theta": 10000.0, "llama_4_scaling_beta": 0.25,
                "original_max_position_embeddings": 6}}))
        return path

    def test_a_temperature_by_position(self):
        """q = k = e0 at positions 6 and 7 of one row: 8^-1/2 (1 + 0.25 ln 2), as modeling_ministral3 has it by position_ids."""
        unit = [1.0] + [0.0] * 7
        x = self.write_npy("e.npy", unit * 2, (2, 1, 8), "<f8", "d")
        path = self.attend(self.ministral(), "--q", x, "--k", x, "--v", x, "--positions", "6,7", "--scores")
        scores = stored(path, "content")
        self.assertAlmostEqual(scores[0], 0.41481952, delta=5e-9)
        self.assertAlmostEqual(scores[3], 0.41481952, delta=5e-9)
        plain = self.attend(self.folder / "ministral", "--q", x, "--k", x, "--v", x, "--positions", "4,5", "--scores")
        self.assertAlmostEqual(stored(plain, "content")[3], 0.35355339, delta=5e-9)

    def test_apply_and_attend_have_one_temperature(self):
        """Of Ministral by position, of Llama 4 by order: the scores of attend are products of what apply gives."""
        llama = SOURCE / "conformance" / "model_attention" / "models" / "llama4"
        for model, layer, dim, positions in ((self.ministral(), "0", 8, "5,13,6"), (llama, "1", None, "11:14")):
            dim = dim or json.loads((llama / "config.json").read_text())["head_dim"]
            x = [math.sin(1.3 * i + 1) for i in range(3 * dim)]
            q = self.write_npy("q.npy", x, (3, 1, dim), "<f8", "d")
            words = ["--layer", layer, "--positions", positions]
            out = self.folder / "turned.safetensors"
            self.posenc("apply", model, "--q", q, "--k", q, *words, "--temperature", "-o", out)
            rows = [[stored(out, n)[i * dim:(i + 1) * dim] for i in range(3)] for n in ("q", "k")]
            got = stored(self.attend(model, "--q", q, "--k", q, "--v", q, *words, "--offset", positions[:2].strip(","),
                                     "--key-positions", positions, "--scores"), "content")
            for i in range(3):
                for j in range(i + 1):
                    if got[3 * i + j]:
                        want = sum(a * b for a, b in zip(rows[0][i], rows[1][j])) / math.sqrt(dim)
                        self.assertAlmostEqual(got[3 * i + j], want, delta=1e-12)

    def test_a_scale_of_zero_leaves_the_terms(self):
        """Without a term weights are uniform; 0 is not read as "not given"."""
        (q, k, v), x = self.plain()
        words = ["nope", "--q", q, "--k", k, "--v", v, "--mask", "causal"]
        got, usual = (stored(self.attend(*words, *more), "out") for more in (["--scale", "0"], []))
        for i in range(3):
            for n in range(4):
                want = sum(3 * x[j * 4 + n] for j in range(i + 1)) / (i + 1)
                self.assertAlmostEqual(got[i * 4 + n], want, delta=1e-15)
        self.assertNotEqual(got, usual)

    def test_far_positions_need_little_memory(self):
        """A table of KERPLE over all distances up to two billion took 16 GB a head and was refused."""
        (q, k, v), x = self.plain()
        path = self.attend("kerple kernel=log", "--q", q, "--k", k, "--v", v, "--start", "1", "--key-positions=-2000000000,0,1")
        self.assertTrue(all(math.isfinite(y) for y in stored(path, "out")))

    def test_masks_by_token_type(self):
        """Which tokens of Gemma 3 and PaliGemma see each other: transformers 5.23, by gradients (tests/model/masks.json)."""
        cases = [c for c in json.loads((SOURCE / "tests/model/masks.json").read_text())["cases"]
                 if c["config"]["model_type"] in ("gemma3", "paligemma", "molmo2") and c["types"]]
        self.assertEqual(len(cases), 3)
        q = self.write_npy("q.npy", [0.1] * 9 * 2 * 16, (9, 2, 16), "<f8", "d")
        model = self.folder / "config.json"
        for c in cases:
            model.write_text(json.dumps(c["config"]))
            types = self.write_npy("types.npy", c["types"], (9,), "<i8", "q")
            for layer, rows in enumerate(c["parts"][""]):
                call = [model, "--layer", layer, "--q", q, "--k", q, "--v", q]
                weights = stored(self.attend(*call, "--token-types", types, "--probabilities"), "probabilities")
                for i, row in enumerate(rows):
                    seen = "".join("1" if w > 0 else "." for w in weights[i * 9:i * 9 + 9])
                    self.assertEqual(seen, row, (c["config"]["model_type"], layer, i))
                self.refused(call, 3, ["see each other in this layer", "--token-types"])
                self.attend(*call, "--mask", "causal")  # a mask of one's own
        two = self.write_npy("two.npy", c["types"] * 2, (2, 9), "<i8", "q")
        self.refused([*call, "--token-types", two], 3, "must be [9] or [1, 9], a type for each key, got [2, 9]")
        self.refused([*call, "--token-types", types, "--mask", "causal"], 2, "omit --mask")
        self.refused(["alibi", *call[3:], "--token-types", types], 2, "not with a SCHEME")
        model.write_text(json.dumps({**c["config"]["text_config"], "model_type": "molmo2_text"}))
        self.refused([*call, "--token-types", types], 2, "does not mask by token type")

    def refused(self, call, code, says):
        self.error("attend", *call, "-o", self.folder / "out.safetensors", code=code, says=says)

    def test_locality_is_a_mean_of_queries_that_see_a_key(self):
        (q, k, v), _ = self.plain()
        path = self.attend("alibi", "--q", q, "--k", k, "--v", v, "--mask", "causal", "--offset", "-1", "--locality")
        mass = stored(path, "locality")
        for h in (0, 1):  # the first query sees none
            self.assertAlmostEqual(sum(mass[h * len(mass) // 2:(h + 1) * len(mass) // 2]), 1, delta=1e-14)

    def whole(self, name, values, shape=None):
        return self.write_npy(name, values, shape or (len(values),), "<i8", "q")

    def test_packed_sequences_stand_at_their_own_ends(self):
        """Queries 1 and 2 of two sequences with 2 and 3 keys, against each sequence by itself; ALiBi by distance."""
        x = [math.sin(n) for n in range(40)]
        q, k = self.write_npy("q3.npy", x[:6], (3, 1, 2), "<f8", "d"), self.write_npy("k5.npy", x[6:16], (5, 1, 2), "<f8", "d")
        cq, ck = self.whole("cq.npy", [0, 1, 3]), self.whole("ck.npy", [0, 2, 5])
        packed = ["--q", q, "--k", k, "--v", k, "--cu-seqlens", cq, "--key-cu-seqlens", ck, "--mask", "causal"]
        parts = [(self.write_npy(f"q{s}.npy", x[2 * a:2 * b], (b - a, 1, 2), "<f8", "d"),
                  self.write_npy(f"k{s}.npy", x[6 + 2 * c:6 + 2 * d], (d - c, 1, 2), "<f8", "d"))
                 for s, (a, b, c, d) in enumerate(((0, 1, 0, 2), (1, 3, 2, 5)))]
        for more in ([], ["--offset", "end"], ["--offset", "start"], ["--mask", "window=1,0"], ["--offset", "start", "--mask", "window=0,0"]):
            got = stored(self.attend("alibi", *packed, *more), "out")
            want = [y for a, b in parts for y in stored(self.attend("alibi", "--q", a, "--k", b, "--v", b, "--mask", "causal", *more), "out")]
            for g, w in zip(got, want):
                self.assertAlmostEqual(g, w, delta=1e-15, msg=str(more))
        one = stored(self.attend("alibi", *packed, "--offset", "-1"), "out")  # one place before the end of each
        self.assertAlmostEqual(one[0], x[6], delta=1e-15)  # the first query sees the first key alone

    def test_orders_chunks_and_pages(self):
        (q, k, v), x = self.plain()
        want = stored(self.attend("alibi", "--q", q, "--k", k, "--v", v, "--mask", "causal"), "out")
        order = [2, 0, 1]
        mixed = [self.write_npy(f"mixed{f}.npy", [f * x[t * 4 + n] for t in order for n in range(4)], (3, 2, 2), "<f8", "d")
                 for f in (1, 2, 3)]
        words = ["--q", mixed[0], "--k", mixed[1], "--v", mixed[2], "--mask", "causal"]
        o = self.whole("o.npy", order)
        got = stored(self.attend("alibi", *words, "--query-order", o, "--key-order", o), "out")
        for i, t in enumerate(order):
            for n in range(4):
                self.assertAlmostEqual(got[i * 4 + n], want[t * 4 + n], delta=1e-15)
        self.assertNotIn(b"warning", self.last.stderr)
        self.attend("alibi", *words, "--positions", "2,0,1")
        self.assertIn(b"warning: [attention] a causal mask goes by the place in storage, and the positions say otherwise: query 0 at "
                      b"position 2 does not see key 1 at position 0", self.last.stderr)
        plain = ["--q", q, "--k", k, "--v", v]
        for origin in ("1", self.whole("origin.npy", [1])):  # tokens 0 | 1 2
            got = stored(self.attend("nope", *plain, "--mask", "chunk=2", "--chunk-origin", origin), "out")
            for n in range(4):
                self.assertAlmostEqual(got[n], 3 * x[n], delta=1e-15)
        # Keys 0, 1, 2 in pages of 2: slots 0 and 1 of page 1, slot 0 of page 0.
        pages = [self.write_npy(f"pages{f}.npy", [*(f * y for y in x[8:12]), *[math.nan] * 4, *(f * y for y in x[:8])], (2, 2, 2, 2),
                                "<f8", "d") for f in (2, 3)]
        got = stored(self.attend("alibi", "--q", q, "--k", pages[0], "--v", pages[1], "--mask", "causal", "--gradient", q, "--scores",
                                 "--block-table", self.whole("table.npy", [1, 0], (1, 2)), "--key-length", self.whole("n.npy", [3])), "out")
        for g, w in zip(got, want):
            self.assertAlmostEqual(g, w, delta=1e-15)
        self.assertEqual(shape_of(self.folder / "out.safetensors", "grad_k"), [2, 2, 2, 2])
        for more, code, says in ((["--query-order", o], 2, "go together"), (["--chunk-origin", "x"], 2, "--chunk-origin"),
                                 (["--block-table", o], 2, "--key-length"), (["--key-cu-seqlens", o], 2, "--cu-seqlens"),
                                 (["--query-order", o, "--key-order", o, "--offset", "0"], 2, "exclude each other"),
                                 (["--block-table", o, "--key-length", o], 3, "pages must be")):
            self.error("attend", "alibi", *plain, *more, "-o", self.folder / "no.safetensors", code=code, says=says)

    def test_parameters_by_name(self):
        (q, k, v), _ = self.plain()
        header = json.dumps({"table": {"dtype": "F32", "shape": [8, 2], "data_offsets": [0, 64]}}).encode()
        params = self.folder / "t5.safetensors"
        params.write_bytes(struct.pack("<Q", len(header)) + header + struct.pack("<16f", *range(16)))
        path = self.attend(T5, "--q", q, "--k", k, "--v", v, "--params", params, "--gradient", q, "--terms")
        self.assertEqual(len(stored(path, "grad_table")), 16)
        # Buckets 0, 1, 2 of the past, 5, 6 of the future; [heads, queries, keys].
        self.assertEqual(stored(path, "position_position")[:9], (0, 10, 12, 2, 0, 10, 4, 2, 0))

    def test_refusals(self):
        (q, k, v), _ = self.plain()
        words = ["--q", q, "--k", k, "--v", v, "-o", self.folder / "o.safetensors"]
        funnel = self.folder / "funnel.json"
        funnel.write_text('{"model_type": "funnel"}')  # no weights beside it
        self.error("attend", funnel, *words, code=3, says="learns w_kr [768, 2, 2]")
        t5 = self.folder / "t5.json"
        t5.write_text('{"model_type": "t5"}')  # no weights beside it
        self.error("attend", t5, *words, code=3, says="learns table [32, 2]")
        self.error("attend", SUITE / "models" / "t5", *words, code=3, says="table needs [8, 2]")
        for scheme, more, code, says in (
                (T5, [], 3, "learns table [8, 2]"), ("sinusoidal width=8", [], 3, "must act in attention"),
                ("alibi", ["--mask", "windw"], 2, "--mask must be"), ("alibi", ["--mask", "mask"], 2, "--mask must be"),
                ("alibi", ["--mask", "./mask"], 2, "F.npy"), ("alibi", ["--mask", "v1.0/mask"], 2, "--mask must be"),
                ("alibi", ["--mask", "prefix=-1"], 2, "--mask prefix=-1: a number must be a whole number of at least 0"),
                ("alibi", ["--mask", "sinks=-1"], 2, "of at least 0"), ("alibi", ["--mask", "chunk=0"], 2, "of at least 1"),
                ("alibi", ["--mask", "window=-2,0"], 2, "of at least -1"), ("alibi", ["--mask", "prefix=1e1"], 2, "in digits: 10"),
                ("alibi", ["--chunk-origin", "v1.0"], 2, "--chunk-origin must be"), ("alibi", ["--mask", "window=3"], 2, "two numbers"),
                ("alibi", ["--input", "x=q.npy"], 2, "read no input"), ("alibi", ["--offset", "middle"], 2, "--offset"),
                ("alibi", ["--positions", "0:4"], 3, "4 positions"), ("alibi", ["--order", "htd"], 2, "--order"),
                ("alibi", ["--params", q], 2, "learns nothing"), ("alibi", ["--gradient", self.write_npy("d.npy", [1], (1,))], 3, "shape of out"),
                ("relative_projection width=4", ["--start", "1"], 2, "--input hidden=F is needed: numbers [batch, queries, 4]"),
                ("tupe", ["--start", "1"], 2, "--input query_class=F is needed: integers [batch, queries]"),
                ("rope head_dim=4 pairing=half_split", ["--start", "1"], 2, "has none: omit --start")):
            self.error("attend", scheme, *words, *more, code=code, says=says)
        flat = self.write_npy("flat.npy", [1, 2], (1, 2))
        self.error("attend", "relative_projection width=4", *words, "--start", "1", "--input", f"hidden={self.write_npy('h.npy', [1] * 9, (1, 3, 3))}",
                   code=3, says="hidden must have the shape [1, ")
        self.error("attend", "alibi", "--q", flat, *words[2:], code=2, says=["three axes, [tokens, heads, dim], or four", "got 2"])
        self.error("attend", "alibi", *words[:-1], q, code=2, says="safetensors")
        self.assertFalse((self.folder / "o.safetensors").exists())


class Bias(Case):
    def bias(self, *arguments):
        path = self.folder / "b.npy"
        self.posenc("bias", *arguments, "-o", path)
        return read_npy(path.read_bytes())

    def test_values(self):
        shape, values = self.bias("alibi", "--heads", "2", "--positions", "0:2")
        self.assertEqual((shape, values), ((2, 2, 2), (0, -0.0625, -0.0625, 0, 0, -0.00390625, -0.00390625, 0)))
        shape, values = self.bias("alibi", "--heads", "1", "--positions", "7", "--key-positions", "0:3")
        self.assertEqual((shape, values), ((1, 1, 3), (-7 / 256, -6 / 256, -5 / 256)))
        # Each half of the heads sees one side; the other is hidden.
        _, values = self.bias("alibi future=half_heads", "--heads", "2", "--positions", "0:2")
        self.assertEqual(values, (0, -math.inf, -1 / 256, 0, 0, -1 / 256, -math.inf, 0))
        # A model's own table, by its weights.
        shape, values = self.bias(SUITE / "models" / "t5", "--heads", "3", "--positions=0:2")
        table = stored(SUITE / "models" / "t5" / "model.safetensors",
                       "decoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight")
        self.assertEqual((shape, values[2]), ((3, 2, 2), table[3]))  # head 0, a key one token back
        # Falcon's, rounded to bfloat16 at the position of each key: build_alibi_tensor of transformers 5.23 for 71 heads,
        # by sqrt(head_dim). A model in float32 and one in bfloat16 have the same.
        falcon = self.folder / "falcon.json"
        falcon.write_text('{"model_type": "falcon", "alibi": true}')
        shape, values = self.bias(falcon, "--heads", "71", "--positions", "300", "--key-positions", "[3,256,257,258]")
        self.assertEqual((shape, values[:4], values[4 * 35 + 2]), ((71, 1, 4), (2.75 / 8, 235 / 8, 235 / 8, 237 / 8), 11.3125 / 8))
        self.error("bias", falcon, "--heads", "71", "--positions", "0:2", "--by-distance", "-o", self.folder / "b.npy", code=3,
                   says=["precision=falcon_bfloat16", "not by distance", "SCHEME without precision"])
        shape, values = self.bias("sandwich width=2", "--heads", "1", "--positions=-1:2", "--by-distance")
        self.assertEqual(shape, (1, 3))
        for got, d in zip(values, (-1, 0, 1)):
            self.assertAlmostEqual(got, (math.cos(d * 1e-4) - 1) / 8, delta=1e-16)
        # The first half of the heads sees no key in the future, the second none in the past, by the sign of the distance.
        shape, values = self.bias("alibi future=half_heads", "--heads", "2", "--positions=-2:3", "--by-distance")
        m, hidden = 2 ** -8, -math.inf
        self.assertEqual(values, (hidden, hidden, 0, -m, -2 * m, -2 * m, -m, 0, hidden, hidden))

    def test_refusals(self):
        out = ["--heads", "2", "--positions", "0:2", "-o", self.folder / "b.npy"]
        self.error("bias", "cope positions=4", *out, "--start", "1", code=3, says="reads queries or keys")
        self.error("bias", SCHEME, *out, code=3, says="adds nothing to the score")
        funnel = self.folder / "funnel.json"
        funnel.write_text('{"model_type": "funnel"}')
        self.error("bias", funnel, *out, code=3, says="learns w_kr")
        self.error("bias", "alibi precision=falcon_bfloat16", *out, "--by-distance", code=3, says="not by distance")
        self.error("bias", "t5 bidirectional=true", *out, code=3, says="learns table")
        self.error("bias", "alibi", *out, "--by-distance", "--key-positions", "0:2", code=2, says="--by-distance")


if __name__ == "__main__":
    main()
