// SPDX-License-Identifier: Apache-2.0
#include "core/access_pattern.h"

#include <atomic>
#include <cstdlib>
#include <string_view>

#include "posenc/core/error.h"

namespace posenc::inline v0::detail {
namespace {

constexpr int kUndecided = -1;
std::atomic<int> active{kUndecided};

AccessPattern of_this_machine() {
  if (const char* text = std::getenv("POSENC_ACCESS_PATTERN"); text != nullptr && *text != '\0') {
    if (std::string_view(text) == "sequential") return AccessPattern::sequential;
    if (std::string_view(text) == "interleave_pages") return AccessPattern::interleave_pages;
    refuse("POSENC_ACCESS_PATTERN", "must be sequential or interleave_pages", text);
  }
#if defined(__x86_64__) || defined(__i386__)
  __builtin_cpu_init();
  if (__builtin_cpu_is("intel")) return AccessPattern::interleave_pages;
#endif
  return AccessPattern::sequential;
}

}  // namespace

AccessPattern access_pattern() {
  const int now = active.load(std::memory_order_relaxed);
  if (now != kUndecided) return static_cast<AccessPattern>(now);
  const AccessPattern pattern = of_this_machine();
  int expected = kUndecided;  // a force_access_pattern meanwhile wins
  active.compare_exchange_strong(expected, static_cast<int>(pattern), std::memory_order_relaxed);
  return expected == kUndecided ? pattern : static_cast<AccessPattern>(expected);
}

void force_access_pattern(AccessPattern pattern) noexcept {
  active.store(static_cast<int>(pattern), std::memory_order_relaxed);
}

void reset_access_pattern() noexcept {
  active.store(kUndecided, std::memory_order_relaxed);
}

}  // namespace posenc::v0::detail
