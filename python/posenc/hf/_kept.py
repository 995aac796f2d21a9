# SPDX-License-Identifier: Apache-2.0
"""What is set on one instance of a module, and what stood there before. It stands in the module itself, so that a copy of
the model is taken back by itself."""
from __future__ import annotations

import types
from typing import Any

import torch

KEPT = "_posenc_kept"


class Kept:
    """Of one module."""

    def __init__(self) -> None:
        self.before: dict[str, Any] = {}
        self.added: list[str] = []
        self.hooks: list[Any] = []  # their handles


def _of(module: torch.nn.Module) -> Kept:
    kept: Kept = module.__dict__.setdefault(KEPT, Kept())
    return kept


def put(module: torch.nn.Module, name: str, value: Any) -> None:
    """Sets an attribute of this instance alone."""
    kept = _of(module)
    if name in module.__dict__ and name not in kept.added:
        kept.before.setdefault(name, module.__dict__[name])
    elif name not in kept.added:
        kept.added.append(name)
    module.__dict__[name] = value


def bound(module: Any, name: str, function: Any) -> None:
    """Sets a method of this instance alone. A model that is unpickled has its class's own again."""
    function.__name__ = name  # by which pickle asks the module for it
    put(module, name, types.MethodType(function, module))


def hook(module: torch.nn.Module, function: Any) -> None:
    """Calls `function` before the module, with its arguments by place and by name."""
    _of(module).hooks.append(module.register_forward_pre_hook(function, with_kwargs=True))


def hook_after(module: torch.nn.Module, function: Any) -> None:
    """Calls `function` behind the module, with its arguments and its result."""
    _of(module).hooks.append(module.register_forward_hook(function, with_kwargs=True))


def give_back(model: torch.nn.Module) -> None:
    """Takes all of it back."""
    for module in model.modules():
        kept: Kept | None = module.__dict__.pop(KEPT, None)
        if kept is not None:
            for name in kept.added:
                module.__dict__.pop(name, None)
            module.__dict__.update(kept.before)
            for handle in kept.hooks:
                handle.remove()
