# SPDX-License-Identifier: Apache-2.0
"""posenc for transformers, on a CPU: faster rotation of unchanged models, scalings as rope_types, a check of live models."""
from __future__ import annotations

from ._supported import check_version

check_version()  # before a name is looked for that another version may lack

from ._accelerate import accelerate, restore  # noqa: E402
from ._cache import KeyCache  # noqa: E402
from ._check import check  # noqa: E402
from ._report import Report  # noqa: E402
from ._scalings import register_scalings  # noqa: E402

__all__ = ["KeyCache", "Report", "accelerate", "check", "register_scalings", "restore"]
