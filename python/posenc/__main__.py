# SPDX-License-Identifier: Apache-2.0
"""The program `posenc`: the command line itself, compiled into the module."""
from __future__ import annotations

import sys

from . import _posenc


def main() -> int:
    """Runs the command line with the words of sys.argv; its exit code."""
    return _posenc.program(["posenc", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
