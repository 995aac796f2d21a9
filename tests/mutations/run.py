#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Breaks one line of a formula or kernel at a time and shows which test catches it.

    python3 tests/mutations/run.py [--jobs N] [--only TEXT]

Each entry of mutations.json: `file`, `find` (a text that stands there exactly once), `replace`, `what` it
breaks and the test programs (ctest -R expression) that should notice. The tree is copied, built once, and only
what a mutation touches is built again. A mutation that no test catches fails the run.
"""
import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
SOURCE = HERE.parent.parent


def run(command, **more):
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **more)


def build(folder, jobs, targets):
    return run(["ninja", "-C", str(folder), "-j", str(jobs), *targets])


def catchers(build_folder, programs):
    """Names of the failing tests, run program by program until one fails."""
    for program in programs:
        result = run([str(next(build_folder.rglob(program))), "--gtest_brief=1"], timeout=600)
        failed = [line.split("] ")[1].split(" (")[0].split(",")[0] for line in result.stdout.splitlines()
                  if line.startswith("[  FAILED  ]") and "." in line]
        if result.returncode != 0:
            return program, failed or [f"exit {result.returncode}"]
    return None, []


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--only", default="")
    args = parser.parse_args()
    mutations = [m for m in json.loads((HERE / "mutations.json").read_text()) if args.only in m["file"] + m["what"]]
    assert mutations, "no mutation chosen"
    programs = sorted({p for m in mutations for p in m["tests"]})
    with tempfile.TemporaryDirectory() as scratch:
        tree, folder = pathlib.Path(scratch) / "tree", pathlib.Path(scratch) / "build"
        shutil.copytree(SOURCE, tree, ignore=shutil.ignore_patterns("build*", ".git", "out", "tiny_models"))
        configured = run(["cmake", "-G", "Ninja", "-S", str(tree), "-B", str(folder), "-DPOSENC_BENCH=OFF",
                          "-DPOSENC_EXAMPLES=OFF", "-DPOSENC_WERROR=OFF", "-DCMAKE_CXX_FLAGS_RELEASE=-O1"])
        if configured.returncode:
            sys.exit(configured.stdout)
        first = build(folder, args.jobs, programs)
        if first.returncode:
            sys.exit(first.stdout[-4000:])
        program, failed = catchers(folder, programs)
        if program:
            sys.exit(f"{program} fails before anything is broken: {failed}")
        survived = 0
        for number, m in enumerate(mutations, 1):
            path = tree / m["file"]
            text = path.read_text()
            if text.count(m["find"]) != 1:
                sys.exit(f"{m['file']}: {m['find']!r} stands there {text.count(m['find'])} times, not once")
            path.write_text(text.replace(m["find"], m["replace"]))
            built = build(folder, args.jobs, m["tests"])
            if built.returncode:
                sys.exit(f"{m['file']}: the mutation does not compile\n{built.stdout[-2000:]}")
            program, failed = catchers(folder, m["tests"])
            path.write_text(text)
            verdict = f"caught by {program}: {failed[0]} (+{len(failed) - 1} more)" if program else "SURVIVED"
            survived += program is None
            print(f"{number:2d} {m['file']}: {m['what']}: {verdict}", flush=True)
        print(f"{len(mutations) - survived} of {len(mutations)} mutations caught")
        sys.exit(1 if survived else 0)


if __name__ == "__main__":
    main()
