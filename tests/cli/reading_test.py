# SPDX-License-Identifier: Apache-2.0
"""explain, doctor, list: schemas of docs/interfaces.md, and what a person reads."""
import shutil
import subprocess

from command_line import *


class Lengths(Case):
    """Phi-4-mini: a list of factors up to 4096 tokens (original_max_position_embeddings), another from 4097 on."""
    PHI = str(SOURCE / "conformance" / "rotary_hugging_face" / "configs" / "phi_4_mini")

    def test_of_positions(self):
        out = str(self.folder / "o.npy")
        cos = ["table", self.PHI, "--what", "cos", "-o", out, "--positions"]
        self.error(*cos, "0:100", code=3, says="hold for 4,097 tokens and more: give the length of the sequence, --context 100")
        self.error(*cos, "0:5000", "--context", "2048", code=3, says="hold for up to 4,096 tokens")
        self.posenc(*cos, "0:5000")
        self.posenc(*cos, "0:4096", "--context", "4096")
        self.posenc(*cos, "100", "--context", "8000")  # a part of a sequence of that length

    def test_explain_shows_the_switch(self):
        self.assertIn("lengths of 4097 tokens and more: at other lengths", self.posenc("explain", self.PHI).decode())
        self.assertIn("lengths of 1 to 4096 tokens: at other lengths", self.posenc("explain", self.PHI, "--context", "4096").decode())


