# SPDX-License-Identifier: Apache-2.0
"""posenc for transformers, on a CPU: faster rotation of unchanged models, scalings as rope_types, a check of live models."""
from __future__ import annotations

from ._accelerate import accelerate, restore
from ._check import check
from ._report import Report
from ._scalings import register_scalings

__all__ = ["Report", "accelerate", "check", "register_scalings", "restore"]
