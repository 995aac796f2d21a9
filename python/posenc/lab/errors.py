# SPDX-License-Identifier: Apache-2.0
"""What the lab refuses, told in one line."""
from __future__ import annotations


class LabError(ValueError):
    """Something that was asked for cannot be run; nothing has been started."""