class Explain(Case):
    def explain(self, path, *more):
        return json.loads(self.posenc("explain", path, "--json", *more))

    def test_schema(self):
        report = self.explain(LLAMA)
        self.assertEqual(report["schema"], "posenc.explain/1")
        self.assertEqual(report["reader"], "transformers")
        for key in ["model_type", "context", "input", "layers", "towers", "memory", "findings"]:
            self.assertIn(key, report)
        layer = report["layers"][0]
        for key in ["index", "attention", "scheme", "encodings", "rotary", "query_temperature", "fields"]:
            self.assertIn(key, layer)
        rotary = layer["rotary"]
        self.assertEqual(rotary["pairing"], "half_split")
        self.assertEqual(len(rotary["inv_freq"]), 64)
        self.assertEqual(rotary["inv_freq"][0], 1.0)
        # Llama-3.1: the slowest pairs are divided by 8.
        self.assertAlmostEqual(rotary["inv_freq"][63] / 500000 ** (-126 / 128), 1 / 8, delta=1e-14)
        for field in layer["fields"].values():
            self.assertIn(field["source"], ["stated", "class_default", "derived", "user"])
        self.assertEqual(layer["fields"]["base"]["source"], "stated")
        self.assertIn("rope_theta", layer["fields"]["base"]["where"])

    def test_scheme_text_means_the_same(self):
        layer = self.explain(LLAMA)["layers"][0]
        text = next(e["text"] for e in layer["encodings"] if e["scheme"] == "rope")
        out = self.folder / "f.npy"
        self.posenc("table", text, "--what", "inv_freq", "-o", out)
        for a, b in zip(read_npy(out.read_bytes())[1], layer["rotary"]["inv_freq"]):
            self.assertAlmostEqual(a, b, delta=1e-15)

    def test_one_layer_and_context(self):
        report = self.explain(LLAMA, "--layer", "3", "--context", "4096")
        self.assertEqual([l["index"] for l in report["layers"]], [3])
        self.assertEqual(report["context"], {"value": 4096, "source": "given"})
        self.error("explain", LLAMA, "--layer", "999", code=3, says="999")

    def test_a_person_reads_groups(self):
        text = self.posenc("explain", MODELS / "gemma-3-1b").decode()
        self.assertIn("layers 0-4", text)
        self.assertIn("sliding window", text)
        self.assertNotIn("\x1b[", text)  # no colour into a pipe
        detail = self.posenc("explain", LLAMA, "--layer", "0").decode()
        self.assertIn("config.json#/rope_theta", detail)

    def test_stdin_and_file_and_directory(self):
        config = (LLAMA / "config.json").read_bytes()
        a = json.loads(self.posenc("explain", "-", "--json", stdin=config))
        b = self.explain(LLAMA / "config.json")
        self.assertEqual(a["layers"][0]["rotary"], b["layers"][0]["rotary"])

    def test_assume_is_said(self):
        config = json.loads((LLAMA / "config.json").read_text())
        config["model_type"] = "nobody_knows_this"
        path = self.folder / "config.json"
        path.write_text(json.dumps(config))
        self.error("explain", path, code=3, says="unknown_model_type")
        report = self.explain(path, "--assume", "pairing=half_split")
        self.assertEqual(report["layers"][0]["fields"]["pairing"]["source"], "user")
        for path in ["/rope_scaling/factor=16", "/num_key_value_heads=4", "/model_type=mistral"]:
            self.explain(LLAMA, "--assume", path)
        for path in ["/rope_scalling/factor=8", "/nothing=8"]:
            self.error("explain", LLAMA, "--assume", path, code=3, says=["assume_unused", path])

    def test_layers_that_attend_to_an_image_cache_no_text(self):
        path = self.folder / "config.json"
        text = {"model_type": "mllama_text_model", "num_hidden_layers": 40, "hidden_size": 4096, "dtype": "bfloat16",
                "cross_attention_layers": [3, 8, 13, 18, 23, 28, 33, 38]}
        path.write_text(json.dumps({"model_type": "mllama", "text_config": text}))
        self.assertEqual(self.explain(path)["memory"]["key_cache_bytes_per_token"], 32 * 8 * 128 * 2)

    def test_an_omni_model_has_the_towers_of_its_thinker(self):
        path = self.folder / "config.json"
        thinker = {"model_type": "qwen3_omni_moe_thinker",
                   "text_config": {"model_type": "qwen3_omni_moe_text", "head_dim": 128, "num_hidden_layers": 2},
                   "vision_config": {"model_type": "qwen3_omni_moe_vision_encoder", "depth": 3, "hidden_size": 1152,
                                     "num_heads": 16}}
        path.write_text(json.dumps(thinker))
        alone = self.explain(path)["towers"]
        path.write_text(json.dumps({"model_type": "qwen3_omni_moe", "thinker_config": thinker}))
        self.assertEqual(len(self.explain(path)["towers"]["vision"]["layers"]), 3)
        self.assertEqual(list(alone), list(self.explain(path)["towers"]))

    def test_position_keys_that_the_class_does_not_read(self):
        path = self.folder / "config.json"
        for config, key in [({"model_type": "bert", "position_embedding_type": "alibi"}, "position_embedding_type"),
                            ({"model_type": "llama", "rope_ratio": 50}, "rope_ratio"),
                            ({"model_type": "qwen2", "dual_chunk_attention_config": {"chunk_size": 262144}},
                             "dual_chunk_attention_config")]:
            path.write_text(json.dumps(config))
            found = json.loads(self.posenc("doctor", path, "--json"))["findings"]
            self.assertIn("#/" + key, [f["where"][len("config.json"):] for f in found if f["code"] == "key_ignored"])
        path.write_text(json.dumps({"model_type": "dbrx", "n_heads": 48, "d_model": 6144, "n_layers": 1,
                                    "attn_config": {"kv_n_heads": 8, "rope_theta": 500000}}))
        self.assertIn("attn_config.rope_theta is 500000", self.posenc("doctor", path).decode())
        for says_what_it_does in [{"model_type": "bert", "position_embedding_type": "absolute"},
                                  {"model_type": "llama", "position_embedding_type": "rope"},
                                  {"model_type": "qwen2", "position_embedding_type": "rotary"},
                                  {"model_type": "bloom", "position_embedding_type": "alibi"},
                                  {"model_type": "mpt", "alibi": True},
                                  {"model_type": "llama", "rope_ratio": 1.0, "rotary_pct": 1},
                                  {"model_type": "llama", "rope_theta": 5e5, "rotary_emb_base": 500000}]:
            path.write_text(json.dumps(says_what_it_does))
            self.assertNotIn("key_ignored", self.posenc("doctor", path).decode(), says_what_it_does)
        path.write_text(json.dumps({"model_type": "llama", "rope_theta": 5e5, "rotary_emb_base": 1e6}))
        self.assertIn("rotary_emb_base is not read", self.posenc("doctor", path).decode())


