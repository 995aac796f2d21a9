// SPDX-License-Identifier: Apache-2.0
// Partial results over disjoint keys -> the whole, forward and backward.
#include <algorithm>
#include <cmath>

#include "support/attention_parts.h"
#include "support/attention_reference.h"

namespace posenc::support {
namespace {

// One row of every part: its log-sum-exp and what its output counts.
struct MergedRow {
  Numbers log_sum_exp, weight;
  double total;
};

MergedRow merged_row(std::span<const AttentionResult> parts, Normalisation how, Index b, Index h,
                     Index t) {
  MergedRow r;
  for (const AttentionResult& p : parts) r.log_sum_exp.push_back(get(p.log_sum_exp, {b, h, t}));
  if (how == Normalisation::softmax) {
    double top = -HUGE_VAL, sum = 0;
    for (const double l : r.log_sum_exp) top = std::max(top, l);
    for (const double l : r.log_sum_exp) sum += top == -HUGE_VAL ? 0 : std::exp(l - top);
    r.total = top == -HUGE_VAL ? top : top + std::log(sum);
    for (const double l : r.log_sum_exp)
      r.weight.push_back(l == -HUGE_VAL ? 0 : std::exp(l - r.total));
    return r;
  }
  r.total = 0;  // the logarithm of what the parts so far leave
  for (const double l : r.log_sum_exp) {
    r.weight.push_back(std::exp(r.total));
    r.total += l;
  }
  return r;
}

template <class F>
void each_row_of(const ConstHeads& out, const F& fn) {
  for (Index b = 0; b < out.batch; ++b)
    for (Index h = 0; h < out.heads; ++h)
      for (Index t = 0; t < out.tokens; ++t) fn(b, h, t);
}

}  // namespace

void merge_forward(std::span<const AttentionResult> parts, const AttentionResult& whole,
                   Normalisation how) {
  each_row_of(whole.out, [&](Index b, Index h, Index t) {
    const MergedRow r = merged_row(parts, how, b, h, t);
    put(whole.log_sum_exp, {b, h, t}, r.total);
    for (Index x = 0; x < whole.out.dim; ++x) {
      double sum = 0;
      for (std::size_t n = 0; n < parts.size(); ++n)
        if (r.weight[n] > 0) sum += r.weight[n] * get(parts[n].out, b, t, h, x);
      put(whole.out, b, t, h, x, sum);
    }
  });
}

void merge_backward(std::span<const AttentionResult> parts, const AttentionResult& whole,
                    const ConstHeads& d_out, const ConstTensorView& d_lse,
                    std::span<const AttentionResult> d_parts, Normalisation how) {
  each_row_of(whole.out, [&](Index b, Index h, Index t) {
    const MergedRow r = merged_row(parts, how, b, h, t);
    const double from_lse = get(d_lse, {b, h, t});
    double later = 0;  // stick-breaking: d of the outputs of the parts after this one
    for (std::size_t n = parts.size(); n-- > 0;) {
      if (r.weight[n] == 0) continue;
      double met = 0;
      for (Index x = 0; x < whole.out.dim; ++x) {
        const double d = get(d_out, b, t, h, x);
        const double mean = how == Normalisation::softmax ? get(whole.out, b, t, h, x) : 0;
        met += d * (get(parts[n].out, b, t, h, x) - mean);
        add(d_parts[n].out, b, t, h, x, r.weight[n] * d);
      }
      const bool softmax = how == Normalisation::softmax;
      add(d_parts[n].log_sum_exp, {b, h, t},
          softmax ? r.weight[n] * (met + from_lse) : from_lse + later);
      later += r.weight[n] * met;
    }
  });
}

}  // namespace posenc::support
