# SPDX-License-Identifier: Apache-2.0
"""A live model's position buffers beside what its config and its class say."""
from __future__ import annotations

import functools
import inspect
import re
import sys
from typing import Any, Iterator

import torch

from .._model import Finding
from . import _fresh, _rotary_check
from ._attention import _class_of
from ._compare import judged, not_finite, without_expected

_POSITIONS = re.compile(r"pos|freq|rot|sin|cos|alibi|relative|coords|distance|bucket|angle|theta|slope|decay|rope|embed_positions|^pe$", re.I)
# Modules that a model makes and does not call, by class: whether its config says so.
_UNCALLED: dict[str, Any] = {"FalconRotaryEmbedding": lambda config: config.alibi}


@functools.lru_cache(None)
def _names(cls: type) -> tuple[frozenset[str], frozenset[str]]:
    """Names that the class's constructors say, and names that the other methods of its file read."""
    made: set[str] = set()
    read: set[str] = set()
    for base in cls.__mro__:
        file = sys.modules.get(base.__module__)
        if base.__module__.startswith("torch.") or file is None:
            continue
        for other in {base, *(x for x in vars(file).values() if isinstance(x, type) and x.__module__ == base.__module__)}:
            for method in vars(other).values():
                code = getattr(inspect.unwrap(method) if callable(method) else getattr(method, "fget", None), "__code__", None)
                if code is None:
                    continue
                said = {*code.co_names, *(c for c in code.co_consts if isinstance(c, str))}
                if code.co_name not in ("__init__", "_init_weights"):
                    read |= said
                elif other in cls.__mro__:
                    made |= said
        read |= {n for f in vars(file).values() if inspect.isfunction(f) for n in f.__code__.co_names}
    return frozenset(made), frozenset(read)


def _is_unread(module: Any, name: str) -> bool:
    """Whether nothing reads the tensor: a module that is not called, or a name that no method says."""
    rule = _UNCALLED.get(type(module).__name__)
    if rule is not None and rule(module.config):
        return True
    kind: Any = getattr(module, "rope_type", "")
    if name.endswith("original_inv_freq"):  # read by scalings that compute frequencies anew
        kinds = kind.values() if isinstance(kind, dict) else (kind,)
        return not any(k == "longrope" or "dynamic" in str(k) for k in kinds)
    made, read = _names(_class_of(module))
    return name in made and name not in read


def _rotary(model: torch.nn.Module, found: list[Finding]) -> set[str]:
    """Frequencies that transformers' own functions compute. Returns the places that were looked at."""
    done = set()
    for path, module in model.named_modules():
        try:
            for name, findings in _rotary_check.compared(path, module):
                if not _is_unread(module, name):
                    found += findings
                done.add(f"{path}.{name}".lstrip("."))
        except Exception:  # a class of its own kind: its buffers are compared with a fresh model's
            continue
    return done


def _others(path: str, root: Any, done: set[str], found: list[Finding]) -> Iterator[tuple[str, Any, str]]:
    """Every other tensor of one model; yields those that cannot be compared, and why."""
    want = _fresh.expected(root)
    for module_path, module in root.named_modules():
        for name, x in _fresh.tensors(module):
            inside = f"{module_path}.{name}".lstrip(".")
            place = f"{path}.{inside}".lstrip(".")
            if place in done or _is_unread(module, name):
                continue
            if isinstance(want, str):
                yield place, x, f"the model cannot be built again from its config ({want})"
            elif inside not in want:
                yield place, x, "a fresh model of this config has no such tensor"
            else:
                one = want[inside]
                state = one.persistent and _is_state(name, one.value)
                finding = judged(place, x, one) if not state else None if x.device.type == "meta" else not_finite(place, x, one)
                found += [] if finding is None else [finding]
            done.add(place)


def _is_state(name: str, fresh: Any) -> bool:
    """Of a tensor that checkpoints hold: running statistics, counters, codebooks and the like, which training changes."""
    if bool((fresh == fresh.flatten()[:1]).all()):
        return True
    return fresh.dtype is not torch.bool and not _POSITIONS.search(name)


def check(model: torch.nn.Module) -> list[Finding]:
    """Compares the position buffers of a live model with what its config and its class compute. An empty list: they agree.

    Frequencies of rotary modules are computed again by transformers' own functions. Every other buffer (tables of sine and
    cosine, ALiBi, indices of relative positions, masks) is compared with a second model of the same class and config, which
    is built without weights. Reported are buffers that were cast to 16 bits, are zero, not finite, on the meta device or stale
    after a change of the config, and frequencies of the longest call of a dynamic scaling. A note `buffer_not_checked` names
    what could not be compared, and why. Buffers that nothing reads are skipped.

    Changes nothing. The findings are those of `posenc.Model.doctor`: severity, code, message, where, fix.
    """
    if not isinstance(model, torch.nn.Module):
        raise ValueError(f'[hf check] model must be a torch.nn.Module, got "{type(model).__name__}"')
    found: list[Finding] = []
    done = _rotary(model, found)
    left: list[tuple[str, Any, str]] = []
    for path, root in _fresh.roots(model):
        left += _others(path, root, done, found)
    for path, module in model.named_modules():
        for name, x in _fresh.tensors(module):
            place = f"{path}.{name}".lstrip(".")
            if place not in done and not _is_unread(module, name):
                left.append((place, x, "it is not part of a model of transformers"))
                done.add(place)
    for place, x, why in left:
        if _POSITIONS.search(place.rpartition(".")[2]):
            found.append(without_expected(place, x, why))
    return found
