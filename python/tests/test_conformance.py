# SPDX-License-Identifier: Apache-2.0
"""Numbers that other people's programs made, checked from Python."""
import posenc
import pytest
from conftest import SOURCE

SUITES = sorted(p.parent for p in (SOURCE / "conformance").glob("*/cases.json"))


@pytest.mark.parametrize("suite", SUITES, ids=lambda p: p.name)
def test_suite(suite):
    report = posenc.selftest(suite)
    assert report["schema"] == "posenc.selftest/1"
    (result,) = report["suites"]
    failed = [c["name"] for c in result["cases"] if c["outcome"] == "fail"]
    assert not failed and result["failed"] == 0 and result["passed"] > 0


def test_there_are_suites():
    assert len(SUITES) >= 9
    with pytest.raises(ValueError):
        posenc.selftest(SOURCE / "docs")
