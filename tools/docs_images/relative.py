# SPDX-License-Identifier: Apache-2.0
"""Pictures of docs/relative: what each scheme adds to the score, as `posenc plot`, `bias` and `attend` say it. Learned
numbers are as they start where that shows something, else made up here: smooth ones, drawn from fixed seeds."""
import ast
import json
import math
import pathlib
import random
import struct
import subprocess
import tempfile

from svg import maps

# name: arguments of `posenc plot`
PLOTTED = {
    "alibi": ["alibi", "--kind", "bias", "--heads", "8", "--positions=-64:65:8"],
    "marian_alibi": ["marian_alibi", "--start", "1", "--kind", "bias", "--heads", "8", "--positions=-64:65:2"],
    "t5": ["t5 bidirectional=true", "--start", "1", "--kind", "bias", "--heads", "2", "--positions=-100:101"],
    "kerple": ["kerple kernel=log", "--start", "1", "--kind", "bias", "--heads", "4", "--positions=-64:65:2"],
    "sandwich": ["sandwich", "--kind", "bias", "--heads", "4", "--positions=-100:101:2"],
    "dynamic_position_bias": ["dynamic_position_bias width=32 log_distance=true", "--start", "2", "--kind", "bias", "--heads", "4",
                              "--positions=-64:65:2"],
    "dape": ["kerple kernel=log", "--with", "dape width=16", "--start", "3", "--kind", "decay", "--heads", "3", "--context", "32"],
    "nope": ["nope", "--kind", "locality", "--mask", "causal", "--heads", "2", "--context", "48"],
}


def normal(seed, count, deviation=1.0):
    r = random.Random(seed)
    return [r.gauss(0, deviation) for _ in range(count)]


def smooth(seed, rows, channels, width=5):
    """[rows][channels], flat: rows that change slowly, of deviation 1."""
    x = normal(seed, (rows + width) * channels)
    return [sum(x[(r + w) * channels + c] for w in range(width)) / math.sqrt(width) for r in range(rows) for c in range(channels)]


def prod(shape):
    return math.prod(shape)


class Program:
    """posenc on arrays that are written to a folder of its own."""

    def __init__(self, posenc):
        self.posenc, self.kept = posenc, tempfile.TemporaryDirectory()
        self.folder, self.count = pathlib.Path(self.kept.name), 0

    def path(self, ending):
        self.count += 1
        return self.folder / f"{self.count}.{ending}"

    def npy(self, values, shape, whole=False):
        code, kind = ("q", "<i8") if whole else ("d", "<f8")
        header = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {tuple(shape)!r}, }}"
        header += " " * (-(len(header) + 11) % 64) + "\n"
        path = self.path("npy")
        path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + struct.pack(f"<{len(values)}{code}", *values))
        return path

    def tensors(self, arrays):
        header, body = {}, b""
        for name, (shape, values) in arrays.items():
            part = struct.pack(f"<{len(values)}d", *values)
            header[name] = {"dtype": "F64", "shape": shape, "data_offsets": [len(body), len(body) + len(part)]}
            body += part
        text = json.dumps(header).encode()
        path = self.path("safetensors")
        path.write_bytes(struct.pack("<Q", len(text)) + text + body)
        return path

    def run(self, *words):
        done = subprocess.run([self.posenc, *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if done.returncode:
            raise SystemExit(f"posenc {words}: {done.stderr}")

    def words(self, positions, arrays, start, inputs):
        words = ["--positions", positions if isinstance(positions, str) else
                 self.npy([x for axis in positions for x in axis], (len(positions), 1, len(positions[0])),
                          all(isinstance(x, int) for axis in positions for x in axis))]
        words += ["--params", self.tensors(arrays)] if arrays else ["--start", start] if start is not None else []
        for name, (shape, values, whole) in inputs.items():
            words += ["--input", f"{name}={self.npy(values, shape, whole)}"]
        return words

    def bias(self, scheme, positions, heads=1, arrays=None, start=None, inputs={}, key_positions=None):
        """[heads][queries][keys]"""
        out = self.path("npy")
        more = ["--key-positions", key_positions] if key_positions else []
        self.run("bias", scheme, "--heads", heads, *self.words(positions, arrays, start, inputs), *more, "-o", out)
        raw = out.read_bytes()
        size = struct.unpack("<H", raw[8:10])[0]
        shape = ast.literal_eval(raw[10:10 + size].decode())["shape"]
        return cut(struct.unpack(f"<{prod(shape)}d", raw[10 + size:]), shape)

    def attend(self, scheme, want, positions, heads=1, dim=8, arrays=None, start=None, inputs={}, mask=(), seed=1, more=()):
        """{name: [heads][queries][keys]} of attend's arrays, for random q, k and v."""
        tokens = len(positions[0])
        shape, out = (tokens, heads, dim), self.path("safetensors")
        q, k, v = (self.npy(normal(seed + n, prod(shape)), shape) for n in (100, 200, 300))
        words = [w for m in mask for w in ("--mask", m)]
        self.run("attend", scheme, "--q", q, "--k", k, "--v", v, *self.words(positions, arrays, start, inputs), *words, *more, "--scores",
                 "--terms", "--probabilities", "-o", out)
        raw = out.read_bytes()
        size = struct.unpack("<Q", raw[:8])[0]
        header, found = json.loads(raw[8:8 + size]), {}
        for name in want:
            begin, end = header[name]["data_offsets"]
            found[name] = cut(struct.unpack(f"<{(end - begin) // 8}d", raw[8 + size + begin:8 + size + end]), header[name]["shape"][1:])
        return found


def cut(values, shape):
    """Flat values of three axes as lists; hidden pairs are drawn as 0."""
    values = [v if math.isfinite(v) else 0.0 for v in values]
    rows = [values[i * shape[2]:(i + 1) * shape[2]] for i in range(shape[0] * shape[1])]
    return [rows[h * shape[1]:(h + 1) * shape[1]] for h in range(shape[0])]


def tokens(n):
    return [list(range(n))]


def cells(rows, columns):
    return [[r for r in range(rows) for _ in range(columns)], [c for _ in range(rows) for c in range(columns)]]


def on_grid(row, columns):
    """A row of keys as the grid that it counts."""
    return [row[i:i + columns] for i in range(0, len(row), columns)]


def pairs(title, panels, label="added", height=200):
    return maps(title, [(name, rows, "key", "query") for name, rows in panels], label, height)


def grids(title, panels, label="added", height=200):
    return maps(title, [(name, rows, "column of the key", "row of the key") for name, rows in panels], label, height)
