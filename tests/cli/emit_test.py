# SPDX-License-Identifier: Apache-2.0
"""emit onnx: what the file says, its numbers through the library's own runner of ONNX nodes, and refusals. onnxruntime
reads the same files in python/tests/onnx."""
from command_line import *

ATTENTION = SOURCE / "conformance" / "model_attention"


def fields(data):
    """{number: [values]} of a protobuf message."""
    at, found = 0, {}

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            value |= (data[at] & 127) << shift
            at, shift = at + 1, shift + 7
            if data[at - 1] < 128:
                return value

    while at < len(data):
        key = varint()
        if key & 7 == 0:
            value = varint()
        else:
            size = {2: varint, 5: lambda: 4}[key & 7]()
            value, at = data[at:at + size], at + size
            assert len(value) == size
        found.setdefault(key >> 3, []).append(value)
    return found


def varint(n):
    return bytes([n & 127 | 128]) + varint(n >> 7) if n > 127 else bytes([n])


def tensor(shape, kind, data):
    """A TensorProto."""
    dims = b"".join(b"\x08" + varint(n) for n in shape)
    return dims + b"\x10" + varint(kind) + b"\x4a" + varint(len(data)) + data


class Emit(Case):
    def node(self, *words):
        """(op_type, attributes, {initializer: (type, dims, values)}, {input: shape}, the node's inputs)"""
        path = self.folder / "m.onnx"
        self.posenc("emit", "onnx", *words, "-o", path)
        model = fields(path.read_bytes())
        self.assertEqual((model[1], model[2]), ([11], [b"posenc"]))
        self.assertEqual(fields(model[8][0]), {1: [b""], 2: [23]})
        graph = fields(model[7][0])
        self.assertEqual(len(graph[1]), 1)
        node = fields(graph[1][0])
        attributes = {}
        for a in map(fields, node.get(5, [])):
            attributes[a[1][0].decode()] = struct.unpack("<f", a[2][0])[0] if 2 in a else a[3][0]
            self.assertEqual(a[20], [1 if 2 in a else 2])
        held = {}
        for t in map(fields, graph[5]):
            code = {1: "f", 10: "e", 16: "H"}[t[2][0]]
            held[t[8][0].decode()] = (t[2][0], t[1], struct.unpack(f"<{math.prod(t[1])}{code}", t[9][0]))
        given = {}
        for v in map(fields, graph[11] + graph[12]):
            kind = fields(fields(v[2][0])[1][0])
            dims = [fields(d) for d in fields(kind[2][0])[1]]
            given[v[1][0].decode()] = [d[1][0] if 1 in d else d[2][0].decode() for d in dims]
        self.text = graph[10][0].decode()
        return node[4][0].decode(), attributes, held, given, [n.decode() for n in node[1]]

    def test_rotation(self):
        scheme = "rope head_dim=16 rotary_dim=8 base=100 pairing=interleaved + linear factor=2"
        kind, attributes, held, given, inputs = self.node(scheme, "--positions", "0:50")
        self.assertEqual((kind, attributes), ("RotaryEmbedding", {"interleaved": 1, "rotary_embedding_dim": 8}))
        self.assertEqual(given, {"X": ["batch", "heads", "tokens", 16], "position_ids": ["batch", "tokens"],
                                 "Y": ["batch", "heads", "tokens", 16]})
        self.assertEqual(inputs, ["X", "cos_cache", "sin_cache", "position_ids"])
        for name, f in (("cos_cache", math.cos), ("sin_cache", math.sin)):
            self.assertEqual(held[name][:2], (1, [50, 4]))
            for i, x in enumerate(held[name][2]):
                self.assertAlmostEqual(x, f(i // 4 / 2 * 100 ** (-(i % 4) / 4)), delta=3e-8)
        self.assertEqual(self.text, scheme)

    def test_what_multiplies_or_mirrors_cos_and_sin(self):
        plain = self.node("rope head_dim=8 pairing=half_split", "--positions", "0:9")[2]
        back = self.node("rope head_dim=8 pairing=half_split direction=-1", "--positions", "0:9")[2]
        self.assertEqual(back["cos_cache"], plain["cos_cache"])
        self.assertEqual(back["sin_cache"][2], tuple(-x for x in plain["sin_cache"][2]))
        scheme = "rope head_dim=8 pairing=half_split + yarn factor=4 original_context=64"
        self.assertAlmostEqual(self.node(scheme, "--positions", "0:9")[2]["cos_cache"][2][0], 0.1 * math.log(4) + 1, delta=1e-7)
        half = self.node("rope head_dim=8 pairing=half_split", "--positions", "0:9", "--dtype", "f16")[2]
        self.assertEqual(half["cos_cache"], (10, [9, 4], tuple(struct.unpack("<e", struct.pack("<e", x))[0] for x in plain["cos_cache"][2])))
        self.assertEqual(self.node(SCHEME, "--positions", "0:9", "--dtype", "bf16")[2]["cos_cache"][0], 16)

    def test_models(self):
        kind, attributes, held, _, _ = self.node(LLAMA, "--context", "512")
        self.assertEqual((kind, attributes, held["cos_cache"][1]), ("RotaryEmbedding", {"interleaved": 0}, [512, 64]))
        self.assertIn("layer 0", self.text)
        models = ATTENTION / "models"
        kind, attributes, held, given, _ = self.node(models / "bloom", "--heads", 4, "--head-dim", 16, "--positions", "0:6")
        self.assertEqual((kind, set(attributes), given["Q"]), ("Attention", {"scale"}, ["batch", 4, 6, 16]))
        self.assertAlmostEqual(attributes["scale"], 0.25)
        bias = held["attn_mask"]
        self.assertEqual(bias[:2], (1, [1, 4, 6, 6]))
        for n, x in enumerate(bias[2]):
            h, i, j = n // 36, n // 6 % 6, n % 6
            self.assertEqual(x, -math.inf if j > i else -(i - j) * 4.0 ** -(h + 1))

    def test_numbers_through_the_runner(self):
        """selftest --onnx reads the file and has the numbers of apply and attend."""
        folder = self.folder / "node"
        data = folder / "test_data_set_0"
        data.mkdir(parents=True)
        x = [math.sin(7 * i) for i in range(2 * 3 * 5 * 8)]
        order = [0, 3, 1, 8, 2, 4, 4, 7, 6, 5]
        q = self.write_npy("q.npy", x, (2, 3, 5, 8))
        p = self.write_npy("p.npy", order, (2, 5), "<i8", "q")
        scheme = "rope head_dim=8 rotary_dim=4 pairing=half_split direction=-1 + yarn factor=2 original_context=8"
        self.posenc("emit", "onnx", scheme, "--positions", "0:9", "-o", folder / "model.onnx")
        self.posenc("apply", scheme, "--q", q, "--positions", p, "--order", "bhtd", "-o", self.folder / "y.safetensors")
        wanted = read_safetensors(self.folder / "y.safetensors")["q"][2]
        self.runs(folder, [tensor((2, 3, 5, 8), 1, struct.pack("<240f", *x)), tensor((2, 5), 7, struct.pack("<10q", *order))],
                  tensor((2, 3, 5, 8), 1, struct.pack("<240f", *wanted)))
        scheme = "t5 bidirectional=false num_buckets=8 max_distance=12"
        self.posenc("emit", "onnx", scheme, "--start", 1, "--heads", 3, "--head-dim", 8, "--positions", "0:5", "--mask",
                    "causal", "-o", folder / "model.onnx")
        self.posenc("attend", scheme, "--start", 1, "--q", q, "--k", q, "--v", q, "--order", "bhtd", "--mask", "causal",
                    "-o", self.folder / "y.safetensors")
        wanted = read_safetensors(self.folder / "y.safetensors")["out"][2]
        same = tensor((2, 3, 5, 8), 1, struct.pack("<240f", *x))
        self.runs(folder, [same] * 3, tensor((2, 3, 5, 8), 1, struct.pack("<240f", *wanted)))

    def runs(self, folder, inputs, output):
        data = folder / "test_data_set_0"
        for n, one in enumerate(inputs):
            (data / f"input_{n}.pb").write_bytes(one)
        (data / "output_0.pb").write_bytes(output)
        (suite,) = json.loads(self.posenc("selftest", "--onnx", folder, "--json"))["suites"]
        self.assertEqual((suite["passed"], suite["failed"], suite["not_expressible"]), (1, 0, 0))

    def test_report(self):
        report = json.loads(self.posenc("emit", "onnx", SCHEME, "--positions", "0:4", "-o", self.folder / "r.onnx", "--json"))
        self.assertEqual((report["schema"], report["operator"], report["operator_set"]), ("posenc.emit/1", "RotaryEmbedding", 23))
        self.assertEqual(report["initializers"]["cos_cache"], {"dtype": "f32", "shape": [4, 4]})
        self.assertEqual(report["inputs"]["position_ids"], {"dtype": "i64", "shape": ["batch", "tokens"]})
        out = self.posenc("emit", "onnx", SCHEME, "--positions", "0:4", "-o", "-")
        self.assertEqual(out, (self.folder / "r.onnx").read_bytes())

    def test_what_the_layer_does_beside_is_said(self):
        self.posenc("emit", "onnx", ATTENTION / "models" / "gemma2", "--positions", "0:4", "-o", self.folder / "r.onnx")
        said = self.last.stderr.decode()
        self.assertIn("not in this node: ", said)
        self.assertIn("mask keys but the query's own", said)

    def test_refusals(self):
        target = self.folder / "no.onnx"

        def refused(*words, code, says):
            self.error("emit", "onnx", *words, "-o", target, code=code, says=says)
            self.assertFalse(target.exists())

        rows, call = ["--positions", "0:4"], ["--heads", "4", "--head-dim", "16", "--positions", "0:4"]
        models = ATTENTION / "models"
        refused("xpos head_dim=8 pairing=half_split center=0 scale_base=512", *rows, code=3, says="xPos makes one grow")
        refused("mrope head_dim=8 pairing=half_split sections=[1,1,2] layout=chunked", *rows, code=3, says=["one position a token", "3 axes"])
        refused("rope head_dim=8 rotary_dim=4 offset=4 pairing=half_split", *rows, code=3, says="from channel 4 on")
        refused("rope head_dim=8 pairing=interleaved output_order=even_then_odd", *rows, code=3, says="even_then_odd")
        refused("pope head_dim=8", *rows, code=3, says="rotates nothing")
        refused("sinusoidal width=8", *rows, code=3, says="acts at the input")
        refused(SCHEME, code=2, says="--positions 0:N")
        refused(SCHEME, "--positions", "1:4", code=2, says="--positions must be 0:N")
        refused(SCHEME, "--positions", "0:4", "--mask", "causal", code=2, says="and this rotates")
        refused(SCHEME, "--positions", "0:4", "--dtype", "f64", code=2, says="f32, f16, bf16")
        refused("rope head_dim=4096 pairing=half_split", "--positions", "0:140000", code=3, says="no room")
        refused("rope head_dim=8 pairing=half_split + longrope short_factor=[1,1,1,1] long_factor=[2,2,2,2] attention_factor=1 original_context=16 switch_rule=per_call",
                "--context", "8", "--positions", "0:64", code=3, says="--context 64")
        refused("alibi", *rows, code=2, says="--heads N, --head-dim N and --positions P")
        refused("alibi", *call, "--dtype", "f16", code=2, says="--dtype")
        refused("t5 bidirectional=true", *call, code=3, says="--start")
        refused("forgetting", *call, code=3, says="log_gate")
        refused("deberta", "--start", "1", *call, code=3, says="depend on the numbers in q, k or v")
        refused("swin_v2", "--start", "1", *call, code=3, says="does not normalise q and k")
        refused("stick_breaking", *call, code=3, says="has a softmax")
        refused("alibi", *call[:4], "--positions", "0:30000", code=3, says="no room")
        refused(models / "deberta_v2", "--layer", "1", "--heads", "3", "--head-dim", "12", "--positions", "0:4", code=3, says="depend on the numbers")
        self.error("emit", "onnx", SCHEME, *rows, "-o", self.folder / "x.pb", code=2, says=".onnx")
        self.error("emit", "gguf", SCHEME, *rows, "-o", target, code=2, says="onnx")


main()
