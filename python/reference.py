# SPDX-License-Identifier: Apache-2.0
"""reference.py PACKAGE [PAGE]: docs/python_reference.md from the stubs and sources of the installed package, printed or written
to PAGE. python/tests/test_reference.py keeps the page current."""
import ast
import pathlib
import re
import sys

HEAD = """# Reference of the Python package

Made from the package's stubs by `python/reference.py`: signatures, the first paragraph of what `help()` says, and its list of arguments where it has one. Every scheme and scaling is a class, of keyword
arguments alone; their fields, units and ranges stand on the page of each scheme ([docs](README.md)) and in `help(posenc.Rope)`. Examples: [python](python.md).
"""


def sentence(node):
    """The first paragraph of its docstring."""
    text = re.split(r"\n\s*\n|\n\s*>>>", ast.get_docstring(node) or "")[0]
    return " ".join(text.split()).replace("|", "\\|")


def arguments(node):
    """The entries of its docstring's `Arguments:`, as lines of a list."""
    found = re.search(r"^Arguments:\n(.*?)(?=\n\s*\n|\n\s*>>>|\Z)", ast.get_docstring(node) or "", re.M | re.S)
    for part in re.split(r"\n    (?=\S)", found[1].removeprefix("    ") if found else ""):
        names, _, text = " ".join(part.split()).partition(": ")
        if text:
            yield "* " + ", ".join(f"`{n}`" for n in names.split(", ")) + ": " + text.replace("|", "\\|")


def signature(node, name):
    arguments = ast.unparse(node.args)
    arguments = re.sub(r"^(self|cls)(, )?", "", arguments)
    back = f" -> {ast.unparse(node.returns)}" if node.returns and node.name != "__init__" else ""
    return f"{name}({arguments}){back}"


def is_property(node):
    return any(isinstance(d, ast.Name) and d.id == "property" for d in node.decorator_list)


def members(node):
    """(what is written, its sentence) of a class."""
    for f in node.body:
        if not isinstance(f, ast.FunctionDef) or (f.name.startswith("_") and f.name != "__init__"):
            continue
        if f.name == "__init__":
            yield f"`{signature(f, node.name)}`", ""
        elif is_property(f):
            yield f"`.{f.name}: {ast.unparse(f.returns) if f.returns else 'Any'}`", sentence(f)
        else:
            yield f"`.{signature(f, f.name)}`", sentence(f)


def definitions(path):
    return {n.name: n for n in ast.parse(path.read_text()).body if isinstance(n, (ast.FunctionDef, ast.ClassDef))}


def entry(name, node):
    if isinstance(node, ast.FunctionDef):
        listed = list(arguments(node))
        return f"### {name}\n\n`{signature(node, name.split('.')[-1])}`\n\n{sentence(node)}\n" + ("\n" + "\n".join(listed) + "\n" if listed else "")
    lines = [f"* {what}" + (f" {text}" if text else "") for what, text in members(node)]
    return f"### {name}\n\n{sentence(node)}\n" + ("\n" + "\n".join(lines) + "\n" if lines else "")


def scheme_row(name, node):
    text = ast.get_docstring(node) or ""
    presets = [f.name for f in node.body if isinstance(f, ast.FunctionDef) and not f.name.startswith("_") and not is_property(f)]
    (init,) = [f for f in node.body if isinstance(f, ast.FunctionDef) and f.name == "__init__"]
    fields = [a.arg for a in init.args.kwonlyargs]
    title = text.split("\n")[0].split(". ")[0].replace("|", "\\|")  # without the paper, which its page has
    return f"| `{name}` | {title} | {', '.join(fields)} | {', '.join(presets)} |"


def page(package):
    found = {}
    for source in ("_posenc.pyi", "_encoding.py", "_model.py", "_attention.py", "_verbs.py", "_twins.py"):
        found.update(definitions(package / source))
    text = (package / "__init__.py").read_text()
    stated = [ast.literal_eval(re.search(r"^__all__ = (\[.*?\])", t, re.M | re.S)[1]) for t in (text, (package / "_twins.py").read_text())]
    names = sorted(sum(stated, []), key=str.lower)
    parts = [entry(n, found[n]) for n in names if n in found]
    missing = [n for n in names if n not in found and n != "__version__"]
    assert not missing, missing
    schemes = definitions(package / "_schemes.py")
    rows = [scheme_row(n, c) for n, c in sorted(schemes.items()) if isinstance(c, ast.ClassDef) and not n.startswith("_")]
    table = "| class | what | fields | presets |\n|---|---|---|---|\n" + "\n".join(rows) + "\n"
    hosts = "".join(host(package / name) for name in ("torch", "hf", "jax") if (package / name).is_dir())
    return f"{HEAD}\n## Functions and classes\n\n" + "\n".join(parts) + f"{hosts}\n## Schemes and scalings\n\n{table}"


def host(folder):
    """The part for another package: the names of its __all__, wherever in its folder they stand."""
    found = {}
    for source in sorted(folder.glob("*.py")):
        found.update(definitions(source))
    text = (folder / "__init__.py").read_text()
    stated = re.search(r"^__all__(?:: [^=]*)? = (\[.*?\])", text, re.M | re.S)
    names = ast.literal_eval(stated[1]) if stated else []
    if not names:
        return ""
    entries = [entry(f"{folder.name}.{n}", found[n]) for n in sorted(names, key=str.lower) if n in found]
    return f"\n## posenc.{folder.name}\n\n" + "\n".join(entries)


if __name__ == "__main__":
    made = page(pathlib.Path(sys.argv[1]))
    if len(sys.argv) > 2:
        pathlib.Path(sys.argv[2]).write_text(made)
    else:
        sys.stdout.write(made)
