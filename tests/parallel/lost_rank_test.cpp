// SPDX-License-Identifier: Apache-2.0
// A rank that leaves a call, or never answers, ends it on all others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>

#include "parallel/ring_world.h"

namespace posenc {
namespace {

// Cancels a call at the nth look between blocks.
struct Leaves {
  int after = 0;
  static bool now(void* self) {
    Leaves& l = *static_cast<Leaves*>(self);
    l.after = std::max(l.after - 1, -1);
    return l.after < 0;
  }
};

double seconds_of(const std::function<void()>& fn) {
  const auto begin = std::chrono::steady_clock::now();
  fn();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// A transfer that is tested first does not get what belongs to an earlier one of its channel.
TEST(ThreadGroup, TransfersOfAChannelArriveInOrder) {
  const ThreadGroup group(2);
  const Communicator from = group.communicator(0), to = group.communicator(1);
  const std::int64_t sent[] = {3, 5};
  std::int64_t received[] = {0, 0};
  void* transfer[2];
  for (int n = 0; n < 2; ++n)
    transfer[n] = to.start(to.context, {.received = &received[n], .received_bytes = 8});
  const auto send = [&](int n) {
    return from.start(from.context, {.to = 1, .sent = &sent[n], .sent_bytes = 8, .from = 1});
  };
  void* const first = send(0);
  EXPECT_EQ(to.test(to.context, transfer[1]), TransferState::under_way);
  EXPECT_EQ(to.test(to.context, transfer[0]), TransferState::done);
  void* const second = send(1);
  EXPECT_EQ(to.test(to.context, transfer[1]), TransferState::done);
  EXPECT_EQ(received[0], 3);
  EXPECT_EQ(received[1], 5);
  for (void* const t : transfer) EXPECT_EQ(to.finish(to.context, t, 1), TransferState::done);
  for (void* const t : {first, second})
    EXPECT_EQ(from.finish(from.context, t, 1), TransferState::done);
}

// Ranks of three that are lost at random moments, 20 times.
TEST(LostRank, WhoLeavesEndsTheOthers) {
  const RingWorld w(96);
  test::Random random(5);
  int early = 0;
  for (int n = 0; n < 20; ++n) {
    const Index lost = random.integer(0, 2);
    Leaves leaves{static_cast<int>(random.integer(0, 40))};
    std::vector<std::string> says;
    const double seconds = seconds_of([&] {
      says = on_ranks(3, [&](const Communicator& c, Index r) {
        Executor e = inline_executor();
        if (r == lost) e.cancelled = &Leaves::now, e.cancel_context = &leaves;
        run_shard(w.narrow, shard_tokens(96, 3, r, ShardLayout::contiguous), c, {.seconds = 600},
                  e);
      });
    });
    EXPECT_LT(seconds, 300) << "of 600 until the others are late";
    if (says[static_cast<std::size_t>(lost)].empty()) continue;  // it was done before
    ++early;
    for (Index r = 0; r < 3; ++r)
      EXPECT_EQ(says[static_cast<std::size_t>(r)], r == lost ? "[attention] the call was cancelled"
                                                             : "[ring] a rank has ended the group");
  }
  EXPECT_GE(early, 10);
}

// A rank that stops for longer than the others wait.
TEST(LostRank, WhoStopsIsLate) {
  const RingWorld w(48);
  for (int n = 0; n < 3; ++n) {
    std::vector<double> took(3);
    const std::vector<std::string> says = on_ranks(3, [&](const Communicator& c, Index r) {
      if (r == 1) return;
      took[static_cast<std::size_t>(r)] = seconds_of([&] {
        EXPECT_THROW(run_shard(w.narrow, shard_tokens(48, 3, r, ShardLayout::contiguous), c,
                               {.seconds = 0.1}),
                     RankLost);
      });
    });
    for (const std::string& s : says) EXPECT_EQ(s, "");
    EXPECT_GE(std::max(took[0], took[2]), 0.1);
  }
}

// Transfers of a channel arrive in their order, whatever order they are waited for in.
TEST(ThreadGroup, TransfersKeepTheirOrder) {
  const ThreadGroup group(2);
  const Communicator a = group.communicator(0), b = group.communicator(1);
  int sent[] = {1, 2, 3}, got[] = {0, 0, 0};
  std::vector<void*> of_a, of_b;
  for (int n = 0; n < 3; ++n) {
    of_a.push_back(a.start(a.context, {1, &sent[n], sizeof(int), 1, nullptr, 0, n == 2 ? 1 : 0}));
    of_b.push_back(b.start(b.context, {0, nullptr, 0, 0, &got[n], sizeof(int), n == 2 ? 1 : 0}));
  }
  EXPECT_EQ(b.test(b.context, of_b[2]), TransferState::done);
  EXPECT_EQ(a.test(a.context, of_a[2]), TransferState::done);
  EXPECT_EQ(a.test(a.context, of_a[0]), TransferState::under_way);
  for (const int n : {0, 1, 2})
    EXPECT_EQ(b.finish(b.context, of_b[static_cast<std::size_t>(n)], 1), TransferState::done);
  for (const int n : {2, 0, 1})
    EXPECT_EQ(a.finish(a.context, of_a[static_cast<std::size_t>(n)], 1), TransferState::done);
  EXPECT_THAT(got, ::testing::ElementsAre(1, 2, 3));
}

TEST(ThreadGroup, EndsWhereSizesDiffer) {
  const ThreadGroup group(2);
  const Communicator a = group.communicator(0), b = group.communicator(1);
  int x = 0;
  void* const sent = a.start(a.context, {1, &x, sizeof x, 1, nullptr, 0, 0});
  char y = 0;
  void* const got = b.start(b.context, {0, nullptr, 0, 0, &y, 1, 0});
  EXPECT_EQ(b.finish(b.context, got, 5), TransferState::lost);
  EXPECT_EQ(a.finish(a.context, sent, 5), TransferState::lost);
}

TEST(ThreadGroup, LateEndsTheGroup) {
  ThreadGroup group(3);
  const Communicator a = group.communicator(0), c = group.communicator(2);
  char x = 0, y = 0;
  void* const waits = c.start(c.context, {1, nullptr, 0, 1, &y, 1, 0});
  EXPECT_EQ(a.finish(a.context, a.start(a.context, {1, nullptr, 0, 1, &x, 1, 0}), 0.01),
            TransferState::late);
  EXPECT_EQ(c.test(c.context, waits), TransferState::lost);
  EXPECT_EQ(c.finish(c.context, waits, 5), TransferState::lost);
}

}  // namespace
}  // namespace posenc
