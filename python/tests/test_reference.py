# SPDX-License-Identifier: Apache-2.0
"""docs/python_reference.md is what the installed package says; POSENC_UPDATE_REFERENCE=1 writes it again."""
import importlib.util
import os
import pathlib

import posenc


def test_the_reference_is_current(source):
    spec = importlib.util.spec_from_file_location("reference", source / "python/reference.py")
    reference = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(reference)
    made = reference.page(pathlib.Path(posenc.__file__).parent)
    path = source / "docs/python_reference.md"
    if os.environ.get("POSENC_UPDATE_REFERENCE"):
        path.write_text(made)
    assert path.read_text() == made, "POSENC_UPDATE_REFERENCE=1 python/test.sh build -k reference"
    for name in set(posenc.__all__) - {"__version__"}:
        assert f"* `{name}(" in made or f"### {name}\n" in made or f"[`{name}`](" in made, name
