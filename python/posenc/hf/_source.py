# SPDX-License-Identifier: Apache-2.0
"""Whether a method's q and k may be overwritten by their rotation: read from its source."""
from __future__ import annotations

import ast
import inspect
import textwrap
from typing import Any, NamedTuple


class _Step(NamedTuple):
    line: int
    stores: frozenset[str]
    shares: frozenset[str]  # names whose memory the stored may share
    reads: frozenset[str]
    plain: bool  # an assignment to names


_NONE: frozenset[str] = frozenset()
_SHAPES = {"shape", "dtype", "device", "ndim"}


def _names(node: Any, kind: type) -> frozenset[str]:
    return frozenset(x.id for x in ast.walk(node) if isinstance(x, ast.Name) and isinstance(x.ctx, kind))


def _shares(node: Any, made_by: set[str]) -> frozenset[str]:
    """Names whose memory the value of an expression may share. Arithmetic and submodules, which are noted, give new
    memory; a method's result may be a view of its tensor, any other call's one of its arguments."""
    if isinstance(node, ast.Name):
        return frozenset({node.id})
    if isinstance(node, ast.Attribute):
        return _NONE if node.attr in _SHAPES else _shares(node.value, made_by)
    if isinstance(node, (ast.Subscript, ast.Starred)):
        return _shares(node.value, made_by)
    if isinstance(node, ast.IfExp):
        return _shares(node.body, made_by) | _shares(node.orelse, made_by)
    if isinstance(node, ast.Tuple):
        return _NONE.union(*(_shares(x, made_by) for x in node.elts))
    if isinstance(node, ast.Call):
        f = node.func
        if isinstance(f, ast.Attribute) and isinstance(f.value, ast.Name) and f.value.id == "self":
            made_by.add(f.attr)
            return _NONE
        if isinstance(f, ast.Attribute) and _names(f.value, ast.Load) - {"torch", "nn", "F"}:
            return _shares(f.value, made_by)
        return _NONE.union(*(_shares(x, made_by) for x in node.args if isinstance(x, (ast.Name, ast.Call, ast.Subscript))))
    if isinstance(node, (ast.BinOp, ast.Constant, ast.Compare, ast.UnaryOp)):
        return _NONE
    return _names(node, ast.Load)


def _step(node: Any) -> _Step:
    if isinstance(node, ast.Assign):
        targets = [e for t in node.targets for e in (t.elts if isinstance(t, ast.Tuple) else [t])]
        stores = frozenset(t.id for t in targets if isinstance(t, ast.Name))
        reads = _names(node, ast.Load)
        return _Step(node.lineno, stores, _shares(node.value, set()), reads, all(isinstance(t, ast.Name) for t in targets))
    test = node.test if isinstance(node, ast.If) else node
    return _Step(node.lineno, _NONE, _names(test, ast.Load), _names(test, ast.Load), False)


def _steps(tree: Any) -> list[_Step]:
    inside = [x for x in ast.walk(tree) if isinstance(x, ast.stmt) and not isinstance(x, (ast.FunctionDef, ast.With))]
    return sorted((_step(x) for x in inside), key=lambda s: s.line)


def _the_call(tree: Any, name: str) -> tuple[Any, set[str]] | None:
    """The one statement `q, k = name(q, k, ...)`, and q and k."""
    calls = [x for x in ast.walk(tree) if isinstance(x, ast.Call) and getattr(x.func, "id", "") == name]
    here = [x for x in ast.walk(tree) if isinstance(x, ast.Assign) and x.value in calls and len(x.targets) == 1]
    if len(calls) != 1 or len(here) != 1:
        return None
    target, call = here[0].targets[0], calls[0]
    to = [getattr(t, "id", "") for t in (target.elts if isinstance(target, ast.Tuple) else [target])]
    return (here[0], set(to)) if "" not in to and to == [getattr(a, "id", "") for a in call.args[: len(to)]] else None


def may_overwrite(method: Any, name: str) -> set[str] | None:
    """The submodules whose results are rotated, where `method` says `q, k = name(q, k, ...)` once and nobody else uses
    that memory: no argument of the method, and no name that is read before or after. None where that is not plain."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(method))).body[0]
    except (OSError, SyntaxError, IndexError):
        return None
    loops = (ast.For, ast.While, ast.Lambda, ast.ListComp, ast.GeneratorExp, ast.FunctionDef, ast.NamedExpr)
    if not isinstance(tree, ast.FunctionDef) or sum(isinstance(x, loops) for x in ast.walk(tree)) > 1:
        return None
    found = _the_call(tree, name)
    if found is None:
        return None
    call, to = found
    before = [s for s in _steps(tree) if s.line < call.lineno]
    after = [s for s in _steps(tree) if s.line > call.lineno]
    family, more = set(to), set(to)  # names that may share the memory of q and k
    while more:
        more = {n for s in before if s.stores & family for n in s.shares} - family
        family |= more
    arguments = {a.arg for a in (*tree.args.posonlyargs, *tree.args.args, *tree.args.kwonlyargs)}
    if family & arguments or any(s.shares & family and not (s.plain and s.stores & family) for s in before):
        return None
    if any(_read_first(n, after) for n in family - to):
        return None
    made_by: set[str] = set()
    for x in ast.walk(tree):
        if isinstance(x, ast.Assign) and x.lineno < call.lineno and _step(x).stores & family:
            _shares(x.value, made_by)
    return made_by


def _read_first(name: str, steps: list[_Step]) -> bool:
    for s in steps:
        if name in s.reads:
            return True
        if name in s.stores:
            return False
    return False
