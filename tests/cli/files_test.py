# SPDX-License-Identifier: Apache-2.0
"""Files, pipes, links and signals: nothing is waited for, read without an end, or left behind."""
import os
import pathlib
import resource
import signal
import time
import unittest

from command_line import *


class Files(Case):
    def test_names_of_files_reach_the_terminal_as_text(self):
        key = b"a\0\033[2J\xff"
        gguf = self.folder / "m.gguf"
        gguf.write_bytes(b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, len(key)) + key + struct.pack("<IQ", 99, 0))
        self.error("explain", gguf, code=3, says="m.gguf: a??[2J?: no value has type 99")
        config = self.folder / "config.json"
        config.write_text('{"\\u001b[31m\\u0000x": 1, "\\u001b[31m\\u0000x": 2}')
        self.error("explain", config, code=3, says="#/?[31m?x: the key occurs twice")
        header = b'{"\\u001b[2J": {"dtype": "F32", "shape": 1, "data_offsets": [0, 4]}}'
        q = self.folder / "q.safetensors"
        q.write_bytes(struct.pack("<Q", len(header)) + header + b"\0" * 4)
        self.error("apply", SCHEME, "--q", q, "--positions", "0", "-o", self.folder / "o.safetensors", code=3,
                   says="#/?[2J: shape must be a list")
        self.assertNotIn(b"\033", self.last.stderr)

    def test_pipes_beside_a_config_are_not_waited_for(self):
        (self.folder / "config.json").write_text((LLAMA / "config.json").read_text())
        for name in ["generation_config.json", "model.safetensors", "model.safetensors.index.json", "tokenizer_config.json"]:
            os.mkfifo(self.folder / name)
        self.posenc("doctor", self.folder)
        bert = self.folder / "bert"
        bert.mkdir()
        (bert / "config.json").write_text('{"model_type": "bert", "max_position_embeddings": 8, "hidden_size": 4}')
        os.mkfifo(bert / "model.safetensors")
        self.error("table", bert, "--positions", "0", "-o", self.folder / "o.npy", code=3, says="is not a regular file")
        other = self.folder / "other"
        other.mkdir()
        os.mkfifo(other / "config.json")
        self.error("explain", other, code=3, says="is not a regular file")

    def test_what_has_no_end_is_not_read_to_it(self):
        zero = self.folder / "zero.npy"
        zero.symlink_to("/dev/zero")
        out = self.folder / "o.safetensors"
        self.error("apply", SCHEME, "--q", zero, "--positions", "0", "-o", out, code=3, says="is no .npy file")
        (self.folder / "z.safetensors").symlink_to("/dev/zero")
        self.error("apply", SCHEME, "--q", self.folder / "z.safetensors", "--positions", "0", "-o", out, code=3, says="byte")
        with open("/dev/zero", "rb") as endless:
            done = subprocess.run([PROGRAM, "explain", "-"], stdin=endless, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120)
        self.assertEqual(done.returncode, 3)
        self.assertIn(b"at most 100 MB", done.stderr)

    def test_loops_of_links(self):
        a, b = self.folder / "a.json", self.folder / "b.json"
        a.symlink_to(b)
        b.symlink_to(a)
        self.error("explain", a, code=3, says="its symbolic links form a loop")
        loop = self.folder / "a.npy"
        loop.symlink_to(loop)
        self.error("table", SCHEME, "--what", "inv_freq", "-o", loop, code=3, says="its symbolic links form a loop")

    def test_replacing_keeps_the_mode_and_the_link(self):
        out = self.folder / "o.npy"
        out.write_bytes(b"")
        out.chmod(0o600)
        link = self.folder / "link.npy"
        link.symlink_to("o.npy")
        dangling = self.folder / "dangling.npy"
        dangling.symlink_to("target.npy")
        for path in [link, dangling]:
            self.posenc("table", SCHEME, "--what", "inv_freq", "-o", path)
            self.assertTrue(path.is_symlink())
        self.assertEqual(out.stat().st_mode & 0o777, 0o600)
        self.assertEqual((self.folder / "target.npy").read_bytes(), out.read_bytes())
        long = self.folder / ("n" * 240 + ".npy")
        self.posenc("table", SCHEME, "--what", "inv_freq", "-o", long)
        self.assertEqual(long.read_bytes(), out.read_bytes())

    def test_signals_leave_nothing(self):
        for number in [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]:
            out = self.folder / "o.npy"
            run = subprocess.Popen([PROGRAM, "table", "rope head_dim=512 pairing=half_split", "--positions", "0:200000", "-o", out],
                                   stderr=subprocess.PIPE)
            began = time.monotonic()
            while not list(self.folder.glob(".o.npy.*")) and run.poll() is None and time.monotonic() - began < 100:
                time.sleep(0.001)
            run.send_signal(number)
            run.communicate()
            if run.returncode == 0:  # too late: it was written
                out.unlink()
            else:
                self.assertEqual(run.returncode, -number)
            self.assertEqual(list(self.folder.iterdir()), [])

    def test_what_a_killed_run_left_is_removed_by_the_next(self):
        out = self.folder / "o.npy"
        words = [PROGRAM, "table", "rope head_dim=512 pairing=half_split", "--positions", "0:200000", "-o", out]
        for _ in range(20):
            run = subprocess.Popen(words, stderr=subprocess.PIPE)
            while not list(self.folder.glob(".o.npy.*")) and run.poll() is None:
                time.sleep(0.0005)
            run.kill()
            run.communicate()
            if list(self.folder.glob(".o.npy.*")):
                break
            out.unlink(missing_ok=True)  # too late: it was written
        self.assertEqual(len(list(self.folder.glob(".o.npy.posenc-*.part"))), 1)
        self.posenc("table", SCHEME, "--positions", "0:4", "-o", out)
        self.assertEqual(list(self.folder.iterdir()), [out])

    @unittest.skipIf("POSENC_SANITIZED" in os.environ, "a sanitizer maps more than any limit that a test could set")
    def test_what_is_too_much_is_said_with_its_size(self):
        limit = lambda: resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
        done = subprocess.run([PROGRAM, "table", SCHEME, "--positions", "0:500000000", "-o", self.folder / "o.npy"],
                              preexec_fn=limit, stderr=subprocess.PIPE, timeout=60)
        self.assertEqual(done.returncode, 4)
        self.assertIn(b"not enough memory: 3.73 GiB were asked for", done.stderr)
        self.error("table", SCHEME, "--positions", "0:9000000000", "-o", self.folder / "o.npy", code=2,
                   says="at most 4294967296 positions in one call, got 9000000000")


main()
