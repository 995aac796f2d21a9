# SPDX-License-Identifier: Apache-2.0
"""generate.py MODULE FOLDER: the classes of all schemes and scalings and the stub of the module, from the module itself."""
import importlib.util
import json
import keyword
import pathlib
import sys
import textwrap

HEAD = '''# Made from the registry of posenc when the package was built (python/generate.py): not edited.
"""Every scheme and every scaling as a class."""
from __future__ import annotations

from ._encoding import Scaling, Scheme

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import ClassVar, Literal, Sequence, TypedDict

    from typing_extensions import Self, Unpack
'''
TWINS = '''# Made from the table of verbs when the package was built (python/generate.py): not edited.
"""Verbs of the command line as functions."""
from __future__ import annotations

from ._call import twin

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any
'''
STUB = '''from os import PathLike
from typing import Any, Iterable, Mapping, Sequence

from ._types import DTypeLike, EncodingLike, PositionsLike

__version__: str

class FormatError(ValueError):
    """A file whose contents do not match its format."""
    file: str
    place: str

class ModelError(ValueError):
    """A model whose positions cannot be had from its files."""
    findings: list[dict[str, Any]]
'''
SIMPLE = {"number": "float", "integer": "int", "boolean": "bool", "text": "str",
          "list of numbers": "Sequence[float]", "list of integers": "Sequence[int]"}


def class_name(name):
    return "".join(word[:1].upper() + word[1:] for word in name.split("_"))


def type_of(field):
    words = f"Literal[{', '.join(map(repr, field['choices']))}]" if field["choices"] else ""
    if field["type"] == "list of words":
        kind = f"Sequence[{words}]"
    else:
        kind = words or SIMPLE[field["type"]]
    return f"{kind} | None" if field["optional"] else kind


def default_of(field):
    value = field["default_value"]
    if field["type"] == "number" and value is not None:
        return repr(float(value))
    return repr(tuple(value) if isinstance(value, list) else value)


def range_of(field):
    low, high = (f"{field[k]:.17g}" if field[k] is not None else "" for k in ("min", "max"))
    return f"{low} to {high}" if low and high else f"at least {low}" if low else f"at most {high}" if high else ""


def about(field):
    more = [range_of(field), f"in {field['unit']}" if field["unit"] else "",
            "required" if field["required"] else f"default {field['default']}", f"which stands for {field['default_from']}"
            if field["default_from"] else ""]
    return f"{field['name']}: {field['doc']} ({', '.join(x for x in more if x)})"


def lines_of_doc(text, indent):
    return "\n".join(textwrap.wrap(text, 108, initial_indent=" " * indent, subsequent_indent=" " * indent + "  "))


def parameters(fields):
    given = [f"{f['name']}: {type_of(f)}" for f in fields if f["required"]]
    given += [f"{f['name']}: {type_of(f)} = {default_of(f)}" for f in fields if not f["required"]]
    return ", ".join(["self", "*", *given]) if given else "self"


def fields_class(cls, sizes):
    return "_".join([f"_{cls}Fields", *sizes])


def fields_classes(cls, s):
    """For type checkers: what a preset takes beside its sizes."""
    text = ""
    for sizes in sorted({tuple(p["sizes"]) for p in s["presets"]}):
        text += f"\n    class {fields_class(cls, sizes)}(TypedDict, total=False):\n"
        text += "".join(f"        {f['name']}: {type_of(f)}\n" for f in s["fields"] if f["name"] not in sizes)
    return f"\n\nif TYPE_CHECKING:\n{text}" if text else ""


def preset(cls, p):
    sizes = "".join(f", {key}: int" for key in p["sizes"])
    star = ", *" if sizes else ""
    values = "".join(f", {key!r}: {key}" for key in p["sizes"])
    return (f"\n    @classmethod\n    def {p['name']}(cls{star}{sizes}, **fields: Unpack[{fields_class(cls, p['sizes'])}]) -> Self:\n"
            f'        """`{p["preset"]}`; a field beside it counts instead."""\n'
            f"        return cls._of_values({{'preset': {p['name']!r}{values}, **fields}})\n")


