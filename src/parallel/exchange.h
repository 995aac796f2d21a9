// SPDX-License-Identifier: Apache-2.0
// Transfers of a group: waited for, given to every rank, summed over all.
#pragma once
#include <atomic>
#include <cstring>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "posenc/core/error.h"
#include "posenc/core/executor.h"
#include "posenc/parallel/communicator.h"
#include "posenc/parallel/ring.h"

namespace posenc::inline v0::detail {

inline constexpr std::string_view kRing = "ring";

// Keys go one way round, their gradients behind them; agreements and sums between.
enum class Channel : std::uint8_t { keys, gradients, facts, sums, heads, end = 7 };

// The group as a call sees it, `who` in messages.
class Group {
 public:
  // Throws [who]: a communicator without its calls, a rank outside the group, seconds not positive.
  Group(std::string_view who, const Communicator&, const RingOptions&);

  std::string_view who() const noexcept { return who_; }
  Index rank() const noexcept { return rank_; }
  Index size() const noexcept { return size_; }
  Index next() const noexcept { return (rank_ + 1) % size_; }
  Index previous() const noexcept { return (rank_ + size_ - 1) % size_; }
  double seconds() const noexcept { return options_.seconds; }
  Index agreement() const noexcept { return options_.agreement; }
  const Communicator& communicator() const noexcept { return communicator_; }
  // Ends the group after an error of this rank, so that no other waits for it.
  void end() const noexcept;

 private:
  std::string_view who_;
  Communicator communicator_;
  RingOptions options_;
  Index rank_, size_;
};

// One transfer. Destroyed unfinished, it ends the group.
class Exchange {
 public:
  Exchange(const Group&, Channel, Index to, std::span<const std::byte> sent, Index from,
           std::span<std::byte> received);
  Exchange(Exchange&& other) noexcept
      : group_(other.group_),
        transfer_(std::exchange(other.transfer_, nullptr)),
        to_(other.to_),
        from_(other.from_) {}
  Exchange& operator=(Exchange&&) = delete;
  ~Exchange();

  TransferState test() const noexcept;
  // Throws RankLost.
  void finish();

 private:
  const Group* group_;
  void* transfer_;
  Index to_, from_;
};

// An executor that tests transfers between blocks of queries, on the thread that made it. Where a rank is lost, the
// call that runs is cancelled.
class Watch {
 public:
  explicit Watch(const Executor&);
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;
  void set(std::span<const Exchange* const> transfers);
  const Executor& executor() const noexcept { return watched_; }
  // run(executor); Cancelled by a lost rank becomes what finish of the transfer throws.
  template <class F>
  void run(const F& fn) {
    try {
      fn(executor());
    } catch (const Cancelled&) {
      if (lost_) throw RankLost(kRing, -1, TransferState::lost, 0);
      throw;
    }
  }

 private:
  static bool is_cancelled(void* watch);
  Executor own_, watched_;
  std::thread::id thread_;
  std::vector<const Exchange*> transfers_;
  std::atomic<bool> lost_{false};
};

// Records of equal size of all ranks, in their order.
std::vector<std::byte> gather(const Group&, std::span<const std::byte> own);
template <class T>
std::vector<T> gather(const Group& g, const std::vector<T>& own) {
  const std::vector<std::byte> bytes = gather(g, std::as_bytes(std::span(own)));
  std::vector<T> all(own.size() * static_cast<std::size_t>(g.size()));
  if (!all.empty()) std::memcpy(all.data(), bytes.data(), bytes.size());
  return all;
}
// Sums over all ranks, in their order: the same bits on each.
void sum_over_ranks(const Group&, std::span<double>);

}  // namespace posenc::v0::detail
