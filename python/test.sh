#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# python/test.sh BUILD [pytest's words]: makes the wheel from the libraries of a build folder, installs it into an
# environment of its own in BUILD/python, and runs python/tests there. The folder is kept: the second time only what
# changed is made.
# python/test.sh BUILD --host [pytest's words]: the same wheel in a second environment, BUILD/python/torch-environment,
# with PyTorch and transformers (6 GB, once), and the tests of python/tests/torch, hf, jax and onnx there.
# python/test.sh BUILD --newest [pytest's words]: python/tests/hf in that environment, with the newest transformers that posenc.hf
# supports (requirements-newest.txt) in the place of the pinned one.
# POSENC_HOST_PACKAGES=FOLDER takes the packages of that site-packages folder in place of installing any.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. cmake/setup.sh
built=$(realpath "$1")
shift
host=0 newest=0
case ${1:-} in
  --host) host=1; shift ;;
  --newest) host=1 newest=1; shift ;;
esac
home=$built/python
python=$home/environment/bin/python
hosts=(torch hf jax onnx) # folders of python/tests that need another package

stop() {
  say "$1"
  say "POSENC_PYTHON=OFF ./test leaves the Python package out."
  exit 4
}

# environment FOLDER LIST...: the pinned packages of the lists, again when a list or the interpreter changes.
environment() {
  local folder=$1 lists=() file wanted
  for file in "${@:2}"; do lists+=(-r "$file"); done
  wanted="$(python3 -c 'import sys; print(sys.executable, sys.version)') $(cat "${@:2}")"
  [ "$folder" = "$home/environment" ] || wanted+=" ${POSENC_HOST_PACKAGES:-}"
  [ "$(cat "$folder/.installed" 2>/dev/null)" != "$wanted" ] || return 0
  rm -rf "$folder"
  [ "$folder" != "$home/environment" ] || rm -rf "$home/build"
  mkdir -p "$folder"
  python3 -m venv "$folder" >"$home/install.log" 2>&1 || {
    cat "$home/install.log" >&2
    stop "The environment of the Python tests cannot be made."
  }
  if [ "$folder" != "$home/environment" ] && [ -n "${POSENC_HOST_PACKAGES:-}" ]; then
    realpath "$POSENC_HOST_PACKAGES" >"$("$folder/bin/python" -c 'import site; print(site.getsitepackages()[0])')/host.pth"
  else
    "$folder/bin/python" -m pip --disable-pip-version-check install -q "${lists[@]}" >"$home/install.log" 2>&1 || {
      tail -n 3 "$home/install.log" >&2
      stop "The packages of ${*:2} cannot be had from PyPI: the reason stands above."
    }
  fi
  printf '%s' "$wanted" >"$folder/.installed"
}

mkdir -p "$home"
environment "$home/environment" python/tests/requirements.txt

rm -rf "$home/wheel"
PATH=$home/environment/bin:$PATH "$python" -m pip --disable-pip-version-check wheel . -q --no-deps --no-build-isolation \
  --config-settings=cmake.source-dir=python --config-settings=build-dir="$home/build" \
  --config-settings=cmake.define.POSENC_BUILD="$built" --config-settings=cmake.define.POSENC_WERROR=ON --wheel-dir "$home/wheel" >"$home/wheel.log" 2>&1 || {
  tail -n 60 "$home/wheel.log" >&2
  say "the wheel cannot be built; the whole log: $home/wheel.log"
  exit 1
}
wheel=$(ls "$home"/wheel/*.whl)
install() { "$1" -m pip --disable-pip-version-check install -q --no-deps --force-reinstall "$wheel" >"$home/install.log" 2>&1; }
tests=("$python" -m pytest -q -p no:cacheprovider)
if [ $host = 0 ]; then
  install "$python"
  POSENC_WHEEL=$wheel "${tests[@]}" --rootdir python/tests python/tests "${hosts[@]/#/--ignore=python/tests/}" "$@"
else
  environment "$home/torch-environment" python/tests/requirements.txt python/tests/requirements-torch.txt
  tests[0]=$home/torch-environment/bin/python
  install "${tests[0]}"
  folders=()
  if [ $newest = 1 ]; then
    hosts=(hf)
    "${tests[0]}" -m pip --disable-pip-version-check install -q --no-deps --upgrade --target "$home/newest" \
      -r python/tests/requirements-newest.txt >"$home/install.log" 2>&1 || {
      tail -n 3 "$home/install.log" >&2
      stop "The newest transformers cannot be had from PyPI: the reason stands above."
    }
    export PYTHONPATH=$home/newest
  fi
  for one in "${hosts[@]}"; do [ ! -d "python/tests/$one" ] || folders+=("python/tests/$one"); done
  # A folder that is named as a package must not be found in its place.
  "${tests[@]}" --import-mode=importlib --rootdir . "${folders[@]}" "$@"
fi
