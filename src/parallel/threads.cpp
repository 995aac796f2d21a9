// SPDX-License-Identifier: Apache-2.0
// Ranks that are threads. A receiver copies from the memory of the sender, whose transfer is not done before.
#include "posenc/parallel/threads.h"

#include <chrono>
#include <condition_variable>
#include <cstring>
#include <list>
#include <mutex>
#include <utility>
#include <vector>

#include "posenc/core/error.h"

namespace posenc::inline v0 {
namespace detail {

struct ThreadGroupState {
  struct Rank {
    ThreadGroupState* group = nullptr;
    Index rank = 0;
  };
  // What a rank sends, until the receiver has it.
  struct Sent {
    Index from, to, channel;
    const void* data;
    std::size_t bytes;
    bool* taken;  // of the sender's transfer
    bool copying = false;
  };
  struct UnderWay {
    Transfer transfer;
    bool sent, received;
  };

  explicit ThreadGroupState(Index ranks) {
    for (Index r = 0; r < ranks; ++r) all.push_back({this, r});
  }

  std::mutex mutex;
  std::condition_variable moved;
  std::list<Sent> sent;
  std::list<std::pair<Index, const UnderWay*>>
      waiting;  // by rank, in the order in which they were started
  std::vector<Rank> all;
  bool ended = false;

  TransferState state(const UnderWay& w) const {
    if (w.sent && w.received) return TransferState::done;
    return ended ? TransferState::lost : TransferState::under_way;
  }

  void post(Rank& self, UnderWay& w) {
    const std::scoped_lock lock(mutex);
    const Transfer& t = w.transfer;
    if (!w.sent) sent.push_back({self.rank, t.to, t.channel, t.sent, t.sent_bytes, &w.sent});
    if (!w.received) waiting.emplace_back(self.rank, &w);
    moved.notify_all();
  }

  // Whether an earlier transfer of the channel has still to receive.
  bool is_behind(const Rank& self, const UnderWay& w) const {
    for (const auto& [rank, other] : waiting)
      if (rank == self.rank && other->transfer.from == w.transfer.from &&
          other->transfer.channel == w.transfer.channel)
        return other != &w;
    return false;
  }

  // Copies what has been sent to this transfer. The lock is released meanwhile.
  void receive(const Rank& self, UnderWay& w, std::unique_lock<std::mutex>& lock) {
    if (w.received || ended || is_behind(self, w)) return;
    for (auto s = sent.begin(); s != sent.end(); ++s) {
      if (s->from != w.transfer.from || s->to != self.rank || s->channel != w.transfer.channel)
        continue;
      if (s->bytes != w.transfer.received_bytes) {  // the ranks disagree
        ended = true;
        moved.notify_all();
        return;
      }
      s->copying = true;
      lock.unlock();
      std::memcpy(w.transfer.received, s->data, s->bytes);
      lock.lock();
      *s->taken = true;
      sent.erase(s);
      w.received = true;
      waiting.remove({self.rank, &w});
      moved.notify_all();
      return;
    }
  }

  // What the transfer has sent is forgotten, once nobody copies it.
  void withdraw(const Rank& self, const UnderWay& w, std::unique_lock<std::mutex>& lock) {
    waiting.remove({self.rank, &w});
    const auto mine = [&] {
      for (auto s = sent.begin(); s != sent.end(); ++s)
        if (s->taken == &w.sent) return s;
      return sent.end();
    };
    moved.wait(lock, [&] {
      const auto s = mine();
      return s == sent.end() || !s->copying;
    });
    if (const auto s = mine(); s != sent.end()) sent.erase(s);
  }
};

namespace {

using ThreadRank = ThreadGroupState::Rank;
using ThreadTransfer = ThreadGroupState::UnderWay;

Index thread_rank(void* context) {
  return static_cast<ThreadRank*>(context)->rank;
}

Index thread_ranks(void* context) {
  return static_cast<Index>(static_cast<ThreadRank*>(context)->group->all.size());
}

void* thread_start(void* context, const Transfer& t) {
  ThreadRank& self = *static_cast<ThreadRank*>(context);
  try {
    auto w = std::make_unique<ThreadTransfer>(
        ThreadTransfer{t, t.sent_bytes == 0, t.received_bytes == 0});
    self.group->post(self, *w);
    return w.release();
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

TransferState thread_test(void* context, void* transfer) {
  ThreadRank& self = *static_cast<ThreadRank*>(context);
  ThreadTransfer& w = *static_cast<ThreadTransfer*>(transfer);
  std::unique_lock lock(self.group->mutex);
  self.group->receive(self, w, lock);
  return self.group->state(w);
}

TransferState thread_finish(void* context, void* transfer, double seconds) {
  ThreadRank& self = *static_cast<ThreadRank*>(context);
  ThreadGroupState& group = *self.group;
  const std::unique_ptr<ThreadTransfer> w(static_cast<ThreadTransfer*>(transfer));
  const auto end = std::chrono::steady_clock::now() +
                   std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                       std::chrono::duration<double>(std::min(seconds, 1e9)));
  std::unique_lock lock(group.mutex);
  TransferState s = TransferState::under_way;
  for (;;) {
    group.receive(self, *w, lock);
    s = group.state(*w);
    if (s != TransferState::under_way) break;
    if (group.moved.wait_until(lock, end) == std::cv_status::timeout) {
      group.receive(self, *w, lock);
      s = group.state(*w);
      if (s == TransferState::under_way) s = TransferState::late;
      break;
    }
  }
  if (s != TransferState::done) {
    group.ended = true;
    group.moved.notify_all();
    group.withdraw(self, *w, lock);
  }
  return s;
}

}  // namespace
}  // namespace detail

ThreadGroup::ThreadGroup(Index ranks) {
  if (ranks < 1 || ranks > 65536)
    refuse_field("thread_group", "ranks", "must lie between 1 and 65536", ranks);
  state_ = std::make_unique<detail::ThreadGroupState>(ranks);
}

ThreadGroup::~ThreadGroup() = default;

Communicator ThreadGroup::communicator(Index rank) const {
  const auto ranks = static_cast<Index>(state_->all.size());
  if (rank < 0 || rank >= ranks)
    refuse_field("thread_group", "rank", "must be below the ranks, " + std::to_string(ranks), rank);
  return {&state_->all[static_cast<std::size_t>(rank)],
          detail::thread_rank,
          detail::thread_ranks,
          detail::thread_start,
          detail::thread_test,
          detail::thread_finish};
}

void ThreadGroup::end() noexcept {
  const std::scoped_lock lock(state_->mutex);
  state_->ended = true;
  state_->moved.notify_all();
}

}  // namespace posenc::v0
