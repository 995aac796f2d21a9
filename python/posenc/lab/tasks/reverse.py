# SPDX-License-Identifier: Apache-2.0
"""As `copy`, the word backwards."""
from __future__ import annotations

from . import Options
from .copy import DEFAULTS, words
from .drawn import Drawn

__all__ = ["DEFAULTS", "make"]


def make(options: Options) -> Drawn:
    return words(options, True)
