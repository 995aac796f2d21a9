# SPDX-License-Identifier: Apache-2.0
"""posenc law: numbers of papers, JSON, models, refusals by option."""
from command_line import *

ROPE = "rope head_dim=128 pairing=half_split"


class Law(Case):
    def law(self, *words):
        report = json.loads(self.posenc("law", *words, "--json"))
        self.assertEqual(report["schema"], "posenc.law/1")
        self.assertEqual(report["law"], words[0])
        return report["values"]

    def test_critical(self):
        # LLaMA-2 in arXiv:2310.05209.
        values = self.law("critical", ROPE, "--trained", 4096, "--tuned", 16384, "--base", "1e6", "--wanted", 16384)
        self.assertEqual((values["critical_dimension"], values["width"], round(values["critical_base"])), (92, 128, 71738))
        self.assertEqual([round(x) for x in values["smaller_bases"]], [10430, 5215, 2608])
        self.assertEqual(values["tuned_dimension"], 92)
        self.assertAlmostEqual(values["longest"], 2 * math.pi * 1e6 ** (92 / 128))
        self.assertEqual(round(values["least_base_unrounded"]), 71738)
        self.assertEqual(self.law("critical", LLAMA)["trained"], 8192)  # its own, before the scaling
        self.assertIn(b"92 of 128: 46 of 64 pairs", self.posenc("law", "critical", ROPE, "--trained", 4096))

    def test_base(self):
        # kexue.fm/archives/10122: 4.3e3 for 1024 tokens, 1.2e4 for 2048.
        self.assertEqual(round(self.law("base", ROPE, "--wanted", 1024)["least_base"], -2), 4300)
        values = self.law("base", ROPE, "--wanted", 2048)
        self.assertEqual(round(values["least_base"], -3), 12000)
        self.assertTrue(1024 < values["context"] < 2048)
        self.assertIsNone(self.law("base", "rope head_dim=64 rotary_dim=32 pairing=half_split")["context"])

    def test_turns(self):
        values = self.law("turns", "rope head_dim=4 base=100 pairing=half_split + linear factor=2", "--length", 20)
        self.assertEqual([t["frequency"] for t in values["turns"]], [0.5, 0.05])
        self.assertEqual((values["pairs"], values["incomplete"], values["still"]), (2, 1, 0))
        self.assertEqual(self.law("turns", "sinusoidal width=4", "--length", 7)["pairs"], 2)
        self.assertEqual(self.law("turns", LLAMA)["length"], 131072)

    def test_decay(self):
        values = self.law("decay", "alibi", "--heads", 8)
        self.assertEqual((values["past"][0], values["past"][7]), (14, 1769))
        self.assertEqual(values["past"], values["future"])
        self.assertEqual(self.law("decay", "alibi", "--heads", 8, "--share", 0.5)["past"][0], 2)
        self.assertEqual(self.law("decay", "alibi future=half_heads", "--heads", 2)["future"], [1, 1769])
        table = self.write_tensors("table", [0, -1, -8, -2], (4, 1))
        values = self.law("decay", "t5 bidirectional=false num_buckets=4 max_distance=8", "--heads", 1, "--params", table)
        self.assertEqual(values["past"], [2])
        self.assertIsNone(self.law("decay", "nope", "--heads", 1)["past"][0])

    def write_tensors(self, name, values, shape):
        path = self.folder / "p.safetensors"
        data = struct.pack(f"<{len(values)}d", *values)
        head = json.dumps({name: {"dtype": "F64", "shape": shape, "data_offsets": [0, len(data)]}}).encode()
        path.write_bytes(struct.pack("<Q", len(head)) + head + data)
        return path

    def test_window(self):
        # Mistral 7B: about 131K tokens (arXiv:2310.06825).
        self.assertEqual(self.law("window", "--window", 4096, "--layers", 32, "--sinks", 4)["tokens"], 131041)
        values = self.law("window", "--window", 512, "--layers", 2, "--both")
        self.assertEqual((values["back"], values["ahead"]), (512, 512))
        self.assertEqual(self.law("window", "--chunk", 8192, "--layers", 9)["back"], 8191)
        self.assertIsNone(self.law("window", MODELS / "gemma-3-1b")["back"])

    def test_trained(self):
        one, = self.law("trained", "t5 bidirectional=false", "--trained", 64)["encodings"]
        self.assertEqual((one["unseen"], one["longest"]), ("rows", 67))
        one, = self.law("trained", LLAMA)["encodings"]
        self.assertEqual((one["unseen"], one["longest"]), ("angles", 8 * 8191 + 1))
        one, = self.law("trained", "alibi", "--trained", 64)["encodings"]
        self.assertIsNone(one["longest"])

    def test_refusals_name_the_option(self):
        for words, code, says in (
                (["gravity"], 2, 'NAME must be one of critical, base, turns, decay, window, trained, got "gravity"'),
                (["critical"], 2, "critical needs MODEL|SCHEME"), (["critical", ROPE], 2, "--trained N is needed"),
                (["critical", ROPE, "--window", 4], 2, "--window is not read by critical, which reads"),
                (["critical", ROPE, "--trained", 6], 3, "trained must be above 2 pi"),
                (["critical", "alibi", "--trained", 64], 3, "alibi"), (["base", ROPE, "--wanted", 2000000], 3, "at most 1048576"),
                (["turns", ROPE], 2, "--length N is needed"), (["turns", "alibi", "--length", 4], 3, "[alibi] has no frequencies"),
                (["decay", "alibi"], 2, "decay needs --heads"), (["decay", "alibi", "--heads", 2, "--share", 1], 3, "share must be between 0 and 1"),
                (["decay", "cope", "--heads", 2, "--start", 1], 3, "reads queries or keys"),
                (["decay", "forgetting", "--heads", 2], 2, "--input log_gate=F is needed"),
                (["window"], 2, "window needs a MODEL"), (["window", "--window", 4], 2, "--layers N is needed"),
                (["window", LLAMA, "--window", 4], 2, "describe a stack without MODEL"), (["window", "alibi"], 2, "a SCHEME has no window"),
                (["trained", "alibi"], 2, "--trained N is needed"), (["trained", "swin", "--trained", 4], 3, "no rule is known"),
                (["critical", self.folder / "none.json", "--trained", 64], 3, "no such file")):
            self.error("law", *words, code=code, says=says)


main()
