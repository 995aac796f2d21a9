// SPDX-License-Identifier: Apache-2.0
// What the backward pass knows of each row before it begins, and whether float can work with all numbers of the call.
#pragma once
#include <span>

#include "attention/fast/work.h"
#include "kernels/attention/fast_tiles.h"
#include "posenc/attention/attend.h"

namespace posenc::inline v0::detail {

class RowFacts {
 public:
  RowFacts(const FastCall&, CallArena&, const Executor&);
  // False: the fast engine cannot compute the gradients.
  bool find(const ConstAttentionResult&, const ConstAttentionResult& d_result,
            const Executor&) noexcept;

  // Whether some query may see a key; what none sees may hold anything.
  bool is_seen(Index row, Index key) const noexcept;
  // log2 of the sum of weights and the sink; infinity: the row has none.
  double log2_sum(Index b, Index h, Index i) const noexcept { return log2_sum_[at(b, h, i)]; }
  // sum_j p_ij (d_out_i.v_j) - d log_sum_exp_i; of sticks d log_sum_exp_i
  double less(Index b, Index h, Index i) const noexcept { return less_[at(b, h, i)]; }

 private:
  struct Scratch {
    float *x, *y;
  };
  std::size_t at(Index b, Index h, Index i) const noexcept {
    return static_cast<std::size_t>((b * call_.H + h) * call_.Tq + i);
  }
  bool find_row(const ConstAttentionResult&, const ConstAttentionResult&, Index row, const Scratch&,
                bool& again) noexcept;
  bool is_query_bounded(Index b, Index h, Index i, float* memory) const noexcept;
  bool is_bounded(const ConstHeads&, Index b, Index t, Index h, float factor,
                  float* memory) const noexcept;
  bool are_bounded(const ConstHeads&, Index b, Index t, float* memory) const noexcept;
  bool dot(const ConstHeads& out, const ConstHeads& d_out, Index b, Index t, Index h,
           const Scratch&, float& sum) const noexcept;
  bool sum_again(const Executor&) noexcept;

  const FastCall& call_;
  const FastTileKernels& tiles_;
  Index tasks_, width_;
  std::span<double> log2_sum_, less_;
  std::span<const std::uint8_t> seen_;  // tiles of keys that some query may see
  std::span<float> scratch_;
  std::span<FastWork> works_;
};

}  // namespace posenc::v0::detail
