# SPDX-License-Identifier: Apache-2.0
"""posenc for JAX: rotation, and rows composed at the input, as foreign calls with gradients. Arrays on a CPU, under
`jit`, `grad` and `vmap`; forward mode is refused by JAX. No formula stands here.

>>> import jax.numpy as jnp, posenc.jax
>>> x = posenc.Rope(head_dim=8, pairing="half_split")
>>> posenc.jax.rotate(x, jnp.ones((4, 2, 8)), positions=jnp.arange(4)).shape
(4, 2, 8)
"""
from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy

from .. import _posenc

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .._types import EncodingLike

__all__ = ["compose", "rotate"]

for _name, _target in _posenc.jax_targets().items():
    jax.ffi.register_ffi_target(_name, _target, platform="cpu")


def rotate(
    encoding: EncodingLike,
    q: Any,
    k: Any = None,
    *,
    positions: Any,
    order: str | None = None,
    context: int | None = None,
) -> Any:
    """q, or (q, k), rotated as by `posenc.rotate`. Arrays of [t, h, d], or of four axes with `order` (bthd, bhtd, tbhd);
    positions [t], [b, t] or [axes, b, t] of whole numbers."""
    places = _whole(positions)
    _posenc.RotaryPlan(str(encoding), str(jnp.asarray(q).dtype), context=context)  # refuses what is none
    rotated = tuple(_rotate((*_words(encoding, context), _order(x, order), "forward"), jnp.asarray(x), places)
                    for x in (q, k) if x is not None)
    return rotated if k is not None else rotated[0]


def compose(
    encoding: EncodingLike,
    x: Any,
    positions: Any,
    *,
    parameters: Mapping[str, Any] | None = None,
    context: int | None = None,
) -> Any:
    """x, [t, c] or [b, t, c], composed with the rows of its positions as by `posenc.InputPlan`, with gradients of x and of
    `parameters`."""
    if parameters is not None and not hasattr(parameters, "items"):
        raise ValueError(f'[jax] parameters must be a mapping of names to arrays, got "{type(parameters).__name__}"')
    given = dict(parameters or {})
    names = [name for name, _ in _posenc.input_parameters(str(encoding))]
    for name in [*given, *names]:
        if name not in names or name not in given:
            raise ValueError(f"[jax] parameters must be the learned arrays of the encoding, {names}, got {list(given)}")
    x = jnp.asarray(x)
    learned = tuple(_real(given[name]) for name in names)
    return _compose((*_words(encoding, context), _appended(str(encoding), str(x.dtype), context)), x, _whole(positions), learned)


@functools.lru_cache(256)
def _appended(encoding: str, dtype: str, context: int | None) -> int:
    return _posenc.InputPlan(encoding, dtype, seed=0, context=context).appended


def _words(encoding: EncodingLike, context: int | None) -> tuple[str, str]:
    return str(encoding), "" if context is None else str(context)


def _whole(positions: Any) -> Any:
    p = jnp.asarray(positions)
    if p.dtype not in (jnp.int32, jnp.int64):
        raise ValueError(f"[jax] positions must be int32 or int64, got {p.dtype}")
    return p


def _real(array: Any) -> Any:
    a = jnp.asarray(array)
    return a if a.dtype == jnp.float64 else a.astype(jnp.float32)


def _order(x: Any, order: str | None) -> str:
    rank = jnp.ndim(x)
    if order is None and rank != 3:
        raise ValueError(f"[jax] order must be bthd, bhtd or tbhd unless the array has three axes, got {rank} axes without order")
    return order or "thd"


# JAX has no types for what these give.
_foreign: Any = jax.ffi.ffi_call
_shape: Any = jax.ShapeDtypeStruct
_with_gradient: Any = jax.custom_vjp


def _like(x: Any, more: int = 0) -> Any:
    return _shape((*x.shape[:-1], x.shape[-1] + more), x.dtype)


def _nothing(positions: Any) -> Any:
    return numpy.zeros(positions.shape, jax.dtypes.float0)


# words: encoding, context, order, mode
def _rotated(words: tuple[str, str, str, str], x: Any, positions: Any) -> Any:
    names = ("encoding", "context", "order", "mode")
    call = _foreign("posenc_rotate", _like(x), vmap_method="sequential")
    return call(x, positions, **dict(zip(names, words)))


_rotate = _with_gradient(_rotated, nondiff_argnums=(0,))


def _rotate_forward(words: Any, x: Any, positions: Any) -> Any:
    return _rotate(words, x, positions), positions


# Rotation is linear, and the transpose of its transpose is the rotation.
def _rotate_backward(words: Any, positions: Any, d_y: Any) -> Any:
    other = "forward" if words[3] == "gradient" else "gradient"
    return _rotate((*words[:3], other), d_y, positions), _nothing(positions)


_rotate.defvjp(_rotate_forward, _rotate_backward)


# words: encoding, context, channels that are appended
def _composed(words: tuple[str, str, int], x: Any, positions: Any, learned: tuple[Any, ...]) -> Any:
    call = _foreign("posenc_compose", _like(x, words[2]), vmap_method="sequential")
    return call(x, positions, *learned, encoding=words[0], context=words[1])


_compose = _with_gradient(_composed, nondiff_argnums=(0,))


def _compose_forward(words: Any, x: Any, positions: Any, learned: Any) -> Any:
    return _compose(words, x, positions, learned), (x, positions, learned)


def _compose_backward(words: Any, kept: Any, d_y: Any) -> Any:
    x, positions, learned = kept
    results = [_like(x), *(_shape(p.shape, p.dtype) for p in learned)]
    call = _foreign("posenc_compose_gradient", results, vmap_method="sequential")
    d_x, *d_learned = call(d_y, x, positions, *learned, encoding=words[0], context=words[1])
    return d_x, _nothing(positions), tuple(d_learned)


_compose.defvjp(_compose_forward, _compose_backward)
