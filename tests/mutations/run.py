#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Breaks one line of a formula or kernel at a time and shows which test catches it.

    python3 tests/mutations/run.py [--jobs N] [--only TEXT]... [--minutes M] [--python FOLDER] [--clean]
    python3 tests/mutations/run.py --check

Each entry of mutations.json: `file`, `find` (a text that stands there exactly once), `replace`, `what` it
breaks and the test programs that should notice. A copy of the tree is built once in build-mutations (kept for
the next run), for one vector and the one-lane instruction set, kernels alone with optimization. Only what a
mutation touches is built again, and put back from a copy of the first build afterwards. A mutation that no test
catches fails the run. A header of a scheme is in half of the library, so all of them take an hour on two cores;
with --minutes as many are tried as there is time for, from another place in the list after every commit. --check only
looks whether every text still stands where the list says, in no time: a line that was written anew takes its entry along.
Lines of python/posenc are broken in a copy of the installed package (python_package.py); nothing is built for them.
"""
import argparse
import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import python_package

HERE = pathlib.Path(__file__).resolve().parent
SOURCE = HERE.parent.parent
WORK = SOURCE / "build-mutations"
CPU_SECONDS = 1800  # of a part of a program: half of test_model takes more than 300
# Asks for no numbers, and takes minutes without optimization.
SLOW = "Robust.NonsenseNeverCrashes"
TREE, BUILD, FIRST = WORK / "tree", WORK / "build", WORK / "first"
PARTS = ["CMakeLists.txt", "bench", "cli", "cmake", "conformance", "docs", "examples", "fuzz", "include", "src", "tests"]


def run(command, **more):
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **more)


def files(root):
    return {p.relative_to(root): p for p in root.rglob("*") if p.is_file() and not p.is_symlink()}


def differs(a, b):
    x, y = a.stat(), b.stat()
    return x.st_size != y.st_size or x.st_mtime_ns != y.st_mtime_ns


def mirror(source, target):
    """Makes target what source is, times included, so that ninja sees nothing to do."""
    wanted = files(source)
    for name, path in files(target).items() if target.exists() else ():
        if name not in wanted:
            path.unlink()
    for name, path in wanted.items():
        to = target / name
        if not to.exists() or differs(path, to):
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, to)


def copy_tree():
    for part in PARTS:
        if (SOURCE / part).is_dir():
            mirror(SOURCE / part, TREE / part)
        elif not (TREE / part).exists() or differs(SOURCE / part, TREE / part):
            TREE.mkdir(parents=True, exist_ok=True)
            shutil.copy2(SOURCE / part, TREE / part)


def configure():
    # No compiler cache: it would give back a precompiled header of a mutation tried before, under that time.
    return run(["cmake", "-G", "Ninja", "-S", str(TREE), "-B", str(BUILD), "-DCMAKE_BUILD_TYPE=Debug",
                "-DCMAKE_CXX_FLAGS_DEBUG=-O0", "-DPOSENC_WERROR=OFF",
                "-DPOSENC_DISABLED_TARGETS=HWY_AVX3|HWY_SSE4|HWY_SSSE3", "-DPOSENC_CUDA=OFF",
                "-DPOSENC_CLI=OFF", "-DPOSENC_BENCH=OFF", "-DPOSENC_EXAMPLES=OFF", "-DPOSENC_UNITY=OFF",
                "-DCMAKE_CXX_COMPILER_LAUNCHER="])


def build(jobs, targets):
    return run(["ninja", "-C", str(BUILD), "-j", str(jobs), *targets])


def start_shard(path, number, count, output):
    # By its own time, or other work on the machine makes a mutation look caught.
    command = ["prlimit", f"--cpu={CPU_SECONDS}:{CPU_SECONDS + 5}", str(path), "--gtest_brief=1", "--gtest_fail_fast", f"--gtest_filter=-{SLOW}"]
    shards = os.environ | {"GTEST_TOTAL_SHARDS": str(count), "GTEST_SHARD_INDEX": str(number)}
    return subprocess.Popen(command, env=shards, stdout=output, stderr=subprocess.STDOUT)


def failed_tests(returncode, text):
    """What one part of a program's tests says: the names of those that failed, or how it ended."""
    if returncode in (-signal.SIGXCPU, -signal.SIGKILL):
        return ["does not end"]
    failed = [line.split("] ")[1].split(" (")[0].split(",")[0] for line in text.splitlines()
              if line.startswith("[  FAILED  ]") and "." in line]
    return failed or ([f"exit {returncode}"] if returncode else [])


def failures(path, jobs):
    """What the first part that fails says; the other parts are ended then."""
    with contextlib.ExitStack() as stack:
        outputs = [stack.enter_context(tempfile.TemporaryFile("w+", errors="replace")) for _ in range(jobs)]
        parts = {start_shard(path, n, jobs, output): output for n, output in enumerate(outputs)}
        stack.callback(lambda: [(part.kill(), part.wait()) for part in parts if part.poll() is None])
        running, end = set(parts), time.monotonic() + 6 * CPU_SECONDS
        while running:
            if time.monotonic() > end:  # what waits forever takes no time of its own
                return ["does not end"]
            time.sleep(0.05)
            for part in [p for p in running if p.poll() is not None]:
                running.remove(part)
                parts[part].seek(0)
                failed = failed_tests(part.returncode, parts[part].read())
                if failed:
                    return failed
    return []


