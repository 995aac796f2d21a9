// SPDX-License-Identifier: Apache-2.0
// Terms that multiply q.k by a number of the distance (KERPLE's weight). Together with q.k itself they are one product, times
//
//   w(d) = 1 + sum of scale_t t(d) / scale
//
// which is a line of numbers for each head (kernels/attention/fast_weighted.h).
#pragma once
#include <span>
#include <string_view>

#include "attention/fast/row_blocks.h"
#include "attention/lowered/bands.h"
#include "kernels/attention/fast_weighted.h"

namespace posenc::inline v0::detail {

class ContentWeights {
 public:
  ContentWeights(const ReadyCall&, CallArena&);

  static bool has(const Term&) noexcept;
  // Why the terms of a call are not computed here; empty: they are, or there are none.
  static std::string_view why_not(const ReadyCall&) noexcept;

  bool none() const noexcept { return size_ == 0; }
  // The numbers of the keys of a row, from key 0 on; kLineMargin more on both sides may be read.
  const float* of(const FastRow&) const noexcept;
  bool is_bounded(Index b, Index h) const noexcept {
    return bounded_[static_cast<std::size_t>(line(b, h))] != 0;
  }
  bool are_bounded() const noexcept;
  // Start values of a block that all rows see, of a call without others.
  const float* zeros() const noexcept { return zeros_.data(); }

  // The entry of a row and key 0 in a line, and the entries of one.
  Index entry(const FastRow&) const noexcept;
  Index entries() const noexcept { return size_ - 2 * kLineMargin; }
  // The row of a term's table at an entry, negative: none; and its factor of q.k.
  std::int32_t row(const ProductTerm&, Index entry) const noexcept;
  double factor(const ProductTerm& t) const noexcept { return t.scale / *call_.args.scale; }

 private:
  Index line(Index b, Index h) const noexcept { return (batches_ == 1 ? 0 : b) * call_.H + h; }
  void add(const ProductTerm&, std::span<double> lines) const noexcept;

  const ReadyCall& call_;
  std::int32_t axis_ = 0;
  Index batches_ = 1, high_ = 0, size_ = 0;
  std::span<const float> lines_, zeros_;
  std::span<const std::uint8_t> bounded_;  // [B|1][H]: float holds the numbers of a line
};

}  // namespace posenc::v0::detail
