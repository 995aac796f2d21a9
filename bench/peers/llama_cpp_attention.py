# SPDX-License-Identifier: Apache-2.0
"""llama.cpp's attention on the CPU, fused (ggml_flash_attn_ext) and by products, from the library inside the wheel xllamacpp.

The functions are those of ggml.h: tensors name their fastest axis first. A graph is made once and computed by each call.
"""
from __future__ import annotations

import ctypes
import importlib.util
import pathlib
from collections.abc import Callable

import torch

F32, F16 = 0, 1  # ggml_type
TYPES = {torch.float32: F32, torch.float16: F16}
PADDED_QUERIES = 64  # a mask has whole blocks of queries


class _InitParams(ctypes.Structure):
    _fields_ = [("mem_size", ctypes.c_size_t), ("mem_buffer", ctypes.c_void_p), ("no_alloc", ctypes.c_bool)]


def _library() -> ctypes.CDLL:
    found = importlib.util.find_spec("xllamacpp")
    if found is None or not found.submodule_search_locations:
        raise ImportError("No module named 'xllamacpp'")
    library = ctypes.CDLL(str(next(pathlib.Path(found.submodule_search_locations[0]).glob("xllamacpp*.so"))))
    pointer, number, real = ctypes.c_void_p, ctypes.c_int, ctypes.c_float
    for name, result, arguments in (
        ("ggml_init", pointer, [_InitParams]), ("ggml_free", None, [pointer]), ("ggml_cpu_init", None, []),
        ("ggml_new_tensor_4d", pointer, [pointer, number] + [ctypes.c_int64] * 4), ("ggml_get_data", pointer, [pointer]),
        ("ggml_flash_attn_ext", pointer, [pointer] * 5 + [real] * 3), ("ggml_new_graph", pointer, [pointer]),
        ("ggml_mul_mat", pointer, [pointer] * 3), ("ggml_soft_max_ext", pointer, [pointer] * 3 + [real] * 2),
        ("ggml_build_forward_expand", None, [pointer] * 2), ("ggml_graph_compute_with_ctx", number, [pointer, pointer, number]),
    ):
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


class LlamaCpp:
    """q, k, v [1, heads, tokens, dim]; bias [1, 1 or heads, queries, keys], -inf hides."""

    def __init__(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, bias: torch.Tensor | None, scale: float):
        self._ggml, self._scale = _library(), scale
        self._ggml.ggml_cpu_init()
        self._shape = q.shape
        self._arrays = [x.detach() for x in (q, k, v)]
        self._bias = bias

    def _tensor(self, context: int, x: torch.Tensor) -> int:
        """x [a, b, c, d] as ggml's [d, c, b, a]."""
        x = x.contiguous()
        made = self._ggml.ggml_new_tensor_4d(context, TYPES[x.dtype], *reversed(x.shape))
        ctypes.memmove(self._ggml.ggml_get_data(made), x.data_ptr(), x.numel() * x.element_size())
        return int(made)

    def _mask(self, context: int) -> int | None:
        if self._bias is None:
            return None
        pad = -self._bias.shape[2] % PADDED_QUERIES
        return self._tensor(context, torch.nn.functional.pad(self._bias, (0, 0, 0, pad)).half())

    def _graph(self, build: Callable[[int], tuple[int, bool]]) -> Callable[[], torch.Tensor]:
        """build(context): the node of the output, and whether its heads are the axis before the channels."""
        pairs = self._shape[1] * self._shape[2] * self._arrays[1].shape[2]
        size = 64 * sum(x.numel() for x in self._arrays) + 16 * pairs + (64 << 20)
        context = self._ggml.ggml_init(_InitParams(size, None, False))
        out, heads_inside = build(context)
        graph = self._ggml.ggml_new_graph(context)
        self._ggml.ggml_build_forward_expand(graph, out)
        batch, heads, queries, dim = self._shape
        shape = (batch, queries, heads, dim) if heads_inside else (batch, heads, queries, dim)
        ggml, count = self._ggml, batch * heads * queries * dim
        work = ggml.ggml_init(_InitParams(256 << 20, None, False))  # of threads, anew in each call

        def run() -> torch.Tensor:
            nonlocal work
            ggml.ggml_free(work)
            work = ggml.ggml_init(_InitParams(256 << 20, None, False))
            if ggml.ggml_graph_compute_with_ctx(work, graph, 1) != 0:
                raise RuntimeError("ggml_graph_compute_with_ctx failed")
            numbers = (ctypes.c_float * count).from_address(ggml.ggml_get_data(out))
            made = torch.frombuffer(numbers, dtype=torch.float32).reshape(shape)
            return made.transpose(1, 2) if heads_inside else made

        return run

    def _fused(self, kind: torch.dtype) -> Callable[[], torch.Tensor]:
        def build(context: int) -> tuple[int, bool]:
            q, k, v = self._arrays
            of_keys = [self._tensor(context, x.to(kind)) for x in (k, v)]
            return self._ggml.ggml_flash_attn_ext(context, self._tensor(context, q), *of_keys, self._mask(context), self._scale, 0, 0), True

        return self._graph(build)

    def _products(self) -> Callable[[], torch.Tensor]:
        def build(context: int) -> tuple[int, bool]:
            q, k, v = self._arrays
            scores = self._ggml.ggml_mul_mat(context, self._tensor(context, k.half()), self._tensor(context, q))
            weights = self._ggml.ggml_soft_max_ext(context, scores, self._mask(context), self._scale, 0)
            return self._ggml.ggml_mul_mat(context, self._tensor(context, v.half().mT), weights), False

        return self._graph(build)

    def calls(self) -> dict[str, Callable[[], torch.Tensor]]:
        return {"llama.cpp, fused, f16": self._fused(torch.float16), "llama.cpp, fused, f32": self._fused(torch.float32),
                "llama.cpp, products, f16": self._products()}
