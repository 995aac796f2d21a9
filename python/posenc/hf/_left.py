# SPDX-License-Identifier: Apache-2.0
"""Classes with a position term in the score that posenc does not accelerate, and why."""
from __future__ import annotations

_PAIRS = "its bias is a tensor of residue pairs that the model passes from layer to layer"
LEFT = {
    "FunnelRelMultiheadAttention": "its blocks pool queries and keys, and the call does not contain their positions",
    "ProphetNetNgramSelfAttention": "each of its streams has its own bias over its own keys",
    "EsmFoldSelfAttention": _PAIRS,
    "EsmFoldAttention": _PAIRS,
    "EsmFoldInvariantPointAttention": _PAIRS,
    "NeighborhoodAttention": "natten computes its neighbourhoods",
}
IN_PLACE = "it computes attention in its own forward method, and posenc has no adapter for its class"


def reason(cls: type) -> str:
    """Why posenc does not accelerate a class."""
    return LEFT.get(cls.__name__, IN_PLACE)
