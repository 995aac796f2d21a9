# SPDX-License-Identifier: Apache-2.0
"""Text of schemes and rules, and the shapes and integers of a suite's arrays."""

import json
import re
import struct

PAIRINGS = {True: "half_split", False: "interleaved"}  # by "is it the NeoX style"


def value(v):
    if isinstance(v, bool):
        return "true" if v else "false"
    if isinstance(v, (list, tuple)):
        return "[" + ",".join(value(x) for x in v) + "]"
    if isinstance(v, float) and v == int(v) and abs(v) < 1e15:
        return str(int(v))
    return repr(v) if isinstance(v, float) else str(v)


def words(name, **fields):
    """name key=value ...; None leaves a key out."""
    return " ".join([name] + ["%s=%s" % (k, value(v)) for k, v in fields.items() if v is not None])


def chain(*parts):
    """A scheme and its scalings; None leaves one out."""
    return " + ".join(p for p in parts if p)


class Named:
    """The arrays of one case: shapes, dtypes, and integers where a rule needs them."""

    def __init__(self, case, header, data):
        self.names = {**case["inputs"], **case["outputs"]}
        self.header, self.data = header, data

    def shape(self, name):
        return self.header[self.names[name]]["shape"]

    def dtype(self, name):
        return self.header[self.names[name]]["dtype"]

    def has(self, name):
        return name in self.names

    def integers(self, name):
        entry = self.header[self.names[name]]
        begin, end = entry["data_offsets"]
        form = {"U8": "B", "I32": "i", "I64": "q"}[entry["dtype"]]
        size = struct.calcsize(form)
        return list(struct.unpack("<%d%s" % ((end - begin) // size, form), self.data[begin:end]))

    def bytes(self, name):
        begin, end = self.header[self.names[name]]["data_offsets"]
        return list(self.data[begin:end])


class Arrays:
    def __init__(self, path):
        raw = path.read_bytes()
        size = struct.unpack("<Q", raw[:8])[0]
        self.header = json.loads(raw[8 : 8 + size])
        self.data = raw[8 + size :]

    def of(self, case):
        return Named(case, self.header, self.data)


def check(op, **members):
    """One check; None leaves a member out."""
    out = {"op": op}
    out.update({k: v for k, v in members.items() if v is not None})
    return out


def turned(arrays, about, axes=None, positions=None, q=("q", "q_out"), k=("k", "k_out"), **more):
    """A rotation of q, k (those that are there)."""
    ins, outs = {}, {}
    for ours, pair in (("q", q), ("k", k)):
        if pair and arrays.has(pair[0].split("[")[0]) and arrays.has(pair[1].split("[")[0]):
            ins[ours], outs[ours] = pair
    members = dict(about)
    if isinstance(positions, str) and arrays.has(re.split("[+|]", positions)[0]):
        ins["positions"] = positions
    elif isinstance(positions, list) and positions and isinstance(positions[0], str):
        ins["positions"] = positions
    elif positions is not None:
        members["positions"] = positions
    if axes is not None:
        axes = {name: letters for name, letters in axes.items() if arrays.has(name.split("[")[0])}
    return check("rotate", **members, axes=axes, **more, **{"in": ins, "out": outs})


def all_axes(letters, *names):
    """The same letters for several arrays."""
    return {n: letters for n in names}
