// SPDX-License-Identifier: Apache-2.0
#include "core/memory_way.h"

#include <atomic>
#include <cstdlib>
#include <string_view>

#include "posenc/core/error.h"

namespace posenc::detail {
namespace {

constexpr int kUndecided = -1;
std::atomic<int> active{kUndecided};

MemoryWay of_this_machine() {
  if (const char* text = std::getenv("POSENC_MEMORY_WAY"); text != nullptr && *text != '\0') {
    if (std::string_view(text) == "as_it_lies") return MemoryWay::as_it_lies;
    if (std::string_view(text) == "several_pages") return MemoryWay::several_pages;
    refuse("POSENC_MEMORY_WAY", "must be as_it_lies or several_pages", text);
  }
#if defined(__x86_64__) || defined(__i386__)
  __builtin_cpu_init();
  if (__builtin_cpu_is("intel")) return MemoryWay::several_pages;
#endif
  return MemoryWay::as_it_lies;
}

}  // namespace

MemoryWay memory_way() {
  const int now = active.load(std::memory_order_relaxed);
  if (now != kUndecided) return static_cast<MemoryWay>(now);
  const MemoryWay way = of_this_machine();
  int expected = kUndecided;  // a force_memory_way meanwhile wins
  active.compare_exchange_strong(expected, static_cast<int>(way), std::memory_order_relaxed);
  return expected == kUndecided ? way : static_cast<MemoryWay>(expected);
}

void force_memory_way(MemoryWay way) noexcept {
  active.store(static_cast<int>(way), std::memory_order_relaxed);
}

void reset_memory_way() noexcept {
  active.store(kUndecided, std::memory_order_relaxed);
}

}  // namespace posenc::detail
