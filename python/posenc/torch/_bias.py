# SPDX-License-Identifier: Apache-2.0
"""What encodings add to the score whatever q and k hold, and a bias of one's own by distance."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Iterable, Mapping

import torch

from .. import _posenc
from ._attention import _positions, _texts
from ._host import check_tensors, in_transform

if TYPE_CHECKING:
    from torch import Tensor

    from .._encoding import Encoding, Scheme
    from .._types import EncodingLike, PositionsLike


class _Bias(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, call: Any, names: Any, *arrays: Any) -> Any:
        ctx.call, ctx.names = call, names
        ctx.save_for_backward(*arrays)
        return torch.from_numpy(_posenc.score_bias(*call(_groups(names, arrays))))

    @staticmethod
    def backward(ctx: Any, *d: Any) -> Any:
        arrays = ctx.saved_tensors
        encodings, *more = ctx.call(_groups(ctx.names, arrays))
        found = _posenc.score_bias_gradient(encodings, d[0].detach(), *more)
        of = [found[g].get(n) for g, n in ctx.names]
        return None, None, *(None if f is None else torch.from_numpy(f).to(x.dtype) for f, x in zip(of, arrays))


def _groups(names: Any, arrays: Any) -> dict[str, dict[str, Any]]:
    groups: dict[str, dict[str, Any]] = {"parameters": {}, "inputs": {}}
    for (group, name), x in zip(names, arrays):
        groups[group][name] = x.detach().float() if x.is_floating_point() and x.element_size() < 4 else x.detach()
    return groups


def bias(encodings: EncodingLike | Iterable[EncodingLike], *, heads: int, positions: PositionsLike,
         key_positions: PositionsLike | None = None, head_dim: int = 64, parameters: Mapping[str, Tensor] | None = None,
         inputs: Mapping[str, Tensor] | None = None, by_distance: bool = False) -> Tensor:
    """`posenc.bias` of tensors, float64 [heads, queries, keys] or [heads, distances], with gradients to parameters and inputs.

    The arrays of all pairs take n x n numbers: `attend` adds the same without them.

    >>> import torch, posenc, posenc.torch
    >>> table = torch.zeros(32, 4, requires_grad=True)
    >>> posenc.torch.bias(posenc.T5(bidirectional=False), heads=4, positions=range(6), parameters={"table": table}).sum().backward()
    >>> table.grad[0].tolist()                                    # six pairs at distance 0, fifteen of later keys
    [21.0, 21.0, 21.0, 21.0]
    """
    given = {("parameters", n): x for n, x in (parameters or {}).items()} | {("inputs", n): x for n, x in (inputs or {}).items()}
    check_tensors("torch bias", {f"{g}.{n}": x for (g, n), x in given.items()})
    if in_transform():
        raise RuntimeError("[torch bias] does not run inside torch.func")
    texts, at, keys = _texts(encodings), _positions(positions), _positions(key_positions)

    def call(groups: dict[str, dict[str, Any]]) -> tuple[Any, ...]:
        return texts, heads, head_dim, at, keys, groups["parameters"], groups["inputs"], by_distance

    made: Tensor = _Bias.apply(call, list(given), *given.values())
    return made


def distance_bias(f_or_table: Callable[[Tensor], Tensor] | Tensor, *, longest: int | None = None,
                  heads: int | None = None) -> tuple[Scheme | Encoding, dict[str, Tensor]]:
    """A bias of one's own by distance: the encoding and the parameters for `attend`, which takes O(longest) memory.

    f_or_table: a table [2 longest + 1] or [2 longest + 1, heads] of what is added to the score at the distances
    -longest .. longest, query - key; or a function that computes it from these distances, a tensor of float32. A table
    of one axis serves all `heads`. Pairs farther apart get the number at the end. Gradients go to the table, or through
    the function to what it is made of.

    >>> import torch, posenc, posenc.torch
    >>> slope = torch.tensor(0.5, requires_grad=True)
    >>> encoding, parameters = posenc.torch.distance_bias(lambda d: -slope * d.abs().sqrt(), longest=8, heads=2)
    >>> q, k, v = torch.randn(3, 6, 2, 16)
    >>> posenc.torch.attend(encoding, q, k, v, parameters=parameters, causal=True).sum().backward()
    >>> slope.grad.shape
    torch.Size([])
    """
    from .. import _schemes

    who = "[torch distance_bias]"
    table = f_or_table
    if not isinstance(table, torch.Tensor):
        if not callable(table):
            raise ValueError(f'{who} f_or_table must be a function of distances or a tensor, got "{type(table).__name__}"')
        if longest is None or longest < 0:
            raise ValueError(f"{who} longest must be given with a function, the largest distance with a number of its own, got {longest}")
        table = table(torch.arange(-longest, longest + 1, dtype=torch.float32))
        if not isinstance(table, torch.Tensor):
            raise ValueError(f'{who} the function must return a tensor, got "{type(table).__name__}"')
    rows = 2 * longest + 1 if longest is not None else table.shape[0] if table.dim() else 0
    if table.dim() not in (1, 2) or table.shape[0] != rows or rows % 2 == 0:
        raise ValueError(f"{who} the table must be [2 longest + 1] or [2 longest + 1, heads], distances -longest to longest"
                         f"{'' if longest is None else f' of longest={longest}'}, got {list(table.shape)}")
    if table.dim() == 1:
        if heads is None or heads < 1:
            raise ValueError(f"{who} heads must be given with a table of one axis, which all heads share, got {heads}")
        table = table[:, None].expand(-1, heads)
    elif heads is not None and heads != table.shape[1]:
        raise ValueError(f"{who} heads must be the columns of the table, {table.shape[1]}, got {heads}")
    return getattr(_schemes, "Clipped")(clip=(rows - 1) // 2), {"table": table}
