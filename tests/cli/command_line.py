# SPDX-License-Identifier: Apache-2.0
"""What the command line's tests share: running posenc, small .npy and .safetensors files."""
import json
import math
import pathlib
import struct
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree as tree

PROGRAM, SOURCE = sys.argv[1], pathlib.Path(sys.argv[2])
MODELS = SOURCE / "examples" / "models"
LLAMA = MODELS / "llama-3.1-8b"
SCHEME = "rope head_dim=8 pairing=half_split"
SVG = "{http://www.w3.org/2000/svg}"


class Case(unittest.TestCase):
    def setUp(self):
        self._folder = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self._folder.name)

    def tearDown(self):
        self._folder.cleanup()

    def plot(self, *arguments):
        """Draws it; returns each panel with its numbers."""
        path = self.folder / "plot.svg"
        self.posenc("plot", *arguments, "-o", path)
        root = tree.parse(path).getroot()
        panels = [root] if root.find(f"{SVG}metadata") is not None else root.findall(f"{SVG}svg")
        return [(p, json.loads(p.find(f"{SVG}metadata").text)) for p in panels]

    def labels(self, panel):
        found = {t.get("class"): t.text for t in panel.iter(f"{SVG}text") if t.get("class")}
        return found["x-label"], found["y-label"]

    def rules(self, panel):
        """Labels of the lines across the plot."""
        return [t.text for t in panel.iter(f"{SVG}text") if t.get("class") == "rule-label"]

    def posenc(self, *arguments, code=0, stdin=None):
        """Runs it; returns stdout. Checks the exit code, and that nobody crashed."""
        self.last = subprocess.run([PROGRAM, *map(str, arguments)], input=stdin, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, timeout=120)
        message = self.last.stderr.decode(errors="replace")
        self.assertEqual(self.last.returncode, code, f"posenc {arguments}: {message}")
        return self.last.stdout

    def error(self, *arguments, code, says, stdin=None):
        out = self.posenc(*arguments, code=code, stdin=stdin)
        text = self.last.stderr.decode(errors="replace")
        for word in [says] if isinstance(says, str) else says:
            self.assertIn(word, text)
        self.assertNotIn("terminate called", text)
        return out

    def write_npy(self, name, values, shape, descr="<f4", code="f"):
        header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {tuple(shape)!r}, }}"
        header += " " * (-(len(header) + 11) % 64) + "\n"
        path = self.folder / name
        path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() +
                         struct.pack(f"<{len(values)}{code}", *values))
        return path


def read_npy(data):
    assert data[:6] == b"\x93NUMPY"
    size = struct.unpack("<H", data[8:10])[0]
    header = eval(data[10:10 + size].decode(), {"__builtins__": {}})  # a dict literal that posenc wrote
    code = {"<f8": "d", "<f4": "f", "<f2": "e", "|u1": "B", "<i8": "q"}[header["descr"]]
    body = data[10 + size:]
    return header["shape"], struct.unpack(f"<{len(body) // struct.calcsize(code)}{code}", body)


def read_safetensors(path):
    data = pathlib.Path(path).read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    out = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        body = data[8 + size + begin:8 + size + end]
        code = {"F64": "d", "F32": "f", "F16": "e", "BF16": "H", "U8": "B", "I64": "q"}[entry["dtype"]]
        out[name] = (entry["dtype"], entry["shape"], struct.unpack(f"<{len(body) // struct.calcsize(code)}{code}", body))
    return out


def main():
    unittest.main(argv=[sys.argv[0]], verbosity=1)


__all__ = ["Case", "LLAMA", "MODELS", "PROGRAM", "SCHEME", "SOURCE", "SVG", "json", "main", "math", "read_npy",
           "read_safetensors", "struct", "subprocess"]
