# SPDX-License-Identifier: Apache-2.0
"""Every verb, every bad file: one clear error, exit 3, nothing written, nobody crashed."""
import os
import pathlib
import unittest.mock
import xml.dom.minidom

from command_line import *


class BadInput(Case):
    def bad(self, content, says, name="config.json"):
        path = self.folder / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        out = self.folder / "out.safetensors"
        for verb in [["explain", path], ["doctor", path], ["table", path, "--positions", "0:4", "-o", out],
                     ["plot", path, "-o", self.folder / "p.svg"]]:
            self.error(*verb, code=3, says=says)
        self.assertFalse(out.exists())
        self.assertFalse((self.folder / "p.svg").exists())
        self.assertEqual([p.name for p in self.folder.iterdir() if p.name != name], [])

    def test_json(self):
        self.bad("", "config.json")
        self.bad("{", "byte")
        self.bad('{"rope_theta": NaN}', "NaN")
        self.bad('{"rope_theta": Infinity}', "Infinity")
        self.bad('{"model_type": "falcon_h1", "rope_scaling": {"factor": NaN}}', ["#/rope_scaling/factor", "NaN"])
        self.bad('{"rope_theta": 1, "rope_theta": 2}', "rope_theta")
        self.bad("[" * 100000, "levels")
        self.bad('{"a": 1} trailing', "byte")
        self.bad(b'{"model_type": "\xff\xfe"}', "config.json")

    def test_infinity_where_nobody_reads_a_position(self):
        config = '{"model_type": "falcon_h1", "num_hidden_layers": 2, "time_step_limit": [0.0, Infinity]}'
        path = self.folder / "config.json"
        path.write_text(config)
        for subject, given in [(path, None), ("-", config.encode())]:
            report = json.loads(self.posenc("explain", subject, "--json", stdin=given))
            self.assertEqual(len(report["layers"]), 2)

    def test_too_large(self):
        self.bad(b'{"a": "' + b"x" * (100 << 20) + b'"}', "MB")

    def test_gguf(self):
        sound = (SOURCE / "conformance" / "gguf" / "files" / "llama2.gguf").read_bytes()
        self.bad(sound[:40], "m.gguf", name="m.gguf")
        self.bad(b"GGUF", "m.gguf", name="m.gguf")

    def test_what_cannot_be_determined(self):
        """Readable, but no plan: explain, table exit 3; doctor lists all findings and exits 1."""
        config = json.loads((LLAMA / "config.json").read_text())
        for key, value in [("rope_theta", -1), ("rope_theta", "many"), ("num_attention_heads", 0), ("head_dim", 7),
                           ("rope_scaling", {"rope_type": "stretchy", "factor": 2})]:
            with self.subTest(key=key, value=value):
                path = self.folder / "config.json"
                path.write_text(json.dumps({**config, key: value}))
                out = self.folder / "o.npy"
                self.posenc("explain", path, code=3)
                self.posenc("table", path, "--positions", "0:2", "--what", "cos", "-o", out, code=3)
                report = json.loads(self.posenc("doctor", path, "--json", code=1))
                self.assertTrue([f for f in report["findings"] if f["severity"] == "error"])
                self.assertFalse(out.exists())

    def test_json_that_is_no_config(self):
        path = self.folder / "config.json"
        path.write_text("[1, 2]")
        self.error("explain", path, code=3, says="config.json")
        self.posenc("doctor", path, code=1)

    def test_paths(self):
        self.error("explain", self.folder / "nothing.json", code=3, says="nothing.json")
        self.error("explain", self.folder, code=3, says=str(self.folder))
        self.error("explain", LLAMA, "--assume", "pairing", code=2, says="KEY=VALUE")
        self.error("explain", LLAMA, "--context", "0", code=2, says="--context")
        self.error("selftest", "--suite", self.folder, code=3, says=str(self.folder))
        self.error("bench", "--filter", "(", code=2, says="--filter")
        self.error("bench", "--filter", "no such line", code=2, says="no line")
        self.error("explian", LLAMA, code=2, says='"explian"')

    def test_what_was_meant(self):
        self.error("explian", LLAMA, code=2, says=['no verb is called "explian"; did you mean explain?'])
        self.error("explain", LLAMA, "--contxt", "4096", code=2, says="explain has no option --contxt; did you mean --context?")
        self.error("explain", LLAMA, "--layers=4096", code=2, says="has no option --layers; did you mean --layer?")
        self.error("explain", LLAMA, "--layer", code=2, says="--layer needs a value, L (posenc explain --help")
        self.error("explain", LLAMA, "one", "two", code=2, says='explain does not accept the further argument "one two"')
        for verb, first, more in [("positions", "arange", ["count=3"]), ("table", "rope", ["head_dim=4", "pairing=half_split", "+", "yarn", "factor=4"]),
                                  ("bias", "alibi", ["batch=2"])]:
            self.error(verb, first, *more, code=2, says=f'and its keys are one argument, in quotes: "{" ".join([first, *more])}"')
        self.error("table", LLAMA, "a=1", code=2, says='does not accept the further argument "a=1"')
        self.error("list", "yar", code=2, says='nothing is called "yar"; did you mean yarn? there are: rope')
        self.error("table", "rope head_dim=8 pairing=half_split theta=5", "-o", "o.npy", "--what", "inv_freq", code=3,
                   says='did you mean base? There are')

    def test_what_is_no_model_file(self):
        for text in ["rope head_dim=128", "rope", "yarn factor=4", "ropee head_dim=128"]:
            self.error("explain", text, code=3, says="a SCHEME is not a MODEL: posenc table, plot, apply, attend and bias accept one")
        for text in ["meta-llama/Llama-3.1-8B", "https://huggingface.co/meta-llama/Llama-3.1-8B", "a" * 300 + "/b"]:
            self.error("explain", text, code=3, says="nothing is fetched: download the repository's config.json")
        for path in ["./some/file", "/some/file", "some", "some/thing/else"]:
            self.error("explain", path, code=3, says=f"{path}: no such file or directory\n")

    def test_what_ggml_cannot_be_told(self):
        path = self.folder / "config.json"
        path.write_text(json.dumps({"model_type": "gpt_oss", "num_hidden_layers": 2, "num_attention_heads": 64, "head_dim": 64,
                                    "hidden_size": 2880, "rope_theta": 150000, "rope_scaling": {
                                        "rope_type": "yarn", "factor": 32.0, "truncate": False, "beta_fast": 32.0, "beta_slow": 1.0,
                                        "original_max_position_embeddings": 4096}}))
        table = ["--positions", "0:2", "--precision", "ggml", "-o", self.folder / "o.npy"]
        self.error("table", path, *table, code=3, says='got "yarn truncate=false (ggml always rounds the range)"')
        self.posenc("table", path, "--reader", "llama_cpp", *table)

    def test_numbers_are_digits(self):
        for value, hint in [("1e5", "100000"), ("128k", "131072"), ("1.5", ""), ("-3", ""), ("0", ""), ("0x10", ""), ("9" * 30, ""),
                            (" 5", ""), ("many", "")]:
            self.error("explain", LLAMA, f"--context={value}", code=2,
                       says=["--context", "whole number from 1 to 1125899906842624", f'"{value}"', hint])
        ten = json.loads(self.posenc("explain", LLAMA, "--context", "010", "--json"))
        self.assertEqual(ten["context"]["value"], 10)  # not octal
        out = self.folder / "o.svg"
        for words in [["explain", LLAMA, "--layer", "x"], ["plot", LLAMA, "--input", "1e1", "-o", out],
                      ["extend", "w.safetensors", "--prefix", "-1"], ["extend", "w.safetensors", "--suffix", "1.5"]]:
            self.error(*words, code=2, says=[words[2], "whole number of at least 0", f'"{words[3]}"'])
        for name in ["--keys", "--offset", "--alpha"]:
            for value in ["x", "nan", "inf", "1,5"]:
                self.error("extend", "w.safetensors", name, value, code=2, says=[name, "finite number", f'"{value}"'])
        self.error("explain", LLAMA, "--context", "5", "--context", "6", code=2, says=["--context", "more than once", "explain --help"])

    def test_what_is_assumed_is_named(self):
        for assumed, says in [("pairing=foo", "half_split, interleaved"), ("direction=7", "direction")]:
            field = assumed.split("=")[0]
            report = json.loads(self.posenc("doctor", LLAMA, "--assume", assumed, "--json", code=1))
            finding, = [f for f in report["findings"] if f["code"] == "refused"]
            self.assertEqual(finding["where"], f"--assume {field}")
            self.assertIn(says, finding["message"])
        # Another's fault stays where it is, whatever is assumed beside it.
        report = json.loads(self.posenc("doctor", LLAMA, "--assume", "pairing=half_split", "--assume", "direction=7", "--json", code=1))
        finding, = [f for f in report["findings"] if f["code"] == "refused"]
        self.assertEqual(finding["where"], "--assume direction")
        self.error("explain", LLAMA, "--assume", "pairing=half_split", "--assume", "pairing=interleaved", code=2,
                   says=["pairing", "twice", "half_split", "interleaved"])
        self.posenc("explain", LLAMA, "--assume", "pairing=half_split", "--assume", "pairing=half_split")

    def test_names_that_are_no_utf8(self):
        """Of files that are read and written: JSON and pictures stay sound."""
        odd = pathlib.Path(os.fsdecode(os.fsencode(self.folder) + b"/caf\xe9"))
        config = json.loads((LLAMA / "config.json").read_text())
        odd.mkdir()
        (odd / "config.json").write_text(json.dumps({k: v for k, v in config.items() if k != "rope_theta"}))
        for verb in ["explain", "doctor"]:
            report = json.loads(self.posenc(verb, odd, "--json"))
            self.assertTrue(report["schema"].startswith(f"posenc.{verb}/"))
        report = json.loads(self.posenc("table", SCHEME, "--positions", "0:2", "-o", odd / "o\udce9.npy", "--json"))
        self.assertIn("o\ufffd.npy", report["output"])
        for name in ["<&\">", "\udce9" * 150, "\u00e9" * 90]:
            path = odd / f"{name}.json"
            path.write_text(json.dumps({**config, "model_type": ""}))
            self.posenc("plot", path, "--assume", "pairing=half_split", "-o", self.folder / "p.svg")
            xml.dom.minidom.parse(str(self.folder / "p.svg"))

    def test_what_is_no_model(self):
        path = self.folder / "w.safetensors"
        path.write_bytes(b"\x02\0\0\0\0\0\0\0{}")
        for verb in [["explain"], ["doctor"], ["plot", "-o", self.folder / "p.svg"]]:
            self.error(*verb, path, code=3, says=["w.safetensors", "config.json or .gguf"])
        self.error("table", "rope head_dim=8 " + "x" * 5000, "--positions", "0:2", "-o", "-", "--format", "csv", code=3, says="SCHEME")
        self.assertLess(len(self.last.stderr), 5800)

    def test_a_wrong_environment_is_one_message(self):
        for name in ["POSENC_ISA", "POSENC_NUM_THREADS", "POSENC_ACCESS_PATTERN"]:
            with self.subTest(name), unittest.mock.patch.dict(os.environ, {name: "q"}):
                self.error("selftest", code=3, says=[name, '"q"'])
                self.assertLess(len(self.last.stderr), 200)

    def test_an_empty_value_is_no_wish_for_the_default(self):
        for words in [["explain", LLAMA, "--layer", ""], ["list", ""], ["table", SCHEME, "--what", "", "-o", "-"],
                      ["selftest", "--filter", ""], ["extend", "w.safetensors", "--order", ""]]:
            self.error(*words, code=2, says="must not be empty")

    def test_stderr_that_is_closed_or_full(self):
        """The verdict is the exit code; messages go nowhere, least of all into the output."""
        out = self.folder / "out.npy"
        words = ["table", SCHEME, "--positions", "0:2", "-o", out]
        self.posenc(*words)
        sound = out.read_bytes()
        for redirect in ["2>&-", "2>/dev/full"]:
            for arguments, code in [(["explain", "nothing"], 3), (["list", "nothing"], 2), (words, 0),
                                    (["explain", MODELS / "broken"], 3)]:
                done = subprocess.run(["sh", "-c", f'"$@" {redirect}', "sh", PROGRAM, *map(str, arguments)],
                                      stdout=subprocess.DEVNULL, timeout=60)
                self.assertEqual(done.returncode, code, f"{arguments} {redirect}")
            self.assertEqual(out.read_bytes(), sound)
        for verb in ["list", "list --json", "list learned", "man"]:  # more and less than a buffer holds
            done = subprocess.run(["sh", "-c", f'"$1" {verb} >&-', "sh", PROGRAM], stderr=subprocess.PIPE, timeout=60)
            self.assertEqual(done.returncode, 4, verb)
            self.assertIn(b"stdout cannot be written", done.stderr, verb)


main()
