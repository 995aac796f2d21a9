# SPDX-License-Identifier: Apache-2.0
"""What the tests of the lab share."""
import os
import sys

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.fixture
def lab(tmp_path, monkeypatch):
    """The command line of the lab in an empty folder: words -> exit code."""
    from posenc.lab.command import main

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["lab"])
    return lambda *words: main([str(w) for w in words])
