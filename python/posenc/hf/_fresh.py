# SPDX-License-Identifier: Apache-2.0
"""A model's buffers as its own class computes them: the model is built again from its config, without weights.

What a checkpoint does not hold (tables, frequencies, indices) is computed by constructors. Building the class again repeats
that, for every class, with no list of formulas. Parameters are moved to the meta device as soon as they are registered, so
that a large model takes the memory of its largest one.
"""
from __future__ import annotations

import contextlib
import copy
import math
from typing import Any, Iterator, NamedTuple

import torch
import torch.overrides
import transformers


class Expected(NamedTuple):
    """One tensor as a constructor makes it. drawn: two constructions differ, so only a checkpoint knows the numbers."""

    value: Any
    drawn: bool
    persistent: bool


class _HugeOnMeta(torch.overrides.TorchFunctionMode):
    """Tensors that only weights can be so large as have no memory: to fill the experts of one layer takes seconds."""

    made_by = {torch.empty, torch.zeros, torch.ones, torch.rand, torch.randn, torch.full}
    most = 2**27

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = dict(kwargs or {})
        if func in self.made_by and given.get("device") is None:
            sizes = args[0] if args and isinstance(args[0], (tuple, list)) else args or given.get("size", ())
            if math.prod(n for n in sizes if isinstance(n, int)) > self.most:
                given["device"] = "meta"
        return func(*args, **given)


@contextlib.contextmanager
def _without_weights() -> Iterator[None]:
    """Constructors draw no weights and keep none. The caller's random numbers stay as they were."""
    from transformers import initialization

    register = torch.nn.Module.register_parameter
    default = torch.get_default_dtype()

    def on_meta(self: Any, name: str, param: Any) -> None:
        register(self, name, param)
        kept = self._parameters.get(name)
        if kept is not None and kept.device.type != "meta":
            self._parameters[name] = torch.nn.Parameter(kept.detach().to("meta"), requires_grad=kept.requires_grad)

    torch.nn.Module.register_parameter = on_meta  # type: ignore[method-assign]
    torch.set_default_dtype(torch.float32)
    try:
        with torch.random.fork_rng(devices=[]), torch.no_grad(), torch.device("cpu"), _HugeOnMeta(), initialization.no_init_weights():
            yield
    finally:
        torch.nn.Module.register_parameter = register  # type: ignore[method-assign]
        torch.set_default_dtype(default)


def _built(model: Any, seed: int) -> Any:
    config = copy.deepcopy(model.config)
    config._attn_implementation_internal = "eager"
    with _without_weights():
        torch.manual_seed(seed)
        fresh = type(model)(config)
        for module in fresh.modules():  # some constructors leave it to _init_weights
            if module._buffers:
                with contextlib.suppress(Exception):  # it may need the weights, which are not here
                    fresh._init_weights(module)
    return fresh


def tensors(module: Any) -> Iterator[tuple[str, Any]]:
    """Buffers of one module, and tensors that it keeps as attributes."""
    for name, x in [*module._buffers.items(), *module.__dict__.items()]:
        if isinstance(x, torch.Tensor) and not isinstance(x, torch.nn.Parameter):
            yield name, x


def expected(model: Any) -> dict[str, Expected] | str:
    """By the path of each tensor; or why the model cannot be built again."""
    try:
        one, two = _built(model, 1), _built(model, 2)
    except Exception as e:  # whatever a constructor raises
        return f"{type(e).__name__}: {str(e)[:80]}"
    others = dict(one.named_modules()), dict(two.named_modules())
    found = {}
    for path, module in others[0].items():
        twin = dict(tensors(others[1][path]))
        for name, x in tensors(module):
            if x.device.type == "meta":
                continue
            drawn = name not in twin or twin[name].shape != x.shape or not torch.equal(_bits(twin[name]), _bits(x))
            found[f"{path}.{name}".lstrip(".")] = Expected(x, drawn, name in module._buffers and name not in module._non_persistent_buffers_set)
    return found


def _bits(x: Any) -> Any:
    """NaN equals NaN."""
    return torch.nan_to_num(torch.view_as_real(x) if x.is_complex() else x) if x.is_floating_point() or x.is_complex() else x


def roots(model: torch.nn.Module) -> Iterator[tuple[str, Any]]:
    """The models of transformers that are not part of another one, by their path."""
    if isinstance(model, transformers.PreTrainedModel):
        yield "", model
        return
    for name, child in model.named_children():
        for path, root in roots(child):
            yield f"{name}.{path}".rstrip("."), root
