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

from ._attention import attend, attend_path, attend_selective
from ._encoding import Encoding, Scaling, Scheme, complete, parse, schemes
from ._model import Finding, Layer, Model, Value, read_model
from ._posenc import (
    Attention, EmbedNorm, EmbedPart, FormatError, InputPlan, ModelError, PathAttention, PopePlan, RerotationPlan,
    RotaryPlan, RotaryTable, SelectiveAttention, __version__, arange, augmented, batched, cache_slots, can_rerotate,
    cape_grid_positions, cape_positions, cell_positions, chatglm_positions, cos_sin, counted_grid,
    cu_seqlens_of_positions, decode_positions, distance_to_largest, document_index, document_index_of_positions,
    dual_chunk, dual_chunk_positions, embed, embed_gradient, embed_gradient_into, frequencies, from_lengths, from_mask,
    from_starts, from_tokens, glm_positions, grid, in_float32, input_parameters, inverse_permutation, join_positions,
    leaky_rerope, left_padded, linspace_grid, merge, merge_backward, merge_blocks, modality_positions, mrope_positions,
    normalised, omni_positions, omni_sound_tokens, packed, packed_run, patch_centres, picked, random_distances,
    random_positions, repeated_axes, rerope, rerotate_, reversed, right_padded, rotate, scaled_grid, score_initial,
    score_inputs, score_parameters, self_extend, set_num_threads, shape_evaluation_offset, shape_offsets,
    shard_permutation, shard_positions, shard_tokens, shifted, sink_cache_tokens, stacked, swap_xy, with_special_tokens,
    xd_rope_positions)
from . import _twins
from ._twins import *
from ._verbs import Picture, bias, bias_gradient, doctor, emit, explain, extend, plot, selftest, table

__all__ = [
    "Attention", "EmbedNorm", "EmbedPart", "Encoding", "Finding", "FormatError", "InputPlan", "Layer", "Model",
    "ModelError", "PathAttention", "Picture", "PopePlan", "RerotationPlan", "RotaryPlan", "RotaryTable", "Scaling",
    "Scheme", "SelectiveAttention", "Value", "__version__", "arange", "attend", "attend_path", "attend_selective", "augmented",
    "batched", "bias", "bias_gradient", "cache_slots", "can_rerotate", "cape_grid_positions", "cape_positions", "cell_positions",
    "chatglm_positions", "complete", "cos_sin", "counted_grid", "cu_seqlens_of_positions", "decode_positions",
    "distance_to_largest", "doctor", "document_index", "document_index_of_positions", "dual_chunk",
    "dual_chunk_positions", "embed", "embed_gradient", "embed_gradient_into", "emit", "explain", "extend",
    "frequencies", "from_lengths", "from_mask", "from_starts", "from_tokens", "glm_positions", "grid", "in_float32",
    "input_parameters", "inverse_permutation", "join_positions", "leaky_rerope", "left_padded", "linspace_grid",
    "merge", "merge_backward", "merge_blocks", "modality_positions", "mrope_positions", "normalised", "omni_positions",
    "omni_sound_tokens", "packed", "packed_run", "parse", "patch_centres", "picked", "plot", "random_distances",
    "random_positions", "read_model", "repeated_axes", "rerope", "rerotate_", "reversed", "right_padded", "rotate",
    "scaled_grid", "schemes", "score_initial", "score_inputs", "score_parameters", "self_extend", "selftest", "set_num_threads",
    "shape_evaluation_offset", "shape_offsets", "shard_permutation", "shard_positions", "shard_tokens", "shifted",
    "sink_cache_tokens", "stacked", "swap_xy", "table", "with_special_tokens", "xd_rope_positions",
]

__all__ += _twins.__all__

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
