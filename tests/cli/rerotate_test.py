# SPDX-License-Identifier: Apache-2.0
"""posenc rerotate: moved keys are those that apply rotates for the new positions; verdicts, files, refusals."""
from command_line import *

YARN = "rope head_dim=8 pairing=half_split + yarn factor=4 original_context=64"
OTHER = "rope head_dim=8 pairing=interleaved"


class Rerotate(Case):
    def cached(self, name, at, scheme=SCHEME):
        keys = self.write_npy("k.npy", [math.sin(i) for i in range(48)], (3, 2, 8))
        path = self.folder / name
        self.posenc("apply", scheme, "--k", keys, "--positions", at, "-o", path)
        return path

    def move(self, keys, *words, code=0):
        return json.loads(self.posenc("rerotate", keys, *words, "--json", code=code))

    def test_moved_keys_are_those_of_the_new_positions(self):
        for to in (SCHEME, YARN):
            cached = self.cached("cached.npy", "100,103,90")
            want = read_npy(self.cached("want.npy", "7,3,2000", to).read_bytes())
            out = self.folder / "moved.safetensors"
            said = self.move(cached, "--from", SCHEME, "--to", to, "--old-positions", "100,103,90",
                             "--new-positions", "7,3,2000", "-o", out)
            self.assertEqual((said["schema"], said["verdict"], said["output"]), ("posenc.rerotate/1", "moved", str(out)))
            self.assertLess(said["bound"], 3.1e-7)
            dtype, shape, moved = read_safetensors(out)["keys"]
            self.assertEqual((dtype, tuple(shape)), ("F32", (3, 2, 8)))
            self.assertLess(max(abs(a - b) for a, b in zip(moved, want[1])), 1e-6)

    def test_kept_keys_are_the_same_bytes(self):
        cached = self.cached("cached.npy", "5:8")
        out = self.folder / "kept.npy"
        said = self.move(cached, "--from", SCHEME, "--old-positions", "5:8", "--new-positions", "5:8", "-o", out)
        self.assertEqual((said["verdict"], said["bound"]), ("kept", 0))
        self.assertEqual(out.read_bytes(), cached.read_bytes())

    def test_check_and_refusals_write_nothing(self):
        cached = self.cached("cached.npy", "5:8")
        before, where = sorted(self.folder.iterdir()), ["--old-positions", "5:8", "--new-positions", "0:3"]
        said = self.move(cached, "--from", SCHEME, *where, "--check")
        self.assertEqual((said["verdict"], said["output"]), ("moved", None))
        out = self.folder / "out.npy"
        said = self.move(cached, "--from", SCHEME, "--to", OTHER, *where, "-o", out, code=1)
        self.assertEqual((said["verdict"], said["bound"], said["output"]), ("refused", None, None))
        self.assertIn("pairing", said["reason"])
        far = ["--old-positions", "5:8", "--new-positions", "137438953473,0,1"]
        said = self.move(cached, "--from", SCHEME, *far, "-o", out, code=1)
        self.assertIn("new positions must be at most 2^37, got 137438953473", said["reason"])
        text = self.posenc("rerotate", cached, "--from", SCHEME, *where, "--check").decode()
        self.assertTrue(text.startswith("moved: "))
        self.assertIn(" of its length\n", text)
        self.assertIn("not recomputed", text)
        self.assertEqual(sorted(self.folder.iterdir()), before)

    def test_blocks_of_q8_0(self):
        # Two heads of 32: scale 2^-4, bytes 16 and 0: pairs (1, 0), moved by a turn of pair 0 alone.
        block = [0x00, 0x2c] + [16] * 16 + [0] * 16
        keys = self.write_npy("q.npy", block * 2, (1, 2, 34), "|u1", "B")
        scheme = "rope head_dim=32 pairing=half_split base=10000"
        out = self.folder / "moved.npy"
        said = self.move(keys, "--from", scheme, "--old-positions", "0:1", "--new-positions", "1:2", "-o", out)
        self.assertAlmostEqual(said["bound"], 7.878e-3, places=5)
        _, moved = read_npy(out.read_bytes())
        scale = struct.unpack("<e", bytes(moved[:2]))[0]
        numbers = [scale * (b - 256 if b > 127 else b) for b in moved[2:34]]
        for i in range(16):
            angle = 10000 ** (-i / 16)
            self.assertAlmostEqual(numbers[i], math.cos(angle), delta=0.008)
            self.assertAlmostEqual(numbers[16 + i], math.sin(angle), delta=0.008)
        self.assertEqual(moved[:34], moved[34:])
        partial = "rope head_dim=32 rotary_dim=16 pairing=half_split"
        where = ["--old-positions", "0:1", "--new-positions", "1:2", "--check"]
        self.assertIn("cut_blocks", self.move(keys, "--from", partial, *where, code=1)["reason"])
        self.assertEqual(self.move(keys, "--from", partial, *where, "--cut-blocks")["verdict"], "moved")

    def test_wrong_words(self):
        cached = self.cached("cached.npy", "5:8")
        where = ["--old-positions", "5:8", "--new-positions", "0:3"]
        words = ["rerotate", cached, "--from", SCHEME]
        self.error(*words, *where, code=2, says="rerotate needs -o F, or --check")
        self.error(*words, *where, "--check", "-o", self.folder / "o.npy", code=2, says="--check writes nothing")
        self.error(*words, *where, "-o", cached, code=2, says="the file that is read")
        self.error(*words, "--old-positions", "5:8", "--new-positions", "0:4", "--check", code=3,
                   says="has 3 tokens, and --new-positions are 4")
        self.error("rerotate", cached, "--from", "rope head_dim=16 pairing=half_split", *where, "--check", code=1, says="")
        whole = self.write_npy("i.npy", [1] * 48, (3, 2, 8), "<i8", "q")
        self.error("rerotate", whole, "--from", SCHEME, *where, "--check", code=3, says="must be f64, f32, f16, bf16 or u8")


main()
