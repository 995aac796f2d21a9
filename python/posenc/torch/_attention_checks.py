# SPDX-License-Identifier: Apache-2.0
"""What the operators of attention check themselves: the arrays' names on every call, elements and sizes of tensors without memory."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any, Mapping, Sequence

import torch

from .. import _posenc
from . import _checks

if TYPE_CHECKING:
    from torch import Tensor

# Arrays of a call by name: their elements.
_ARRAYS = {
    **dict.fromkeys(("bias", "sink", "query_factor", "head_scale", "mix_before", "mix_after"), _checks.WIDE),
    **dict.fromkeys(("query_positions", "key_positions"), _checks.PLACES),
    **dict.fromkeys(("key_visible", "visible", "head_side"), _checks.FLAGS),
    **dict.fromkeys(("prefix", "key_length", "query_document", "key_document", "query_cu_seqlens", "key_cu_seqlens", "query_order",
                     "key_order", "chunk_origin", "block_table", "past_distances", "future_distances"), _checks.WHOLE),
}
_GROUPS = ("parameters", "inputs", "regions")  # of names with a dot, which the kernel compares with the encodings'


def check_names(who: str, names: Sequence[str], arrays: Sequence[Tensor], q: Tensor, k: Tensor) -> None:
    """Every array has a name that a call knows, and elements, without which the kernel would take it as not given."""
    _checks.names(who, "arrays", names, arrays)
    for name, x in zip(names, arrays):
        group, _, key = name.partition(".")
        if (group not in _GROUPS) if key else (name not in _ARRAYS):
            _checks.refuse(who, f"names must be of {', '.join(_ARRAYS)}, or a name after {'. or '.join(_GROUPS)}.", name)
        if isinstance(x.numel(), int) and x.numel() == 0 and not key and 0 not in q.shape and 0 not in k.shape:
            _checks.refuse(who, f"{name} must have elements", list(x.shape))


def check_given(who: str, tensors: Mapping[str, Any]) -> None:
    """Tensors that every call has."""
    for name, x in tensors.items():
        if not isinstance(x, torch.Tensor):
            _checks.refuse(who, f"{name} must be a tensor", type(x).__name__)


def check_constants(who: str, given: Mapping[str, Any]) -> None:
    """Numbers and positions, which get no gradient, must not wait for one."""
    for name, x in given.items():
        if isinstance(x, torch.Tensor) and x.requires_grad and torch.is_grad_enabled():
            _checks.refuse(who, f"{name} has no gradient; use {name}.detach()", "a tensor that requires one")


def arrays_of(who: str, name: str, named: Any) -> dict[str, Any]:
    """Arrays by name; None: none."""
    if named is None:
        return {}
    if not hasattr(named, "items"):
        _checks.refuse(who, f"{name} must be a mapping of names to tensors", type(named).__name__)
    return dict(named.items())


def head_size(x: Tensor) -> Any:
    """Channels of keys or values, in uint8 those of q8_0 blocks."""
    return x.shape[-1] // 34 * 32 if x.dtype is torch.uint8 else x.shape[-1]


def check_fake(who: str, q: Tensor, k: Tensor, v: Tensor, arrays: Sequence[Tensor], names: Sequence[str], encodings: Sequence[str],
                order: str | None, *rest: Any) -> None:
    """Of tensors without memory."""
    _checks.one_device(who, {"q": q, "k": k, "v": v, **dict(zip(names, arrays))})
    check_names(who, names, arrays, q, k)
    axes = order or "thd"
    if axes not in _checks.LAYOUTS:
        _checks.refuse(who, f"order must be {', '.join(_checks.LAYOUTS)}", axes)
    paged = "block_table" in names
    key_axes = "bthd" if paged and axes == "thd" else axes  # pages have the batch in front
    for name, x in (("q", q), ("k", k), ("v", v)):
        _checks.elements(who, name, x, _checks.REAL if name == "q" else _checks.REAL | {torch.uint8})
        _checks.axes(who, name, x, (len(axes if name == "q" else key_axes),))
    if paged:
        return _check_paged(who, q, k, v, axes, key_axes, dict(zip(names, arrays)), encodings)
    t, d, h, b = (axes.find(letter) for letter in "tdhb")
    _checks.size(who, f"k must have the channels of q, {q.shape[d]}", head_size(k), (q.shape[d],))
    for name, x in (("k", k), ("v", v)):
        if b >= 0:
            _checks.size(who, f"{name} must have the batch of q, {q.shape[b]}", x.shape[b], (q.shape[b],))
    _checks.size(who, f"v must have the tokens of k, {k.shape[t]}", v.shape[t], (k.shape[t],))
    _checks.size(who, f"v must have the heads of k, {k.shape[h]}", v.shape[h], (k.shape[h],))
    heads, of_keys = q.shape[h], k.shape[h]
    if isinstance(heads, int) and isinstance(of_keys, int) and (of_keys == 0 or heads % of_keys):
        _checks.refuse(who, f"heads of k must divide those of q, {heads}", of_keys)
    for name, x in zip(names, arrays):
        if name in _ARRAYS:
            _checks.elements(who, name, x, _ARRAYS[name])
            _check_array(who, name, x, 1 if b < 0 else q.shape[b], q.shape[t], k.shape[t], heads)
    check_parameters(who, arrays, names, encodings, heads, q.shape[d], of_keys)


def check_arrays(who: str, names: Sequence[str], arrays: Sequence[Tensor], batch: Any, queries: Any, keys: Any, heads: Any) -> None:
    """Elements and sizes of the arrays of a mask by name."""
    for name, x in zip(names, arrays):
        _checks.elements(who, name, x, _ARRAYS[name])
        if isinstance(x.numel(), int) and x.numel() == 0 and queries and keys:
            _checks.refuse(who, f"{name} must have elements", list(x.shape))
        _check_array(who, name, x, batch, queries, keys, heads)


def _check_paged(who: str, q: Tensor, k: Tensor, v: Tensor, axes: str, key_axes: str, arrays: dict[str, Tensor],
                 encodings: Sequence[str]) -> None:
    """Keys and values in pages."""
    t, h = (key_axes.index(letter) for letter in "th")
    _checks.size(who, f"k must have the channels of q, {q.shape[axes.index('d')]}", head_size(k), (q.shape[axes.index("d")],))
    for word, axis in (("pages", 0), ("tokens", t), ("heads", h)):
        _checks.size(who, f"v must have the {word} of k, {k.shape[axis]}", v.shape[axis], (k.shape[axis],))
    table = arrays["block_table"]
    _checks.axes(who, "block_table", table, (1, 2))
    keys = table.shape[-1] * k.shape[t]
    batch = 1 if "b" not in axes else q.shape[axes.index("b")]
    for name, x in arrays.items():
        if name in _ARRAYS and name != "block_table":
            _checks.elements(who, name, x, _ARRAYS[name])
            if not name.startswith("key_"):  # a row for each sequence, which only the kernel counts
                _check_array(who, name, x, batch, q.shape[axes.index("t")], keys, q.shape[axes.index("h")])
    check_parameters(who, list(arrays.values()), list(arrays), encodings, q.shape[axes.index("h")], q.shape[axes.index("d")],
                     k.shape[h])


def _check_array(who: str, name: str, x: Tensor, batch: Any, queries: Any, keys: Any, heads: Any) -> None:
    """Sizes of what is not learned."""
    if name in ("query_positions", "key_positions"):
        return _checks.places(who, name, x, batch, queries if name[0] == "q" else keys)
    if name in ("bias", "visible"):
        _checks.axes(who, name, x, (2, 4))
        for n, want in zip(x.shape[-2:], (queries, keys)):
            _checks.size(who, f"{name} must end with queries and keys, {queries} and {keys}", n, (want,))
    elif name == "sink":
        _checks.shape(who, name, x, (heads,))
    elif name in ("query_factor", "head_scale"):
        _checks.axes(who, name, x, (2,))
        _checks.size(who, f"{name} must have 1 row or one for each of {batch} sequences", x.shape[0], (batch, 1))
        word, many = ("heads", heads) if name == "head_scale" else ("queries", queries)
        _checks.size(who, f"{name} must have a number for each of {many} {word}", x.shape[1], (many,))
    elif name in ("key_length", "prefix", "query_cu_seqlens", "key_cu_seqlens"):
        _checks.axes(who, name, x, (1,))
        if name == "key_length":
            _checks.size(who, f"key_length must have one number for each of {batch} sequences", x.shape[0], (batch,))
    elif name in ("mix_before", "mix_after"):
        _checks.shape(who, name, x, (heads, heads))
    elif name == "head_side":
        _checks.shape(who, name, x, (heads,))
    elif name == "chunk_origin":
        _checks.axes(who, name, x, (0, 1, 2))
    elif name in ("key_visible", "query_document", "key_document", "query_order", "key_order"):
        _checks.axes(who, name, x, (1, 2))
        tokens = queries if name[0] == "q" else keys
        _checks.size(who, f"{name} must have {tokens} tokens", x.shape[-1], (tokens,))
    return None


def check_parameters(who: str, arrays: Sequence[Tensor], names: Sequence[str], encodings: Sequence[str], heads: Any, dim: Any,
                     key_heads: Any, allowed: Any = _checks.WIDE) -> None:
    """Names and shapes of what the encodings learn, where the sizes are known."""
    if not all(isinstance(n, int) for n in (heads, dim, key_heads)):
        return  # sizes that are known at run time only
    given = {n.partition(".")[2]: x for n, x in zip(names, arrays) if n.startswith("parameters.")}
    wanted = dict(_posenc.score_parameters(encodings, heads=heads, head_dim=dim, key_heads=key_heads))
    _checks.names(who, "parameters", list(given), list(given.values()), wanted)
    for name, of in wanted.items():
        if name not in given:
            _checks.refuse(who, "parameters must have all arrays; missing is", name)
        _checks.elements(who, name, given[name], allowed)
        _checks.shape(who, name, given[name], of)


def check_result(who: str, d_out: Tensor, d_log_sum_exp: Tensor, out: Tensor, log_sum_exp: Tensor, wanted: Sequence[bool], q: Tensor,
                  arrays: Sequence[Tensor], shapes: tuple[list[Any], list[Any]]) -> None:
    """What an earlier call gave, and the gradients of it."""
    if len(wanted) != 3 + len(arrays):
        _checks.refuse(who, f"wanted must be a word for q, k, v and each array, {3 + len(arrays)}", len(wanted))
    for name, x in (("d_out", d_out), ("out", out)):
        _checks.elements(who, name, x, (q.dtype,))
        _checks.shape(who, name, x, shapes[0])
    for name, x in (("d_log_sum_exp", d_log_sum_exp), ("log_sum_exp", log_sum_exp)):
        _checks.elements(who, name, x, (torch.float64,))
        _checks.shape(who, name, x, shapes[1])
