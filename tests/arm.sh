#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tests/arm.sh: the tests of kernels cross-built for 64-bit Arm (NEON, SVE, SVE2, one lane) and run under qemu.
# Where the cross compiler or qemu is missing, one line says so and the rest is left out. Libraries for Arm
# are Debian's packages, unpacked into build-arm/root; nothing is installed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. cmake/setup.sh

missing=()
command -v aarch64-linux-gnu-g++ >/dev/null || missing+=(g++-aarch64-linux-gnu)
command -v qemu-aarch64 >/dev/null || command -v qemu-aarch64-static >/dev/null || missing+=(qemu-user)
if [ ${#missing[@]} -gt 0 ]; then
  say "Arm: left out, this machine has no ${missing[*]} (apt-get install --no-install-recommends ${missing[*]})"
  exit 0
fi

work=$PWD/build-arm
root=$work/root
if [ ! -e "$root/.complete" ]; then
  mkdir -p "$work/lists/partial" "$work/archives" "$root"
  arm=(-o APT::Architecture=arm64 -o APT::Architectures=arm64 -o Dir::State::Lists="$work/lists"
       -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache= -o Debug::NoLocking=1)
  if ! { apt-get "${arm[@]}" update -qq &&
         (cd "$work/archives" && apt-get "${arm[@]}" download -qq "${ARM_PACKAGES[@]}"); } >"$work/packages.log" 2>&1; then
    say "Arm: left out, Debian's arm64 packages cannot be fetched (build-arm/packages.log)"
    exit 0
  fi
  for package in "$work"/archives/*.deb; do dpkg-deb -x "$package" "$root"; done
  touch "$root/.complete"
fi

# gcc 12 breaks off where arm_sve.h follows a precompiled header.
configure build-arm/build -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON -DPOSENC_UNITY=ON \
  -DCMAKE_TOOLCHAIN_FILE="$PWD/cmake/arm64_under_qemu.cmake" -DPOSENC_ARM_ROOT="$root" \
  -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_FLAGS_DEBUG=-O0 -DPOSENC_CUDA=OFF -DPOSENC_MPI=OFF -DPOSENC_CLI=OFF -DPOSENC_BENCH=OFF \
  -DPOSENC_EXAMPLES=OFF -DPOSENC_INSTALL=OFF "-DPOSENC_DISABLED_TARGETS=HWY_SVE_256|HWY_SVE2_128"
build build-arm/build test_kernels test_absolute
qemu=$(command -v qemu-aarch64 || command -v qemu-aarch64-static)
# A vector of SVE is as long as the machine wants: 256 bits here, no multiple of a NEON register only.
# The tests of a program are dealt to as many processes as there are cores.
under_qemu() {
  local cores shard shards=()
  cores=$(nproc)
  for ((shard = 0; shard < cores; ++shard)); do
    "$qemu" -cpu max,sve-default-vector-length=32 -L /usr/aarch64-linux-gnu \
      -E LD_LIBRARY_PATH="$root/usr/lib/aarch64-linux-gnu" -E GTEST_TOTAL_SHARDS="$cores" \
      -E GTEST_SHARD_INDEX="$shard" "build-arm/build/tests/$1" --gtest_brief=1 "${@:2}" &
    shards+=($!)
  done
  for shard in "${shards[@]}"; do wait "$shard"; done
}
under_qemu kernels/test_kernels
under_qemu test_absolute --gtest_filter='InputPlan.Phases*:InputPlan.EveryComposition*:InputPlan.Rows*:InputPlan.Sines*:Embed.*'
