# SPDX-License-Identifier: Apache-2.0
"""The claims that hold for every seed, by runs as ./lab quick has them: ALiBi is flat, absolute positions fall off a cliff, direction."""
import json

import pytest


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    from posenc.lab import claims
    from posenc.lab.command import main

    out = tmp_path_factory.mktemp("claims")
    assert main(["quick", "--task", "lm", "-o", str(out)]) == 0
    assert main(["quick", "--task", "direction", "-o", str(out)]) == 0
    rows = [json.loads(line) for line in (out / "results.jsonl").read_text().splitlines()]
    return {c["name"]: c for c in claims.judge(rows)}


@pytest.mark.parametrize("name", ("A1", "A2", "A4", "A9"))
def test_holds(made, name):
    assert made[name]["verdict"] == "pass", made[name]["text"]
