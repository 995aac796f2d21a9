# SPDX-License-Identifier: Apache-2.0
# Toolchain of tests/arm.sh: Debian's cross compiler, libraries for arm64 unpacked in POSENC_ARM_ROOT.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES POSENC_ARM_ROOT)
set(CMAKE_FIND_ROOT_PATH ${POSENC_ARM_ROOT})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(CMAKE_CXX_STANDARD_INCLUDE_DIRECTORIES ${POSENC_ARM_ROOT}/usr/include
    ${POSENC_ARM_ROOT}/usr/include/aarch64-linux-gnu)
set(CMAKE_EXE_LINKER_FLAGS_INIT "-L${POSENC_ARM_ROOT}/usr/lib/aarch64-linux-gnu \
-Wl,-rpath-link,${POSENC_ARM_ROOT}/usr/lib/aarch64-linux-gnu")
