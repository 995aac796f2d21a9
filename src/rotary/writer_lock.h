// SPDX-License-Identifier: Apache-2.0
// The lock of those who change a table. A child of fork has only the thread that forked: a lock that another thread
// held there would stay closed for ever. This one knows that its holder is of another process.
#pragma once
#include <atomic>

namespace posenc::inline v0::detail {

class WriterLock {
 public:
  // True where a thread held it that the fork left behind: what it was changing is half done.
  bool lock() noexcept;
  void unlock() noexcept;

 private:
  // 0: nobody; else the number of forks that lead to the holder's process, plus 1.
  std::atomic<int> holder_{0};
};

}  // namespace posenc::v0::detail
