# SPDX-License-Identifier: Apache-2.0
"""Classes with a position term in the score that stay as they are, and why."""
from __future__ import annotations

_PAIRS = "its bias is of pairs of residues, which the model carries from layer to layer"
_CAP = "its soft cap acts on content and positions together"
LEFT = {
    "FunnelRelMultiheadAttention": "its blocks pool queries and keys, whose positions are not in the call",
    "Gemma3nAudioAttention": _CAP,
    "Gemma4AudioAttention": _CAP,
    "ProphetNetNgramSelfAttention": "its streams have a bias each, over keys of their own",
    "EsmFoldSelfAttention": _PAIRS,
    "EsmFoldAttention": _PAIRS,
    "EsmFoldInvariantPointAttention": _PAIRS,
    "NeighborhoodAttention": "its neighbourhoods are computed by natten",
}
IN_PLACE = "it computes its attention in place, and there is no adapter for its class"


def reason(cls: type) -> str:
    """Why a class that computes in place stays as it is."""
    return LEFT.get(cls.__name__, IN_PLACE)
