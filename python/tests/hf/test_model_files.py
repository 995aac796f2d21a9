# SPDX-License-Identifier: Apache-2.0
"""Every model file of transformers: which functions that rotate are taken over; and the examples of the pages."""
import doctest
import importlib
import inspect
import pathlib
import re

import pytest
import torch
import transformers

from posenc.hf._probe import probe
from posenc.hf._rotation import _methods, _wanted, decorated_again

PARTLY = {"gemma4"}
LEFT = {"clvp", "deepseek_v2", "dinov3_vit", "edgetam_video", "eomt_dinov3", "llama4", "musicflamingo", "nanochat", "sam2_video", "sam3",
        "sam3_tracker_video", "sapiens2"}


def functions(module):
    """Whether each use of a function that rotates is taken over, in the methods that this file writes."""
    for cls in vars(module).values():
        if isinstance(cls, type) and issubclass(cls, torch.nn.Module) and cls.__module__ == module.__name__:
            for _, method in _methods(cls):
                body = inspect.unwrap(method)
                if method.__module__ == module.__name__:
                    yield from (decorated_again(method, body) is not None and not isinstance(probe(body.__globals__[g]), str) for g in _wanted(body))


def test_files_of_models_are_taken_over_without_a_list():
    files = sorted((pathlib.Path(transformers.__file__).parent / "models").glob("*/modeling_*.py"))
    taken = {}
    for file in files:
        try:
            module = importlib.import_module(f"transformers.models.{file.parent.name}.{file.stem}")
        except ModuleNotFoundError as missing:
            assert missing.name == "torchaudio"
            continue
        found = list(functions(module))
        if found:
            taken[file.parent.name] = found
    if transformers.__version__ == "5.23.0":
        assert len(taken) == 199
        assert {n for n, x in taken.items() if any(x) and not all(x)} == PARTLY
        assert {n for n, x in taken.items() if not any(x)} == LEFT
    assert sum(all(x) for x in taken.values()) >= 186


PAGES = [("docs/python.md", "## Rotation of transformers models\n"), ("README.md", "## What it does\n"), ("docs/caches.md", "# Caches\n"),
         ("docs/python.md", "## Caches for transformers models\n"), ("docs/python.md", "### Self-Extend, ReRoPE and dual chunk for a model\n")]


@pytest.mark.parametrize("page, heading", PAGES)
def test_the_examples_of_the_pages(page, heading):
    section = (pathlib.Path(__file__).resolve().parents[3] / page).read_text().split(heading)[1]
    block = re.search(r"^```py\n(.*?)^```", section, re.M | re.S).group(1)
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    assert runner.run(doctest.DocTestParser().get_doctest(block, {}, page, page, 0)).failed == 0
