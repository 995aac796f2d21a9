# SPDX-License-Identifier: Apache-2.0
"""The program `posenc` as an entry point: the verbs of the report library, with the streams of this process."""
from __future__ import annotations

import sys

from . import _posenc


def main() -> int:
    """Runs the command line with the words of sys.argv; its exit code."""
    return _posenc.program(["posenc", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
