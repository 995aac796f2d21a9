#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the field "posenc" (a list of checks, see OPERATIONS.md) into the cases of the suites.

    python3 conformance/map_cases.py            write
    python3 conformance/map_cases.py --check    fail when writing would change a file

The checks follow from a case's params, scheme and array shapes by rules per family of peers;
nothing is looked up by what the peer answered. Only the Python standard library is needed.
"""

import json
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from mapping import absolute, attention, engines, gguf, hugging_face, papers  # noqa: E402
from mapping import content_terms, contextual, image_bias, model_attention  # noqa: E402
from mapping import positions, scalar_bias, tiny_models  # noqa: E402
from mapping.words import Arrays  # noqa: E402


def engines_or_papers(case, arrays):
    rules = papers if case["name"].startswith("paper_") else engines
    return rules.checks(case, arrays)


def relative(case, arrays):
    for module in (scalar_bias, content_terms, contextual, image_bias):
        rule = module.RULES.get(case["scheme"])
        if rule:
            return rule(case, arrays)
    return None


SUITES = {
    "rotary_hugging_face": hugging_face.checks,
    "rotary_engines": engines_or_papers,
    "gguf": gguf.checks,
    "absolute": absolute.checks,
    "positions": positions.checks,
    "attention": attention.checks,
    "relative_bias": relative,
    "relative_content": relative,
    "tiny_models": tiny_models.checks,
    "model_attention": model_attention.checks,
}


def whole(suite):
    """As the makers of most suites write it, one level of indent a nesting; a line a check."""
    checks, cases = [], []
    for case in suite["cases"]:
        case = dict(case)
        if "posenc" in case:
            checks.append(case["posenc"])
            case["posenc"] = "@checks"
        cases.append(case)
    pieces = (json.dumps(dict(suite, cases=cases), indent=1) + "\n").split('"@checks"')
    text = pieces[0]
    for own, rest in zip(checks, pieces[1:]):
        text += "[\n    " + ",\n    ".join(json.dumps(c) for c in own) + "\n   ]" + rest
    return text


def unfinished(suite):
    """The same without the last end of line."""
    return whole(suite)[:-1]


def line_a_case(suite):
    """As rotary_hugging_face is written: a line a case."""
    head = {k: v for k, v in suite.items() if k != "cases"}
    lines = ['"%s": %s' % (k, json.dumps(v)) for k, v in head.items()]
    cases = ",\n".join(json.dumps(c) for c in suite["cases"])
    return "{\n" + ",\n".join(lines) + ',\n"cases": [\n' + cases + "\n]\n}\n"


def form_of(suite, text):
    """The form of the file, so that the field is all that changes."""
    for form in (whole, unfinished, line_a_case):
        if form(suite) == text:
            return form
    raise SystemExit("cases.json is written in a form that is not known here")


def mapped(name):
    path = HERE / name / "cases.json"
    text = path.read_text()
    suite = json.loads(text)
    form = form_of(suite, text)
    arrays = Arrays(HERE / name / "arrays.safetensors")
    for case in suite["cases"]:
        for field in ("posenc", "posenc_not_expressible"):
            case.pop(field, None)
        found = SUITES[name](case, arrays.of(case))
        if isinstance(found, str):
            case["posenc_not_expressible"] = found
        elif found is not None:
            case["posenc"] = found
    return path, text, form(suite)


def main():
    check = "--check" in sys.argv[1:]
    changed = False
    for name in SUITES:
        path, before, after = mapped(name)
        if before == after:
            continue
        changed = True
        if not check:
            path.write_text(after)
        print(("would change " if check else "wrote ") + str(path.relative_to(HERE.parent)))
    return 1 if check and changed else 0


if __name__ == "__main__":
    sys.exit(main())
