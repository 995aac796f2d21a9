// SPDX-License-Identifier: Apache-2.0
#include "core/workspace.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

namespace posenc::inline v0::detail {
namespace {

struct Arrays {
  char* letters;
  double* numbers;
  std::int32_t* rows;
  std::uint64_t* words;
};
Arrays arrays(Arena& a, Index n) {
  Arrays r;
  r.letters = a.take<char>(n);
  r.numbers = a.take<double>(2 * n);
  r.rows = a.take<std::int32_t>(n + 1);
  r.words = a.take<std::uint64_t>(n);
  return r;
}

template <class T>
void fill(T* to, Index n, int byte) {
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(to) % alignof(T), 0u);
  std::memset(to, byte, static_cast<std::size_t>(n) * sizeof(T));
}
template <class T>
void expect_all(const T* from, Index n, std::byte byte) {
  const auto* bytes = reinterpret_cast<const std::byte*>(from);
  for (std::size_t i = 0; i < static_cast<std::size_t>(n) * sizeof(T); ++i)
    ASSERT_EQ(bytes[i], byte);
}

TEST(Arena, WhatWasCountedIsEnoughWhereverItBegins) {
  for (const Index n : {0, 1, 3, 8, 13}) {
    Arena count;
    arrays(count, n);
    const std::size_t bytes = count.bytes();
    for (std::size_t begin = 0; begin < 16; ++begin) {
      std::vector<std::byte> memory(begin + bytes + 16, std::byte{9});
      Arena arena(Workspace(memory.data() + begin, bytes));
      const Arrays a = arrays(arena, n);
      fill(a.letters, n, 1), fill(a.numbers, 2 * n, 2), fill(a.rows, n + 1, 3);
      fill(a.words, n, 4);
      expect_all(a.letters, n, std::byte{1}), expect_all(a.numbers, 2 * n, std::byte{2});
      expect_all(a.rows, n + 1, std::byte{3}), expect_all(a.words, n, std::byte{4});
      expect_all(memory.data(), static_cast<Index>(begin), std::byte{9});
      expect_all(memory.data() + begin + bytes, 16, std::byte{9});
    }
  }
}

TEST(Arena, NothingNeedsNothing) {
  Arena count;
  EXPECT_EQ(count.bytes(), 0u);
  EXPECT_EQ(count.take<double>(0), nullptr);
  EXPECT_EQ(count.bytes(), 0u);
  Arena empty{Workspace()};
  EXPECT_EQ(empty.take<double>(0), nullptr);
}

TEST(Arena, OneTypeNeedsItsAlignmentOnce) {
  Arena count;
  count.take<double>(5), count.take<double>(7);
  EXPECT_EQ(count.bytes(), 12 * sizeof(double) + alignof(double));
}

}  // namespace
}  // namespace posenc::v0::detail
