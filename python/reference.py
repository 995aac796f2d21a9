# SPDX-License-Identifier: Apache-2.0
"""reference.py PACKAGE [PAGE]: docs/python_reference.md from the stubs and sources of the installed package, printed or written
to PAGE. python/tests/test_reference.py keeps the page current."""
import ast
import pathlib
import re
import sys

HEAD = """# Reference of the Python package

Signatures, the first paragraph of `help()` and its list of arguments, written by `python/reference.py`. Examples: [python](python.md).

* `=None`: may be omitted. Any other default shows the type.
* `...`: the keywords listed below, or the arguments of the function that the text names.
* Encodings are schemes, with or without scalings, or SCHEME texts; positions are arrays, lists or ranges, and text such as "0:4096" for the functions of verbs. A subject is a model, its path, or encodings.
* `order`, `layout`, `kind`, `what` and `tower` are text; `heads`, `head_dim`, `key_heads`, `context`, `layer`, `start`, `seed`, `rank` and `ranks` integers; `parameters` and `inputs` arrays by name.
* Other arguments without a type are arrays or lists, in `posenc.torch` tensors.
"""

RESULTS = {"Attention", "Layer", "Model", "PathAttention", "hf.Report", "SelectiveAttention"}  # calls make them, not users
INTERNAL = {"extra_repr", "hf.Report.attention", "hf.Report.left"}
DOCS = pathlib.Path(__file__).resolve().parent.parent / "docs"
SCHEMES = """A class has the fields of its scheme as keyword arguments and its presets as class methods; `help()` and the linked page list them.
"""
# Arguments whose types HEAD states, beside ALIASES.
NAMED = set("order layout kind what tower heads head_dim key_heads context layer start seed rank ranks parameters inputs subject".split())
ALIASES = re.compile(r"(EncodingLike|Iterable\[EncodingLike\]|PositionsLike|RotaryPlan|str|int|None)( \| |$)")
LISTS = re.compile(r"Sequence\[(int|float|Tensor)\]|Tensor")


def sentence(node):
    """The first paragraph of its docstring."""
    text = re.split(r"\n\s*\n|\n\s*>>>", ast.get_docstring(node) or "")[0]
    return " ".join(text.split()).replace("|", "\\|")


def arguments(node):
    """(names, text) of the entries of its docstring's `Arguments:`, without lists inside of them."""
    found = re.search(r"^Arguments:\n(.*?)(?=\n\s*\n|\n\s*>>>|\Z)", ast.get_docstring(node) or "", re.M | re.S)
    for part in re.split(r"\n    (?=\S)", found[1].removeprefix("    ") if found else ""):
        if re.search(r"^ {12}", part, re.M):
            part = part.split("\n")[0].removesuffix(":") + " (listed by `help()`)"
        names, _, text = " ".join(part.split()).partition(": ")
        if text:
            yield names.split(", "), text.replace("|", "\\|")


def every_argument(node):
    """{name: (as written, stars before it)} of its arguments, without self and cls; "*" stands for the start of keywords."""
    a = node.args
    positional = a.posonlyargs + a.args
    defaults = [None] * (len(positional) - len(a.defaults)) + a.defaults
    pairs = [(x, d) for x, d in zip(positional, defaults) if x.arg not in ("self", "cls")]
    written = {x.arg: one_argument(x, d) for x, d in pairs}
    if a.vararg:
        written["*" + a.vararg.arg] = "*" + one_argument(a.vararg, None)
    elif a.kwonlyargs:
        written["*"] = "*"
    written.update({x.arg: one_argument(x, d) for x, d in zip(a.kwonlyargs, a.kw_defaults)})
    if a.kwarg:
        written["**" + a.kwarg.arg] = "**" + one_argument(a.kwarg, None)
    return written


def type_of(annotation, optional=False):
    """As written after a name; "" of Any. optional: its default is None, which needs no second mention."""
    text = ast.unparse(annotation) if annotation else "Any"
    text = re.sub(r"\[(str|Any), Any\]", "", text.removesuffix(" | None") if optional else text)
    return "" if text == "Any" else f": {text}"


