// SPDX-License-Identifier: Apache-2.0
// Included once for every instruction set, after Highway. Processors without AVX2 get code that is correct, tested
// and quick to build: gcc compiles what stands between HWY_BEFORE_NAMESPACE and HWY_AFTER_NAMESPACE at -O1 there.
// The others keep the flags of their file. Highway defines both macros anew for every target.
#if HWY_ARCH_X86 && HWY_TARGET > HWY_AVX2 && HWY_COMPILER_GCC && !HWY_COMPILER_CLANG && \
    defined(__OPTIMIZE__)
#undef HWY_BEFORE_NAMESPACE
#undef HWY_AFTER_NAMESPACE
#ifdef HWY_TARGET_STR
#define HWY_BEFORE_NAMESPACE() \
  HWY_PUSH_ATTRIBUTES(HWY_TARGET_STR) HWY_PRAGMA(GCC optimize "O1") static_assert(true, "")
#else
#define HWY_BEFORE_NAMESPACE() \
  HWY_PRAGMA(GCC push_options) HWY_PRAGMA(GCC optimize "O1") static_assert(true, "")
#endif
#define HWY_AFTER_NAMESPACE() HWY_POP_ATTRIBUTES static_assert(true, "")
#endif
