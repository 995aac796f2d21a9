# SPDX-License-Identifier: Apache-2.0
# Environments of Python and the wheel, for python/test.sh and ./lab. Sourced in the root after cmake/setup.sh; `built` is
# the build folder, `home` its folder for Python.

stop() {
  say "$1"
  exit 4
}

# environment FOLDER PACKAGES LIST...: an environment with the packages of the lists, made again when the interpreter changes and
# completed when a list does; or, where PACKAGES is a site-packages folder, with those of that folder and no other.
environment() {
  local folder=$1 packages=$2 lists=() file interpreter wanted
  shift 2
  for file; do lists+=(-r "$file"); done
  interpreter="$(python3 -c 'import sys; print(sys.executable, sys.version)') $packages"
  wanted="$interpreter $(cat "$@")"
  [ "$(cat "$folder/.installed" 2>/dev/null)" != "$wanted" ] || return 0
  if [ "$(cat "$folder/.interpreter" 2>/dev/null)" != "$interpreter" ]; then
    rm -rf "$folder"
    mkdir -p "$folder"
    python3 -m venv "$folder" >"$home/install.log" 2>&1 || {
      cat "$home/install.log" >&2
      stop "The environment of Python in $folder cannot be made."
    }
    printf '%s' "$interpreter" >"$folder/.interpreter"
  fi
  if [ -n "$packages" ]; then
    realpath "$packages" >"$("$folder/bin/python" -c 'import site; print(site.getsitepackages()[0])')/host.pth"
  else
    # Progress on a terminal; the log has all of it.
    "$folder/bin/python" -m pip --disable-pip-version-check install "${lists[@]}" 2> >(tee "$home/install.log" >&2) |
      { if [ -t 2 ]; then cat >&2; else cat >>"$home/install.log"; fi; } || {
      stop "The packages of $* cannot be had from PyPI: the reason stands above."
    }
  fi
  printf '%s' "$wanted" >"$folder/.installed"
}

# wheel ENVIRONMENT: makes the wheel of the libraries in the build folder, by the packages of an environment, and prints its path.
wheel() {
  rm -rf "$home/wheel"
  PATH=$1/bin:$PATH "$1/bin/python" -m pip --disable-pip-version-check wheel . -q --no-deps --no-build-isolation \
    --config-settings=cmake.source-dir=python --config-settings=build-dir="$home/build" \
    --config-settings=cmake.define.POSENC_BUILD="$built" --config-settings=cmake.define.POSENC_WERROR=ON --wheel-dir "$home/wheel" >"$home/wheel.log" 2>&1 || {
    tail -n 60 "$home/wheel.log" >&2
    say "the wheel cannot be built; the whole log: $home/wheel.log"
    exit 1
  }
  ls "$home"/wheel/*.whl
}

# install_wheel ENVIRONMENT WHEEL
install_wheel() { "$1/bin/python" -m pip --disable-pip-version-check install -q --no-deps --force-reinstall "$2" >"$home/install.log" 2>&1; }
