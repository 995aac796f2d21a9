# SPDX-License-Identifier: Apache-2.0
"""Lines of the Python package: broken in a copy of what python/test.sh installed, noticed by the tests that an entry names.

`tests` of such an entry are `python/tests/FILE.py` or `python/tests/FILE.py::TEST`. Those of the folders torch, hf, jax
and onnx need the environment with PyTorch, `python/test.sh build --host` makes it; the others that of `python/test.sh build`.
An entry whose environment is not there is named and not tried.
"""
import json
import os
import pathlib
import shutil
import subprocess

SOURCE = pathlib.Path(__file__).resolve().parent.parent.parent
PACKAGE = pathlib.Path("python/posenc")
SERVER = pathlib.Path(__file__).resolve().parent / "pytest_server.py"
ENVIRONMENTS = {True: "lab", False: "python/environment"}  # of the build folder
HOSTS = ("torch", "hf", "jax", "onnx")  # as in python/test.sh


def is_of_the_package(m):
    return pathlib.PurePath(m["file"]).is_relative_to(PACKAGE)


def needs_host(test):
    return pathlib.PurePath(test.split("::")[0]).relative_to("python/tests").parts[0] in HOSTS


def wrong_tests(m):
    """What the list says of an entry's tests that is not so."""
    for test in m["tests"]:
        file, _, name = test.partition("::")
        if not file.startswith("python/tests/") or not (SOURCE / file).is_file():
            yield f"no test of Python stands in {file}"
        elif name and f"def {name.split('[')[0]}(" not in (SOURCE / file).read_text():
            yield f"{file} has no {name}"
    if len({needs_host(t) for t in m["tests"]}) > 1:
        yield "its tests need two environments"


class Copies:
    """The installed packages, one a kind of environment, with the sources' Python laid over them."""

    def __init__(self, work, home):
        self.work, self.home = work, home
        self.sites, self.servers = {}, {}

    def interpreter(self, host):
        return self.home / ENVIRONMENTS[host] / "bin" / "python"

    def missing(self, m):
        """Why an entry cannot be tried; "": it can."""
        host = needs_host(m["tests"][0])
        if self.interpreter(host).exists() and self._site(host):
            return ""
        return f"python/test.sh build{' --host' if host else ''} has not been run"

    def _site(self, host):
        if host not in self.sites:
            self.sites[host] = None
            for installed in (self.home / ENVIRONMENTS[host]).glob("lib/python3*/site-packages/posenc"):
                site = self.work / ENVIRONMENTS[host]
                shutil.rmtree(site, ignore_errors=True)
                shutil.copytree(installed, site / "posenc", ignore=shutil.ignore_patterns("__pycache__"))
                shutil.copytree(SOURCE / PACKAGE, site / "posenc", dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
                self.sites[host] = site
        return self.sites[host]

    def _server(self, host):
        """One process an environment (pytest_server.py): importing PyTorch takes longer than most tests."""
        if host not in self.servers:
            # No compiled file may be kept: it would be taken for a text of the same size and second.
            environment = {**os.environ, "PYTHONPATH": str(self._site(host)), "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"}
            self.servers[host] = subprocess.Popen([str(self.interpreter(host)), str(SERVER)], cwd=SOURCE, env=environment, text=True,
                                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        return self.servers[host]

    def _failing(self, host, *words):
        """The names of the tests that fail."""
        server, roots = self._server(host), ["--import-mode=importlib", "--rootdir", "."] if host else ["--rootdir", "python/tests"]
        server.stdin.write(json.dumps(["-q", "--tb=no", "-p", "no:cacheprovider", *roots, *words]) + "\n")
        server.stdin.flush()
        code, output = json.loads(server.stdout.readline())
        if code < 0:
            return [f"ended by signal {-code}"]
        failed = [line.split(" - ")[0].split("::")[-1] for line in output.splitlines() if line.startswith(("FAILED", "ERROR"))]
        return failed or [output.strip()[-300:]] if code else []

    def catchers(self, tests):
        """The first of the tests that fails, with its name."""
        for test in tests:
            failed = self._failing(needs_host(test), "-x", test)
            if failed:
                return test, failed
        return None, []

    def sound(self, mutations):
        """What fails before anything is broken."""
        failed = []
        for host in ENVIRONMENTS:
            tests = sorted({t for m in mutations for t in m["tests"] if needs_host(t) == host})
            failed += self._failing(host, *tests) if tests else []
        return failed

    def attempt(self, m):
        """Breaks one line, tests and puts it back."""
        path = self._site(needs_host(m["tests"][0])) / "posenc" / pathlib.PurePath(m["file"]).relative_to(PACKAGE)
        text = path.read_text()
        path.write_text(text.replace(m["find"], m["replace"]))
        try:
            return self.catchers(m["tests"])
        finally:
            path.write_text(text)
