# SPDX-License-Identifier: Apache-2.0
"""posenc.law: the report of `posenc law` as data."""
import posenc
import pytest


def test_numbers_of_papers(source):
    rope = posenc.Rope(head_dim=128, pairing="half_split")
    report = posenc.law("critical", rope, trained=4096, tuned=16384)
    assert report["schema"] == "posenc.law/1" and report["source"] == "arXiv:2310.05209"
    assert (report["values"]["critical_dimension"], round(report["values"]["critical_base"])) == (92, 71738)
    assert posenc.law("window", window=4096, layers=32)["values"]["tokens"] == 131041
    assert posenc.law("decay", "alibi", heads=8)["values"]["past"][-1] == 1769
    model = posenc.read_model(source / "examples/models/llama-3.1-8b")
    assert posenc.law("trained", model)["values"]["encodings"][0]["longest"] == 65529


def test_refusals_name_the_argument():
    with pytest.raises(ValueError, match="NAME must be one of critical"):
        posenc.law("gravity")
    with pytest.raises(ValueError, match="heads"):
        posenc.law("decay", "alibi")


def test_advice(source):
    report = posenc.advise(trained=512, wanted=4096)
    assert report["schema"] == "posenc.advise/1" and {"alibi", "kerple"} <= {r["scheme"] for r in report["ranking"][:3]}
    folder = source / "examples/models/llama-3.1-8b"
    report = posenc.advise(wanted=32768, checkpoint=folder)
    assert posenc.advise(wanted=32768, checkpoint=posenc.read_model(folder)) == report
    read_with = posenc.read_model(folder, context=4096, assume={"rope_theta": "1000"}, reader="transformers")
    assert "base=1000 " in posenc.advise(wanted=32768, checkpoint=read_with)["checkpoint"]
    with pytest.raises(ValueError, match="context, assume and reader say how a model is read: add checkpoint"):
        posenc.advise(trained=64, wanted=128, context=64)
    assert report["trained"] == 8192 and all(r["measured"] or r["published"] for r in report["ranking"])
    with pytest.raises(ValueError, match="wanted must be above trained 64, got 64"):
        posenc.advise(trained=64, wanted=64)
    with pytest.raises(ValueError, match="task: must be one of lm"):
        posenc.advise(trained=64, wanted=128, task="chess")
