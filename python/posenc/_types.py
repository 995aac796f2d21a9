# SPDX-License-Identifier: Apache-2.0
"""What arguments may be, for type checkers."""
from __future__ import annotations

TYPE_CHECKING = False  # the module typing is not imported for its names
if TYPE_CHECKING:
    from typing import Any, Sequence, Union

    from ._encoding import Encoding, Scheme

    EncodingLike = Union[str, Scheme, Encoding]
    PositionsLike = Union[Sequence[int], Sequence[float], range, Any]
    DTypeLike = Union[str, type, Any]
