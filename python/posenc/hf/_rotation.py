# SPDX-License-Identifier: Apache-2.0
"""The rotation of one model's layers, handed to posenc: methods bound anew on the instances, nothing else changed."""
from __future__ import annotations

import inspect
import re
import types
from typing import Any, Callable, Iterator

import torch

from .. import torch as host
from ..torch._host import direct, in_forward_mode
from ._probe import Function, probe
from ._report import Calls, Report
from ._source import may_overwrite

_NAME = re.compile(r"rotary|rope", re.IGNORECASE)
_WIDE = (torch.float32, torch.float64)
_TYPES = (*_WIDE, torch.bfloat16, torch.float16)
SAVED = "_posenc_rotation"


class Saved:
    """Stands in a module whose methods were bound anew. A copy of the module shares the functions, which then write
    into new tensors only: they look for hooks in one module."""

    def __init__(self, names: list[str], calls: list[Calls]) -> None:
        self.names, self.calls = names, calls

    def __deepcopy__(self, memo: Any) -> Saved:
        for c in self.calls:
            c.in_place = False
        return Saved(list(self.names), self.calls)


def _wanted(method: types.FunctionType) -> list[str]:
    return [n for n in method.__code__.co_names
            if _NAME.search(n) and isinstance(method.__globals__.get(n), types.FunctionType)]


def _methods(cls: type) -> Iterator[tuple[str, types.FunctionType]]:
    seen = set()
    for base in cls.__mro__:
        if base is torch.nn.Module:
            return
        for name, f in vars(base).items():
            if isinstance(f, types.FunctionType) and name not in seen:
                seen.add(name)
                yield name, f


def decorated_again(f: types.FunctionType, body: types.FunctionType) -> types.FunctionType | None:
    """f with `body` in place of the function that its decorators (torch.no_grad) hold; None where one holds it in no closure."""
    inner = getattr(f, "__wrapped__", None)
    if inner is None:
        return body
    made = decorated_again(inner, body)
    held = [c.cell_contents is inner for c in f.__closure__ or ()]
    if made is None or held.count(True) != 1:
        return None
    cells = tuple(types.CellType(made) if h else c for h, c in zip(held, f.__closure__ or ()))
    again = types.FunctionType(f.__code__, f.__globals__, f.__name__, f.__defaults__, cells)
    again.__kwdefaults__ = f.__kwdefaults__
    again.__dict__.update(f.__dict__, __wrapped__=made)
    again.__qualname__ = f.__qualname__
    return again


def _untouched(q: Any, k: Any, cos: Any, sin: Any, layout: str | None, mixed: bool) -> str | None:
    """Why a call goes to the model's own function."""
    if q.device.type != "cpu":
        return f"on {q.device.type}"
    if q.dtype not in _TYPES or (k is not None and (k.dtype != q.dtype or k.shape[-1] != q.shape[-1])):
        return f"q and k of {q.dtype}"
    if cos.dtype != q.dtype and not (mixed and cos.dtype is torch.float32) or sin.dtype != cos.dtype:
        return f"q of {q.dtype} with cos of {cos.dtype}"
    if cos.requires_grad or sin.requires_grad:
        return "cos requires a gradient"
    if layout is None or q.dim() != len(layout) or cos.dim() != len(layout) - 1 or sin.shape != cos.shape:
        return f"q of {q.dim()} axes with cos of {cos.dim()}"
    tokens = q.shape[layout.index("t")]
    if cos.shape[-2] != tokens or (k is not None and k.shape[layout.index("t")] != tokens):
        return "rows for another number of tokens"
    if cos.dim() == 3 and (cos.shape[0] not in (1, q.shape[0]) or (k is not None and k.shape[0] != q.shape[0])):
        return "rows for another batch"
    return None


def _writable(x: Any) -> bool:
    return x is None or not (0 in x.stride() or x._is_view() and x._base.requires_grad or x.requires_grad)


def _watched(module: torch.nn.Module, sources: dict[str, torch.nn.Module]) -> bool:
    """Whether somebody may see what the sources gave: through a hook, or because another module stands in the place of one."""
    return bool(torch.nn.modules.module._global_forward_hooks) or any(
        module._modules.get(n) is not m or m._forward_hooks for n, m in sources.items())


