# SPDX-License-Identifier: Apache-2.0
"""posenc.torch as it is imported."""
import doctest
import re
import subprocess
import sys

import posenc.torch
import pytest


def test_torch_is_imported_when_it_is_asked_for():
    code = """
import sys, posenc
assert "torch" not in sys.modules
posenc.torch
assert "torch" in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("page", ["docs/python.md"])
def test_examples_of_pages(source, page):
    blocks = re.findall(r"^```python torch\n(.*?)^```", (source / page).read_text(), re.M | re.S)
    test = doctest.DocTestParser().get_doctest("\n".join(blocks), {}, page, page, 0)
    assert test.examples
    assert doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE).run(test).failed == 0


def test_examples_of_docstrings():
    from posenc.torch import _modules
    result = doctest.testmod(_modules)
    assert result.attempted > 0 and result.failed == 0


def test_every_public_name_is_documented():
    for name in posenc.torch.__all__:
        assert (getattr(posenc.torch, name).__doc__ or "").strip(), name


def test_types_are_complete(tmp_path):
    words = ["-m", "mypy", "--strict", "--cache-dir", str(tmp_path), "-p", "posenc.torch", "-p", "posenc.hf", "--follow-imports=silent"]
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
