# SPDX-License-Identifier: Apache-2.0
# Shared by ./run and ./test: Debian packages, the build folder, times. Sourced, not run.

say() { printf '%s\n' "$*" >&2; }

# missing_of PACKAGE...: prints those that are not installed.
missing_of() {
  local p
  for p in "$@"; do
    [ "$(dpkg-query -W -f='${db:Status-Status}' "$p" 2>/dev/null)" = installed ] || printf '%s\n' "$p"
  done
}

# need PACKAGE...: installs what is missing as root or with sudo; otherwise prints the line and stops.
need() {
  local missing=()
  mapfile -t missing < <(missing_of "$@")
  [ ${#missing[@]} -eq 0 ] && return 0
  if ! command -v apt-get >/dev/null; then
    say "posenc builds from Debian 12's packages and this system has no apt-get."
    say "It needs what Debian calls: ${missing[*]}"
    exit 4
  fi
  local as=()
  if [ "$(id -u)" -ne 0 ]; then
    if command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
      as=(sudo)
    else
      say "These packages are missing. Install them and start again:"
      say "  sudo apt-get install -y --no-install-recommends ${missing[*]}"
      exit 4
    fi
  fi
  say "installing: ${missing[*]}"
  "${as[@]}" env DEBIAN_FRONTEND=noninteractive apt-get update -qq >&2
  "${as[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
    "${missing[@]}" >/dev/null
}

BUILD_PACKAGES=(g++ cmake ninja-build pkg-config libhwy-dev nlohmann-json3-dev libcli11-dev libfmt-dev)
TEST_PACKAGES=(libgtest-dev libgmock-dev libbenchmark-dev libmpfr-dev libgmp-dev python3 python3-dev python3-venv git
               libopenmpi-dev openmpi-bin)
CLANG_PACKAGES=(clang-14 clang-tidy-14 clang-format-14 libclang-rt-14-dev)
# Libraries that tests/arm.sh unpacks for arm64.
ARM_PACKAGES=(libhwy-dev libhwy1 libfmt-dev libfmt9 nlohmann-json3-dev libgtest-dev libgmock-dev
              libmpfr-dev libmpfr6 libgmp-dev libgmp10 libgmpxx4ldbl)

# One Release build serves both commands. ./run needs no package of the tests: where they are missing it leaves
# tests and benchmarks out until ./test has installed them.
RELEASE=(-DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_COMPILER=g++ -DPOSENC_TESTS=ON -DPOSENC_BENCH=ON)
RELEASE_WITHOUT_TESTS=("${RELEASE[@]/=ON/=OFF}")

# What the programs of ./run are made of, folders too: a file that comes or goes changes its folder.
PROGRAM_SOURCES=(CMakeLists.txt cmake src include cli conformance bench examples)

# is_built PROGRAM: nothing of its sources was touched since built() marked it. One look at the files in place of
# asking for packages and of ninja, which starts cmake to list the folders again.
is_built() {
  [ -x "$1" ] && [ -f "$1.built" ] && [ -z "$(find "${PROGRAM_SOURCES[@]}" -cnewer "$1.built" -print -quit)" ]
}

# begin_build and built PROGRAM: what is edited while it is being built counts as newer.
begin_build() {
  mkdir -p build
  : >build/.begun
}
built() { mv build/.begun "$1.built"; }

# configure FOLDER ARGUMENT...: once; again when the arguments change.
configure() {
  local folder=$1 stamp=$1/.arguments
  shift
  if [ ! -f "$folder/build.ninja" ] || [ "$(cat "$stamp" 2>/dev/null)" != "$*" ]; then
    mkdir -p "$folder"
    cmake -S . -B "$folder" -G Ninja "$@" >"$folder/configure.log" 2>&1 || {
      cat "$folder/configure.log" >&2
      exit 1
    }
    printf '%s' "$*" >"$stamp"
  fi
}

# build FOLDER [TARGET...]: quiet unless it fails.
build() {
  local folder=$1
  shift
  ninja -C "$folder" "$@" >"$folder/build.log" 2>&1 || {
    grep -vE '^\[[0-9]+/[0-9]+\]' "$folder/build.log" | tail -n 60 >&2
    say "build failed; the whole log: $folder/build.log"
    exit 1
  }
}
