# SPDX-License-Identifier: Apache-2.0
"""What all operators share: who computes, and when addresses of tensors may be taken."""
from __future__ import annotations

import os

import torch

from .. import _posenc
from ._checks import one_device, refuse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_posenc.torch_host(
    torch.Tensor,
    torch.nn.Parameter,
    torch.strided,
    {getattr(torch, name): name for name in ("float64", "float32", "float16", "bfloat16", "int64", "int32", "uint8")}
    | {torch.bool: "uint8"},
    torch.get_num_threads,
    os.path.join(os.path.dirname(torch.__file__), "lib", "libtorch_cpu.so"),
)

Library: Any = torch.library.Library  # its members have no types
_dense = _posenc.torch_dense
any_requires_grad = _posenc.torch_any_requires_grad
grad_enabled = torch.is_grad_enabled
_forward_mode = torch.autograd.forward_ad
_dispatch_modes = torch._C._len_torch_dispatch_stack
_function_modes = torch._C._len_torch_function_stack
_tracing = torch._C._get_tracing_state
in_transform = torch._C._are_functorch_transforms_active
is_compiling = torch.compiler.is_compiling
below_autograd = torch._C._AutoDispatchBelowAutograd


def direct(tensors: tuple[Any, ...]) -> bool:
    """Whether addresses may be taken: eager, dense, in the CPU's memory, and watched by nobody."""
    if _dispatch_modes() or _function_modes() or in_transform() or _tracing() is not None:
        return False
    return _dense(tensors)


def in_forward_mode() -> bool:
    """Inside torch.autograd.forward_ad, where tensors may carry tangents."""
    return _forward_mode._current_level >= 0 and torch._C._is_fwd_grad_enabled()


def _is_plain(x: Any) -> bool:
    return isinstance(x, torch.Tensor) and x.is_cpu and x.layout is torch.strided and not x.is_nested and not x.is_quantized


def check_tensors(who: str, tensors: dict[str, Any]) -> None:
    """Refuses what is no tensor, other devices and several devices, by argument, rule and value."""
    if all(x is None or _is_plain(x) for x in tensors.values()):
        return
    for name, x in tensors.items():
        if x is None:
            continue
        if not isinstance(x, torch.Tensor):
            refuse(who, f"{name} must be a tensor", type(x).__name__)
        if x.device.type not in ("cpu", "meta"):
            refuse(who, f"{name} must lie in the memory of the CPU", x.device.type)
        if x.layout is not torch.strided or x.is_nested or x.is_quantized:
            kind = "nested" if x.is_nested else "quantized" if x.is_quantized else str(x.layout)
            refuse(who, f"{name} must be a dense tensor of numbers", kind)
    one_device(who, tensors)
