// SPDX-License-Identifier: Apache-2.0
// Scores -> probabilities, and back: softmax with its sink, stick-breaking.
#include <algorithm>
#include <cmath>

#include "attention/exact/row.h"
#include "attention/exact/softmax.h"

namespace posenc::inline v0::detail {
namespace {

double sink_of(const CallView& c, const HeadRow& r) noexcept {
  return c.args.sink.empty() ? -HUGE_VAL : read_number(c.args.sink, r.h);
}

void softmax(const CallView& c, HeadRow& r) noexcept {
  r.log_sum_exp = softmax_row(c.lanes, r.p, r.scores, r.runs, sink_of(c, r));
}

void pull_softmax(const CallView& c, HeadRow& r, double d_lse, double* d_sink,
                  const double* along) noexcept {
  const double shift = pull_softmax_row(c.lanes, r.d_scores, r.p, r.d_p, d_lse, r.runs, along);
  const double sink = sink_of(c, r);
  if (d_sink != nullptr && sink != -HUGE_VAL) d_sink[r.h] += std::exp(sink - r.log_sum_exp) * shift;
}

// ln(1 + e^x).
double softplus(double x) noexcept {
  return std::max(x, 0.0) + std::log1p(std::exp(-std::fabs(x)));
}

// From the last key to the first; what is left is kept as a logarithm.
void break_stick(HeadRow& r) noexcept {
  double left = 0;
  for (std::size_t s = r.ordered.size(); s-- > 0;) {
    const Index j = r.ordered[s];
    const double part = softplus(r.scores[j]);  // -ln(1 - sigma(S))
    r.p[j] = std::exp(r.scores[j] - part + left);
    left -= part;
  }
  r.log_sum_exp = left;
  r.remainder = std::exp(left);
}

// With s = sigma(S_j), and d what comes back to what key j leaves: dS_j = P_j (1 - s) (dP_j - d) -
// s d log-remainder, and before it d = s dP_j + (1 - s) d.
void pull_stick(HeadRow& r, double d_lse, double d_left) noexcept {
  for (const Index j : r.ordered) {
    const double share = 1 / (1 + std::exp(-r.scores[j])), rest = 1 / (1 + std::exp(r.scores[j]));
    r.d_scores[j] = r.p[j] * rest * (r.d_p[j] - d_left) - share * d_lse;
    d_left = share * r.d_p[j] + rest * d_left;
  }
}

}  // namespace

void fill_weights(const CallView& c, HeadRow& r) noexcept {
  if (c.args.normalisation == Normalisation::softmax) return softmax(c, r);
  break_stick(r);
}

void pull_weights(const CallView& c, HeadRow& r, double d_lse, double d_remainder, double* d_sink,
                  const double* along) noexcept {
  if (c.args.normalisation == Normalisation::softmax)
    return pull_softmax(c, r, d_lse, d_sink, along);
  pull_stick(r, d_lse, d_remainder);
}

}  // namespace posenc::v0::detail
