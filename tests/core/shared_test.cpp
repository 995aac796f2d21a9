// SPDX-License-Identifier: Apache-2.0
#include "posenc/core/shared.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

namespace posenc {
namespace {

struct Counted {
  explicit Counted(int* living, int number = 0) : living_(living), number(number) { ++*living; }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;
  ~Counted() { --*living_; }

 private:
  int* living_;

 public:
  int number;
};

TEST(Shared, TheLastCopyDeletes) {
  int living = 0;
  auto first = Shared<Counted>::make(&living, 7);
  EXPECT_EQ(first->number, 7);
  {
    const Shared<Counted> second = first;
    EXPECT_EQ(second, first);
    first = Shared<Counted>();
    EXPECT_FALSE(first);
    EXPECT_EQ(living, 1);
    EXPECT_EQ((*second).number, 7);
  }
  EXPECT_EQ(living, 0);
}

TEST(Shared, ConstAndVoidShareTheSameCount) {
  int living = 0;
  Shared<const void> keeps;
  {
    Shared<const Counted> read = Shared<Counted>::make(&living, 3);
    keeps = read;
    EXPECT_EQ(keeps.get(), read.get());
  }
  EXPECT_EQ(living, 1);
  keeps = {};
  EXPECT_EQ(living, 0);
}

TEST(Shared, WhatWasMovedFromIsEmpty) {
  int living = 0;
  auto from = Shared<Counted>::make(&living);
  Shared<Counted> to = std::move(from);
  EXPECT_EQ(from.get(), nullptr);  // NOLINT(bugprone-use-after-move): says what is left
  EXPECT_EQ(living, 1);
  const Shared<Counted> other = to;
  Shared<const Counted> read = std::move(to);
  EXPECT_FALSE(to);  // NOLINT(bugprone-use-after-move)
  EXPECT_EQ(read.get(), other.get());
  from = std::move(to);  // of nothing
  EXPECT_FALSE(from);
  EXPECT_EQ(living, 1);
}

TEST(Shared, AssigningDropsWhatWasHeldAndItselfChangesNothing) {
  int first = 0, second = 0;
  auto a = Shared<Counted>::make(&first);
  const auto b = Shared<Counted>::make(&second);
  a = b;
  EXPECT_EQ(first, 0);
  EXPECT_EQ(second, 1);
  auto& same = a;
  a = same;
  EXPECT_EQ(a, b);
  EXPECT_EQ(second, 1);
}

TEST(Shared, AConstructorThatThrowsLeavesNothing) {
  struct Refuses {
    explicit Refuses(int n) {
      if (n > 0) throw std::invalid_argument("n");
    }
  };
  EXPECT_THROW((void)Shared<Refuses>::make(1), std::invalid_argument);
}

TEST(Shared, CopiesAreMadeAndDroppedOnAnyThread) {
  int living = 0;
  {
    auto one = Shared<Counted>::make(&living);
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t)
      threads.emplace_back([copy = one] {
        for (int i = 0; i < 20000; ++i) {
          Shared<Counted> mine = copy;
          Shared<const void> also = mine;
          mine = {};
        }
      });
    one = {};
    for (std::thread& t : threads) t.join();
  }
  EXPECT_EQ(living, 0);
}

}  // namespace
}  // namespace posenc
