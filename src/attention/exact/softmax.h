// SPDX-License-Identifier: Apache-2.0
// The softmax of one row and its gradient, for every kind of attention that has one.
#pragma once
#include <algorithm>
#include <cmath>

#include "kernels/attention/exact_rows.h"

namespace posenc::inline v0::detail {

// p = the softmax of the scores over the runs and a sink, -inf without one; p may be the scores.
// Returns the log-sum-exp: -inf without a key and a sink.
inline double softmax_row(const ExactRowKernels& lanes, double* p, const double* scores, Runs runs,
                          double sink = -HUGE_VAL) noexcept {
  if (runs.empty() && sink == -HUGE_VAL) return -HUGE_VAL;
  const double top = lanes.largest(scores, sink, runs);
  double total = lanes.exponentials(p, scores, top, runs);
  if (sink != -HUGE_VAL) total += std::exp(sink - top);
  lanes.scale(p, 1 / total, p, runs);
  return top + std::log(total);
}

// dS_j = P_j (dP_j - sum_t P_t dP_t + d log-sum-exp); d_scores may be d_p. `along`: the sum, where it goes over more
// keys than the row's. Returns what the weight of a sink, which has no value, is multiplied by.
inline double pull_softmax_row(const ExactRowKernels& lanes, double* d_scores, const double* p,
                               const double* d_p, double d_log_sum_exp, Runs runs,
                               const double* along = nullptr) noexcept {
  const double shift = d_log_sum_exp - (along != nullptr ? *along : lanes.dot(p, d_p, runs));
  lanes.softmax_backward(d_scores, p, d_p, shift, runs);
  return shift;
}

}  // namespace posenc::v0::detail
