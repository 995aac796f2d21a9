// SPDX-License-Identifier: Apache-2.0
// What attention over several processes needs of them: five calls, callable from C. Engines: threads
// (parallel/threads.h), MPI (parallel/mpi.h), a program's own.
#pragma once
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string_view>

#include "posenc/core/dtype.h"
#include "posenc/core/export.h"

namespace posenc::inline v0 {

// Bytes to one rank and bytes from one rank, which may be the same. Transfers of a channel between two
// ranks arrive in the order in which they were started. Both sides state the same number of bytes.
struct Transfer {
  Index to = 0;
  const void* sent = nullptr;
  std::size_t sent_bytes = 0;
  Index from = 0;
  void* received = nullptr;
  std::size_t received_bytes = 0;
  Index channel = 0;  // 0 .. 7
};

// late: the other rank did not answer in time. lost: the other rank, or the whole group, has ended.
enum class TransferState : std::uint8_t { under_way, done, late, lost };

// One rank of a group, numbered from 0. One thread at a time calls it, the one that computes; none of the
// calls throws.
struct Communicator {
  void* context = nullptr;
  Index (*rank)(void* context) = nullptr;
  Index (*size)(void* context) = nullptr;
  // Begins a transfer, whose memory stays valid until it is finished. Null: lost.
  void* (*start)(void* context, const Transfer&) = nullptr;
  // Moves it on without waiting; called between blocks of queries. Again after it is done: done.
  TransferState (*test)(void* context, void* transfer) = nullptr;
  // Waits for at most so many seconds, then releases the transfer. Unless it is done, the group has ended:
  // memory is no longer touched, and every transfer of every rank ends as lost.
  TransferState (*finish)(void* context, void* transfer, double seconds) = nullptr;
};

// A rank that ended, or did not answer in time: "[ring] rank 2 did not answer within 60 s". The outputs of
// the call are then undefined.
class POSENC_API RankLost : public std::runtime_error {
 public:
  RankLost(std::string_view who, Index rank, TransferState, double seconds);
  Index rank() const noexcept { return rank_; }
  TransferState state() const noexcept { return state_; }

 private:
  Index rank_;
  TransferState state_;
};

}  // namespace posenc::v0
