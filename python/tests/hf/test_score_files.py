# SPDX-License-Identifier: Apache-2.0
"""Every model file of transformers with a position term in its score: the page's table is what happens."""
import importlib
import pathlib
import re

import pytest
import torch
import transformers

from posenc.hf import _attention, _biased, _blocks, _inline, _left, _sound  # noqa: F401: the adapters

PAGE = pathlib.Path(__file__).resolve().parents[3] / "docs" / "python.md"
WORDS = re.compile(r"relative_attention_bias|rel_pos|alibi|relative_position|pos_bias|position_bias|distance_embedding|r_r_bias|rel_attn|rel_k|"
                   r"bbox_pos_emb|attention_bias_idx|pair_bias|rpb\b|pe_k|EsmFold")
# Files that have such a word for another thing: a key to ignore, a gate, the type of a key.
OTHERS = {"decision_transformer", "deepseek_v4", "edgetam_video", "esm", "gpt2", "grounding_dino", "mm_grounding_dino", "pp_doclayout_v3",
          "sam2_video", "sam3_tracker_video"}


def table():
    """The page's lists, by their first words."""
    section = PAGE.read_text().split("## Attention of transformers models\n")[1].split("\n## ")[0]
    rows = dict(re.findall(r"^\| (AttentionInterface|adapter|not accelerated: [^|]*?) \| (.*?) \|$", section, re.M))
    return {name: set(re.findall(r"\w+", files)) for name, files in rows.items()}


def module(file):
    return importlib.import_module(f"transformers.models.{file.parent.name}.{file.stem}")


def classes(of):
    return [c for c in vars(of).values() if isinstance(c, type) and issubclass(c, torch.nn.Module) and c.__module__ == of.__name__]


def files():
    found = sorted((pathlib.Path(transformers.__file__).parent / "models").glob("*/modeling_*.py"))
    return {f.stem.removeprefix("modeling_"): f for f in found if WORDS.search(f.read_text())}


@pytest.mark.skipif(transformers.__version__ != "5.23.0", reason="the page speaks of 5.23.0")
def test_the_table_is_complete():
    lists = table()
    named = [n for files in lists.values() for n in files]
    assert len(lists) >= 5 and set(named) | OTHERS == set(files()) and not set(named) & OTHERS
    assert set(n for n in named if named.count(n) > 1) <= {"longt5", "gemma4"}  # of two kinds


def test_the_table_is_what_happens():
    lists, found = table(), files()
    for kind, named in lists.items():
        for name in named & found.keys():
            here = classes(module(found[name]))
            if kind == "AttentionInterface":
                assert any(_attention._globals(c) is not None and not _attention.understood(c, "eager") for c in here), name
            elif kind == "adapter":
                assert any(c.__name__ in _inline._FOUND for c in here), name
            else:
                assert {_left.LEFT.get(c.__name__) for c in here} & {kind.removeprefix("not accelerated: ")}, name


def test_no_class_with_a_reason_has_an_adapter():
    assert not _left.LEFT.keys() & _inline._FOUND.keys()
    everywhere = {c.__name__ for f in files().values() for c in classes(module(f))}
    assert _left.LEFT.keys() <= everywhere
