# SPDX-License-Identifier: Apache-2.0
"""Arguments of every wrong kind: each is refused by an error that names it, and nothing ends the interpreter."""
import inspect
import math
import os
import random

import ml_dtypes
import numpy
import posenc
import pytest


class Raises:
    """A number that cannot be had."""

    def __index__(self):
        raise ValueError("no number")

    __float__ = __index__


ROPE = posenc.Rope(head_dim=16, pairing="half_split")
Q = numpy.zeros((4, 2, 16), numpy.float32)
JUNK = [
    Q, Q.astype(float)[None], Q[0, 0], Q[:0], Q[:, :, ::-1], Q.astype(ml_dtypes.bfloat16), Q.astype(complex), Q.astype(">f4"), Q[..., :15],
    numpy.full((4, 2, 16), numpy.nan), numpy.broadcast_to(numpy.float32(1), (4, 2, 16)), numpy.zeros((1,) * 7), numpy.arange(4),
    numpy.arange(4)[::-1], numpy.array(3.0), numpy.array(["a"]), numpy.array([None]), numpy.float32(2), numpy.int64(5), numpy.complex64(1j),
    b"abc", memoryview(b"abcdefgh"), range(4), [0, 1, 2], [1.5, 2], (), {}, {"table": numpy.zeros((4, 16))}, None, True, 0, 1, -1, 4, 16,
    2**40, 2**63 - 1, 2**63, -(2**63), 10**30, 1.5, math.nan, math.inf, "", str(ROPE), "sinusoidal width=16 layout=halves", "alibi",
    "t5 preset=encoder", "learned width=16 rows=8", "bhtd", "thd", "forward", "half", "x" * 10000, "\0", "\ud800", "float32", "bfloat16",
    object(), int, ROPE, posenc.RotaryPlan(ROPE), posenc.RotaryTable(ROPE, 8), posenc.EmbedPart(numpy.zeros((4, 16)), numpy.arange(4)),
    [posenc.EmbedPart(numpy.zeros((4, 16)), numpy.arange(4))], posenc.InputPlan("sinusoidal width=16 layout=halves"), "no/such/file",
    slice(3), len, Raises(), [Raises()],
]
REFUSED = (ValueError, TypeError, MemoryError)


def calls():
    """Functions and methods with the names of their arguments."""
    found = {n: getattr(posenc, n) for n in posenc.__all__ if n not in ("__version__", "selftest", "set_num_threads", "Layer", "Model", "Finding", "Value")}
    for x in JUNK:
        if type(x).__module__.startswith("posenc"):
            found |= {f"{type(x).__name__}.{n}": getattr(x, n) for n in dir(x) if not n.startswith("_") and callable(getattr(x, n))}
    names = {}
    for name, f in found.items():
        try:
            names[name] = [n for n in inspect.signature(f).parameters if n not in ("args", "kwargs", "fields", "self")]
        except ValueError:
            first = (f.__doc__ or "").split(") ->")[0]
            names[name] = [word.split(":")[0].strip(" *") for word in first.partition("(")[2].split(", ") if ":" in word]
    return [(name, f, names[name]) for name, f in sorted(found.items())]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", range(4))
def test_arguments_of_any_kind(seed, tmp_path, monkeypatch):
    chosen, every = random.Random(seed), calls()
    monkeypatch.chdir(tmp_path)  # some of them name files
    for _ in range(4000):
        name, f, names = chosen.choice(every)
        given = {n: chosen.choice(JUNK) for n in names if chosen.random() < 0.7}
        try:
            f(**given)
        except REFUSED as problem:
            assert str(problem), (name, given)


def test_names_of_files(source, tmp_path):
    """Bytes that are no UTF-8 are a name as any other; a zero byte is none."""
    folder = os.fsdecode(os.fsencode(tmp_path) + b"/bad\xff")
    os.mkdir(folder)
    with open(source / "examples/models/llama-3.1-8b/config.json", "rb") as config, open(folder + "/config.json", "wb") as to:
        to.write(config.read())
    m = posenc.read_model(folder)
    assert len(m.layers) == 32 and "llama" in str(m) and posenc.table(folder, what="inv_freq").shape == (64,)
    table = posenc.RotaryTable(ROPE, 8)
    table.save(folder + "/rows.npy")
    assert posenc.RotaryTable.map(os.fsencode(folder) + b"/rows.npy", ROPE).size == 8
    for call in (lambda: posenc.read_model("a\0b"), lambda: table.save("a\0.npy"), lambda: posenc.table("a\0b", what="cos")):
        with pytest.raises(ValueError, match="must not hold a zero byte, got"):
            call()


def test_numbers_of_numpy():
    x = posenc.Rope(head_dim=numpy.array(16), base=numpy.float32(5e5), pairing="half_split")
    assert x == posenc.Rope(head_dim=16, base=5e5, pairing="half_split")
    for wrong in (numpy.complex64(16 + 1j), 16 + 1j, numpy.array(16 + 1j)):
        with pytest.raises(ValueError, match=r"head_dim must be a number, got"):
            posenc.Rope(head_dim=wrong, pairing="half_split")
    with pytest.raises(ValueError, match="axes_dim must be a number"):
        posenc.Axial(head_dim=16, axes_dim=numpy.array([8 + 1j, 8]), base=1e4, pairing="half_split")
    with pytest.raises(ValueError, match="no number"):
        posenc.Rope(head_dim=Raises(), pairing="half_split")
    with pytest.raises(ValueError, match="parameters must be a mapping of names to arrays, got"):
        posenc.table("learned width=16 rows=8", what="rows", parameters="table")
