# SPDX-License-Identifier: Apache-2.0
# Kernel files that the build makes of two templates (docs/kernels.md), and the compile flags of kernels.
set(POSENC_MADE_KERNELS "")

# posenc_kernel_file(<template> <family> <name>): kernels/<family>_<name>.cpp, from kernels/<family>.h and
# kernels/<family>-inl.h, which hold <Family>Kernels and k<Family>Kernels<Element>. The template takes its elements
# from variables: wide, Wide, narrow, Narrow or Element.
function(posenc_kernel_file template family name)
  string(SUBSTRING ${family} 0 1 first)
  string(SUBSTRING ${family} 1 -1 rest)
  string(TOUPPER ${first} first)
  set(Kernels ${first}${rest}Kernels)
  set(file ${CMAKE_CURRENT_BINARY_DIR}/kernels/${family}_${name}.cpp)
  configure_file(${CMAKE_CURRENT_SOURCE_DIR}/kernels/${template} ${file} @ONLY)
  set(POSENC_MADE_KERNELS ${POSENC_MADE_KERNELS} ${file} PARENT_SCOPE)
endfunction()

# What AVX512_BF16 adds to avx512: the macro that the compiler then defines, the target that Highway takes, the flags.
set(avx512_bf16_macro __AVX512BF16__)
set(avx512_bf16_target "HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL")
set(avx512_bf16_flags "")
set(amx_bf16_flags "")
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64|amd64")
  include(CheckCXXCompilerFlag)
  check_cxx_compiler_flag(-mavx512bf16 POSENC_HAS_AVX512_BF16)
  if(POSENC_HAS_AVX512_BF16)
    set(avx512_bf16_flags -mssse3 -msse4.2 -mpclmul -maes -mavx2 -mfma -mbmi -mbmi2 -mf16c -mavx512f -mavx512bw
        -mavx512dq -mavx512vl -mavx512cd -mavx512bf16)
  endif()
  check_cxx_compiler_flag("-mamx-tile -mamx-bf16" POSENC_HAS_AMX_BF16)
  if(POSENC_HAS_AVX512_BF16 AND POSENC_HAS_AMX_BF16)
    set(amx_bf16_flags ${avx512_bf16_flags} -mamx-tile -mamx-bf16)
  endif()
endif()

foreach(family rotate compose)
  # Two types a file: Highway is parsed half as often.
  foreach(types "f64 double f32 float" "f16 Float16 bf16 BFloat16")
    string(REPLACE " " ";" types ${types})
    list(POP_FRONT types wide Wide narrow Narrow)
    posenc_kernel_file(vectors.cpp.in ${family} ${wide}_${narrow})
  endforeach()
  # What a native entry includes is inlined or a template over an element type of its own: the linker must never take
  # a function compiled with these flags for one compiled without. A compiler without them makes a null entry.
  foreach(native avx512_bf16)
    set(macro ${${native}_macro})
    set(target ${${native}_target})
    set(Element NativeBFloat16)
    posenc_kernel_file(native.cpp.in ${family} ${native})
    set_source_files_properties(${CMAKE_CURRENT_BINARY_DIR}/kernels/${family}_${native}.cpp PROPERTIES
                                COMPILE_OPTIONS "${${native}_flags}")
  endforeach()
endforeach()
foreach(native avx512_bf16 amx_bf16)
  set_source_files_properties(${CMAKE_CURRENT_SOURCE_DIR}/kernels/attention/fast_words_${native}.cpp PROPERTIES
                              COMPILE_OPTIONS "${${native}_flags}")
endforeach()
target_sources(posenc_core PRIVATE ${POSENC_MADE_KERNELS})
target_include_directories(posenc_core PRIVATE ${CMAKE_CURRENT_BINARY_DIR})  # Highway includes each once a target

# Every file of this folder and of those below it is compiled by itself, once for every instruction set.
file(GLOB_RECURSE kernels CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/kernels/*.cpp)
list(APPEND kernels ${POSENC_MADE_KERNELS})
set_property(SOURCE ${kernels} PROPERTY SKIP_UNITY_BUILD_INCLUSION ON)
# Loops over whole tables outside of kernels, optimized alike.
file(GLOB loops CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/relative/layers/*.cpp ${CMAKE_CURRENT_SOURCE_DIR}/laws/*.cpp)
set_property(SOURCE ${kernels} ${loops} APPEND PROPERTY COMPILE_OPTIONS $<$<CONFIG:Release>:-O3>)
# Rotation, and composition of 16 bits, are as fast at -O2 (lines of `posenc bench`), and built in two thirds of the
# time. gcc unrolls short loops over vectors there only where it is told to: vectors in memory take four times as long.
set(quick ${POSENC_MADE_KERNELS})
list(FILTER quick EXCLUDE REGEX "/compose_f64_f32\\.cpp$")
set_property(SOURCE ${quick} APPEND PROPERTY COMPILE_OPTIONS
             $<$<CONFIG:Release>:-O2> $<$<AND:$<CONFIG:Release>,$<CXX_COMPILER_ID:GNU>>:-fpeel-loops>)
# Vectors without optimization live in memory: debug builds optimize kernels and loops a little.
set_property(SOURCE ${kernels} ${loops} APPEND PROPERTY COMPILE_OPTIONS $<$<CONFIG:Debug>:-O1>)
# In the tree of a project that states no build type and no -O they get theirs all the same.
if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES AND NOT " ${CMAKE_CXX_FLAGS}" MATCHES " -O")
  set_property(SOURCE ${kernels} ${loops} APPEND PROPERTY COMPILE_OPTIONS -O2)
endif()
if(POSENC_SANITIZED)
  # Calls in place of inline checks, and no check of pointer arithmetic: 9 s a kernel file, not 27.
  # Whatever is read or written beyond an object is seen all the same.
  set_property(SOURCE ${kernels} ${loops} APPEND PROPERTY COMPILE_OPTIONS
               -mllvm -asan-instrumentation-with-call-threshold=0 -fno-sanitize=pointer-overflow)
endif()