class Doctor(Case):
    def test_a_broken_file(self):
        report = json.loads(self.posenc("doctor", MODELS / "broken", "--json", code=1))
        self.assertEqual(report["schema"], "posenc.doctor/1")
        worst = [f for f in report["findings"] if f["severity"] == "error"]
        self.assertTrue(worst)
        for finding in report["findings"]:
            for key in ["severity", "code", "message", "where", "fix", "value"]:
                self.assertIn(key, finding)
        self.assertIn(worst[0]["code"], self.posenc("doctor", MODELS / "broken", code=1).decode())

    def test_a_warning_is_a_negative_answer_where_it_is_asked_for(self):
        path = self.folder / "config.json"
        path.write_text(json.dumps({"model_type": "llama", "num_hidden_layers": 1, "ropeTheta": 500000.0}))
        self.posenc("doctor", path)
        self.posenc("doctor", path, "--strict", code=1)
        self.posenc("doctor", path, "--strict", "--json", code=1)
        self.posenc("doctor", LLAMA, "--strict")
        self.posenc("doctor", MODELS / "broken", "--strict", code=1)

    def test_a_sound_model_exits_zero(self):
        said = self.posenc("doctor", LLAMA).decode()
        last = said.splitlines()[-1]
        self.assertIn("nothing is wrong with its positions", last)
        self.assertIn("3 notes that hold for every model of this kind: posenc doctor --notes", last)
        general = {"float32_angle", "pair_never_turns", "pairing_risk"}
        self.assertFalse([code for code in general if code in said])
        self.assertFalse([code for code in general if code not in self.posenc("doctor", LLAMA, "--notes").decode()])
        codes = {f["code"] for f in json.loads(self.posenc("doctor", LLAMA, "--json"))["findings"]}
        self.assertLessEqual(general, codes)


class List(Case):
    def test_lists_everything_once(self):
        report = json.loads(self.posenc("list", "--json"))
        names = [s["name"] for s in report["schemes"]] + [s["name"] for s in report["scalings"]]
        self.assertEqual(len(names), len(set(names)))
        for name in ["rope", "yarn", "linear"]:
            self.assertIn(name, names)
            text = self.posenc("list", name).decode()
            self.assertIn(name, text)
        tupe = self.posenc("list", "tupe").decode()
        self.assertIn('learned parameters of "tupe": pos [513, heads * head_dim], ln_weight [heads * head_dim]', tupe)
        self.assertIn('inputs of each call of "tupe": query_class [batch, queries] of integers, key_class [batch, keys] of integers', tupe)
        self.assertIn('learned parameters of "shaw preset=', self.posenc("list", "shaw").decode())
        for entry in report["schemes"] + report["scalings"]:
            self.assertTrue(entry["paper"] and entry["title"], entry["name"])
            for field in entry["fields"]:
                self.assertTrue(field["doc"], (entry["name"], field["name"]))
        self.error("list", "yran", code=2, says=["yran", "yarn"])
        self.error("list", "--json", "--markdown", code=2, says=["--json", "--markdown"])
        self.error("list", "yarn", "--markdown", code=2, says=["--markdown", "NAME"])

    def test_the_table_of_the_readme(self):
        readme = (SOURCE / "README.md").read_text()
        table = readme.split("<!-- schemes -->\n")[1].split("<!-- /schemes -->")[0]
        self.assertEqual(table, self.posenc("list", "--markdown").decode(), "posenc list --markdown makes it")


class Installed(Case):
    def test_the_suites_are_found_beside_the_program(self):
        """As `cmake --install` leaves them, wherever the tree was moved to."""
        program = self.folder / "bin" / "posenc"
        program.parent.mkdir()
        shutil.copy(PROGRAM, program)
        shutil.copy(f"{PROGRAM}-checks", program.parent)
        suites = self.folder / "share" / "posenc" / "conformance"
        suites.mkdir(parents=True)
        shutil.copytree(SOURCE / "conformance" / "positions", suites / "positions")
        done = subprocess.run([program, "selftest", "--json"], stdout=subprocess.PIPE, timeout=120)
        self.assertEqual(done.returncode, 0)
        report = json.loads(done.stdout)
        self.assertEqual([s["suite"] for s in report["suites"]], ["positions"])


main()
