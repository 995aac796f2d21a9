#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# python/test.sh BUILD [pytest's words]: makes the wheel from the libraries of a build folder, installs it into an
# environment of its own in BUILD/python, and runs python/tests there. The folder is kept: the second time only what
# changed is made.
# python/test.sh BUILD --host [pytest's words]: the same wheel in a second environment, BUILD/lab, which is ./lab's too,
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
hosts=(torch hf jax onnx) # folders of python/tests that need another package
. python/environment.sh
trap '[ $? -ne 4 ] || say "POSENC_PYTHON=OFF ./test leaves the Python package out."' EXIT

mkdir -p "$home"
environment "$home/environment" "" python/tests/requirements.txt
wheel=$(wheel "$home/environment")
tests=("$home/environment/bin/python" -m pytest -q -p no:cacheprovider)
if [ $host = 0 ]; then
  install_wheel "$home/environment" "$wheel"
  POSENC_WHEEL=$wheel "${tests[@]}" --rootdir python/tests python/tests "${hosts[@]/#/--ignore=python/tests/}" "$@"
else
  environment "$built/lab" "${POSENC_HOST_PACKAGES:-}" python/tests/requirements.txt python/tests/requirements-torch.txt
  tests[0]=$built/lab/bin/python
  install_wheel "$built/lab" "$wheel"
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
