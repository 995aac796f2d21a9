# SPDX-License-Identifier: Apache-2.0
"""The versions of transformers that posenc.hf is tested with, and what differs between versions."""
from __future__ import annotations

import functools
import inspect
import warnings
from typing import Any

RENAMED = {"cache": "past_key_values"}  # arguments, by transformers 5.24
FIRST, AFTER = (5, 23), (5, 25)  # tested: 5.23.0 and 5.24.0


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(n) for n in version.split(".")[:2] if n.isdigit())


def said(version: str) -> str:
    """What is wrong with a version; "": nothing."""
    if FIRST <= _numbers(version) < AFTER:
        return ""
    return (f'[hf] transformers must be at least {".".join(map(str, FIRST))} and below {".".join(map(str, AFTER))}, which posenc.hf is tested with, '
            f'got "{version}"')


def check_version() -> None:
    """Raises where transformers is missing or too old; warns of one that is newer than those tested."""
    try:
        from transformers import __version__
    except ImportError as problem:
        raise ImportError(f"[hf] transformers must be installed: pip install 'transformers>={FIRST[0]}.{FIRST[1]}'") from problem
    wrong = said(__version__)
    if wrong and _numbers(__version__) < FIRST:
        raise ImportError(f"{wrong}; install a newer one")
    if wrong:
        warnings.warn(f"{wrong}; accelerate tests each function that it replaces on random numbers first; other results may differ", stacklevel=3)


@functools.lru_cache(None)
def unknown_argument(cls: Any, method: str, ours: Any) -> str:
    """Why an adapter does not replace the method: another version of the class may have an argument that it would ignore."""
    def arguments(f: Any) -> list[str]:
        parameters = inspect.signature(inspect.unwrap(f)).parameters.values()
        return [RENAMED.get(p.name, p.name) for p in parameters if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]

    known = arguments(ours)
    new = [n for n in arguments(getattr(cls, method)) if n not in known]
    return f"its {method} has an argument that the adapter does not know: {new[0]}" if new else ""
