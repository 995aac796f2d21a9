# SPDX-License-Identifier: Apache-2.0
"""Schemes, scalings and presets as classes: made from the registry, equal to their text."""
import copy
import json
import pickle

import numpy
import posenc
import pytest

REGISTRY = json.loads(posenc._posenc.registry_json())
ALL = REGISTRY["schemes"] + REGISTRY["scalings"]


def class_of(entry):
    return getattr(posenc, "".join(w[:1].upper() + w[1:] for w in entry["name"].split("_")))


def usual(field):
    """Some value of a required field."""
    if field["choices"]:
        one = field["choices"][0]
        return [one] if field["type"] == "list of words" else one
    number = max(field["min"] if field["min"] is not None else 2, 2)
    if field["max"] is not None:
        number = min(number, field["max"])
    return {"number": float(number), "integer": int(number), "boolean": True, "text": "x",
            "list of numbers": [float(number)], "list of integers": [int(number)]}[field["type"]]


@pytest.mark.parametrize("entry", ALL, ids=lambda e: e["name"])
def test_every_scheme_is_a_class(entry):
    cls = class_of(entry)
    assert issubclass(cls, posenc.Scheme if entry in REGISTRY["schemes"] else posenc.Scaling)
    assert entry["title"] in cls.__doc__ and entry["paper"] in cls.__doc__
    for field in entry["fields"]:
        assert field["doc"].split()[0] in cls.__doc__
        assert (field["default_from"] or "") in " ".join(cls.__doc__.split())
    x = cls(**{f["name"]: usual(f) for f in entry["fields"] if f["required"]})
    assert posenc.parse(str(x)) == x and type(posenc.parse(str(x))) is cls
    assert hash(posenc.parse(str(x))) == hash(x)
    assert eval(repr(x)) == x
    for field in entry["fields"]:
        value = getattr(x, field["name"])
        assert x.fields[field["name"]] == value
        if not field["required"]:
            assert value == field["default_value"], field["name"]
    for other in (copy.copy(x), copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
        assert other == x


PRESETS = [(e, p) for e in ALL for p in e["presets"]]


@pytest.mark.parametrize("entry, preset", PRESETS, ids=lambda x: x["name"])
def test_every_preset_is_a_classmethod(entry, preset):
    words = dict(w.split("=") for w in preset["preset"].split()[1:])
    sizes = {k: int(v) for k, v in words.items() if k != "preset"}
    x = getattr(class_of(entry), preset["name"])(**sizes)
    assert str(x) == preset["text"] and x.fields == preset["fields"]


def test_scalings_are_added():
    x = posenc.Rope(head_dim=128, base=5e5, pairing="half_split") + posenc.Yarn(factor=4, original_context=8192)
    assert str(x) == "rope head_dim=128 base=500000 pairing=half_split + yarn factor=4 original_context=8192"
    assert posenc.parse(str(x)) == x and eval(repr(x)) == x
    assert x.scheme.head_dim == 128 and x.scalings[0].factor == 4
    assert pickle.loads(pickle.dumps(x)) == x
    twice = x + posenc.MscaleLogit(factor=2, mscale_all_dim=1)
    assert [type(y).__name__ for y in twice.scalings] == ["Yarn", "MscaleLogit"] and posenc.parse(str(twice)) == twice
    assert twice != x and x.scheme != posenc.Rope(head_dim=64, pairing="half_split") and x != str(x)
    assert len({x, posenc.parse(str(x)), twice}) == 2
    with pytest.raises(TypeError):
        x + posenc.Rope(head_dim=8, pairing="half_split")


def test_values_of_other_types_are_numbers():
    a = posenc.Rope(head_dim=numpy.int64(64), base=numpy.float32(500), pairing="interleaved")
    assert a == posenc.Rope(head_dim=64, base=500, pairing="interleaved")
    b = posenc.Longrope(short_factor=numpy.array([1.0, 1.5]), long_factor=(2, 3), original_context=16, switch_rule="per_call")
    assert b.short_factor == [1.0, 1.5]


@pytest.mark.parametrize("make, says", [
    (lambda: posenc.Rope(head_dim=8, pairing="x"), r"\[scheme\] rope: pairing must be one .*half_split.*got \"x\""),
    (lambda: posenc.Rope(head_dim=8.5, pairing="half_split"), r"head_dim must be a whole number, got \"8.5\""),
    (lambda: posenc.Rope(head_dim=-8, pairing="half_split"), r"head_dim must be within 1 and 65536, got \"-8\""),
    (lambda: posenc.Rope(head_dim="8 + 1", pairing="half_split"), r"head_dim must be a number"),
    (lambda: posenc.Rope(head_dim=None, pairing="half_split"), r"head_dim must be a number, got \"none\""),
    (lambda: posenc.Rope(head_dim=True, pairing="half_split"), r"head_dim must be a number, got \"true\""),
    (lambda: posenc.Rope(head_dim=object(), pairing="half_split"), r"head_dim must be a number"),
    (lambda: posenc.Yarn(factor=float("nan"), original_context=4096), r"yarn: factor must be finite"),
    (lambda: posenc.Sinusoidal.fairseq(width=0), r"width must be within 1"),
    (lambda: posenc.Sinusoidal.fairseq(width=8, widht=3), r"did you mean width"),
    (lambda: posenc.parse("ropee head_dim=8"), r"did you mean rope"),
    (lambda: posenc.parse(""), r"must begin"),
    (lambda: posenc.Rope(head_dim=8, pairing="half_split base=7"), r"pairing must be one"),
    (lambda: posenc.RotaryPlan("rope head_dim=7 pairing=half_split"), r"\[.*\] .*even"),
    (lambda: posenc.RotaryPlan(7), r"encoding must be SCHEME text or an encoding of posenc, got \"int\""),
    (lambda: posenc.RotaryPlan(posenc.Alibi()), r"\[alibi\] is not rotary"),
])
def test_what_is_wrong_is_refused_by_name(make, says):
    with pytest.raises(ValueError, match=says):
        make()


def test_unknown_words_are_errors_of_python():
    with pytest.raises(TypeError):
        posenc.Rope(head_dim=8, pairing="half_split", bsae=7)
    with pytest.raises(AttributeError):
        posenc.Ropee
    with pytest.raises(AttributeError):
        posenc.Rope(head_dim=8, pairing="half_split").haed_dim
    with pytest.raises(AttributeError):
        posenc.Rope(head_dim=8, pairing="half_split").head_dim = 9


def test_the_names_are_listed():
    assert {"Rope", "Yarn", "read_model"} <= set(dir(posenc))
    names = {}
    exec("from posenc import *", names)
    assert names["Rope"] is posenc.Rope and names["attend"] is posenc.attend
