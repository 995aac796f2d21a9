# SPDX-License-Identifier: Apache-2.0
# Compile flags of single kernel files (native entries of the kernel table).
# What they include is inlined or a template over a type of their own: the linker must never take
# a function compiled with these flags for one compiled without.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64|amd64")
  include(CheckCXXCompilerFlag)
  check_cxx_compiler_flag(-mavx512bf16 POSENC_HAS_AVX512_BF16)
  if(POSENC_HAS_AVX512_BF16)
    set_source_files_properties(${CMAKE_CURRENT_SOURCE_DIR}/kernels/rotate_bf16_avx512.cpp
      ${CMAKE_CURRENT_SOURCE_DIR}/kernels/compose_bf16_avx512.cpp PROPERTIES
      COMPILE_OPTIONS "-mssse3;-msse4.2;-mpclmul;-maes;-mavx2;-mfma;-mbmi;-mbmi2;-mf16c;-mavx512f;-mavx512bw;-mavx512dq;-mavx512vl;-mavx512cd;-mavx512bf16")
  endif()
endif()
