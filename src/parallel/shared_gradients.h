// SPDX-License-Identifier: Apache-2.0
// Gradients of arrays that all tokens share: sums in double, added over the
// ranks at the end.
#pragma once
#include <algorithm>
#include <deque>
#include <vector>

#include "attention/call/add_to.h"
#include "parallel/exchange.h"

namespace posenc::inline v0::detail {

class SharedGradients {
 public:
  // Where calls add the gradient of an array; not over the ranks: the caller's
  // own.
  TensorView take(const TensorView& to, bool over_ranks) {
    if (to.empty() || !over_ranks) return to;
    Sum& s = sums_.emplace_back(Sum{to, std::vector<double>(size(to.count()))});
    return tensor(static_cast<void*>(s.x.data()), DType::f64,
                  std::span(to.shape.data(), static_cast<std::size_t>(to.rank)));
  }
  Heads take(const Heads& to, bool over_ranks) {
    if (to.data == nullptr || !over_ranks) return to;
    const Index shape[] = {to.batch, to.tokens, to.heads, to.dim};
    const Index stride[] = {to.batch_stride, to.token_stride, to.head_stride, to.dim_stride};
    return heads(take(tensor(to.data, to.dtype, shape, stride), true), HeadsLayout::bthd);
  }
  void finish(const Group& group) {
    std::vector<double> all;
    for (const Sum& s : sums_) all.insert(all.end(), s.x.begin(), s.x.end());
    sum_over_ranks(group, all);
    std::span<const double> rest = all;
    for (const Sum& s : sums_) {
      add_to(s.to, rest.first(s.x.size()));
      rest = rest.subspan(s.x.size());
    }
  }

 private:
  struct Sum {
    TensorView to;
    std::vector<double> x;
  };
  static std::size_t size(Index n) { return static_cast<std::size_t>(std::max<Index>(n, 1)); }
  std::deque<Sum> sums_;
};

}  // namespace posenc::inline v0::detail
