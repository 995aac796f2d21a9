// SPDX-License-Identifier: Apache-2.0
// FoPE's rule for frequencies. Hua et al., arXiv:2412.17739, section 4: a pair that makes less than
// one turn within the trained length N is not turned at all:
//   theta'_i = theta_i if theta_i > 2 pi / N (or i < keep), else 0
// Its Fourier coefficients are the caller's own cos and sin per head (CallerRows).
#pragma once
#include "posenc/scaling/checks.h"

namespace posenc {

struct Fope {
  static constexpr Card card{"fope", "FoPE's frequencies", "arXiv:2412.17739", "section 4"};
  Index trained_length = 0;
  std::optional<Index> keep;

  Spectrum rescale(Spectrum s, Context) const {
    if ((trained_length != 0) == keep.has_value())
      refuse("fope", "needs trained_length or keep, and not both");
    if (keep && (*keep < 0 || *keep > s.pairs()))
      refuse("fope", "keep must be from 0 to the number of pairs", *keep);
    if (!keep) detail::need_positive("fope", "trained_length", trained_length);
    const double floor = keep ? 0 : 2 * std::numbers::pi / static_cast<double>(trained_length);
    std::vector<double> divisors(static_cast<std::size_t>(s.pairs()), 1.0);
    bool all = true;
    detail::change_frequencies(s, [&](Index i, double f) {
      if (keep ? i < *keep : f > floor) return f;
      divisors[static_cast<std::size_t>(i)] = 1e30;
      all = false;
      return 0.0;
    });
    if (all) return s;
    s.geometric.reset();
    if (s.heads * s.axes == 1)
      detail::divide_ggml(s, divisors);
    else
      s.drop_ggml("fope over several heads or axes: its divisors are one a pair");
    return s;
  }
  bool operator==(const Fope&) const = default;
  template <class S, class V>
  static constexpr void describe(S& s, V&& v) {
    v("trained_length", s.trained_length,
      Field{.doc = "N: slower pairs than a turn in N stand still", .unit = "tokens", .min = 0});
    v("keep", s.keep, Field{.doc = "number of pairs that turn, instead of N", .min = 0});
  }
};
static_assert(ScalingPolicy<Fope>);

}  // namespace posenc
