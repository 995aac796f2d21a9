#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Rotary by other programs and by posenc, in turns, on one thread: 32 query and 8 key heads of 128 channels.

    python3 bench/peers/run.py [--tokens 1,64,2048,8192] [--dtypes f32,bf16] [--samples 15] [--library PATH]

The first call makes a virtual environment in build/peers, installs the peers from PyPI (5 GB with PyTorch's own
dependencies) and runs itself there. posenc is called through its C interface, in place, table-free; build the shared
library first: cmake --preset shared && cmake --build --preset shared --target posenc. Every result is compared with
double arithmetic before it is timed.
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
LIBRARY = ROOT / "build-shared" / "src" / "libposenc.so"
PACKAGES = ["torch", "onnxruntime", "onnx", "transformers", "rotary-embedding-torch", "numpy"]
QUERY_HEADS, KEY_HEADS, DIM, BASE = 32, 8, 128, 500000.0
POSENC_DTYPE = {"f32": 1, "bf16": 3}  # posenc_dtype of posenc_c.h
FORWARD = 0  # posenc_rotate_mode
# The angle of the peers is a product of float32 numbers: at position 8191 up to 5e-4 wrong.
BOUND = {"f32": 2e-3, "bf16": 4e-2}


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


class DLTensor(ctypes.Structure):  # PosencDLTensor of dlpack_abi.h
    _fields_ = [("data", ctypes.c_void_p), ("device", DLDevice), ("ndim", ctypes.c_int32), ("dtype", DLDataType),
                ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
                ("byte_offset", ctypes.c_uint64)]


class Error(ctypes.Structure):  # posenc_error
    _fields_ = [("struct_size", ctypes.c_size_t), ("message", ctypes.c_char * 512)]


def dltensor(tensor):
    """A view of a dense torch tensor; keeps what it points to alive."""
    code = {"torch.float32": 2, "torch.bfloat16": 4, "torch.int64": 0}[str(tensor.dtype)]
    shape = (ctypes.c_int64 * tensor.ndim)(*tensor.shape)
    t = DLTensor(tensor.data_ptr(), DLDevice(1, 0), tensor.ndim, DLDataType(code, tensor.element_size() * 8, 1), shape,
                 None, 0)
    t.keep = (tensor, shape)
    return t


class Posenc:
    def __init__(self, path, dtype):
        self.library = ctypes.CDLL(str(path))
        self.error, self.plan = Error(ctypes.sizeof(Error)), ctypes.c_void_p()
        self.check(self.library.posenc_plan_from_scheme(
            b"rope head_dim=128 pairing=half_split base=500000", ctypes.c_int64(0), POSENC_DTYPE[dtype], None,
            ctypes.byref(self.plan), ctypes.byref(self.error)))

    def check(self, status):
        if status:
            sys.exit(self.error.message.decode())

    def call(self, q, k, positions):
        """q [t, heads, d] and k turned in place."""
        tensors = [dltensor(t) for t in (q, k, positions)]
        qd, kd, pd = (ctypes.pointer(t) for t in tensors)
        apply, error = self.library.posenc_apply, ctypes.pointer(self.error)
        arguments = (self.plan, b"thd", qd, kd, None, None, pd, FORWARD, error)

        def f(keep=tensors):
            if apply(*arguments):
                sys.exit(self.error.message.decode())
        return f


def angles(torch, tokens):
    """[tokens, DIM] cosine and sine as transformers makes them: float32 angles, halves repeated."""
    inverse = 1.0 / BASE ** (torch.arange(0, DIM, 2, dtype=torch.float32) / DIM)
    phi = torch.outer(torch.arange(tokens, dtype=torch.float32), inverse)
    both = torch.cat((phi, phi), dim=-1)
    return both.cos(), both.sin()


def exact(torch, x):
    """x [t, heads, d], half-split, in double."""
    inverse = BASE ** (-torch.arange(0, DIM, 2, dtype=torch.float64) / DIM)
    phi = torch.outer(torch.arange(x.shape[0], dtype=torch.float64), inverse)[:, None, :]
    a, b = x.double().chunk(2, dim=-1)
    return torch.cat((a * phi.cos() - b * phi.sin(), b * phi.cos() + a * phi.sin()), dim=-1)


def transformers_function(torch, q, k, dtype, compiled):
    from transformers.models.llama.modeling_llama import apply_rotary_pos_emb
    cos, sin = (x[None].to(q.dtype) for x in angles(torch, q.shape[0]))
    f = torch.compile(apply_rotary_pos_emb, dynamic=False) if compiled else apply_rotary_pos_emb
    x, y = (t.permute(1, 0, 2)[None].contiguous() for t in (q, k))  # [1, heads, t, d]
    return (lambda: f(x, y, cos, sin)), lambda r: r[0][0].permute(1, 0, 2)


