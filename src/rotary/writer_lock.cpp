// SPDX-License-Identifier: Apache-2.0
#include "rotary/writer_lock.h"

#include <pthread.h>

namespace posenc::inline v0::detail {
namespace {

std::atomic<int> forks{0};

// When the library is loaded, not when the first table is made: that could be during a fork.
[[maybe_unused]] const int registered =
    pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1, std::memory_order_relaxed); });

}  // namespace

bool WriterLock::lock() noexcept {
  const int mine = forks.load(std::memory_order_relaxed) + 1;
  for (;;) {
    int held = 0;
    if (holder_.compare_exchange_strong(held, mine, std::memory_order_acquire)) return false;
    if (held == mine)
      holder_.wait(held, std::memory_order_relaxed);
    else if (held != 0 && holder_.compare_exchange_strong(held, mine, std::memory_order_acquire))
      return true;
  }
}

void WriterLock::unlock() noexcept {
  holder_.store(0, std::memory_order_release);
  holder_.notify_one();
}

}  // namespace posenc::v0::detail
