# SPDX-License-Identifier: Apache-2.0
"""posenc extend on files: numbers, what stays byte for byte, what is refused and leaves nothing behind."""
import pathlib

from command_line import *


def write_file(path, tensors, metadata=None):
    """tensors: name -> (dtype, shape, bytes), in the order of the data."""
    header, data = {}, b""
    if metadata is not None:
        header["__metadata__"] = metadata
    for name, (dtype, shape, content) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


def read_file(path):
    raw = path.read_bytes()
    size = struct.unpack("<Q", raw[:8])[0]
    header, data = json.loads(raw[8:8 + size]), raw[8 + size:]
    metadata = header.pop("__metadata__", None)
    covered = 0
    for e in sorted(header.values(), key=lambda e: e["data_offsets"]):
        assert e["data_offsets"][0] == covered
        covered = e["data_offsets"][1]
    assert covered == len(data)
    return metadata, {n: (e["dtype"], e["shape"], data[slice(*e["data_offsets"])]) for n, e in header.items()}


def f32(values):
    return struct.pack(f"<{len(values)}f", *values)


def floats(content):
    return struct.unpack(f"<{len(content) // 4}f", content)


class Extend(Case):
    def setUp(self):
        super().setUp()
        self.file = self.folder / "in.safetensors"
        self.out = self.folder / "out.safetensors"
        # A float8 tensor, an empty one and an odd number of bytes: all copied, none understood.
        self.tensors = {
            "word.weight": ("F8_E4M3", [3], b"\x01\x80\xff"),
            "position.weight": ("F32", [4, 2], f32([0, 10, 1, 11, 4, 14, 9, 19])),
            "none": ("F32", [0, 7], b""),
            "embeddings.position_ids": ("I64", [1, 4], struct.pack("<4q", 0, 1, 2, 3)),
            "norm": ("BF16", [2], b"\x80\x3f\xc0\x7f"),
        }
        write_file(self.file, self.tensors, {"format": "pt", "é": "\u2028\"\\"})

    def refused(self, *options, says, code=3, tensor="position.weight", file=None):
        self.error("extend", file or self.file, "--tensor", tensor, *options, "-o", self.out, code=code, says=says)
        self.assertFalse(self.out.exists())
        self.assertEqual([p.name for p in self.folder.iterdir() if p.name.endswith(".part")], [])

    def test_linear_and_everything_else(self):
        text = self.posenc("extend", self.file, "--tensor", "position.weight", "--to", 8, "--how", "linear",
                           "-o", self.out).decode()
        self.assertIn("[4, 2] -> [8, 2]", text)
        self.assertIn("position_ids", self.last.stderr.decode())
        metadata, got = read_file(self.out)
        self.assertEqual(metadata, {"format": "pt", "é": "\u2028\"\\"})
        self.assertEqual(list(got), list(self.tensors))
        for name, tensor in self.tensors.items():
            if name != "position.weight":
                self.assertEqual((got[name][0], got[name][1], got[name][2]), tensor, name)
        dtype, shape, content = got["position.weight"]
        self.assertEqual((dtype, shape), ("F32", [8, 2]))
        want = [0, .25, .75, 1.75, 3.25, 5.25, 7.75, 9]
        self.assertEqual(list(floats(content))[::2], want)
        for a, b in zip(floats(content)[1::2], want):
            self.assertAlmostEqual(a, b + 10, places=5)

    def test_hierarchical_keeps_the_old_rows(self):
        report = json.loads(self.posenc("extend", self.file, "--tensor", "position.weight", "--to", 16, "--how",
                                        "hierarchical", "--json", "-o", self.out))
        self.assertEqual(report["schema"], "posenc.extend/1")
        self.assertEqual(report["to"]["shape"], [16, 2])
        self.assertEqual(report["tensors_copied"], 4)
        content = read_file(self.out)[1]["position.weight"][2]
        self.assertEqual(content[:32], self.tensors["position.weight"][2])
        self.assertAlmostEqual(floats(content)[2 * 7], 9 + 2 / 3 * (1 - 0), places=5)
        self.out.unlink()
        self.refused("--to", 17, "--how", "hierarchical", says="n^2")

    def test_grid_with_a_class_row(self):
        table = f32([7, 7] + [float(i) for i in range(18)])
        write_file(self.file, {"pos": ("F32", [1, 10, 2], table)})
        self.refused("--to", "6x6", "--how", "bicubic", tensor="pos", says=["10 rows", "3x3 with --prefix 1"])
        self.posenc("extend", self.file, "--tensor", "pos", "--to", "2x5", "--how", "bilinear", "--prefix", 1,
                    "--align-corners", "-o", self.out)
        dtype, shape, content = read_file(self.out)[1]["pos"]
        self.assertEqual(shape, [1, 11, 2])
        got = floats(content)
        self.assertEqual(got[:2], (7, 7))
        for y in range(2):
            for x in range(5):
                self.assertAlmostEqual(got[2 + 2 * (5 * y + x)], 12 * y + x, places=5)

    def test_stretch_puts_row_o_at_o_over_factor(self):
        """Position interpolation as LongEmbed (last rows repeat) and Long-CLIP (first rows kept, the line goes on)."""
        stretch = ["extend", self.file, "--tensor", "position.weight", "--how", "stretch", "-o", self.out]
        self.posenc(*stretch, "--to", 16)
        got = floats(read_file(self.out)[1]["position.weight"][2])[::2]
        old = [0, 1, 4, 9, 9]
        self.assertEqual(list(got), [old[o // 4] + o % 4 / 4 * (old[o // 4 + 1] - old[o // 4]) for o in range(16)])
        self.posenc(*stretch, "--to", 13, "--prefix", 1, "--border", "extrapolate")
        got = floats(read_file(self.out)[1]["position.weight"][2])[::2]
        old = [1, 4, 9, 14]  # beyond the last row the last step goes on
        self.assertEqual(list(got), [0] + [old[o // 4] + o % 4 / 4 * (old[o // 4 + 1] - old[o // 4]) for o in range(12)])
        self.posenc(*stretch, "--to", 6, "--scale", 2)  # a factor that is not new / old
        self.assertEqual(list(floats(read_file(self.out)[1]["position.weight"][2])[::2]), [0, .5, 1, 2.5, 4, 6.5])
        self.out.unlink()
        for more in (["--align-corners"], ["--antialias"], ["--offset", 0.1], ["--border", "renormalise"]):
            self.refused("--to", 8, "--how", "stretch", *more, code=2, says="--how stretch has --scale and --border")
        self.refused("--to", 8, "--how", "linear", "--border", "extrapolate", code=2, says="belongs to --how stretch")
        self.refused("--to", "8x8", "--how", "stretch", code=2, says="--to N")

    def test_tile_copies_the_rows_again(self):
        """Longformer: rows in front kept, row p + i is old row p + i mod n."""
        self.posenc("extend", self.file, "--tensor", "position.weight", "--how", "tile", "--prefix", 1, "--to", 9,
                    "-o", self.out)
        row = lambda i: self.tensors["position.weight"][2][8 * i:8 * i + 8]  # noqa: E731
        self.assertEqual(read_file(self.out)[1]["position.weight"][2],
                         row(0) + b"".join(row(1 + i % 3) for i in range(8)))
        self.out.unlink()
        self.refused("--to", 9, "--how", "tile", "--scale", 2, code=2, says="--how tile has none of")

    def test_hints_look_at_the_name(self):
        beit = "beit.encoder.layer.0.attention.attention.relative_position_bias.relative_position_bias_table"
        write_file(self.file, {beit: ("F32", [28, 1], f32(range(28))), "vision.positional_embedding_vlm": ("F32", [10, 1], f32(range(10))),
                               "pos": ("F32", [11, 1], f32(range(11)))})
        self.refused("--to", "9x9", "--how", "bilinear", tensor=beit, says=["28 rows", "5x5 with --suffix 3"])
        self.refused("--to", "9x9", "--how", "bilinear", "--prefix", 3, tensor=beit, says=["no rows in front", "--suffix 3"])
        self.refused("--to", "4x4", "--how", "bilinear", tensor="vision.positional_embedding_vlm",
                     says="3x3 with --suffix 1: the class token of Llama 4")
        self.refused("--to", "4x4", "--how", "bilinear", tensor="pos", says="3x3 with --prefix 2")
        self.posenc("extend", self.file, "--tensor", beit, "--to", "9x9", "--how", "bilinear", "--suffix", 3, "-o", self.out)
        self.assertEqual(floats(read_file(self.out)[1][beit][2])[-3:], (25, 26, 27))
        self.posenc("extend", self.file, "--tensor", "vision.positional_embedding_vlm", "--to", "4x4", "--how", "bilinear",
                    "--prefix", 1, "-o", self.out)
        self.assertIn("--suffix 1", self.last.stderr.decode())

    def test_sizes_that_do_not_exist(self):
        swin = "encoder.layers.0.blocks.0.attention.self.relative_position_bias_table"
        t5 = "block.0.layer.0.SelfAttention.relative_attention_bias.weight"
        write_file(self.file, {swin: ("F32", [9, 2], f32(range(18))), t5: ("F32", [4, 2], f32(range(8))),
                               "blocks.0.attn.rel_pos_h": ("F32", [5, 2], f32(range(10)))})
        self.refused("--to", "4x4", "--how", "bicubic", tensor=swin, says=["2 N - 1", "4x4", "--rows positions"])
        self.refused("--to", "25", "--how", "linear", tensor=swin, says=["two axes", "linear"])
        self.refused("--to", "6", "--how", "linear", tensor="blocks.0.attn.rel_pos_h", says=["2 N - 1", "means 6"])
        for how in ("linear", "stretch", "tile"):
            self.refused("--to", "8", "--how", how, tensor=t5, says=["buckets", "cannot be resized", "keep 4"])
        self.refused("--to", "8", "--how", "linear", "--rows", "bucket", tensor=t5, code=2, says="--rows")
        self.posenc("extend", self.file, "--tensor", swin, "--to", "5x5", "--how", "bicubic", "-o", self.out)
        self.posenc("extend", self.file, "--tensor", "blocks.0.attn.rel_pos_h", "--to", "7", "--how", "linear", "-o", self.out)
        self.posenc("extend", self.file, "--tensor", t5, "--to", "8", "--how", "linear", "--rows", "positions", "-o", self.out)

    def test_stored_as_channels_first(self):
        values = [float(v) for v in range(2 * 9)]
        write_file(self.file, {"pos": ("F32", [1, 2, 3, 3], f32(values))})
        self.refused("--to", "3x3", "--how", "bicubic", "--order", "1tc", tensor="pos", says="axes")
        self.posenc("extend", self.file, "--tensor", "pos", "--to", "5x5", "--how", "bilinear", "--align-corners",
                    "--order", "1cyx", "-o", self.out)
        dtype, shape, content = read_file(self.out)[1]["pos"]
        self.assertEqual(shape, [1, 2, 5, 5])
        got = floats(content)
        for c in range(2):
            for y in range(5):
                for x in range(5):
                    self.assertAlmostEqual(got[25 * c + 5 * y + x], 9 * c + 1.5 * y + .5 * x, places=5)

    def test_bfloat16(self):
        write_file(self.file, {"a": ("U8", [1], b"x"), "pos": ("BF16", [2, 1], b"\x80\x3f\x00\x40"),
                               "b": ("U8", [1], b"y")})
        self.posenc("extend", self.file, "--tensor", "pos", "--to", 3, "--how", "linear", "--align-corners", "-o",
                    self.out)
        got = read_file(self.out)[1]
        self.assertEqual(got["pos"], ("BF16", [3, 1], b"\x80\x3f\xc0\x3f\x00\x40"))
        self.assertEqual((got["a"][2], got["b"][2]), (b"x", b"y"))

    def test_the_input_is_never_lost(self):
        before = self.file.read_bytes()
        link = self.folder / "link.safetensors"
        link.symlink_to(self.file)
        for out in [self.file, link, self.folder / "." / "in.safetensors"]:
            self.error("extend", self.file, "--tensor", "position.weight", "--to", 8, "--how", "linear", "-o", out, code=2,
                       says=["is the file that is read", "in.safetensors"])
        self.assertEqual(self.file.read_bytes(), before)

    def test_what_does_not_fit(self):
        self.refused("--to", 8, "--how", "linear", tensor="positions.weight",
                     says=["no tensor \"positions.weight\"", "position.weight [4, 2]"])
        self.refused("--to", 8, "--how", "linear", tensor="embeddings.position_ids", says="I64")
        self.refused("--to", 8, "--how", "linear", tensor="norm", says="--order")
        self.refused("--to", "8x8", "--how", "linear", code=2, says="--to N")
        self.refused("--to", 8, "--how", "bicubic", code=2, says="--to HxW")
        self.refused("--to", 8, "--how", "cubic", code=2, says="--how")
        for size in ["0", "1000000001", "5k", "1.5", "nan"]:
            self.refused("--to", size, "--how", "linear", code=2, says=["--to", "N or HxW", "1 to 1000000000", size])
        self.refused("--to", "1000000000x1000000000", "--how", "bicubic", code=2, says="2^40")
        self.refused("--to", 8, "--how", "linear", "--prefix", 4, says="leave no rows")
        self.refused("--to", 8, "--how", "linear", "--alpha", 0.4, code=2, says="--alpha")
        for alpha in [0.5, 0, 1, 1.5]:
            self.refused("--to", 8, "--how", "hierarchical", "--alpha", alpha, code=2, says=["--alpha", "1/2"])
        self.refused("--to", 8, "--how", "linear", "--keys", -0.5, code=2, says="--keys")
        self.refused("--to", 8, "--how", "linear", "--offset", "nan", code=2, says="--offset")
        self.refused("--to", 8, "--how", "linear", "--align-corners", "--offset", 0.1, code=2, says="--align-corners")
        for scale in ["nan", 0, -1, "inf"]:
            self.refused("--to", 8, "--how", "linear", "--scale", scale, code=2, says="--scale")
        self.refused("--to", 8, "--how", "hierarchical", "--offset", 0.1, code=2, says="--offset")
        self.refused("--to", "3x3", "--how", "bicubic", "--grid", "3x3", says="4 rows")
        write_file(self.file, {"position.weight": ("F32", [2, 1], f32([1, math.nan]))})
        self.refused("--to", 8, "--how", "linear", says=["nan", "row 1"])

    def test_broken_files(self):
        sound = self.file.read_bytes()
        for size in [0, 7, 8, 40, len(sound) - 1]:
            self.file.write_bytes(sound[:size])
            self.refused("--to", 8, "--how", "linear", says="in.safetensors")
        self.file.write_bytes(sound + b"\0")
        self.refused("--to", 8, "--how", "linear", says="cover")
        self.file.write_bytes(b"\xff" * 8 + sound[8:])
        self.refused("--to", 8, "--how", "linear", says="header")
        self.refused("--to", 8, "--how", "linear", file=self.folder / "missing.safetensors", says="missing")
        write_file(self.file, {"position.weight": ("F32", [4, 3], f32([0] * 8))})
        self.refused("--to", 8, "--how", "linear", says="bytes")
        write_file(self.file, {"position.weight": ("F32", [4, 2], f32([0] * 8))})
        for out in ["-", self.folder / "o.npy", self.folder / "o"]:
            self.error("extend", self.file, "--tensor", "position.weight", "--to", 8, "--how", "linear", "-o", out,
                       code=2, says=[".safetensors", str(out)])
            self.assertFalse((self.folder / out).exists())
        self.error("extend", self.file, "--tensor", "position.weight", "--to", 8, "--how", "linear", "-o",
                   self.folder / "no" / "folder.safetensors", code=3, says="folder.safetensors")


class Advice(Case):
    """The doctor's fix of a table that is too short, pasted into a shell."""

    def model(self, name, key, size):
        """A copy of a tiny model in a folder with a blank in its name, its config with another size."""
        folder = self.folder / "a model"
        folder.mkdir(exist_ok=True)
        source = SOURCE / "conformance" / "tiny_models" / name
        config = json.loads((source / "config.json").read_text())
        if size:
            config[key] = size
        (folder / "config.json").write_text(json.dumps(config))
        (folder / "model.safetensors").write_bytes((source / "model.safetensors").read_bytes())
        return folder

    def findings(self, folder, *arguments):
        self.last = subprocess.run([PROGRAM, "doctor", folder, *arguments, "--json"], stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, timeout=120)
        return {f["code"]: f for f in json.loads(self.last.stdout)["findings"]}

    def paste(self, fix):
        """Runs what stands behind "posenc" in a shell, there where the new file may lie."""
        (self.folder / "bin").mkdir(exist_ok=True)
        program = self.folder / "bin" / "posenc"
        if not program.exists():
            program.symlink_to(pathlib.Path(PROGRAM).resolve())
        command = "posenc " + fix.split("posenc ", 1)[1]
        done = subprocess.run(["sh", "-c", command], cwd=self.folder, stderr=subprocess.PIPE, stdout=subprocess.PIPE,
                              env={"PATH": f"{program.parent}:/usr/bin:/bin"}, timeout=120)
        self.assertEqual(done.returncode, 0, f"{command}: {done.stderr.decode()}")
        return self.folder / "longer.safetensors"

    def test_a_context_beyond_the_table(self):
        for name, key, tensor, rows in [
                ("bert", "max_position_embeddings", "bert.embeddings.position_embeddings.weight", 100),
                ("roberta", "max_position_embeddings", "roberta.embeddings.position_embeddings.weight", 102),
                ("opt", "max_position_embeddings", "model.decoder.embed_positions.weight", 102),
                ("gpt2", "n_positions", "transformer.wpe.weight", 100),
                ("whisper", "max_target_positions", "model.decoder.embed_positions.weight", 100),
                ("vit", "image_size", "embeddings.position_embeddings", 101)]:
            folder = self.model(name, key, None)
            fix = self.findings(folder, "--context", "100")["context_beyond_table"]["fix"]
            self.assertIn(tensor, fix)
            longer = self.paste(fix)
            shape = read_file(longer)[1][tensor][1]
            self.assertEqual(shape[-2], rows, name)
            # The config that means the new rows is content with the new file.
            config = json.loads((folder / "config.json").read_text())
            config[key] = config["patch_size"] * 10 if name == "vit" else rows if name == "roberta" else 100
            (folder / "config.json").write_text(json.dumps(config))
            longer.replace(folder / "model.safetensors")
            found = self.findings(folder, *([] if name == "vit" else ["--context", "100"]))
            self.assertNotIn("table_shape", found, name)
            self.assertNotIn("context_beyond_table", found, name)

    def test_a_table_shorter_than_the_config(self):
        for name, key, size in [("bert", "max_position_embeddings", 50), ("opt", "max_position_embeddings", 50),
                                ("vit", "image_size", 64)]:
            folder = self.model(name, key, size)
            longer = self.paste(self.findings(folder)["table_shape"]["fix"])
            longer.replace(folder / "model.safetensors")
            self.assertNotIn("table_shape", self.findings(folder), name)

    def test_a_gguf_file_is_not_extended(self):
        found = self.findings(SOURCE / "conformance" / "gguf" / "files" / "gpt2.gguf", "--context", "5000")
        self.assertIn("safetensors", found["context_beyond_table"]["fix"])
        self.assertNotIn("--tensor", found["context_beyond_table"]["fix"])

    def test_without_weights_the_file_stays_a_word(self):
        folder = self.model("bert", "", None)
        (folder / "model.safetensors").unlink()
        self.assertIn("posenc extend WEIGHTS --tensor embeddings.position_embeddings.weight --to 100",
                      self.findings(folder, "--context", "100")["context_beyond_table"]["fix"])


main()
