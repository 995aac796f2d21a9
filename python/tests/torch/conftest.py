# SPDX-License-Identifier: Apache-2.0
"""What the tests of posenc.torch share."""
import pathlib

import pytest
import torch


@pytest.fixture
def source():
    """The folder of the sources."""
    return pathlib.Path(__file__).resolve().parents[3]


@pytest.fixture(autouse=True)
def the_same_numbers():
    torch.manual_seed(7)
    yield
    torch._dynamo.reset()


def _turned(x, cos, sin, pairing):
    """The definition, on [..., d] with one column a pair."""
    n = cos.shape[-1]
    if pairing == "half_split":
        a, b, rest = x[..., :n], x[..., n: 2 * n], x[..., 2 * n:]
        return torch.cat([a * cos - b * sin, b * cos + a * sin, rest], -1)
    a, b, rest = x[..., : 2 * n: 2], x[..., 1: 2 * n: 2], x[..., 2 * n:]
    return torch.cat([torch.stack([a * cos - b * sin, b * cos + a * sin], -1).flatten(-2), rest], -1)


@pytest.fixture
def turned():
    return _turned


@pytest.fixture
def phase():
    """cos and sin of positions [t] for `pairs` pairs, in float64."""
    def make(tokens, pairs, base=10000.0):
        angle = torch.arange(tokens, dtype=torch.float64)[:, None] * base ** (-torch.arange(pairs, dtype=torch.float64) / pairs)
        return angle.cos(), angle.sin()
    return make
