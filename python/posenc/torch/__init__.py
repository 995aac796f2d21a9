# SPDX-License-Identifier: Apache-2.0
"""posenc for PyTorch: operators, the functions around them, and modules. CPU tensors; no formula stands here."""
from __future__ import annotations

import torch as _host  # first: the package is missing by its own name

from ._attention import attend
from ._attention_module import Attention

__all__ = ["Attention", "attend"]