def rotary_embedding_torch(torch, q, k):
    from rotary_embedding_torch import RotaryEmbedding
    rotary = RotaryEmbedding(dim=DIM, theta=BASE)
    x, y = (t.permute(1, 0, 2)[None].contiguous() for t in (q, k))
    return (lambda: (rotary.rotate_queries_or_keys(x), rotary.rotate_queries_or_keys(y))), None  # interleaved pairs


def onnxruntime_operator(torch, np, q, k):
    import onnxruntime
    from onnx import TensorProto, helper
    tokens, heads = q.shape[0], QUERY_HEADS + KEY_HEADS
    node = helper.make_node("RotaryEmbedding", ["x", "positions", "cos", "sin"], ["y"], domain="com.microsoft")
    value = helper.make_tensor_value_info
    graph = helper.make_graph([node], "g", [value("x", TensorProto.FLOAT, [1, heads, tokens, DIM]),
                                            value("positions", TensorProto.INT64, [1, tokens]),
                                            value("cos", TensorProto.FLOAT, [tokens, DIM // 2]),
                                            value("sin", TensorProto.FLOAT, [tokens, DIM // 2])],
                              [value("y", TensorProto.FLOAT, [1, heads, tokens, DIM])])
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets)
    model.ir_version = 9
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    x = torch.cat((q, k), dim=1).permute(1, 0, 2)[None].contiguous().numpy()
    y = np.zeros_like(x)
    cos, sin = (t[:, :DIM // 2].contiguous().numpy() for t in angles(torch, tokens))
    binding = session.io_binding()
    for name, v in {"x": x, "positions": np.arange(tokens)[None], "cos": cos, "sin": sin}.items():
        binding.bind_ortvalue_input(name, onnxruntime.OrtValue.ortvalue_from_numpy(v))
    out = onnxruntime.OrtValue.ortvalue_from_numpy(y)
    binding.bind_ortvalue_output("y", out)
    f = lambda: session.run_with_iobinding(binding)
    return f, lambda _: torch.from_numpy(out.numpy())[0].permute(1, 0, 2)[:, :QUERY_HEADS]


def checked(torch, name, pair, want, bound):
    """The function, after its result for q was compared; None when the peer does not run here."""
    try:
        f, result = pair()
        got = f()
    except Exception as error:  # a peer that does not run is said, not hidden
        print(f"  {name}: does not run here: {type(error).__name__}: {str(error).splitlines()[0][:120]}")
        return None
    if result is not None:
        worst = (result(got).double() - want).abs().max().item()
        if not worst <= bound:
            sys.exit(f"{name}: wrong result, off by {worst:.3g}")
    return f


def measure(torch, np, tokens, dtype, samples, library):
    torch.manual_seed(tokens)
    kind = {"f32": torch.float32, "bf16": torch.bfloat16}[dtype]
    q = (torch.rand(tokens, QUERY_HEADS, DIM) * 2 - 1).to(kind)
    k = (torch.rand(tokens, KEY_HEADS, DIM) * 2 - 1).to(kind)
    want = exact(torch, q)
    mine_q, mine_k, positions = q.clone(), k.clone(), torch.arange(tokens)
    posenc = Posenc(library, dtype)
    mine = posenc.call(mine_q, mine_k, positions)
    pairs = {"posenc": lambda: (mine, lambda _: mine_q),
             "transformers eager": lambda: transformers_function(torch, q, k, dtype, False),
             "transformers + torch.compile": lambda: transformers_function(torch, q, k, dtype, True)}
    if dtype == "f32":
        pairs["rotary-embedding-torch"] = lambda: rotary_embedding_torch(torch, q, k)
        pairs["onnxruntime RotaryEmbedding"] = lambda: onnxruntime_operator(torch, np, q, k)
    with torch.no_grad():
        functions = {name: checked(torch, name, pair, want, BOUND[dtype]) for name, pair in pairs.items()}
        seconds = in_turns({name: f for name, f in functions.items() if f}, samples)
    for name, s in seconds.items():
        print(f"  {dtype:4} {tokens:5d} tokens  {name:<30} {s * 1e6:12.1f}   x {s / seconds['posenc']:.1f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", default="1,64,2048,8192")
    parser.add_argument("--dtypes", default="f32,bf16")
    parser.add_argument("--samples", type=int, default=15)
    parser.add_argument("--library", default=str(LIBRARY))
    args = parser.parse_args()
    if not pathlib.Path(args.library).exists():
        sys.exit(f"{args.library} does not exist: cmake --preset shared, "
                 "cmake --build --preset shared --target posenc")
    enter_environment()
    os.environ["POSENC_NUM_THREADS"] = "1"
    import numpy as np
    import torch
    torch.set_num_threads(1)
    print(f"torch {torch.__version__}, one thread; us per call, and how many times slower than posenc")
    for dtype in args.dtypes.split(","):
        for tokens in map(int, args.tokens.split(",")):
            measure(torch, np, tokens, dtype, args.samples, args.library)


if __name__ == "__main__":
    main()
