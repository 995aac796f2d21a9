# SPDX-License-Identifier: Apache-2.0
"""posenc.torch as it is imported."""
import subprocess
import sys


def test_torch_is_imported_when_it_is_asked_for():
    code = """
import sys, posenc
assert "torch" not in sys.modules
posenc.torch
assert "torch" in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)
