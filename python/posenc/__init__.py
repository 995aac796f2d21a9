# SPDX-License-Identifier: Apache-2.0
"""Position encodings for Transformers: read, explain, check, compute.

>>> import numpy, posenc
>>> x = posenc.Rope(head_dim=128, base=5e5, pairing="half_split") + posenc.Yarn(factor=4, original_context=8192)
>>> str(x)
'rope head_dim=128 base=500000 pairing=half_split + yarn factor=4 original_context=8192'
>>> q = numpy.ones((5, 8, 128), numpy.float32)
>>> posenc.rotate(x, q, positions=range(5)).shape
(5, 8, 128)
"""
from __future__ import annotations

from ._attention import attend
from ._encoding import Encoding, Scaling, Scheme, parse
from ._model import Finding, Layer, Model, Value, read_model
from ._posenc import (
    Attention, EmbedNorm, EmbedPart, FormatError, InputPlan, ModelError, PopePlan, RotaryPlan, RotaryTable, __version__,
    arange, can_rerotate, cos_sin, decode_positions, document_index, embed, embed_gradient, embed_gradient_into,
    frequencies, from_lengths, from_mask,
    from_tokens, grid, input_parameters, left_padded, linspace_grid, merge_blocks, mrope_positions, packed, patch_centres,
    repeated_axes, rerotate_, right_padded, rotate, scaled_grid, score_initial, score_inputs, score_parameters, set_num_threads,
    shard_positions, shifted, swap_xy, with_special_tokens)
from ._verbs import Picture, bias, doctor, emit, explain, extend, plot, selftest, table

__all__ = [
    "Attention", "EmbedNorm", "EmbedPart", "Encoding", "Finding", "FormatError", "InputPlan", "Layer", "Model",
    "ModelError", "Picture", "PopePlan", "RotaryPlan", "RotaryTable", "Scaling", "Scheme", "Value", "__version__", "arange",
    "attend", "bias", "can_rerotate", "cos_sin", "decode_positions", "doctor", "document_index", "embed", "embed_gradient",
    "embed_gradient_into",
    "emit", "explain", "extend", "frequencies", "from_lengths", "from_mask", "from_tokens", "grid", "input_parameters",
    "left_padded", "linspace_grid", "merge_blocks", "mrope_positions", "packed", "parse", "patch_centres", "plot", "read_model",
    "repeated_axes", "rerotate_", "right_padded", "rotate", "scaled_grid", "score_initial", "score_inputs", "score_parameters", "selftest",
    "set_num_threads", "shard_positions", "shifted", "swap_xy", "table", "with_special_tokens",
]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from . import _schemes
    from ._schemes import *

    __all__ += _schemes.__all__
else:
    _here = __all__
    del __all__  # __getattr__ answers, with the classes

    def __getattr__(name: str) -> object:
        # The classes are made, and the parts for other packages imported, when they are asked for.
        if name in ("hf", "jax", "torch"):
            from importlib import import_module

            return import_module(f"posenc.{name}")
        if name == "__all__" or not name.startswith("_"):
            from . import _schemes

            if name == "__all__":
                return [*_here, *_schemes.__all__]
            if name in _schemes.__all__:
                return getattr(_schemes, name)
        raise AttributeError(f"module 'posenc' has no attribute {name!r}")

    def __dir__() -> list[str]:
        from . import _schemes

        return [*globals(), *_schemes.__all__]
