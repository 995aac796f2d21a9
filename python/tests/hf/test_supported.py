# SPDX-License-Identifier: Apache-2.0
"""The range of transformers' versions: said in one place, kept by the package's metadata and the tests' pin, and named outside of it."""
import inspect
import pathlib
import re
import subprocess
import sys
import types
import warnings

import pytest
import torch
import transformers
from posenc.hf import _supported

SOURCE = pathlib.Path(__file__).resolve().parents[3]


def test_the_package_and_the_pin_say_the_same_range():
    first, after = (".".join(map(str, x)) for x in (_supported.FIRST, _supported.AFTER))
    assert f'"transformers>={first},<{after}"' in (SOURCE / "pyproject.toml").read_text()
    pinned, newest = (re.search(r"^transformers==(\S+)$", (SOURCE / f"python/tests/requirements-{n}.txt").read_text(), re.M)[1] for n in ("torch", "newest"))
    assert _supported.said(pinned) == "" and pinned.startswith(first + ".")
    assert _supported.said(newest) == "" and newest.startswith(f"{_supported.AFTER[0]}.{_supported.AFTER[1] - 1}.")
    assert f"transformers {first} to {'.'.join(map(str, (after.split('.')[0], int(after.split('.')[1]) - 1)))}" in (SOURCE / "docs/python.md").read_text()


@pytest.mark.parametrize("version, fine", [("5.23.0", True), ("5.24.0", True), ("5.24.0.dev0", True), ("5.22.2", False), ("4.57.1", False), ("5.25.0", False),
                                           ("6.0.0", False)])
def test_versions(version, fine):
    found = _supported.said(version)
    assert (found == "") is fine and (fine or f'at least 5.23 and below 5.25, which posenc.hf is tested with, got "{version}"' in found)


@pytest.mark.parametrize("version, raised", [("5.24.1", None), ("5.25.0", UserWarning), ("5.22.2", ImportError)])
def test_what_is_done_about_them(monkeypatch, version, raised):
    monkeypatch.setitem(sys.modules, "transformers", types.SimpleNamespace(__version__=version))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        if raised is None:
            _supported.check_version()
        else:
            with pytest.raises(raised, match=r"\[hf\] transformers must be at least 5.23"):
                _supported.check_version()


def test_without_transformers():
    code = "import sys; sys.modules['transformers'] = None\ntry:\n    import posenc.hf\nexcept ImportError as e:\n    print(e)"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout
    assert "[hf] transformers must be installed: pip install 'transformers>=5.23'" in said


def test_an_argument_of_another_version():
    """An adapter swallows what it does not know in **rest, a cache for example: then the class keeps its method."""
    def ours(self, hidden_states, past_key_values=None, **rest):
        pass

    class Same:
        def forward(self, hidden_states, past_key_values=None):
            pass

    class Renamed:
        def forward(self, hidden_states, cache=None, **more):
            pass

    class More:
        def forward(self, hidden_states, gate=None):
            pass

    assert _supported.unknown_argument(Same, "forward", ours) == _supported.unknown_argument(Renamed, "forward", ours) == ""
    assert _supported.unknown_argument(More, "forward", ours) == "its forward has an argument that the adapter does not know: gate"


@pytest.mark.parametrize("name", ["cache", "past_key_values"])
def test_a_cache_by_either_name(name):
    """transformers 5.24 renamed the argument; an adapter that ignores it would see the last token alone."""
    import posenc.hf

    torch.manual_seed(0)
    model = transformers.MptForCausalLM(transformers.MptConfig(vocab_size=99, d_model=32, n_layers=1, n_heads=4, max_seq_len=40)).eval()
    attention = model.transformer.blocks[0].attn
    if name not in inspect.signature(inspect.unwrap(type(attention).forward)).parameters:
        pytest.skip("the other version has it")
    ids = torch.arange(3, 11)[None]
    with torch.no_grad():
        want = model(ids).logits[:, -1]
        report = posenc.hf.accelerate(model, attention=True, force=True)
        before = model(ids[:, :-1], use_cache=True)
        cache = getattr(before, name)
        got = model(ids[:, -1:], **{name: cache}).logits[:, -1]
    assert (got - want).abs().max() < 1e-5 and [c.taken for c in report.attentions.values()] == [2]
