#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Rotary by other programs and by posenc, in turns, on the same arrays: 32 query and 8 key heads of 128 channels.

    python3 bench/peers/run.py [--tokens 1,64,2048,8192] [--samples 15]

The first call makes a virtual environment in build/peers and runs itself there. posenc is called through its C
interface (build the shared library first: cmake --preset shared && cmake --build --preset shared).
"""
import argparse
import ctypes
import os
import pathlib
import statistics
import subprocess
import sys
import time
import venv

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
HOME = ROOT / "build" / "peers"
PACKAGES = ["torch", "onnxruntime", "onnx", "transformers", "rotary-embedding-torch", "numpy"]
QUERY_HEADS, KEY_HEADS, DIM = 32, 8, 128


def enter_environment():
    if pathlib.Path(sys.prefix).resolve() == HOME.resolve():
        return
    python = HOME / "bin" / "python"
    if not python.exists():
        print("making a virtual environment and installing", ", ".join(PACKAGES), file=sys.stderr)
        venv.create(HOME, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "-q", *PACKAGES], check=True)
    os.execv(python, [str(python), *sys.argv])


def in_turns(functions, samples):
    """Median seconds of each, sampled one after another so that a noisy neighbour hits all alike."""
    calls = {}
    for name, f in functions.items():
        f()
        start = time.perf_counter()
        f()
        calls[name] = max(1, int(2e-4 / max(time.perf_counter() - start, 1e-7)))
    times = {name: [] for name in functions}
    for _ in range(samples):
        for name, f in functions.items():
            start = time.perf_counter()
            for _ in range(calls[name]):
                f()
            times[name].append((time.perf_counter() - start) / calls[name])
    return {name: statistics.median(t) for name, t in times.items()}


class DLDevice(ctypes.Structure):
    _fields_ = [("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32)]


class DLDataType(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class DLTensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device", DLDevice), ("ndim", ctypes.c_int32), ("dtype", DLDataType),
                ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
                ("byte_offset", ctypes.c_uint64)]


def dltensor(array):
    """A view of a dense NumPy array; keeps what it points to alive."""
    code, bits = {"f": (2, array.itemsize * 8), "i": (0, array.itemsize * 8)}[array.dtype.kind]
    shape = (ctypes.c_int64 * array.ndim)(*array.shape)
    t = DLTensor(array.ctypes.data, DLDevice(1, 0), array.ndim, DLDataType(code, bits, 1), shape, None, 0)
    t.keep = (array, shape)
    return t


def ours(q, k, positions):
    library = ctypes.CDLL(str(ROOT / "build-shared" / "src" / "libposenc.so"))
    message = ctypes.create_string_buffer(512)
    plan = ctypes.c_void_p()
    made = library.posenc_plan_from_scheme(b"rope head_dim=128 pairing=half_split base=500000", 0, b"f32",
                                           ctypes.byref(plan), message, ctypes.c_size_t(len(message)))
    if made != 0:
        sys.exit(message.value.decode())
    tensors = [dltensor(q), dltensor(k), dltensor(positions)]

    def call():
        code = library.posenc_apply(plan, *[ctypes.byref(t) for t in tensors[:2]], ctypes.byref(tensors[2]), b"thd", 0,
                                    message, ctypes.c_size_t(len(message)))
        if code:
            sys.exit(message.value.decode())
    return call


def transformers_eager(torch, tokens, compiled):
    from transformers.models.llama.modeling_llama import apply_rotary_pos_emb
    q = torch.rand(1, QUERY_HEADS, tokens, DIM)
    k = torch.rand(1, KEY_HEADS, tokens, DIM)
    cos = torch.rand(1, tokens, DIM)
    sin = torch.rand(1, tokens, DIM)
    f = torch.compile(apply_rotary_pos_emb) if compiled else apply_rotary_pos_emb
    return lambda: f(q, k, cos, sin)


def rotary_embedding_torch(torch, tokens):
    from rotary_embedding_torch import RotaryEmbedding
    rotary = RotaryEmbedding(dim=DIM)
    q = torch.rand(1, QUERY_HEADS, tokens, DIM)
    k = torch.rand(1, KEY_HEADS, tokens, DIM)
    return lambda: (rotary.rotate_queries_or_keys(q), rotary.rotate_queries_or_keys(k))


def onnxruntime_operator(np, tokens):
    import onnx
    import onnxruntime
    from onnx import TensorProto, helper
    heads = QUERY_HEADS + KEY_HEADS
    node = helper.make_node("RotaryEmbedding", ["x", "positions", "cos", "sin"], ["y"], domain="com.microsoft")
    graph = helper.make_graph([node], "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, heads, tokens, DIM]),
                                            helper.make_tensor_value_info("positions", TensorProto.INT64, [1, tokens]),
                                            helper.make_tensor_value_info("cos", TensorProto.FLOAT, [tokens, DIM // 2]),
                                            helper.make_tensor_value_info("sin", TensorProto.FLOAT, [tokens, DIM // 2])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, heads, tokens, DIM])])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)])
    model.ir_version = 9
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    feed = {"x": np.random.rand(1, heads, tokens, DIM).astype("f4"), "positions": np.arange(tokens)[None],
            "cos": np.random.rand(tokens, DIM // 2).astype("f4"), "sin": np.random.rand(tokens, DIM // 2).astype("f4")}
    binding = session.io_binding()
    for name, value in feed.items():
        binding.bind_cpu_input(name, value)
    binding.bind_output("y")
    return lambda: session.run_with_iobinding(binding)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", default="1,64,2048,8192")
    parser.add_argument("--samples", type=int, default=15)
    args = parser.parse_args()
    enter_environment()
    os.environ.setdefault("POSENC_NUM_THREADS", "1")
    import numpy as np
    import torch
    torch.set_num_threads(1)
    print(f"torch {torch.__version__}, one thread, float32; us per call, and how many times slower than posenc")
    for tokens in map(int, args.tokens.split(",")):
        q = np.random.rand(tokens, QUERY_HEADS, DIM).astype("f4")
        k = np.random.rand(tokens, KEY_HEADS, DIM).astype("f4")
        functions = {"posenc": ours(q, k, np.arange(tokens, dtype="i8")),
                     "transformers eager": transformers_eager(torch, tokens, False),
                     "transformers + torch.compile": transformers_eager(torch, tokens, True),
                     "rotary-embedding-torch": rotary_embedding_torch(torch, tokens),
                     "onnxruntime RotaryEmbedding": onnxruntime_operator(np, tokens)}
        with torch.no_grad():
            seconds = in_turns(functions, args.samples)
        for name, s in seconds.items():
            print(f"  {tokens:5d} tokens  {name:<30} {s * 1e6:12.1f}   x {s / seconds['posenc']:.1f}")


if __name__ == "__main__":
    main()
