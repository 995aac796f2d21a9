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
  // by_words: q is multiplied without its factor too.
  RowFacts(const FastCall&, bool by_words, CallArena&, const Executor&);
  // False: the fast engine cannot compute the gradients.
  bool find(const ConstAttentionResult&, const ConstAttentionResult& d_result,
            const Executor&) noexcept;

  // The first run of keys that some query may see, empty: there is none. What no query sees may hold anything.
  Run seen_run(Index row, Run keys) const noexcept;
  // log2 of the sum of weights and the sink; infinity: the row has none.
  double log2_sum(Index b, Index h, Index i) const noexcept { return log2_sum_[at(b, h, i)]; }
  // sum_j p_ij (d_out_i.v_j) - d log_sum_exp_i; of sticks d log_sum_exp_i
  double less(Index b, Index h, Index i) const noexcept { return less_[at(b, h, i)]; }
  // Both of all rows of a head.
  const double* log2_sums(Index b, Index h) const noexcept {
    return log2_sum_.data() + at(b, h, 0);
  }
  const double* less_of(Index b, Index h) const noexcept { return less_.data() + at(b, h, 0); }

 private:
  struct Scratch {
    float *x, *y;
  };
  std::size_t at(Index b, Index h, Index i) const noexcept {
    return static_cast<std::size_t>((b * call_.H + h) * call_.Tq + i);
  }
  // Of neighbouring rows; false: float cannot work with a number of them.
  bool find_rows(const ConstAttentionResult&, const ConstAttentionResult&, Index b, Index h,
                 Run rows, const Scratch&, bool& again) noexcept;
  bool find_seeing(const ConstAttentionResult&, const ConstAttentionResult&, Index b, Index h,
                   Run rows, const Scratch&) noexcept;
  bool take_sums(const ConstTensorView&, Index b, Index h, Run rows, bool& again) noexcept;
  bool are_queries_bounded(Index b, Index h, Run rows, float* memory) const noexcept;
  bool are_keys_bounded(Index row, Run keys, float* memory) const noexcept;
  bool are_bounded(const ConstHeads&, Index b, Run tokens, Run heads, float factor,
                   float* memory) const noexcept;
  // sums of out.d_out
  bool dot(const ConstHeads& out, const ConstHeads& d_out, Index b, Run rows, Index h,
           const Scratch&, float* sums) const noexcept;
  bool sum_again(const Executor&) noexcept;

  const FastCall& call_;
  const FastTileKernels& tiles_;
  float least_factor_;  // of q, with which its numbers are tested
  Index tasks_, width_;
  std::span<double> log2_sum_, less_;
  std::span<const std::uint8_t> seen_;  // tiles of keys that some query may see
  std::span<float> scratch_;
  std::span<FastWork> works_;
};

}  // namespace posenc::v0::detail
