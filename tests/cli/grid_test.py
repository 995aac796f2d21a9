# SPDX-License-Identifier: Apache-2.0
"""attend on a grid: tables of each axis (ViTDet, SAM) on the grid of the call, and grids that nobody stated."""
from weights import *


def stored(path, name):
    """An array of doubles of a .safetensors file, flat."""
    raw = path.read_bytes()
    size = struct.unpack("<Q", raw[:8])[0]
    begin, end = (8 + size + x for x in json.loads(raw[8:8 + size])[name]["data_offsets"])
    return struct.unpack(f"<{(end - begin) // 8}d", raw[begin:end])


# Tables of 4 x 4 patches: row r of rel_pos_h is (r, 1 - r / 2), of rel_pos_w (r^2 / 10, 2 - r). Numbers of
# transformers 5.23, add_decomposed_relative_positions on a grid of 6 x 5, which resizes them; the file has
# them in float32.
VITDET = {"model_type": "vitdet", "hidden_size": 4, "num_attention_heads": 2, "num_hidden_layers": 2, "image_size": 16,
          "patch_size": 4, "pretrain_image_size": 16, "use_relative_position_embeddings": True,
          "use_absolute_position_embeddings": False, "window_size": 2, "window_block_indices": [1]}
ON_6X5 = {(0, 0): -0.09, (0, 29): -0.6, (29, 0): 4.44, (13, 7): 1.5353535353535357, (17, 22): -1.1563636363636367,
          (4, 5): 2.3545454545454545}


class Grid(ModelCase):
    def setUp(self):
        super().setUp()
        h, w = [[r, 1 - r / 2] for r in range(7)], [[r * r / 10, 2 - r] for r in range(7)]
        layer = "encoder.layer.{}.attention.rel_pos_{}"
        table = lambda rows: ("F32", [len(rows), 2], [x for row in rows for x in row])  # noqa: E731
        self.model_folder = self.model(VITDET, {layer.format(0, "h"): table(h), layer.format(0, "w"): table(w),
                                                layer.format(1, "h"): table(h[:3]), layer.format(1, "w"): table(w[:3])})
        self.q, self.k = (self.write(name, 30, f) for name, f in (("q", 1), ("k", 0)))
        cells = [i // 5 for i in range(30)] + [i % 5 for i in range(30)]
        self.cells = self.write_npy("cells.npy", cells, (2, 1, 30), "<i8", "q")

    def write(self, name, tokens, factor):
        q = [factor * x for i in range(tokens) for _ in range(2)
             for x in (0.1 * ((7 * i + 3) % 11) - 0.4, 0.05 * ((5 * i + 2) % 13) - 0.3)]
        return self.write_npy(f"{name}{tokens}.npy", q, (tokens, 2, 2), "<f8", "d")

    def words(self, *more):
        return ["--q", self.q, "--k", self.k, "--v", self.k, *more, "-o", self.folder / "o.safetensors"]

    def scores(self, subject, *more):
        self.posenc("attend", subject, *self.words("--scores", *more))
        return stored(self.folder / "o.safetensors", "scores")

    def test_tables_of_each_axis_on_the_grid_of_the_call(self):
        for more in (["--grid", "6x5"], ["--assume", "grid=6x5"], ["--grid", "6x5", "--positions", self.cells],
                     ["--grid", "6x5", "--positions", "0:30"]):
            scores = self.scores(self.model_folder, "--layer", "0", *more)
            for (i, j), want in ON_6X5.items():
                self.assertAlmostEqual(scores[30 * i + j], want, delta=1e-7, msg=more)

    def test_the_grid_is_never_guessed(self):
        error = lambda *more, **kw: self.error("attend", self.model_folder, *self.words(*more), **kw)  # noqa: E731
        error("--layer", "0", code=3, says=["4x4 has 16 cells", "30 queries", "--grid HxW"])
        error("--layer", "0", "--positions", self.cells, code=3, says=["rows 0 to 5", "a grid of 4x4", "--grid"])
        error("--layer", "0", "--positions", self.cells, "--grid", "5x5", code=3, says="row 5, beyond --grid 5x5")
        error("--layer", "0", "--grid", "5x5", code=3, says=["5x5 has 25 cells", "30 queries"])
        error("--layer", "1", "--grid", "6x5", code=3, says="windows of 2x2 patches")
        error("--layer", "0", "--grid", "30", code=2, says="--grid must be HxW")
        error("--layer", "0", "--assume", "grid=6y5", code=3, says="grid must be HxW")
        self.error("attend", "decomposed size=[4,4]", *self.words("--grid", "6x5", "--start", "1"), code=2,
                   says="size=[6,5] table_rows=[7,7]")
        self.error("attend", "swin height=7 width=7", *self.words("--start", "1"), code=3, says="7x7 has 49 cells")
        beit = self.folder / "beit.json"
        beit.write_text('{"model_type": "beit", "use_relative_position_bias": true}')
        self.posenc("explain", beit, "--assume", "grid=14x14")
        found = json.loads(self.posenc("doctor", beit, "--assume", "grid=6x5", "--json", code=1))["findings"]
        fixes = [f["fix"] for f in found if f["where"] == "--assume grid"]
        self.assertIn("--suffix 3 --how bilinear --to 11x9", " ".join(fixes))

    def test_the_grid_of_the_scheme_itself(self):
        self.q, self.k = self.write("q", 16, 1), self.write("k", 16, 0)
        own = self.scores(self.model_folder, "--layer", "0")
        self.assertEqual(self.scores(self.model_folder, "--layer", "0", "--grid", "4x4"), own)
        # Query 5 (1, 1) and key 2 (0, 2): rows 1 - 0 + 3 and 1 - 2 + 3.
        q = (0.1 * ((7 * 5 + 3) % 11) - 0.4, 0.05 * ((5 * 5 + 2) % 13) - 0.3)
        self.assertAlmostEqual(own[16 * 5 + 2], q[0] * (4 + 0.4) + q[1] * (-1 + 0), delta=1e-7)

    # LevitAttentionSubsample on 3 x 3 patches: query n of the 2 x 2 is at twice its row and column.
    def test_queries_at_every_second_place(self):
        table = [x / 16 for x in range(9)]
        levit = self.model({"model_type": "levit", "image_size": 48, "depths": [1, 1, 1], "hidden_sizes": [16, 16, 16]},
                           {"encoder.stages.0.layers.2.attention_biases": ("F32", [2, 9], table + table)}, name="levit")
        self.q, self.k = self.write("q", 4, 0), self.write("k", 9, 0)
        want = [table[3 * abs(2 * (i // 2) - j // 3) + abs(2 * (i % 2) - j % 3)] for i in range(4) for j in range(9)]
        self.assertEqual(list(self.scores(levit, "--layer", "1"))[:36], want)
        self.assertEqual(list(self.scores(levit, "--layer", "1", "--positions", "0,2,6,8", "--grid", "3x3"))[:36], want)
        self.error("attend", levit, "--layer", "0", *self.words(), code=3, says=["3x3 has 9 cells", "4 queries"])
        self.error("attend", levit, "--layer", "1", *self.words("--grid", "4x4"), code=3, says=["4x4", "16 cells", "9 keys"])


if __name__ == "__main__":
    main()
