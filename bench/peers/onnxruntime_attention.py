# SPDX-License-Identifier: Apache-2.0
"""onnxruntime's attention on the CPU: the operator MultiHeadAttention (com.microsoft) and ONNX's own Attention (opset 23)."""
from __future__ import annotations

from collections.abc import Callable

import torch

INPUTS = ("q", "k", "v", "bias")


def _session(node: object, shapes: dict[str, list[int]], domain: str, version: int) -> object:
    import onnxruntime
    from onnx import TensorProto, helper

    def info(name: str) -> object:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, shapes[name])

    graph = helper.make_graph([node], "attention", [info(n) for n in INPUTS if n in shapes], [info("out")])
    versions = [helper.make_opsetid("", 23)] + ([helper.make_opsetid(domain, version)] if domain else [])
    model = helper.make_model(graph, opset_imports=versions, ir_version=11)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def onnxruntime_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, bias: torch.Tensor | None,
                          scale: float) -> dict[str, Callable[[], torch.Tensor]]:
    """Calls by name. q, k, v [1, heads, tokens, dim]; bias [1, 1 or heads, queries, keys]."""
    from onnx import helper

    def packed(x: torch.Tensor) -> torch.Tensor:  # [1, tokens, heads * dim]
        return x.detach().transpose(1, 2).flatten(2).contiguous()

    arrays = {"q": packed(q), "k": packed(k), "v": packed(v)}
    if bias is not None:
        arrays["bias"] = bias.contiguous()
    shapes = {name: list(x.shape) for name, x in arrays.items()} | {"out": list(arrays["q"].shape)}
    heads, given = q.shape[1], ["bias"] if bias is not None else []
    fed = {name: x.numpy() for name, x in arrays.items()}
    kinds = {
        "onnxruntime, MultiHead": (helper.make_node("MultiHeadAttention", ["q", "k", "v", "", "", *given], ["out"], domain="com.microsoft",
                                                    num_heads=heads, scale=scale), "com.microsoft", 1),
        "onnxruntime, Attention": (helper.make_node("Attention", ["q", "k", "v", *given], ["out"], q_num_heads=heads, kv_num_heads=heads,
                                                    scale=scale), "", 0),
    }
    calls = {}
    for name, (node, domain, version) in kinds.items():
        session = _session(node, shapes, domain, version)

        def run(session: object = session) -> torch.Tensor:
            out = torch.from_numpy(session.run(None, fed)[0])  # type: ignore[attr-defined]
            return out.unflatten(2, (heads, -1)).transpose(1, 2)

        calls[name] = run
    return calls
