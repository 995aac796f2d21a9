// SPDX-License-Identifier: Apache-2.0
// The gradient of vectors that come with a term: of queries or of keys, one for each token or one for all.
#pragma once
#include <span>

#include "attention/fast/work.h"
#include "posenc/attention/attention.h"

namespace posenc::inline v0::detail {

// What pieces of work share is kept for each head of each batch entry, and added at the end in one order.
class VectorGradient {
 public:
  // slices: of the tokens of a head. owned: entries have one piece of work that adds to them, or one thread adds all.
  void want(const FastCall&, const Heads& to, Index tokens, Index slices, bool owned, CallArena&);
  bool is_wanted() const noexcept { return to_.data != nullptr; }
  // Whether one piece of work, the heads of a group, owns each entry.
  static bool is_owned(const FastCall&, const Heads& to) noexcept;

  // factor d to the vector of token t. Where pieces share it, d must be whole: nothing else of the head adds to it.
  void add(const FastCall&, Index b, Index h, Index t, double factor, const float* d,
           Index slice = 0) noexcept;
  // To the caller's gradient, what is not there yet. The same factor.
  void finish(const FastCall&, double factor, const Executor&) noexcept;

 private:
  void finish_rows(const FastCall&, double factor, const Executor&) noexcept;
  void finish_sums(const FastCall&) noexcept;

  Heads to_{};  // empty: not wanted
  Index tokens_ = 0, slices_ = 1;
  std::span<float> rows_;   // [B][H][tokens][channels]: of entries that pieces share
  std::span<double> sums_;  // [B][H][slices][channels]: of one token for all
};

}  // namespace posenc::v0::detail
