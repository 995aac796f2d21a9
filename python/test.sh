#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# python/test.sh BUILD: makes the wheel from the libraries of a build folder, installs it into an environment of its
# own in BUILD/python, and runs python/tests there. The folder is kept: the second time only what changed is made.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. cmake/setup.sh
built=$(realpath "$1")
home=$built/python
python=$home/environment/bin/python

stop() {
  say "$1"
  say "POSENC_PYTHON=OFF ./test leaves the Python package out."
  exit 4
}

# The pinned packages, again when the list or the interpreter changes.
wanted="$(python3 -c 'import sys; print(sys.executable, sys.version)') $(cat python/tests/requirements.txt)"
if [ "$(cat "$home/.installed" 2>/dev/null)" != "$wanted" ]; then
  rm -rf "$home"
  mkdir -p "$home"
  python3 -m venv "$home/environment" >"$home/install.log" 2>&1 || {
    cat "$home/install.log" >&2
    stop "The environment of the Python tests cannot be made."
  }
  "$python" -m pip --disable-pip-version-check install -q -r python/tests/requirements.txt >"$home/install.log" 2>&1 || {
    tail -n 3 "$home/install.log" >&2
    stop "The packages of python/tests/requirements.txt cannot be had from PyPI: the reason stands above."
  }
  printf '%s' "$wanted" >"$home/.installed"
fi

rm -rf "$home/wheel"
PATH=$home/environment/bin:$PATH "$python" -m pip --disable-pip-version-check wheel . -q --no-deps --no-build-isolation \
  --config-settings=cmake.source-dir=python --config-settings=build-dir="$home/build" \
  --config-settings=cmake.define.POSENC_BUILD="$built" --config-settings=cmake.define.POSENC_WERROR=ON --wheel-dir "$home/wheel" >"$home/wheel.log" 2>&1 || {
  tail -n 60 "$home/wheel.log" >&2
  say "the wheel cannot be built; the whole log: $home/wheel.log"
  exit 1
}
wheel=$(ls "$home"/wheel/*.whl)
"$python" -m pip --disable-pip-version-check install -q --no-deps --force-reinstall "$wheel" >"$home/install.log" 2>&1
POSENC_WHEEL=$wheel "$python" -m pytest -q -p no:cacheprovider --rootdir python/tests python/tests "${@:2}"
