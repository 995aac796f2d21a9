# SPDX-License-Identifier: Apache-2.0
"""posenc for PyTorch: operators, the functions around them, and modules. CPU tensors; no formula stands here."""
from __future__ import annotations

from ._attention import attend
from ._attention_module import Attention
from ._bias import bias, distance_bias
from ._input import compose, compose_, embed
from ._modules import InputPositions, LearnedPositions, RotaryEmbedding, SinusoidalPositions
from ._more import attend_path, attend_selective, merge
from ._polar import polar
from ._rerotation import RerotationPlan
from ._ring import ring_attend
from ._rotary import rotate, rotate_, rotate_rows, rotate_rows_

__all__ = [
    "Attention", "InputPositions", "LearnedPositions", "RerotationPlan", "RotaryEmbedding", "SinusoidalPositions",
    "attend", "attend_path", "attend_selective", "bias", "compose", "compose_", "distance_bias", "embed", "merge", "polar", "ring_attend", "rotate",
    "rotate_", "rotate_rows", "rotate_rows_",
]
