// SPDX-License-Identifier: Apache-2.0
// Ranks that are threads of one process.
#pragma once
#include <memory>

#include "posenc/parallel/communicator.h"

namespace posenc::inline v0 {

namespace detail {
struct ThreadGroupState;
}  // namespace detail

// The group must outlive all calls with its communicators.
class POSENC_API ThreadGroup {
 public:
  // Throws [thread_group]: ranks outside 1 to 65536.
  explicit ThreadGroup(Index ranks);
  ~ThreadGroup();
  ThreadGroup(const ThreadGroup&) = delete;
  ThreadGroup& operator=(const ThreadGroup&) = delete;

  // Throws [thread_group]: a rank outside the group.
  Communicator communicator(Index rank) const;
  // Ends the group: transfers under way and all later ones are lost. For a thread that leaves it early.
  void end() noexcept;

 private:
  std::unique_ptr<detail::ThreadGroupState> state_;
};

}  // namespace posenc::v0
