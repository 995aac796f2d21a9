# SPDX-License-Identifier: Apache-2.0
"""Polar position embedding (PoPE) of tensors: posenc::polar(x, positions, bias, ...) -> x of twice the channels."""
from __future__ import annotations

import functools

import torch

from .. import _posenc
from . import _checks
from ._host import Library, check_tensors, in_forward_mode, in_transform, is_compiling

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from torch import Tensor

    from .._types import EncodingLike

_LIBRARY = Library("posenc", "FRAGMENT")
_LIBRARY.define("polar(Tensor x, Tensor positions, Tensor? bias, str encoding, str? layout, SymInt? context) -> Tensor")
_LIBRARY.define("polar_gradients(Tensor d, Tensor x, Tensor positions, Tensor? bias, str encoding, str? layout, SymInt? context) "
                "-> (Tensor, Tensor)")


@functools.lru_cache(256)
def _plan(encoding: str, dtype: torch.dtype, context: int | None) -> _posenc.PopePlan:
    return _posenc.PopePlan(encoding, str(dtype).removeprefix("torch."), context=context)


def _wide(bias: Any) -> Any:
    return None if bias is None else bias.detach().float() if bias.element_size() < 4 else bias.detach()


def _polar(x: Any, positions: Any, bias: Any, encoding: str, layout: str | None, context: int | None) -> Any:
    out = _polar_fake(x, positions, bias, encoding, layout, context)
    _plan(encoding, x.dtype, context).apply(x.detach(), positions, bias=_wide(bias), out=out.detach(), order=layout)
    return out


def _check(who: str, x: Any, positions: Any, bias: Any, layout: str | None) -> None:
    _checks.one_device(who, {"x": x, "positions": positions, "bias": bias})
    batch, tokens, channels = _checks.heads(who, {"x": x}, layout)
    _checks.places(who, "positions", positions, batch, tokens)
    _checks.elements(who, "bias", bias, _checks.REAL)
    _checks.shape(who, "bias", bias, (x.shape[(layout or "thd").index("h")], channels))


def _polar_fake(x: Any, positions: Any, bias: Any, encoding: str, layout: str | None, context: int | None) -> Any:
    _check("torch polar", x, positions, bias, layout)
    return x.new_empty(*x.shape[:-1], 2 * x.shape[-1])


def _check_gradients(d: Any, x: Any, positions: Any, bias: Any, layout: str | None) -> None:
    who = "torch polar_gradients"
    _check(who, x, positions, bias, layout)
    _checks.one_device(who, {"x": x, "d": d})
    _checks.elements(who, "d", d, {x.dtype})
    _checks.shape(who, "d", d, (*x.shape[:-1], 2 * x.shape[-1]))


def _gradients(d: Any, x: Any, positions: Any, bias: Any, encoding: str, layout: str | None, context: int | None) -> Any:
    _check_gradients(d, x, positions, bias, layout)
    made, of_bias = _plan(encoding, x.dtype, context).gradient(x.detach(), d.detach(), positions, bias=_wide(bias), order=layout)
    d_bias = x.new_empty(0) if bias is None else torch.from_numpy(of_bias).to(bias.dtype)
    return torch.as_tensor(made).to(x.dtype) if x.dtype is not torch.bfloat16 else _of_bfloat16(made), d_bias


def _of_bfloat16(made: Any) -> Any:
    return torch.from_numpy(made.view("int16")).view(torch.bfloat16)


def _gradients_fake(d: Any, x: Any, positions: Any, bias: Any, encoding: str, layout: str | None, context: int | None) -> Any:
    _check_gradients(d, x, positions, bias, layout)
    return torch.empty_like(x, memory_format=torch.contiguous_format), x.new_empty(0) if bias is None else torch.empty_like(bias)


def _save(ctx: Any, inputs: Any, output: Any) -> None:
    x, positions, bias, *ctx.more = inputs
    if positions.requires_grad:
        raise RuntimeError("[torch polar] positions must not require a gradient")
    ctx.save_for_backward(x, positions, bias)


def _backward(ctx: Any, d: Any) -> Any:
    x, positions, bias = ctx.saved_tensors
    d_x, d_bias = torch.ops.posenc.polar_gradients(d.contiguous(), x, positions, bias, *ctx.more)
    return d_x, None, None if bias is None else d_bias, None, None, None


def _refuse_twice(*_: Any) -> Any:
    raise RuntimeError("[torch polar] has no second derivative: its gradients must not be differentiated")


_LIBRARY.impl("polar", _polar, "CPU")
_LIBRARY.impl("polar_gradients", _gradients, "CPU")
torch.library.register_fake("posenc::polar", _polar_fake, lib=_LIBRARY)
torch.library.register_fake("posenc::polar_gradients", _gradients_fake, lib=_LIBRARY)
torch.library.register_autograd("posenc::polar", _backward, setup_context=_save, lib=_LIBRARY)
torch.library.register_autograd("posenc::polar_gradients", _refuse_twice, lib=_LIBRARY)


def polar(encoding: EncodingLike, x: Tensor, *, positions: Tensor, bias: Tensor | None = None, layout: str | None = None,
          context: int | None = None) -> Tensor:
    """Polar position embedding (PoPE) of queries, or of keys with their learned `bias` [heads, head_dim]: twice the channels.

    layout: thd (tensors of three axes), bthd or bhtd. Differentiable once in x and bias.

    >>> import posenc, torch
    >>> posenc.torch.polar(posenc.Pope(head_dim=8), torch.ones(5, 2, 8), positions=torch.arange(5)).shape
    torch.Size([5, 2, 16])
    """
    check_tensors("torch polar", {"x": x, "positions": positions, "bias": bias})
    if not is_compiling() and (in_transform() or in_forward_mode()):
        raise RuntimeError("[torch polar] does not run inside torch.func and forward mode")
    made: Tensor = torch.ops.posenc.polar.default(x, positions, bias, str(encoding), layout, context)
    return made
