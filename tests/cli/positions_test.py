# SPDX-License-Identifier: Apache-2.0
"""posenc positions: rules by name, arrays from files and lists, refusals by option, no partial file."""
from command_line import *

RING = SOURCE / "conformance" / "attention"


class Positions(Case):
    def made(self, *arguments):
        path = self.folder / "p.npy"
        self.posenc("positions", *arguments, "-o", path)
        return read_npy(path.read_bytes())

    def test_text(self):
        self.assertEqual(self.made("arange first=5 count=3 step=-2"), ((3,), (5, 3, 1)))
        self.assertEqual(self.made("packed", "--cu-seqlens", "0,3,3,5"), ((5,), (0, 1, 2, 0, 1)))
        self.assertEqual(self.made("packed_lengths", "--lengths", "3,2"), ((5,), (0, 1, 2, 0, 1)))
        self.assertEqual(self.made("decode count=2", "--lengths", "3,7"), ((2, 2), (3, 4, 7, 8)))
        mask = self.write_npy("m.npy", [0, 0, 1, 1, 1, 0, 1, 1], (2, 4), "<i8", "q")
        self.assertEqual(self.made("left_padded padded=1", "--mask", self.write_npy("l.npy", [0, 0, 1, 1], (1, 4), "<i8", "q")), ((4,), (1, 1, 0, 1)))
        self.assertEqual(self.made("from_mask padded=1", "--mask", mask), ((2, 4), (1, 1, 0, 1, 0, 1, 1, 2)))
        # RoBERTa: positions of real tokens begin at padding_idx + 1.
        self.assertEqual(self.made("fairseq padding_idx=1", "--tokens", "0,31414,232,2,1,1"), ((6,), (2, 3, 4, 5, 1, 1)))

    def test_shards_are_those_of_ring_flash_attention(self):
        # Head and tail of 8 chunks of 2 tokens: the ranks of conformance/attention, ring_zigzag.
        cases = {c["name"]: c for c in json.loads((RING / "cases.json").read_text())["cases"]}
        self.assertIn("ring_zigzag", cases)
        for rank, want in enumerate([(0, 1, 14, 15), (2, 3, 12, 13), (4, 5, 10, 11), (6, 7, 8, 9)]):
            self.assertEqual(self.made(f"shard tokens=16 ranks=4 rank={rank} layout=zigzag"), ((4,), want))

    def test_grids_and_images(self):
        self.assertEqual(self.made("grid shape=[2,2]"), ((2, 1, 4), (0, 0, 1, 1, 0, 1, 0, 1)))
        self.assertEqual(self.made("patch_centres rows=1 columns=2"), ((2, 1, 2), (0, 0, -0.5, 0.5)))
        types = self.write_npy("t.npy", [0, 1, 1, 1, 1, 0], (1, 6), "<i8", "q")
        grid = self.write_npy("g.npy", [1, 4, 4], (1, 3), "<i8", "q")
        words = ["mrope", "--token-types", types, "--image-grid", grid]
        # Qwen2-VL: text 0, a grid of 2 x 2 at 1, text at 1 + max(2, 2); delta = 4 - 6.
        want = (0, 1, 1, 1, 1, 3, 0, 1, 1, 2, 2, 3, 0, 1, 2, 1, 2, 3)
        self.assertEqual(self.made(*words), ((3, 1, 6), want))
        out = self.folder / "p.safetensors"
        report = json.loads(self.posenc("positions", *words, "-o", out, "--json"))
        self.assertEqual(report["schema"], "posenc.positions/1")
        self.assertEqual(report["arrays"], {"delta": {"dtype": "f64", "shape": [1]}, "positions": {"dtype": "i64", "shape": [3, 1, 6]}})
        self.assertEqual(tuple(read_safetensors(out)["delta"][2]), (-2.0,))

    def test_the_file_is_what_other_verbs_read(self):
        path = self.folder / "p.npy"
        self.posenc("positions", "packed", "--cu-seqlens", "0,2,4", "-o", path)
        rows = self.posenc("table", SCHEME, "--positions", path, "--what", "cos", "-o", "-", "--format", "csv").decode().split()[1:]
        self.assertEqual(rows[:2], rows[2:])
        self.assertEqual(self.posenc("positions", "arange count=2", "-o", "-", "--format", "csv"), b"positions\n0\n1\n")

    def test_refusals_name_the_option(self):
        out = self.folder / "p.npy"
        for words, code, says in (
                (["left_padded"], 2, "left_padded needs --mask"), (["mrope"], 2, "needs --token-types"),
                (["arange count=3", "--mask", "1,1"], 2, "--mask is not read by arange, which reads no array"),
                (["packed", "--cu-seqlens", "0,3", "--lengths", "3"], 2, "--lengths is not read by packed, which reads --cu-seqlens"),
                (["packed", "--cu-seqlens", "cu.bin"], 2, "--cu-seqlens must be a file"),
                (["packed", "--cu-seqlens", "1,3"], 3, "[packed]"), (["fairseq padding_idx=1", "--tokens", "0.5,1"], 3, "[from_tokens]"),
                (["arrange count=3"], 3, "one of arange, from_mask"), (["arange"], 3, "arange needs count="),
                (["arange count=3 stride=1"], 3, "one of first, count, step"), (["grid shape=4"], 3, "shape of grid"),
                (["packed", "--cu-seqlens", self.folder / "none.npy"], 3, "none.npy")):
            self.error("positions", *words, "-o", out, code=code, says=says)
            self.assertEqual(list(self.folder.iterdir()), [], words)
        self.error("positions", "arange count=3", code=2, says="--output is required")
        self.error("positions", "arange count=3", "-o", "-", "--format", "npy", "--json", code=2, says="cannot both")
        self.posenc("positions", "arange count=3", "-o", out)
        self.error("positions", "reversed", "--positions", out, "-o", out, code=2, says="the file that is read")


main()
