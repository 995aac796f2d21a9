# SPDX-License-Identifier: Apache-2.0
"""One model's rotation, and its attention where asked for, handed to posenc and taken back."""
from __future__ import annotations

import torch

from ._cache_tap import remove_tap, tap_of
from ._kept import KEPT, give_back
from ._report import Report
from ._rotation import SAVED, replace_rotation, restore_rotation

_MARK = "_posenc_accelerated"


def accelerate(model: torch.nn.Module, *, attention: bool = True, force: bool = False, pack: bool = True) -> Report:
    """Replaces the rotation of q and k and the attention of a model on a CPU by posenc's; with attention=False the rotation alone.

    A call that the model's own attention computes faster, by measurements of each kind of layer, stays with the model, and the
    report says so; force=True replaces every call, for less memory or for comparisons. posenc computes in float where its fast
    engine supports the call, otherwise in double. A batch with padding is computed without it where the layers allow it, and the
    output of padding is 0; pack=False keeps all padding.

    Only this model changes, not others of its class or its config. Results are the model's own up to rounding, gradients
    included. Returns a report: what was replaced, what was not and why, counted where it runs. `restore(model)` undoes it; do that
    before other code patches the model's class or module.
    """
    if not isinstance(model, torch.nn.Module):
        raise ValueError(f'[hf accelerate] model must be a torch.nn.Module, got "{type(model).__name__}"')
    if any(n in m.__dict__ for m in model.modules() for n in (_MARK, SAVED, KEPT)):
        raise ValueError("[hf accelerate] model must not be accelerated already; restore it first")
    if force and not attention:
        raise ValueError("[hf accelerate] force requires attention, but attention=False was given")
    had_cache = remove_tap(model)  # a KeyCache watches what rotates then
    report = Report()
    replace_rotation(model, report)
    model.__dict__[_MARK] = True
    from ._attention import has_attention, replace_attention

    if attention:
        report.none = ", or has attention that posenc computes"
        replace_attention(model, report, force, pack)
    elif not report.rotation and has_attention(model):
        report.more = "; accelerate(model) without attention=False replaces its attention, from the length on where posenc is faster"
    if had_cache:
        tap_of(model)
    return report


def restore(model: torch.nn.Module) -> None:
    """Undoes `accelerate`, and takes out what a `KeyCache` put into the model. Does nothing to any other model."""
    remove_tap(model)
    for module in model.modules():
        module.__dict__.pop(_MARK, None)
    give_back(model)
    restore_rotation(model)
