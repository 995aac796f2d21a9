// SPDX-License-Identifier: Apache-2.0
// Whether this build runs under AddressSanitizer, which maps terabytes and takes many times as
// long: tests that read ten thousands of inputs read some of them, tests that limit memory do not.
#pragma once

namespace posenc::test {

#ifdef __SANITIZE_ADDRESS__  // gcc says it so, clang by __has_feature
inline constexpr bool kSanitized = true;
#elif defined(__has_feature)
inline constexpr bool kSanitized = __has_feature(address_sanitizer);
#else
inline constexpr bool kSanitized = false;
#endif

// Whether it runs on a machine that is emulated (tests/arm.sh), which takes 30 times as long, and more where numbers are
// long doubles: tests that go through hundreds of combinations go through some of them.
#ifdef POSENC_EMULATED
inline constexpr bool kEmulated = true;
#else
inline constexpr bool kEmulated = false;
#endif

}  // namespace posenc::test
