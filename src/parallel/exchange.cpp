// SPDX-License-Identifier: Apache-2.0
#include "parallel/exchange.h"

#include <algorithm>
#include <string>

#include "posenc/core/error.h"

namespace posenc::inline v0 {

namespace {

std::string lost_text(std::string_view who, Index rank, TransferState state, double seconds) {
  std::string s = "[";
  s.append(who).append("] ").append(rank < 0 ? "a rank" : "rank " + std::to_string(rank));
  return state == TransferState::late ? s + " did not answer within " + number_text(seconds) + " s"
                                      : s + " has ended the group";
}

}  // namespace

RankLost::RankLost(std::string_view who, Index rank, TransferState state, double seconds)
    : std::runtime_error(lost_text(who, rank, state, seconds)), rank_(rank), state_(state) {}

namespace detail {

Group::Group(std::string_view who, const Communicator& c, const RingOptions& o)
    : who_(who), communicator_(c), options_(o) {
  if (c.rank == nullptr || c.size == nullptr || c.start == nullptr || c.test == nullptr ||
      c.finish == nullptr)
    refuse_field(who, "communicator", "must have all five calls");
  if (!(o.seconds > 0)) refuse_field(who, "seconds", "must be positive", o.seconds);
  rank_ = c.rank(c.context);
  size_ = c.size(c.context);
  if (rank_ < 0 || rank_ >= size_)
    refuse_field(who, "communicator", "must have a rank below its size, " + std::to_string(size_),
                 rank_);
}

void Group::end() const noexcept {
  if (size_ == 1) return;
  std::byte never_received{};  // nobody sends on this channel
  const Transfer t{.from = previous(),
                   .received = &never_received,
                   .received_bytes = 1,
                   .channel = static_cast<Index>(Channel::end)};
  if (void* const never = communicator_.start(communicator_.context, t))
    communicator_.finish(communicator_.context, never, 0);
}

Exchange::Exchange(const Group& g, Channel channel, Index to, std::span<const std::byte> sent,
                   Index from, std::span<std::byte> received)
    : group_(&g), to_(to), from_(from) {
  const Transfer t{to,
                   sent.data(),
                   sent.size(),
                   from,
                   received.data(),
                   received.size(),
                   static_cast<Index>(channel)};
  const Communicator& c = g.communicator();
  transfer_ = c.start(c.context, t);
  if (transfer_ == nullptr) throw RankLost(g.who(), -1, TransferState::lost, 0);
}

Exchange::~Exchange() {
  const Communicator& c = group_->communicator();
  if (transfer_ != nullptr) c.finish(c.context, transfer_, 0);
}

TransferState Exchange::test() const noexcept {
  const Communicator& c = group_->communicator();
  return c.test(c.context, transfer_);
}

void Exchange::finish() {
  const Communicator& c = group_->communicator();
  const TransferState s = c.finish(c.context, std::exchange(transfer_, nullptr), group_->seconds());
  if (s == TransferState::done) return;
  const bool known = to_ == from_ && s == TransferState::late;
  throw RankLost(group_->who(), known ? from_ : -1, s, group_->seconds());
}

Watch::Watch(const Executor& e) : own_(e), watched_(e), thread_(std::this_thread::get_id()) {
  watched_.cancelled = &is_cancelled;
  watched_.cancel_context = this;
}

void Watch::set(std::span<const Exchange* const> transfers) {
  transfers_.assign(transfers.begin(), transfers.end());
}

bool Watch::is_cancelled(void* context) {
  Watch& w = *static_cast<Watch*>(context);
  if (w.own_.cancelled != nullptr && w.own_.cancelled(w.own_.cancel_context)) return true;
  if (std::this_thread::get_id() == w.thread_)
    for (const Exchange* const e : w.transfers_)
      if (e->test() == TransferState::lost) w.lost_ = true;
  return w.lost_;
}

std::vector<std::byte> gather(const Group& g, std::span<const std::byte> own) {
  const std::size_t size = own.size();
  std::vector<std::byte> all(size * static_cast<std::size_t>(g.size()));
  if (all.empty()) return all;
  const auto of = [&](Index rank) {
    const auto n = static_cast<std::size_t>((rank + g.size()) % g.size());
    return std::span(all).subspan(n * size, size);
  };
  std::copy(own.begin(), own.end(), of(g.rank()).begin());
  for (Index step = 1; step < g.size(); ++step)
    Exchange(g, Channel::facts, g.next(), of(g.rank() - step + 1), g.previous(),
             of(g.rank() - step))
        .finish();
  return all;
}

// From rank to rank, each adding its own, and the whole once round again.
void sum_over_ranks(const Group& g, std::span<double> x) {
  if (g.size() == 1 || x.empty()) return;
  const auto send = [&] {
    Exchange(g, Channel::sums, g.next(), std::as_bytes(x), g.next(), {}).finish();
  };
  const auto receive = [&](std::span<double> to) {
    Exchange(g, Channel::sums, g.previous(), {}, g.previous(), std::as_writable_bytes(to)).finish();
  };
  if (g.rank() > 0) {
    std::vector<double> before(x.size());
    receive(before);
    for (std::size_t n = 0; n < x.size(); ++n) x[n] += before[n];
  }
  send();  // of the last rank: the whole
  receive(x);
  if (g.rank() + 1 < g.size()) send();
}

}  // namespace detail
}  // namespace posenc::v0