def stated_in_head(argument, written):
    """Whether HEAD says the type of an argument: by its default, its name, or a type of which all members have a name there."""
    text = ast.unparse(argument.annotation) if argument.annotation else ""
    text = text.removesuffix(" | None") if written == "None" else text
    aliases = "Like" in text and "DType" not in text and not ALIASES.sub("", text)
    return written not in ("", "None", "...", "()") or argument.arg in NAMED or aliases or bool(LISTS.fullmatch(text))


def one_argument(argument, default):
    written = ast.unparse(default) if default else ""
    stated = "" if stated_in_head(argument, written) else type_of(argument.annotation, written == "None")
    return argument.arg + stated + (f"={written}" if written else "")


def default_of(written):
    return written.partition("=")[2]


def signature(node, name, like=None, below=()):
    """like: the function whose arguments are written as `...`, those with another default aside. below: keywords that a list describes."""
    own, theirs = every_argument(node), every_argument(like) if like else {}
    theirs = theirs | {n: own[n] for n in below}
    shared = [n for n in own if n in theirs and n != "*" and default_of(own[n]) == default_of(theirs[n])]
    written = ["..." if n in shared else text for n, text in own.items() if n not in shared[1:] and (n != "*" or not shared)]
    back = type_of(node.returns).replace(": ", " -> ", 1) if node.returns and node.name != "__init__" else ""
    return f"{name}({', '.join(written)}){back}"


def lacking(node, like):
    """Which keywords of `like` it does not have, as a sentence."""
    if not like or node.args.kwarg:
        return ""
    missing = [f"`{a.arg}`" for a in like.args.kwonlyargs if a.arg not in every_argument(node)]
    return f" Without {', '.join(missing)}." if missing else ""


def is_property(node):
    return any(isinstance(d, ast.Name) and d.id == "property" for d in node.decorator_list)


def functions_of(nodes):
    return {n.name: n for n in nodes if isinstance(n, ast.FunctionDef)}


def in_new_arrays(node, functions):
    """The function of which rotate_ is the one in place, if its docstring says so."""
    return functions.get(node.name[:-1]) if node.name.endswith("_") and sentence(node).startswith("The same in place") else None


def in_place(name, functions):
    """What is said below a function about the one that does the same in place."""
    node = functions.get(name)
    known = isinstance(node, ast.FunctionDef) and in_new_arrays(node, functions)
    return f"  * `{name}`: {sentence(node)[0].lower()}{sentence(node)[1:]}\n" if known else ""


def members(node, name):
    """(what is written, its sentence) of a class."""
    for f in node.body:
        if not isinstance(f, ast.FunctionDef) or (f.name.startswith("_") and f.name != "__init__"):
            continue
        if {f.name, f"{name}.{f.name}"} & INTERNAL or (f.name == "__init__" and name in RESULTS):
            continue
        if f.name == "__init__":
            yield f"`{signature(f, node.name)}`", ""
        elif is_property(f):
            yield f"`.{f.name}{type_of(f.returns)}`", sentence(f)
        else:
            like = in_new_arrays(f, functions_of(node.body))
            yield f"`.{signature(f, f.name, like)}`", sentence(f) + lacking(f, like)


def definitions(path):
    return {n.name: n for n in ast.parse(path.read_text()).body if isinstance(n, (ast.FunctionDef, ast.ClassDef))}


def entry(name, node, like=None):
    """like: the function or class that has the same arguments or members, which are not described again."""
    if isinstance(node, ast.FunctionDef):
        listed, keywords = list(arguments(node)), {a.arg for a in node.args.kwonlyargs}
        below = [n for names, _ in listed for n in names if n in keywords]
        below = below if keywords == set(below) else []
        own = every_argument(node)
        lines = ["  * " + ", ".join(f"`{own[n] if n in below else n}`" for n in names) + f": {text}" for names, text in listed]
        written = signature(node, name.split(".")[-1], like, below)
        return "\n".join([f"* `{written}`: {sentence(node)}{lacking(node, like)}", *lines]) + "\n"
    shared = [m for m in members(node, name) if like and m in list(members(like, like.name))]
    lines = [f"* {what}" + (f" {text}" if text else "") for what, text in members(node, name) if (what, text) not in shared]
    lines += [f"* {', '.join(what for what, _ in shared)} as of `{like.name}`"] if shared else []
    return f"\n### {name}\n\n{sentence(node)}\n" + ("\n" + "\n".join(lines) + "\n" if lines else "")


