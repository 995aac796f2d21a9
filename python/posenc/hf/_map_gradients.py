# SPDX-License-Identifier: Apache-2.0
"""Gradients of attention by a distance map."""
from __future__ import annotations

from typing import Any

import torch
from torch.autograd.function import once_differentiable

import posenc


class Attend(torch.autograd.Function):
    """`posenc.attend` of tensors [batch, tokens, heads, channels], with gradients of q, k, v and the sink. options: its other arguments."""

    @staticmethod
    def forward(ctx: Any, options: dict[str, Any], q: Any, k: Any, v: Any, sink: Any) -> Any:
        out = q.new_empty(*q.shape[:3], v.shape[-1])
        # Detached, as the result of the call would keep its own graph alive otherwise.
        given = [None if x is None else x.detach() for x in (q, k, v, sink)]
        options = {n: x.detach() if isinstance(x, torch.Tensor) else x for n, x in options.items()}
        ctx.attention = posenc.attend([], *given[:3], order="bthd", sink=given[3], out=out.detach(), **options)
        ctx.save_for_backward(*(x for x in (q, k, v, sink) if x is not None), out)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d: Any) -> Any:
        saved = ctx.saved_tensors  # rejects those that changed since
        wanted = dict(zip(("q", "k", "v", "sink"), ctx.needs_input_grad[1:]))
        found = ctx.attention.backward(d.detach(), only=[n for n, w in wanted.items() if w])
        return None, *(torch.from_numpy(found[n]).to(saved[i].dtype) if w else None for i, (n, w) in enumerate(wanted.items()))
