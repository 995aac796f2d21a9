# SPDX-License-Identifier: Apache-2.0
"""One tensor of a live model beside the same tensor as the model's class computes it."""
from __future__ import annotations

from typing import Any

import torch

from .._model import Finding
from ._fresh import Expected

_CLOSE = 1e-6  # the float32 of another machine's pow
_CLOSE_TABLE = 5e-4  # cosine and sine of float32 angles that two devices round differently
_ON_META = "it is on the meta device and has no values"
_UNSET = "it is zero or not finite, because loading through the meta device did not set it"
_SIXTEEN = (torch.bfloat16, torch.float16)


def _plain(x: Any) -> Any:
    x = x.detach().to("cpu")
    return (torch.view_as_real(x) if x.is_complex() else x).double()


def _unset(have: Any, want: Any) -> bool:
    """Zero, or not finite where it should be."""
    if have.shape != want.shape:
        want = want.new_ones(())
    return bool((~have.isfinite() & want.isfinite()).any()) or bool((have == 0).all() and (want != 0).any())


def _rounded(have: Any, want: Any) -> str:
    """The 16-bit type that the numbers were rounded to and that changed them; "": none."""
    for dtype in _SIXTEEN:
        rounded = want.to(dtype).double()
        if not torch.equal(rounded, want) and _far(have, rounded) <= _CLOSE < _far(have, want):
            return str(dtype).removeprefix("torch.")
    return ""


def _far(have: Any, want: Any) -> float:
    """The largest difference, relative to each number, or to the largest where some are zero."""
    finite = want.isfinite()
    if not bool(finite.any()) or not torch.equal(finite, have.isfinite()):
        return 0.0 if torch.equal(torch.nan_to_num(have), torch.nan_to_num(want)) else float("inf")
    have, want = have[finite], want[finite]
    least = float(want.abs().min())
    scale = want.abs() if least > 0 else max(float(want.abs().max()), 1e-300)
    return float(((have - want).abs() / scale).max())


def _cut(have: Any, want: Any) -> tuple[Any, Any]:
    """Tables grow with the longest call: the part that both have."""
    if have.dim() == want.dim() and have.shape != want.shape and all(a >= b for a, b in zip(have.shape, want.shape)):
        return have[tuple(slice(n) for n in want.shape)], want
    return have, want


def not_finite(place: str, x: Any, expected: Expected) -> Finding | None:
    """Of a tensor whose numbers training changes."""
    have, want = _plain(x), _plain(expected.value)
    if bool(have.isfinite().all()) or not bool(want.isfinite().all()):
        return None
    return Finding("error", "buffer_unset", "it is not finite, because loading through the meta device did not set it", place, "load the weights")


def without_expected(place: str, x: Any, why: str) -> Finding:
    """Of a tensor that nothing is known about but its name: zeros and numbers that are not finite are wrong anyway."""
    if x.device.type == "meta":
        return Finding("error", "buffer_missing", _ON_META, place, "load the weights")
    if x.is_floating_point() and x.numel() > 1 and (not bool(x.isfinite().all()) or not bool(x.any())):
        return Finding("error", "buffer_unset", _UNSET, place, "load the weights, or compute it again")
    return Finding("note", "buffer_not_checked", f"it was not compared: {why}", place, "compare it with a model that is known to be correct")


def judged(place: str, x: Any, expected: Expected) -> Finding | None:
    """What is wrong with a tensor; None: nothing."""
    word = "frequencies" if "freq" in place.rpartition(".")[2] else "buffer"
    again = "compute it again: build the model from its config on the CPU and copy this tensor"
    if x.device.type == "meta":
        return Finding("error", f"{word}_missing", _ON_META, place, again)
    if x.numel() == 0 and expected.value.numel() == 0:
        return None
    have, want = _cut(_plain(x), _plain(expected.value))
    if _unset(have, want):
        return Finding("error", f"{word}_unset", _UNSET, place, again)
    if expected.drawn:
        return None  # no two constructions agree: the numbers are the checkpoint's
    if have.shape != want.shape:
        return Finding("error", f"{word}_stale", f"its shape is {list(x.shape)}; the class makes {list(expected.value.shape)} from the config", place,
                       "build the model again after a change of its config")
    kind = _rounded(have, want)
    if kind:
        how = "it is stored in" if x.dtype in _SIXTEEN else "it was converted back after rounding to"
        worst = float((have - want).abs().nan_to_num().max())
        return Finding("error", f"{word}_cast", f"{how} {kind}, so its values are wrong by up to {worst:.3g}", place,
                       "load with dtype=..., or cast the model without its buffers")
    far = _far(have, want)
    wide = x.is_floating_point() and bool((want == 0).any())
    if far <= (_CLOSE_TABLE if wide else _CLOSE):
        return None
    return Finding("error", f"{word}_stale", f"it differs from what its class computes from the config, by up to {far:.3g} of its size", place, again)