def catchers(programs, jobs):
    """The first program that fails, and the names of its failing tests."""
    for program in programs:
        failed = failures(next(BUILD.rglob(program)), jobs)
        if failed:
            return program, failed
    return None, []


def sound(jobs, programs):
    """Ends the run where a program fails before anything is broken."""
    program, failed = catchers(programs, jobs)
    if program:
        sys.exit(f"{program} fails before anything is broken: {failed}")


def first_build(jobs, programs):
    copy_tree()
    if FIRST.exists():  # a run that was cut short leaves something broken
        mirror(FIRST, BUILD)
    configured = configure()
    if configured.returncode:
        sys.exit(configured.stdout)
    built = build(jobs, programs)
    if built.returncode:
        sys.exit(built.stdout[-4000:])
    sound(jobs, programs)
    mirror(BUILD, FIRST)


def try_mutation(m, jobs):
    """Breaks, builds, tests and puts everything back; the program that caught it and its failing test."""
    path = TREE / m["file"]
    text, times = path.read_text(), path.stat()
    path.write_text(text.replace(m["find"], m["replace"]))
    try:
        built = build(jobs, m["tests"])
        if built.returncode:
            sys.exit(f"{m['file']}: the mutation does not compile\n{built.stdout[-2000:]}")
        return catchers(m["tests"], jobs)
    finally:
        path.write_text(text)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
        mirror(FIRST, BUILD)


def check(mutations):
    """What the list says of the tree that is not so, a line each."""
    wrong = []
    for m in mutations:
        path, where = SOURCE / m["file"], f"{m['file']}: {m['what']}"
        count = path.read_text().count(m["find"]) if path.exists() else 0
        if count != 1:
            wrong.append(f"{where}: {m['find']!r} stands there {count} times, not once")
        if m["find"] == m["replace"]:
            wrong.append(f"{where}: nothing is replaced")
        if python_package.is_of_the_package(m):
            wrong += [f"{where}: {w}" for w in python_package.wrong_tests(m)]
            continue
        for program in m["tests"]:
            if not (SOURCE / "tests" / program.removeprefix("test_")).is_dir():
                wrong.append(f"{where}: no test program is called {program}")
    return wrong


def begin_elsewhere(mutations):
    """The list from a place that moves with every commit, in steps that mix its folders."""
    if not mutations:
        return mutations
    commits = run(["git", "-C", str(SOURCE), "rev-list", "--count", "HEAD"]).stdout.strip()
    first = int(commits) if commits.isdigit() else 0
    step = next(n for n in (7, 11, 13) if len(mutations) % n)  # reaches every place
    return [mutations[(first + i * step) % len(mutations)] for i in range(len(mutations))]


def possible(mutations, copies):
    """Those that can be tried here; the others are named."""
    kept = []
    for m in mutations:
        why = copies.missing(m) if python_package.is_of_the_package(m) else ""
        if why:
            print(f"   not tried, {why}: {m['file']}: {m['what']}", flush=True)
        else:
            kept.append(m)
    return kept


def prepare(mutations, jobs, copies):
    """Builds what the library's lines need, and ends the run where a test fails before anything is broken."""
    of_python = [m for m in mutations if python_package.is_of_the_package(m)]
    programs = sorted({p for m in mutations if not python_package.is_of_the_package(m) for p in m["tests"]})
    if programs:
        first_build(jobs, programs)
    failed = copies.sound(of_python)
    if failed:
        sys.exit(f"tests of Python fail before anything is broken: {failed}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--only", action="append", default=[], help="text in the file or in what is broken")
    parser.add_argument("--minutes", type=float, help="begin no more after so long (the first build does not count)")
    parser.add_argument("--python", type=pathlib.Path, default=SOURCE / "build", help="the build folder in which python/test.sh has its environments")
    parser.add_argument("--clean", action="store_true", help="build anew")
    parser.add_argument("--check", action="store_true", help="only compare the list with the tree")
    args = parser.parse_args()
    mutations = [m for m in json.loads((HERE / "mutations.json").read_text())
                 if not args.only or any(o in m["file"] + ": " + m["what"] for o in args.only)]
    if not mutations:
        sys.exit("no mutation is called that")
    wrong = check(mutations)
    if wrong:
        sys.exit("\n".join(wrong))
    if args.check:
        sys.exit(print(f"{len(mutations)} lines to break stand where the list says"))
    if args.clean:
        shutil.rmtree(WORK, ignore_errors=True)
    copies = python_package.Copies(WORK / "python", args.python.resolve())
    mutations = possible(mutations, copies)
    started = time.monotonic()
    prepare(mutations, args.jobs, copies)
    print(f"   built in {time.monotonic() - started:.0f} s", flush=True)
    if args.minutes is not None:
        mutations = begin_elsewhere(mutations)
    started, survived, tried = time.monotonic(), 0, 0
    for number, m in enumerate(mutations, 1):
        begin = time.monotonic()
        if args.minutes is not None and begin - started > 60 * args.minutes:
            break
        tried = number
        program, failed = copies.attempt(m) if python_package.is_of_the_package(m) else try_mutation(m, args.jobs)
        survived += program is None
        verdict = f"caught by {program}: {failed[0]}" if program else "SURVIVED"
        print(f"{number:2d} {m['file']}: {m['what']}: {verdict}  ({time.monotonic() - begin:.0f} s)", flush=True)
    print(f"{tried - survived} of {tried} mutations caught" +
          (f", {len(mutations) - tried} not tried for want of time" if tried < len(mutations) else ""))
    sys.exit(1 if survived else 0)


if __name__ == "__main__":
    main()
