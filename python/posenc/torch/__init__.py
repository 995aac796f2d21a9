# SPDX-License-Identifier: Apache-2.0
"""posenc for PyTorch: operators, the functions around them, and modules. CPU tensors; no formula stands here."""
from __future__ import annotations

from ._rotary import rotate, rotate_, rotate_rows, rotate_rows_

__all__ = ["rotate", "rotate_", "rotate_rows", "rotate_rows_"]
