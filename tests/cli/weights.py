# SPDX-License-Identifier: Apache-2.0
"""Models with weights in files of their own, for tests of what stands at the input."""
from command_line import *
from command_line import __all__ as base

BERT = {"model_type": "bert", "hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 2,
        "max_position_embeddings": 16, "pad_token_id": 0}


def bfloat16(x):
    """The nearest bfloat16 of what it truncates to; exact for the numbers below."""
    return struct.pack("<f", x)[2:]


def values(rows, width):
    return [((i * 37) % 64 - 31.5) / 64 for i in range(rows * width)]  # seven bits: exact in f16 and bf16


PACK = {"F32": lambda v: struct.pack(f"<{len(v)}f", *v), "F16": lambda v: struct.pack(f"<{len(v)}e", *v),
        "BF16": lambda v: b"".join(bfloat16(x) for x in v), "I8": lambda v: bytes(len(v))}


def safetensors(tensors):
    header, body = {}, b""
    for name, (dtype, shape, numbers) in tensors.items():
        data = PACK[dtype](numbers)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + body


def gguf(metadata, tensors):
    """GGUF 3: metadata of strings and u32, tensors of (ggml type, shape innermost first, bytes)."""
    def string(s):
        return struct.pack("<Q", len(s)) + s.encode()
    out = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata))
    for key, value in metadata.items():
        out += string(key) + (struct.pack("<I", 8) + string(value) if isinstance(value, str) else struct.pack("<II", 4, value))
    data = b""
    for name, (kind, shape, content) in tensors.items():
        out += string(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, len(data))
        data += content + b"\0" * (-len(content) % 32)
    return out + b"\0" * (-len(out) % 32) + data


class ModelCase(Case):
    def model(self, config, tensors=None, name="model"):
        path = self.folder / name
        path.mkdir(exist_ok=True)
        (path / "config.json").write_text(json.dumps(config))
        if tensors:
            (path / "model.safetensors").write_bytes(safetensors(tensors))
        return path

    def rows(self, *arguments):
        out = self.folder / "rows.npy"
        self.posenc("table", *arguments, "-o", out)
        return read_npy(out.read_bytes())

    def near(self, got, want, delta=1e-12):
        self.assertEqual(len(got), len(want))
        for a, b in zip(got, want):
            self.assertAlmostEqual(a, b, delta=delta)


__all__ = [*base, "BERT", "ModelCase", "PACK", "gguf", "safetensors", "values"]
