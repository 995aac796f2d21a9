// SPDX-License-Identifier: Apache-2.0
// Keys and values between the caller's types and the stored ones, rounded once.
#pragma once
#include <vector>

#include "posenc/cache/page_pool.h"

namespace posenc::inline v0::detail {

// [1, tokens, heads, channels] of f32 or f64, dense.
class FloatTokens {
 public:
  FloatTokens(Index tokens, Index heads, Index channels, bool wide);
  // The first n tokens.
  Heads view(Index n) noexcept;

 private:
  Index heads_, channels_;
  bool wide_;
  std::vector<double> memory_;
};

// Numbers of any float type or blocks, as many tokens, heads and channels as `to`, which has f32 or f64.
void read_stored(const ConstHeads& from, KeyType, const Heads& to) noexcept;
// The way back. Copies if both have one type.
void store_numbers(const ConstHeads& from, KeyType, const Heads& to) noexcept;

}  // namespace posenc::v0::detail
