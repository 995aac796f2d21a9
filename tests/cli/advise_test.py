# SPDX-License-Identifier: Apache-2.0
"""posenc advise: the order of schemes by packaged, given and published numbers; what is not recommended; refusals."""
import subprocess
import sys

from command_line import *

ROPE = "rope head_dim=16 pairing=half_split"
OPTIONS = {"train": 32, "test": 128, "steps": 600, "batch": 32, "lr": 0.003, "width": 64, "layers": 2, "heads": 4, "text": "licences"}


class Advise(Case):
    def advise(self, *words, code=0):
        report = json.loads(self.posenc("advise", *words, "--json", code=code))
        self.assertEqual(report["schema"], "posenc.advise/1")
        for ranked in report["ranking"]:  # nothing without a number
            self.assertTrue(ranked["measured"] or ranked["published"], ranked["scheme"])
            self.assertGreater(ranked["won"] + ranked["tied"] + ranked["lost"], 0)
        return report

    def runs(self, *rows, name="results.jsonl"):
        path = self.folder / name
        path.write_text("".join((r if isinstance(r, str) else json.dumps(r)) + "\n" for r in rows))
        return path

    def run_of(self, label, seed, losses, task="lm", **more):
        values = {"loss" if task == "lm" else "accuracy": {str(32 << i): x for i, x in enumerate(losses)}}
        return {"schema": "posenc.lab/1", "task": task, "label": label, "scheme": label, "seed": seed, "options": OPTIONS,
                "parameters": 112000, "values": values, **more}

    def test_packaged_and_published_numbers(self):
        report = self.advise("--trained", 512, "--wanted", 4096)
        order = [r["scheme"] for r in report["ranking"]]
        self.assertLessEqual({"kerple", "alibi"}, set(order[:3]))
        for lost in ("rope", "learned", "sinusoidal"):
            self.assertGreater(order.index(lost), order.index("t5"), lost)
        alibi = next(r for r in report["ranking"] if r["scheme"] == "alibi")
        # Table 2 of arXiv:2108.12409: the first length of at least 8 times 512.
        one = next(n for n in alibi["published"] if "2108.12409, table 2" in n["source"])
        self.assertEqual((one["length"], one["value"], one["in_length"], one["best"], one["better"]), (7512, 18.33, 19.73, 18.33, "lower"))
        one = next(n for n in alibi["measured"] if n["data"] == "licences" and n["trained"] == 32)
        self.assertEqual((one["trained"], one["length"], one["seeds"], one["least"], one["most"]), (32, 256, 2, 2.02, 2.26))
        self.assertIn("./lab lm --train 32 --test 256", one["run"])
        self.assertTrue(any("have no number" in s for s in report["unknown"]))
        self.assertTrue(any(s["command"].startswith("./lab lm --scheme ") for s in report["next"]))

    def test_tasks(self):
        first = {"recall": "alibi", "state": {"alibi", "kerple", "cope"}, "copy": "alibi", "direction": "alibi_half"}
        for task, best in first.items():
            report = self.advise("--trained", 100, "--wanted", 400, "--task", task)
            self.assertIn(report["ranking"][0]["scheme"], best if isinstance(best, set) else {best}, task)
        self.assertEqual(self.advise("--trained", 8, "--wanted", 32, "--task", "direction")["role"], "encoder")
        addressing = self.advise("--trained", 8, "--wanted", 32, "--task", "addressing")["ranking"]
        self.assertEqual(addressing[-1]["lost"] + addressing[-1]["tied"], sum(addressing[-1][k] for k in ("won", "tied", "lost")))
        self.assertTrue(self.advise("--trained", 8, "--wanted", 9, "--task", "translate")["ranking"])
        encoder = self.advise("--trained", 32, "--wanted", 64, "--encoder")
        self.assertEqual(encoder["ranking"][0]["scheme"], "rope")

    def test_own_results(self):
        rows = [self.run_of(label, seed, [2.0, x + 0.02 * seed, x + 0.1]) for label, x in (("alibi", 2.0), ("fire", 2.01), ("cope", 2.3)) for seed in range(3)]
        path = self.runs(*rows, self.run_of("rope", 0, [], failed="the loss is nan at step 3"))
        report = self.advise("--trained", 100, "--wanted", 150, "--task", "lm", "--results", path)
        by_name = {r["scheme"]: r for r in report["ranking"] + report["not_ranked"]}
        one, = by_name["cope"]["measured"]
        self.assertEqual((one["length"], one["ratio"], one["seeds"], one["least"], one["most"]), (64, 2, 3, 2.3, 2.34))
        self.assertAlmostEqual(one["value"], 2.32)
        # 0.01 apart with three seeds: a tie. What ended early has no number.
        self.assertGreaterEqual(by_name["fire"]["tied"], 1)
        self.assertFalse(by_name["rope"]["measured"])
        self.assertEqual(self.posenc("advise", "--trained", 100, "--wanted", 150, "--results", self.folder, "--json"),
                         self.posenc("advise", "--trained", 100, "--wanted", 150, "--results", path, "--json"))

    def test_exploded_curves_tie(self):
        path = self.runs(*(self.run_of(label, seed, [2.0, x]) for label, x in (("alibi", 2.0), ("fire", 3.0), ("cope", 4.0)) for seed in range(3)))
        report = self.advise("--trained", 10, "--wanted", 20, "--results", path)
        fire, cope = ([r for r in report["ranking"] if r["scheme"] == s][0] for s in ("fire", "cope"))
        self.assertEqual((fire["won"], fire["tied"], fire["lost"]), (0, 1, 1))
        self.assertEqual((cope["won"], cope["tied"], cope["lost"]), (0, 1, 1))

    def test_checkpoint(self):
        report = self.advise("--wanted", 32768, "--checkpoint", LLAMA)
        self.assertEqual((report["trained"], report["ratio"]), (8192, 4))
        by_name = {r["scheme"]: r for r in report["ranking"]}
        order = list(by_name)
        for scaling in ("longrope", "ntk_by_parts", "yarn", "ntk"):
            self.assertLess(order.index(scaling), order.index("none"), scaling)
        self.assertEqual(by_name["yarn"]["for_checkpoint"],
                         "rope head_dim=128 rotary_dim=128 base=500000 pairing=half_split + yarn factor=4 original_context=8192")
        self.assertIsNone(by_name["longrope"]["for_checkpoint"])  # its divisors come from a search
        self.assertEqual({n["tuned"] for n in by_name["yarn"]["measured"]}, {False, True})
        # arXiv:2306.15595: LLaMA-7B at 8192, 4 times its length.
        self.assertIn(16.1, [n["value"] for n in by_name["linear"]["published"]])
        bert = self.folder / "config.json"
        bert.write_text('{"model_type": "bert", "max_position_embeddings": 512}')
        report = self.advise("--wanted", 1024, "--checkpoint", bert, code=1)
        self.assertEqual(report["ranking"], [])
        self.assertIn("No scaling of it has a number", report["unknown"][0])

    def test_text(self):
        text = self.posenc("advise", "--trained", 64, "--wanted", 512).decode()
        for part in (" 1. ", "measured  loss", "published perplexity", "Not known", "Next", "./lab lm"):
            self.assertIn(part, text)
        self.assertLess(max(map(len, text.splitlines())), 200)
        self.assertNotIn(", ;", self.posenc("advise", "--trained", 64, "--wanted", 512, "--task", "recall").decode())  # no data set: drawn tokens

    def test_packing(self):
        rows = [self.run_of("alibi", 0, [2.123456, 2.0], versions={"torch": "2.15"}, seconds=1.0), self.run_of("fire", 0, [], failed="nan")]
        rows[0]["values"]["attention"] = [[[1.0]]]
        out = self.folder / "packed.json"
        subprocess.run([sys.executable, SOURCE / "tools/lab_results/pack.py", self.runs(*rows), "-o", out], check=True, stdout=subprocess.DEVNULL)
        row, = json.loads(out.read_text())["runs"]
        self.assertEqual(row["values"], {"loss": {"32": 2.123, "64": 2.0}})
        self.assertNotIn("seconds", row)
        packaged = SOURCE / "src/report/data/lab_results.json"
        self.assertLess(packaged.stat().st_size, 300_000)
        json.loads(packaged.read_text())

    def test_refusals_say_what_and_where(self):
        good = self.run_of("alibi", 0, [2.0, 2.0])
        sizes = ["--trained", 64, "--wanted", 128]
        for words, code, says in (
                (["--trained", 64], 2, "--wanted is required"), (["--wanted", 64], 2, "--trained N is needed"),
                (["--trained", 64, "--wanted", 64], 2, "--wanted must be above --trained 64, got 64"),
                (["--trained", 0, "--wanted", 64], 2, "--trained"), ([*sizes, "--task", "chess"], 2, "--task: must be one of lm, recall"),
                ([*sizes, "--decoder", "--encoder"], 2, "choose one"), ([*sizes, "--task", "direction", "--decoder"], 2, "task of encoders"),
                ([*sizes, "--assume", "rope_theta=1000"], 2, "say how a model is read: add --checkpoint"),
                ([*sizes, "--checkpoint", LLAMA, "--task", "copy"], 2, "--task lm and recall, got copy"),
                ([*sizes, "--checkpoint", self.folder / "none"], 3, "no such file"),
                ([*sizes, "--results", self.folder / "none.jsonl"], 3, "none.jsonl: file: cannot be read"),
                ([*sizes, "--results", self.runs(good, "{\"schema\": ", name="a")], 3, "a: line 2: is damaged"),
                ([*sizes, "--results", self.runs({**good, "schema": "posenc.lab/2"}, name="b")], 3, 'b: line 1: schema must be "posenc.lab/1", got "posenc.lab/2"'),
                ([*sizes, "--results", self.runs({**good, "values": 3}, name="c")], 3, "c: line 1: values must be an object, got 3"),
                ([*sizes, "--results", self.runs({**good, "options": {}}, name="d")], 3, "d: line 1: options.train must be the trained length"),
                ([*sizes, "--results", self.runs(good, self.run_of("alibi", 0, [2.0, 2.1]), name="e")], 3, "e: line 2: is the run of line 1 with other numbers"),
                ([*sizes, "--results", self.runs(name="f")], 3, "f: file: has no finished runs")):
            self.error("advise", *words, code=code, says=says)


main()
