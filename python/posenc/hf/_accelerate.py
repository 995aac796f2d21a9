# SPDX-License-Identifier: Apache-2.0
"""One model's rotation, and its attention where asked for, handed to posenc and taken back."""
from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from . import _distance_map
from ._cache_tap import decoder_modules, remove_tap, tap_of
from ._kept import KEPT, give_back
from ._report import Report
from ._rotation import SAVED, replace_rotation, restore_rotation

if TYPE_CHECKING:
    from ._map_regions import DistanceMap

_MARK = "_posenc_accelerated"


def accelerate(model: torch.nn.Module, *, attention: bool = True, force: bool = False, pack: bool = True,
               distance_map: DistanceMap | None = None) -> Report:
    """Replaces the rotation of q and k and the attention of a model on a CPU by posenc's; with attention=False the rotation alone.

    A call that the model's own attention computes faster, by measurements of each kind of layer, stays with the model, and the
    report says so; force=True replaces every call, for less memory or for comparisons. posenc computes in float where its fast
    engine supports the call, otherwise in double. A batch with padding is computed without it where the layers allow it, and the
    output of padding is 0; pack=False keeps all padding.

    distance_map: a function of query and key positions that gives regions, such as `functools.partial(posenc.self_extend, window=512,
    group=4, ratio="floored")`, `posenc.rerope` or `posenc.dual_chunk`. Every layer that rotates then rotates by these positions, and
    caches keep keys as they are before the rotation. It changes results, rejects gradients, and padding stays.

    Only this model changes, not others of its class or its config. Without a distance map, results are the model's own up to
    rounding, gradients included. Returns a report: what was replaced, what was not and why, counted where it runs.
    `restore(model)` undoes it; do that before other code patches the model's class or module.
    """
    if not isinstance(model, torch.nn.Module):
        raise ValueError(f'[hf accelerate] model must be a torch.nn.Module, got "{type(model).__name__}"')
    if any(n in m.__dict__ for m in model.modules() for n in (_MARK, SAVED, KEPT)):
        raise ValueError("[hf accelerate] model must not be accelerated already; restore it first")
    for name, given in (("force", force), ("distance_map", distance_map is not None)):
        if given and not attention:
            raise ValueError(f"[hf accelerate] {name} requires attention, but attention=False was given")
    if distance_map is not None:
        _distance_map.check_map(distance_map)
    had_cache = remove_tap(model)  # a KeyCache watches what rotates then
    report = Report()
    try:
        _replace(model, report, attention, force, pack, distance_map)
    except BaseException:
        restore(model)
        raise
    finally:
        if had_cache:
            tap_of(model)
    return report


def _replace(model: torch.nn.Module, report: Report, attention: bool, force: bool, pack: bool, distance_map: DistanceMap | None) -> None:
    mapped = {} if distance_map is None else dict(decoder_modules(model))
    replace_rotation(model, report, _distance_map.unrotated if mapped else None, mapped)
    model.__dict__[_MARK] = True
    from ._attention import has_attention, replace_attention

    if attention:
        report.none = ", or has attention that posenc computes"
        replace_attention(model, report, force or bool(mapped), pack and not mapped)
    elif not report.rotation and has_attention(model):
        report.more = "; accelerate(model) without attention=False replaces its attention, from the length on where posenc is faster"
    if distance_map is not None:
        _distance_map.check_model(model, mapped, report)
        _distance_map.set_map(model, mapped, distance_map, report)


def restore(model: torch.nn.Module) -> None:
    """Undoes `accelerate`, and takes out what a `KeyCache` put into the model. Does nothing to any other model."""
    remove_tap(model)
    for module in model.modules():
        module.__dict__.pop(_MARK, None)
    give_back(model)
    restore_rotation(model)
