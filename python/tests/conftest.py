# SPDX-License-Identifier: Apache-2.0
"""What the tests share. They run against the installed package, from any folder."""
import pathlib

import numpy
import pytest

SOURCE = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture
def source():
    """The folder of the sources: examples, suites, pages."""
    return SOURCE


@pytest.fixture
def random():
    """Numbers that are the same in every run."""
    return numpy.random.default_rng(7)


def rotated(x, positions, frequency, pairing="half_split"):
    """The definition: x [t, h, d], all channels rotated; angles in 64 bits of mantissa."""
    x = x.astype(numpy.float64)
    angle = numpy.asarray(positions, numpy.longdouble)[:, None] * numpy.asarray(frequency, numpy.longdouble)
    cos, sin = numpy.cos(angle)[:, None, :], numpy.sin(angle)[:, None, :]
    n = x.shape[-1] // 2
    a, b = (x[..., :n], x[..., n:]) if pairing == "half_split" else (x[..., 0::2], x[..., 1::2])
    y = numpy.empty_like(x)
    if pairing == "half_split":
        y[..., :n], y[..., n:] = a * cos - b * sin, b * cos + a * sin
    else:
        y[..., 0::2], y[..., 1::2] = a * cos - b * sin, b * cos + a * sin
    return y
