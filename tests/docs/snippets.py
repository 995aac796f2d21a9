#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compiles and runs every snippet of the README and the docs.

```cpp   a whole program, or statements behind the spine's headers; lines of #include may stand before them. All
         statements of all pages are one program, a function each, so that they cost one compilation
```cpp function   a function that the statements of other pages call; it is not called by itself
```sh    run line by line with the built `posenc` first on PATH; `./run ARGS` means that program
Other fences (text, json) are left alone. A page without a snippet is fine; no snippet at all is not.
"""
import argparse
import os
import pathlib
import re
import subprocess
import sys
import tempfile

FENCE = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```$", re.M | re.S)
SPINE = '#include <cmath>\n#include <cstdio>\n#include <vector>\n#include "posenc/posenc.h"\n#include "posenc/registry.h"\n' \
        '#include "posenc/absolute/plan.h"\n#include "posenc/model/read.h"\nusing namespace posenc;\n'


def snippets(path):
    text = path.read_text()
    for match in FENCE.finditer(text):
        yield match.group(1), match.group(2).strip(), match.group(3), text[: match.start()].count("\n") + 1


def one_program(parts, shared):
    """One program of (place, line, statements): a function each, called in turn, named on stderr before it runs. `shared`: functions
    that they call."""
    includes, functions, calls = [], [], []

    def kept(code):
        for text in code.splitlines():
            hoisted = text.startswith("#include") or text == "using namespace posenc;"
            if text.startswith("#include") and text not in SPINE and text not in includes:
                includes.append(text)
            yield "" if hoisted else text

    for place, line, code in shared:
        functions.append(f'#line {line + 1} "{place}"\n' + "\n".join(kept(code)) + "\n")
    for i, (place, line, code) in enumerate(parts):
        functions.append(f'static void snippet_{i}() {{\n#line {line + 1} "{place}"\n' + "\n".join(kept(code)) + "\n}\n")
        calls.append(f'  std::fprintf(stderr, "%s\\n", "{place}:{line}");\n  snippet_{i}();\n')
    spine = SPINE.replace("using namespace posenc;\n", "")
    return spine + "\n".join(includes) + "\nusing namespace posenc;\n" + "".join(functions) + \
        "int main() {\n" + "".join(calls) + "}\n"


def run_cpp(code, args, folder):
    source = folder / "snippet.cpp"
    source.write_text(code)
    program = folder / "snippet"
    subprocess.run([args.compiler, "-std=c++20", "-O0", "-Wall", "-Wextra", f"-I{args.source}/include",
                    f"-I{args.build}/include", str(source), "-o", str(program), *args.link], check=True)
    subprocess.run([str(program)], cwd=args.source, check=True, stdout=subprocess.DEVNULL)


def run_sh(code, args, folder):
    if "apt-get" in code or "git clone" in code or re.search(r"^\./(run|test)( --full)?\s*(#.*)?$", code, re.M):
        return False  # the two commands themselves, and set-up: what ./run and ./test do
    environment = dict(os.environ, PATH=f"{args.build}/bin:" + os.environ["PATH"], TMPDIR=str(folder))
    code = re.sub(r"^\./run ", "posenc ", code, flags=re.M)
    code = re.sub(r"\bout/", f"{folder}/", code)
    result = subprocess.run(["bash", "-eu", "-c", code], cwd=args.source, env=environment,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if result.returncode != 0:
        print(result.stdout)
        raise subprocess.CalledProcessError(result.returncode, "sh snippet")
    return True


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--source", required=True)
    parser.add_argument("--build", required=True)
    parser.add_argument("--compiler", default="g++")
    parser.add_argument("link", nargs="*")
    args = parser.parse_args()
    root = pathlib.Path(args.source)
    ran, failed, statements, shared, jobs = 0, 0, [], [], []
    pages = [p for p in sorted((root / "docs").rglob("*.md")) if not p.name.endswith(".zh-CN.md")]  # those have the snippets of another page
    for page in [root / "README.md", root / "CONTRIBUTING.md", *pages]:
        place = page.relative_to(root).as_posix()
        for language, kind, code, line in snippets(page):
            if language == "cpp" and kind == "function":
                shared.append((place, line, code))
            elif language == "cpp" and "int main" not in code:
                statements.append((place, line, code))
            elif language in ("cpp", "sh"):
                jobs.append((language, f"{place}:{line}", code))
    if statements:
        jobs.append(("cpp", f"{len(statements)} pieces", one_program(statements, shared)))
    for language, place, code in jobs:
        with tempfile.TemporaryDirectory() as folder:
            try:
                if language == "cpp":
                    run_cpp(code, args, pathlib.Path(folder))
                    ran += len(statements) if place.endswith("pieces") else 1
                else:
                    ran += bool(run_sh(code, args, pathlib.Path(folder)))
            except subprocess.CalledProcessError as error:
                failed += 1
                print(f"{place}: {language} snippet failed: {error}")
    print(f"{ran} snippets ran, {failed} failed")
    sys.exit(1 if failed or not ran else 0)


if __name__ == "__main__":
    main()
