# SPDX-License-Identifier: Apache-2.0
"""Broken arrays, positions and outputs: one error with thing, rule and value, the right exit code, nothing written."""
import os
import resource
import signal
import subprocess
import unittest

from command_line import *

FULL = "/dev/full"


class BadArrays(Case):
    def setUp(self):
        super().setUp()
        self.q = self.write_npy("q.npy", [0.5] * 64, (4, 2, 8))
        self.out = self.folder / "out" / "o.safetensors"
        self.out.parent.mkdir()

    def apply(self, *words, code, says, q=None, positions="0:4", scheme=SCHEME):
        self.error("apply", scheme, "--q", q or self.q, f"--positions={positions}", "-o", self.out, *words,
                   code=code, says=says)
        self.assertEqual(list(self.out.parent.iterdir()), [])

    def test_arrays(self):
        whole = self.q.read_bytes()
        for content, says in [(b"", "must begin with"), (whole[:5], "must begin with"), (whole[:20], "header"),
                              (whole[:-3], "needs 256 bytes"), (whole + b"x", "needs 256 bytes")]:
            path = self.folder / "broken.npy"
            path.write_bytes(content)
            self.apply(q=path, code=3, says=["broken.npy", says])
        path = self.folder / "broken.safetensors"
        for content in [b"", b"\x08\0\0\0\0\0\0\0{}", struct.pack("<Q", 1 << 60) + b"{}",
                        struct.pack("<Q", 2) + b"[]"]:
            path.write_bytes(content)
            self.apply(q=path, code=3, says="broken.safetensors")
        self.apply(q=self.folder, code=3, says=".npy or .safetensors")
        self.apply(q=self.folder / "none.npy", code=3, says=["none.npy", "cannot be read"])
        self.apply(q=self.write_npy("i.npy", [1] * 64, (4, 2, 8), "<i8", "q"), code=3, says=["i.npy", "f32", "i64"])
        self.apply(q=self.write_npy("two.npy", [1] * 32, (4, 8)), code=3, says=["three or four axes", "2"])
        self.apply(q=self.write_npy("four.npy", [1] * 64, (1, 4, 2, 8)), code=2, says="--order")
        self.apply(q=self.write_npy("odd.npy", [1] * 56, (4, 2, 7)), code=3, says=["odd.npy", "heads of 7", "heads of 8"])
        # Arrays without elements are there all the same.
        for name, shape, says in [("dim", (4, 2, 0), ["heads of 0", "heads of 8"]), ("tokens", (0, 2, 8), ["0 tokens", "are 4"])]:
            self.apply(q=self.write_npy(f"{name}.npy", [], shape), code=3, says=[f"{name}.npy", *says])
        self.posenc("apply", SCHEME, "--q", self.write_npy("none.npy", [], (4, 0, 8)), "--positions", "0:4", "-o", self.folder / "o.npy")
        self.assertIn(b"o.npy: q f32 [4 x 0 x 8]", self.last.stderr)
        two = self.write_npy("two_rows.npy", [0, 1, 2, 3] * 2, (2, 4), "<i8", "q")
        self.apply(positions=two, code=3, says=["batch of 1", "2 rows"])

    def test_positions(self):
        for text, code in [("nan,1,2,3", 2), ("inf,1,2,3", 2), ("1e400,1,2,3", 2), ("9223372036854775808,1,2,3", 2),
                           ("0:", 2), (":", 2), ("1:2:3:4", 2), ("0:4:0", 2), ("[0,1,2,3", 2), ("1e20,1,2,3", 3),
                           ("0:3", 3), ("none.npy", 3)]:
            self.apply(positions=text, code=code, says="position" if text != "none.npy" else text)
        for text in ["4:0", "0:4:-1", "-1:-2"]:
            self.apply(positions=text, code=2, says=["positions", text, "is empty"])
        for bad in [math.nan, math.inf, -math.inf]:
            path = self.write_npy("bad.npy", [0, 1, 2, bad], (4,), "<f8", "d")
            self.apply(positions=path, code=3, says=["bad.npy", "positions must be finite", str(bad)])
            for what in ["angles", "cos", "sin", "cos_sin"]:
                self.error("table", SCHEME, "--positions", path, "--what", what, "-o", self.out, code=3,
                           says=["bad.npy", "positions must be finite"])
            self.error("table", "sinusoidal width=8", "--positions", path, "-o", self.out, code=3, says="must be finite")
            self.error("plot", SCHEME, "--kind", "rows", "--positions", path, "-o", self.out.parent / "p.svg", code=3,
                       says="must be finite")
        self.assertEqual(list(self.out.parent.iterdir()), [])
        self.apply(positions=self.write_npy("f4.npy", [1] * 4, (4,)), code=3, says=["i32, i64 or f64", "f32"])
        self.apply(positions=self.write_npy("many.npy", [1] * 4, (1, 1, 1, 4), "<i8", "q"), code=3, says="[t]")

    def test_huge_positions_turn(self):
        far = "2147483648,137438953472,9223372036854775807,-9223372036854775808"
        self.posenc("apply", SCHEME, "--q", self.q, f"--positions={far}", "-o", self.out)
        self.assertTrue(all(math.isfinite(v) for v in read_safetensors(self.out)["q"][2]))

    def test_zero_tokens_and_heads(self):
        for shape, positions in [((0, 2, 8), "0:0"), ((4, 0, 8), "0:4")]:
            path = self.write_npy("none.npy", [], shape)
            self.posenc("apply", SCHEME, "--q", path, "--positions", positions, "-o", self.out)
            self.assertEqual(read_safetensors(self.out)["q"][1], list(shape))

    def test_words(self):
        self.apply("--order", "xyz", code=2, says=["--order", "xyz"])
        self.apply("--mode", "up", code=2, says=["--mode", "up"])
        self.apply("--precision", "best", code=2, says=["--precision", "best"])
        self.apply("--bogus", code=2, says="--bogus")
        self.apply("--layer", "3", code=2, says=["--layer", "model"])
        self.apply("--reader", "transformers", code=2, says=["--reader", "model"])
        self.apply("--temperature", code=2, says="--temperature")
        self.apply("--format", "npy", code=2, says=["--format npy", "o.safetensors"])
        self.apply(code=3, says=["[rope]", "positive and even", "7"], scheme="rope head_dim=7 pairing=half_split")
        self.error("table", SCHEME, "--positions", "0:4", "--dtype", "f8", "-o", self.out, code=2, says=["--dtype", "f8"])
        self.error("table", LLAMA, "--positions", "0:4", "--arrays", self.q, "-o", self.out, code=2, says="--arrays")
        self.error("selftest", "--filter", "(", code=2, says="--filter")
        self.error("selftest", "--filter", "no such case", "--suite", SOURCE / "conformance" / "gguf", code=2,
                   says="no case matches")
        self.error("doctor", LLAMA, "--layer", "1", code=2, says="--layer")
        self.error("plot", SCHEME, "--kind", "decay", "--positions", "0:5", "-o", self.folder / "p.svg", code=2, says="--positions")
        self.error("plot", SCHEME, "-o", "-", code=2, says="--format svg, html or png")

    def test_a_pipe_is_read_and_a_stream_written(self):
        config = (LLAMA / "config.json").read_bytes()
        pipe = self.folder / "pipe"
        os.mkfifo(pipe)
        writer = subprocess.Popen(["sh", "-c", f"cat > '{pipe}'"], stdin=subprocess.PIPE)
        writer.stdin.write(config)
        writer.stdin.close()
        out = json.loads(self.posenc("explain", pipe, "--json"))
        writer.wait()
        same = json.loads(self.posenc("explain", "-", "--json", stdin=config))
        self.assertEqual([l["rotary"] for l in out["layers"]], [l["rotary"] for l in same["layers"]])
        self.assertTrue(self.posenc("plot", SCHEME, "-o", "-", "--format", "svg").startswith(b"<svg"))

    def test_outputs_that_cannot_be_written(self):
        nowhere = self.folder / "nowhere"
        for verb in [["table", SCHEME, "--what", "inv_freq", "-o", nowhere / "o.npy"],
                     ["apply", SCHEME, "--q", self.q, "--positions", "0:4", "-o", nowhere / "o.safetensors"],
                     ["plot", SCHEME, "-o", nowhere / "o.svg"]]:
            self.error(*verb, code=3, says=["nowhere/o.", "cannot be created"])
        self.assertFalse(nowhere.exists())
        self.error("table", SCHEME, "--what", "inv_freq", "-o", FULL, "--format", "npy", code=4,
                   says=[FULL, "No space left"])

    def test_a_full_disk_behind_stdout(self):
        for verb in [["list"], ["list", "--json"], ["explain", LLAMA], ["explain", LLAMA, "--json"], ["doctor", LLAMA],
                     ["man"], ["completion", "bash"], ["--help"],
                     ["table", SCHEME, "--what", "inv_freq", "-o", "-", "--format", "csv"]]:
            with open(FULL, "wb") as full:
                done = subprocess.run([PROGRAM, *map(str, verb)], stdout=full, stderr=subprocess.PIPE, timeout=60)
            self.assertEqual(done.returncode, 4, verb)
            self.assertIn(b"stdout cannot be written: No space left", done.stderr, verb)

    def test_a_limit_on_file_sizes_leaves_nothing(self):
        def limit():
            resource.setrlimit(resource.RLIMIT_FSIZE, (1024, 1024))
            signal.signal(signal.SIGXFSZ, signal.SIG_DFL)

        done = subprocess.run([PROGRAM, "table", SCHEME, "--positions", "0:9999", "-o", self.out], preexec_fn=limit,
                              stderr=subprocess.PIPE, timeout=60)
        self.assertEqual(done.returncode, 4)
        self.assertIn(b"File too large", done.stderr)
        self.assertEqual(list(self.out.parent.iterdir()), [])

    @unittest.skipIf("POSENC_SANITIZED" in os.environ, "a sanitizer maps more than any limit that a test could set")
    def test_not_enough_memory(self):
        def limit():
            resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))

        done = subprocess.run([PROGRAM, "table", SCHEME, "--positions", "0:500000000", "-o", self.out],
                              preexec_fn=limit, stderr=subprocess.PIPE, timeout=60)
        self.assertEqual(done.returncode, 4)
        self.assertIn(b"not enough memory", done.stderr)


main()