def one_class(s, base):
    cls = class_name(s["name"])
    fields = s["fields"]
    for f in fields:
        assert f["name"].isidentifier() and not keyword.iskeyword(f["name"]), f["name"]
    text = fields_classes(cls, s)
    where = s["paper"] + (f", {s['equations']}" if s["equations"] not in ("", "-") else "")
    text += f"\n\nclass {cls}({base}):\n" + f'    """{s["title"]} ({s["family"]}). {where}.\n'
    text += "".join("\n" + lines_of_doc(about(f), 4) for f in fields)
    text += '\n    """\n\n    __slots__ = ()\n' + f"    _name: ClassVar[str] = {s['name']!r}\n"
    text += "".join(f"    {f['name']}: {type_of(f)}\n" for f in fields)
    values = ", ".join(f"{f['name']!r}: {f['name']}" for f in fields)
    text += f"\n    def __init__({parameters(fields)}) -> None:\n        self._set({{{values}}})\n"
    return text + "".join(preset(cls, p) for p in s["presets"])


def classes(registry):
    text = HEAD
    for key, base in (("schemes", "Scheme"), ("scalings", "Scaling")):
        text += "".join(one_class(s, base) for s in registry[key])
    names = [class_name(s["name"]) for s in registry["schemes"] + registry["scalings"]]
    assert len(names) == len(set(names))
    return text + "\n\n__all__ = [\n" + "".join(f"    {n!r},\n" for n in names) + "]\n"


def argument(word):
    return word["name"].lower().split("|")[0].replace("-", "_")


def type_of_word(word):
    if word["file"] or word["model"]:
        return "Any"
    return "bool" if word["flag"] else "str" if word["positional"] else "str | float"


def one_twin(verb):
    """The function of a verb, made from its words."""
    words = [w for w in verb["words"] if not w["output"]]
    for w in words:
        assert argument(w).isidentifier() and not keyword.iskeyword(argument(w)), w["name"]
    places = [w for w in words if w["positional"]]
    options = [w for w in words if not w["positional"]]
    heads = [f"{argument(w)}: {type_of_word(w)}" if w["required"] else f"{argument(w)}: {type_of_word(w)} | None = None" for w in places]
    heads += ["*"] * bool(options)
    heads += [f"{argument(w)}: bool = False" if w["flag"] else f"{argument(w)}: {type_of_word(w)} | None = None" for w in options]
    text = f"\n\ndef {verb['name']}({', '.join(heads)}) -> Any:\n"
    text += f'    """What `posenc {verb["name"]}` does: {verb["summary"]}.\n\n'
    report = [w["name"] for w in verb["words"] if w["output"]] == ["json"]
    text += f"    {'Its JSON as data' if report else 'The array that it writes; several of them are a dict by name'}. "
    text += "An array may be given as a list.\n\n    Arguments:\n"
    for w in words:
        first, *rest = w["help"].split("\n")
        text += f"        {argument(w)}: {first}\n" + "".join(f"            {line}\n" for line in rest)
    text += '    """\n'
    values = ", ".join(f'"{argument(w)}": {argument(w)}' for w in options)
    return text + f'    return twin("{verb["name"]}", [{", ".join(argument(w) for w in places)}], {{{values}}}{", report=True" * report})\n'


def twins(verbs):
    made = [v for v in verbs if v["twin"]]
    return TWINS + "".join(map(one_twin, made)) + f"\n\n__all__ = {[v['name'] for v in made]!r}\n"


def main(module, folder):
    spec = importlib.util.spec_from_file_location("_posenc", module)
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "_schemes.py").write_text(classes(json.loads(loaded.registry_json())))
    (folder / "_twins.py").write_text(twins(json.loads(loaded.verbs_json())))
    from nanobind.stubgen import StubGen
    stub = StubGen(loaded, include_private=True)  # rotate_ and rerotate_: a last underscore counts as private there
    stub.put(loaded)
    (folder / "_posenc.pyi").write_text(STUB + stub.get())


if __name__ == "__main__":
    main(*sys.argv[1:])