def _rotated(original: Callable[..., Any], found: Function, calls: Calls, module: torch.nn.Module,
             sources: dict[str, torch.nn.Module]) -> Callable[..., Any]:
    roles, names, unsqueeze = found.roles, found.names, found.unsqueeze_dim
    at = names.index("unsqueeze_dim") if unsqueeze is not None else -1
    first, tokens, batch = roles.index("q"), found.layout.index("t"), found.layout.find("b")

    def rotated(*a: Any, **kw: Any) -> Any:
        if torch.onnx.is_in_onnx_export():  # a file of ONNX knows no operator of posenc
            return original(*a, **kw)
        # A step of decoding. By itself posenc's call takes half the time, among a model's others, with cold caches, 40 us more.
        if len(a) > first:
            shape = a[first].shape
            if len(shape) > tokens and shape[tokens] == 1 and (batch < 0 or shape[batch] == 1) and not torch.compiler.is_compiling():
                calls.original["one token, for which its own is as fast"] += 1
                return original(*a, **kw)
        given = dict(zip(roles, a))
        for role, name in zip(roles, names):
            if role not in given:
                given[role] = kw[name]
        q, k, cos, sin = given["q"], given.get("k"), given["cos"], given["sin"]
        layout: str | None = found.layout
        if at >= 0:
            where = kw.get("unsqueeze_dim", a[at] if len(a) > at else unsqueeze)
            layout = {1: "bhtd", 2: "bthd"}.get(int(where or 0)) if found.layout != "thd" else layout if where == unsqueeze else None
        compiling = torch.compiler.is_compiling()
        form = found.form(q.shape[-1], cos.shape[-1])
        why = _untouched(q, k, cos, sin, layout, found.mixed) if form is not None else "rows of another width"
        if why is not None or form is None:
            if compiling:
                calls.in_graph(str(why))
            else:
                calls.original[str(why)] += 1
            return original(*a, **kw)
        if form.first:
            half = cos.shape[-1] // 2
            cos, sin = cos[..., :half], sin[..., :half]
        if cos.dim() == 3 and cos.shape[0] == 1:
            cos, sin = cos[0], sin[0]
        how: dict[str, Any] = {"pairing": form.pairing, "columns": form.columns, "layout": layout, "output_order": form.output_order}
        if compiling:
            calls.in_graph("")
            return host.rotate_rows(q, k, cos, sin, **how)
        calls.taken += 1
        if (calls.in_place and not torch.is_grad_enabled() and _writable(q) and _writable(k) and not _watched(module, sources)
                and direct((q, k)) and not in_forward_mode()):
            host.rotate_rows_(q, k, cos, sin, **how)
            return q if k is None else (q, k)
        return host.rotate_rows(q, k, cos, sin, **how)

    return rotated


def _sources(module: torch.nn.Module, method: types.FunctionType, name: str) -> dict[str, torch.nn.Module] | None:
    """The submodules whose results may be overwritten; each must give new memory, as those with a weight do."""
    made_by = may_overwrite(method, name)
    if made_by is None:
        return None
    found = {n: m for n in made_by if (m := module._modules.get(n)) is not None and m._parameters.get("weight") is not None}
    return found if len(found) == len(made_by) else None


def _replace(module: torch.nn.Module, layer: str, report: Report, unrotated: Callable[..., Any] | None) -> None:
    bound: dict[str, Any] = {}
    all_calls: list[Calls] = []
    for name, f in _methods(type(module)):
        method = inspect.unwrap(f)
        new: dict[str, Any] = {}
        for g in _wanted(method):
            function = method.__globals__[g]
            found = probe(function)
            why = found if isinstance(found, str) else "decorated in another way than torch.no_grad is" if (
                decorated_again(f, method) is None) else "replaced on this instance already" if name in module.__dict__ else None
            if isinstance(found, str) or why is not None:
                report.left(layer, f"{g} {why}" if isinstance(found, str) else f"{name} is {why}")
                continue
            sources = None if unrotated else _sources(module, method, g)
            calls = Calls(g, sources is not None)
            new[g] = unrotated(found, calls) if unrotated else _rotated(function, found, calls, module, sources or {})
            all_calls.append(calls)
        if new:
            copy = types.FunctionType(method.__code__, {**method.__globals__, **new}, method.__name__, method.__defaults__,
                                      method.__closure__)
            copy.__kwdefaults__ = method.__kwdefaults__
            copy.__dict__.update(method.__dict__)
            copy.__qualname__ = method.__qualname__
            again = decorated_again(f, copy)
            assert again is not None  # else there is nothing new
            bound[name] = types.MethodType(again, module)
    if bound:
        module.__dict__.update(bound)
        module.__dict__[SAVED] = Saved(list(bound), all_calls)
        report.rotation[layer] = all_calls


def replace_rotation(model: torch.nn.Module, report: Report, unrotated: Callable[..., Any] | None = None, layers: Any = ()) -> None:
    """Binds the methods of this model's modules that rotate to posenc. unrotated: makes what stands in the place of a function in
    the modules of these names."""
    for layer, module in model.named_modules():
        _replace(module, layer or type(module).__name__, report, unrotated if layer in layers else None)


def restore_rotation(model: torch.nn.Module) -> None:
    """Takes all of it back."""
    for module in model.modules():
        saved = module.__dict__.pop(SAVED, None)
        for name in saved.names if saved is not None else ():
            module.__dict__.pop(name, None)
