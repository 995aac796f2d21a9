# SPDX-License-Identifier: Apache-2.0
"""table, plot and doctor of rows that stand on the cells of an image."""
from weights import *


class ImageRows(ModelCase):
    MAE = {"model_type": "vit_mae", "hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 1, "image_size": [16, 16],
           "patch_size": 8, "decoder_hidden_size": 4, "decoder_num_attention_heads": 1, "decoder_num_hidden_layers": 1}

    @staticmethod
    def mae_table(side, width):
        """Row by row, the column's sines and cosines first, behind a row of zeros (transformers' ViTMAE)."""
        def axis(p):
            angles = [p * 10000 ** (-4 * m / width) for m in range(width // 4)]
            return [math.sin(a) for a in angles] + [math.cos(a) for a in angles]
        return [0.0] * width + [v for r in range(side) for c in range(side) for v in axis(c) + axis(r)]

    def test_the_table_of_an_image(self):
        """Positions count the rows of the model's own table: the class token, then patches row by row."""
        path = self.model(self.MAE)
        want = self.mae_table(2, 8)
        shape, got = self.rows(path, "--positions", "0:5")
        self.assertEqual(shape, (5, 8))
        self.near(got, want)
        self.near(self.rows(path, "--positions", "3,0")[1], want[24:32] + want[:8])
        self.near(self.rows(path, "--tower", "decoder", "--positions", "0:5")[1], self.mae_table(2, 4))
        cell = self.write_npy("cell.npy", [1, 0], [2, 1, 1], "<i8", "q")  # coordinates: row 1, column 0
        self.near(self.rows(path, "--positions", cell)[1], want[24:32])
        out = ["-o", self.folder / "x.npy"]
        for wrong in ["5", "-1", "0:6"]:
            self.error("table", path, f"--positions={wrong}", *out, code=3, says=["config.json", "0 to 4", "2 x 2 cells", "doctor"])
        half = self.write_npy("half.npy", [0.5], [1], "<f8", "d")
        self.error("table", path, "--positions", half, *out, code=3, says="got 0.5")
        for name, at in [("row", [2, 0]), ("column", [0, -1])]:
            beyond = self.write_npy("beyond.npy", at, [2, 1, 1], "<i8", "q")
            self.error("table", path, "--positions", beyond, *out, code=3, says=["2 x 2 cells", f"no {name} {at[name == 'column']}"])
        self.error("table", path, "--grid", "2x2", "--positions", "0", *out, code=2, says=["2 x 2 cells", "extend"])
        entry = json.loads(self.posenc("explain", path, "--json"))["input"][0]
        self.assertEqual((entry["positions"], entry["grid"]), (5, {"rows": 2, "columns": 2, "coordinates": "index"}))
        text = self.posenc("explain", path).decode()
        for words in ["5 rows: 1 in front, then patches row by row", "embeddings.position_embeddings", "decoder tower"]:
            self.assertIn(words, text)
        report = json.loads(self.posenc("doctor", path, "--context", "6", "--json", code=1))
        self.assertEqual([f["value"] for f in report["findings"] if f["code"] == "context_beyond_table"], [5])
        (panel, data), = self.plot(path, "--kind", "rows")
        self.assertEqual((self.labels(panel)[1], len(data["rows"])), ("position [row of the table]", 5))

    def test_a_stored_table_that_the_class_does_not_make(self):
        name, want = "vit.embeddings.position_embeddings", self.mae_table(2, 8)
        path = self.model(self.MAE, {name: ("F32", [1, 5, 8], want)})
        self.rows(path, "--positions", "0:5")
        self.assertNotIn("table_", self.last.stderr.decode())
        for stored, code, fails in [([0.0] * 40, "table_zero", 1), (want[:39] + [0.5], "table_differs", 0)]:
            path = self.model(self.MAE, {name: ("F32", [1, 5, 8], stored)})
            self.near(self.rows(path, "--positions", "0:5")[1], want)  # the class's, with a word
            self.assertIn(code, self.last.stderr.decode())
            self.assertIn("the rows that the class makes", self.last.stderr.decode())
            report = json.loads(self.posenc("doctor", path, "--json", code=fails))
            self.assertIn(code, [f["code"] for f in report["findings"]])

    def test_cells_of_each_image(self):
        detr = self.model({"model_type": "detr", "d_model": 8})

        def angles(i, n):  # counted from 1, divided by the last, times 2 pi
            turn = (i + 1) / (n + 1e-6) * 2 * math.pi
            return [f(turn * scale) for scale in (1, 0.01) for f in (math.sin, math.cos)]
        want = [v for r in range(2) for c in range(3) for v in angles(r, 2) + angles(c, 3)]
        self.near(self.rows(detr, "--grid", "2x3", "--positions", "0:6")[1], want)
        self.near(self.rows(detr, "--grid", "2x3", "--positions", "5,1")[1], want[40:] + want[8:16])
        turn = 2 * math.pi / (1 + 1e-6)
        at = self.write_npy("at.npy", [turn, turn / 2], [2, 1, 1], "<f8", "d")  # as the class counts
        self.near(self.rows(detr, "--positions", at)[1], angles(0, 1) + angles(0, 2), 1e-5)
        out = ["-o", self.folder / "x.npy"]
        self.error("table", detr, "--positions", "0:4", *out, code=3, says=["config.json", "each image", "--grid HxW", ".npy"])
        self.error("plot", detr, "--kind", "rows", "-o", self.folder / "x.svg", code=3, says=["each image", "give --grid"])
        self.error("table", detr, "--grid", "2x3", "--positions", "6", *out, code=3, says=["0 to 5", "2 x 3", "got 6"])
        self.error("table", detr, "--grid", "2x3", "--positions", at, *out, code=2, says=["--grid", "2 axes"])
        for wrong in ["6", "2x0", "2x3x4", "axb"]:
            self.error("table", detr, "--grid", wrong, "--positions", "0", *out, code=2, says=["--grid", f'"{wrong}"'])
        self.error("table", self.model(BERT, name="bert"), "--grid", "2x3", "--positions", "0", *out, code=2, says=["--grid", "no rows and columns"])
        self.error("table", LLAMA, "--grid", "2x3", "--positions", "0", *out, code=2, says="--grid means nothing")
        self.assertIn("cells of each image row by row", self.posenc("explain", detr).decode())
        # A SCHEME counts from 0.
        flat = self.rows("sinusoidal_nd widths=[4,4] stream=[1,0] layout=halves", "--grid", "2x2", "--positions", "0:4")[1]
        self.near(flat, self.mae_table(2, 8)[8:])
        self.error("table", "sinusoidal width=8", "--grid", "2x2", "--positions", "0", *out, code=3, says="2 axes")
        self.assertFalse((self.folder / "x.npy").exists())


main()
