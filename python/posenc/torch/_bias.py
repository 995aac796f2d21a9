# SPDX-License-Identifier: Apache-2.0
"""What encodings add to the score whatever q and k hold, and a bias of your own by distance.

posenc::bias(arrays, names, ...) -> Tensor               names: parameters.NAME, inputs.NAME, positions, key_positions
posenc::bias_backward(d, wanted, arrays, ...) -> Tensor[]    the gradients that are wanted, in order
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Iterable, Mapping, NoReturn, Sequence

import torch

from .. import _posenc
from . import _checks
from ._attention import _positions, _texts
from ._attention_checks import arrays_of, check_constants, check_parameters
from ._host import Library, check_tensors, in_transform

if TYPE_CHECKING:
    from torch import Tensor

    from .._encoding import Encoding, Scheme
    from .._types import EncodingLike, PositionsLike

_LIBRARY = Library("posenc", "FRAGMENT")
_DETAILS = "str[] names, str[] encodings, SymInt heads, SymInt head_dim, bool by_distance"
_LIBRARY.define(f"bias(Tensor[] arrays, {_DETAILS}) -> Tensor")
_LIBRARY.define(f"bias_backward(Tensor d, bool[] wanted, Tensor[] arrays, {_DETAILS}) -> Tensor[]")
_PLACES = ("positions", "key_positions")


def _call(arrays: Sequence[Tensor], names: Sequence[str], heads: int, head_dim: int, by_distance: bool) -> tuple[Any, ...]:
    """What the binding takes after the encodings."""
    groups: dict[str, Any] = {"parameters": {}, "inputs": {}, "positions": None, "key_positions": None}
    for name, x in zip(names, arrays):
        x = x.detach().resolve_neg()
        x = x.float() if x.is_floating_point() and x.element_size() < 4 else x
        group, _, key = name.partition(".")
        if key:
            groups[group][key] = x
        else:
            groups[name] = x
    return heads, head_dim, groups["positions"], groups["key_positions"], groups["parameters"], groups["inputs"], by_distance


def _check(who: str, arrays: Sequence[Tensor], names: Sequence[str], encodings: Sequence[str], heads: Any, head_dim: Any,
           more: dict[str, Tensor] | None = None) -> None:
    _checks.names(who, "arrays", names, arrays)
    _checks.one_device(who, {**(more or {}), **dict(zip(names, arrays))})
    for name, x in zip(names, arrays):
        group, _, key = name.partition(".")
        if (group not in ("parameters", "inputs")) if key else (name not in _PLACES):
            _checks.refuse(who, "names must be positions, key_positions, or a name after parameters. or inputs.", name)
        if not key:
            _checks.elements(who, name, x, _checks.PLACES)
            _checks.axes(who, name, x, (1, 2, 3))
    if "positions" not in names:
        _checks.refuse(who, "positions must be given", "none")
    check_parameters(who, arrays, names, encodings, heads, head_dim, heads, _checks.REAL)


def _check_backward(d: Tensor, wanted: Sequence[bool], arrays: Sequence[Tensor], names: Sequence[str], encodings: Sequence[str],
                    heads: Any, head_dim: Any, by_distance: bool) -> None:
    who = "torch bias_backward"
    _check(who, arrays, names, encodings, heads, head_dim, {"d": d})
    _checks.elements(who, "d", d, (torch.float64,))
    _checks.shape(who, "d", d, _shape(arrays, names, heads, by_distance))
    _checks.names(who, "wanted", names, wanted)


def _shape(arrays: Sequence[Tensor], names: Sequence[str], heads: Any, by_distance: bool) -> list[Any]:
    places = {n: x.shape[-1] if x.dim() else 1 for n, x in zip(names, arrays) if n in _PLACES}
    queries = places["positions"]
    return [heads, queries] if by_distance else [heads, queries, places.get("key_positions", queries)]


def _forward(arrays: Sequence[Tensor], names: Sequence[str], encodings: Sequence[str], *details: Any) -> Tensor:
    _check("torch bias", arrays, names, encodings, *details[:2])
    return torch.from_numpy(_posenc.score_bias(encodings, *_call(arrays, names, *details)))


def _backward(d: Tensor, wanted: Sequence[bool], arrays: Sequence[Tensor], names: Sequence[str], encodings: Sequence[str],
              *details: Any) -> list[Tensor]:
    _check_backward(d, wanted, arrays, names, encodings, *details)
    found = _posenc.score_bias_gradient(encodings, d.detach().resolve_neg(), *_call(arrays, names, *details))
    gradients = []
    for name, x, w in zip(names, arrays, wanted):
        if w:
            group, _, key = name.partition(".")
            gradients.append(torch.from_numpy(found[group][key]).to(x.dtype))
    return gradients


def _fake(arrays: Sequence[Tensor], names: Sequence[str], encodings: Sequence[str], heads: Any, head_dim: Any, by_distance: bool) -> Tensor:
    _check("torch bias", arrays, names, encodings, heads, head_dim)
    return arrays[0].new_empty(_shape(arrays, names, heads, by_distance), dtype=torch.float64)


def _fake_backward(d: Tensor, wanted: Sequence[bool], arrays: Sequence[Tensor], names: Sequence[str], *details: Any) -> list[Tensor]:
    _check_backward(d, wanted, arrays, names, *details)
    return [x.new_empty(x.shape) for x, w in zip(arrays, wanted) if w]


_LIBRARY.impl("bias", _forward, "CPU")
_LIBRARY.impl("bias_backward", _backward, "CPU")
torch.library.register_fake("posenc::bias", _fake, lib=_LIBRARY)
torch.library.register_fake("posenc::bias_backward", _fake_backward, lib=_LIBRARY)
_operator_backward = torch.ops.posenc.bias_backward.default


def _refuse_twice(*_: Any) -> NoReturn:
    raise RuntimeError("[torch bias] has no second derivative: its gradients must not be differentiated")


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    arrays, *ctx.details = inputs
    ctx.save_for_backward(*arrays)


def _gradient(ctx: Any, d: Tensor) -> tuple[Any, ...]:
    arrays, listed = ctx.saved_tensors, ctx.needs_input_grad[0]
    needed = list(listed) if isinstance(listed, (list, tuple)) else [listed] * len(arrays)
    wanted = [w and x.is_floating_point() and n not in _PLACES for w, x, n in zip(needed, arrays, ctx.details[0])]
    found = iter(_operator_backward(d, wanted, arrays, *ctx.details))
    # An empty list among the others counts as one of tensors.
    return [next(found) if w else None for w in wanted], *([] if x == [] else None for x in ctx.details)


torch.library.register_autograd("posenc::bias", _gradient, setup_context=_keep, lib=_LIBRARY)
torch.library.register_autograd("posenc::bias_backward", _refuse_twice, lib=_LIBRARY)


def bias(encodings: EncodingLike | Iterable[EncodingLike], *, heads: int, positions: PositionsLike,
         key_positions: PositionsLike | None = None, head_dim: int = 64, parameters: Mapping[str, Tensor] | None = None,
         inputs: Mapping[str, Tensor] | None = None, by_distance: bool = False) -> Tensor:
    """`posenc.bias` of tensors, float64 [heads, queries, keys] or [heads, distances], with gradients to parameters and inputs.

    The arrays of all pairs take n x n numbers: `attend` adds the same without them. A compiled or exported graph has it
    as the operator `posenc::bias`.

    >>> import torch, posenc, posenc.torch
    >>> table = torch.zeros(32, 4, requires_grad=True)
    >>> posenc.torch.bias(posenc.T5(bidirectional=False), heads=4, positions=range(6), parameters={"table": table}).sum().backward()
    >>> table.grad[0].tolist()                                    # six pairs at distance 0, fifteen of later keys
    [21.0, 21.0, 21.0, 21.0]
    """
    given = {f"{group}.{n}": x for group, named in (("parameters", parameters), ("inputs", inputs))
             for n, x in arrays_of("torch bias", group, named).items()}
    places = {"positions": _positions(positions), "key_positions": _positions(key_positions)}
    given |= {n: x for n, x in places.items() if x is not None}
    check_tensors("torch bias", given)
    check_constants("torch bias", {n: x for n, x in given.items() if n in places})
    if in_transform():
        raise RuntimeError("[torch bias] does not run inside torch.func")
    made: Tensor = torch.ops.posenc.bias(list(given.values()), list(given), _texts(encodings), heads, head_dim, by_distance)
    return made


def distance_bias(f_or_table: Callable[[Tensor], Tensor] | Tensor, *, longest: int | None = None,
                  heads: int | None = None) -> tuple[Scheme | Encoding, dict[str, Tensor]]:
    """A bias of your own by distance: the encoding and the parameters for `attend`, which takes O(longest) memory.

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