def functions_first(names, found):
    return sorted(names, key=lambda n: (isinstance(found[n], ast.ClassDef), n.lower()))


def pages_of_schemes():
    """{name of a scheme: the page with the table of its fields}"""
    return {name: path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md") for name in re.findall(r"<!-- fields (\w+)", path.read_text())}


def scheme_lists(nodes, pages):
    """A line for each family of schemes: its classes with links to their pages."""
    families = {}
    for name, node in nodes:
        (own,) = [ast.literal_eval(a.value) for a in node.body if isinstance(a, ast.AnnAssign) and a.target.id == "_name"]
        family = re.search(r"\((absolute|input module|polar|relative|rotary|scaling)\)", ast.get_docstring(node))[1]
        families.setdefault(family, []).append(f"[`{name}`]({pages[own]})")
    return [f"* {family}: {', '.join(links)}" for family, links in sorted(families.items())]


def page(package):
    found = {}
    for source in ("_posenc.pyi", "_encoding.py", "_model.py", "_attention.py", "_verbs.py", "_twins.py"):
        found.update(definitions(package / source))
    text = (package / "__init__.py").read_text()
    stated = [ast.literal_eval(re.search(r"^__all__ = (\[.*?\])", t, re.M | re.S)[1]) for t in (text, (package / "_twins.py").read_text())]
    names = sum(stated, [])
    alike = {"PathAttention": found["Attention"], "SelectiveAttention": found["Attention"]}
    parts = [entry(n, found[n], alike.get(n)) for n in functions_first([n for n in names if n in found], found)]
    missing = [n for n in names if n not in found and n != "__version__"]
    assert not missing, missing
    schemes = definitions(package / "_schemes.py")
    pages = pages_of_schemes()
    rows = scheme_lists([(n, c) for n, c in sorted(schemes.items()) if isinstance(c, ast.ClassDef) and not n.startswith("_")], pages)
    hosts = "".join(host(package / name, found) for name in ("torch", "hf", "jax") if (package / name).is_dir())
    made = f"{HEAD}\n## Functions and classes\n\n" + "".join(parts) + f"{hosts}\n## Schemes and scalings\n\n{SCHEMES}\n" + "\n".join(rows) + "\n"
    return re.sub(r"(?<!\[)arXiv:(\d{4}\.\d{4,5})", r"[arXiv:\1](https://arxiv.org/abs/\1)", made)


def model_of(node, found, others):
    """The function whose arguments it has: `posenc.attend`, if its docstring begins with it, or the one in new arrays."""
    if not isinstance(node, ast.FunctionDef):
        return None
    theirs = re.match(r"`posenc\.(\w+)` of tensors", sentence(node))
    return others[theirs[1]] if theirs else in_new_arrays(node, found)


def host(folder, others):
    """The part for another package: the names of its __all__, wherever in its folder they stand. others: those of posenc."""
    found = {}
    for source in sorted(folder.glob("*.py")):
        found.update(definitions(source))
    text = (folder / "__init__.py").read_text()
    stated = re.search(r"^__all__(?:: [^=]*)? = (\[.*?\])", text, re.M | re.S)
    names = ast.literal_eval(stated[1]) if stated else []
    if not names:
        return ""
    shown = functions_first([n for n in names if n in found and not in_new_arrays(found[n], found)], found)
    entries = [entry(f"{folder.name}.{n}", found[n], model_of(found[n], found, others)) + in_place(f"{n}_", found) for n in shown]
    return f"\n## posenc.{folder.name}\n\n" + "".join(entries)


if __name__ == "__main__":
    made = page(pathlib.Path(sys.argv[1]))
    if len(sys.argv) > 2:
        pathlib.Path(sys.argv[2]).write_text(made)
    else:
        sys.stdout.write(made)
