// SPDX-License-Identifier: Apache-2.0
// T5's bucketed bias. Raffel et al., arXiv:1910.10683, section 2.1 (mesh-tensorflow's rule):
//   S_ij += E[bucket(j - i), h]
//   bidirectional: nb = num_buckets / 2, base = nb for keys in the future; n = |j - i|
//   causal:        nb = num_buckets,     base = 0;                          n = max(i - j, 0)
//   me = nb / 2;  n < me: base + n;  else base + min(nb - 1, me + floor(K ln(n / me) /
//   ln(max_distance / me))), K = nb - me
// The logarithm is not taken: bucket me + k starts at the smallest n with n^K me^k >=
// max_distance^k me^K, in whole numbers. transformers' float32 logarithm loses an exact hit in 6 of
// 1867 settings, none of them published. T5 does not scale q.k: the scale of the call is 1 there.
#pragma once
#include <algorithm>
#include <cmath>
#include <limits>

#include "posenc/core/error.h"
#include "posenc/relative/term.h"

namespace posenc {

// First distance n of the buckets me + 1, me + 2, ..., nb - 1. Throws [t5]: nb < 2, max_distance
// not above nb / 2.
POSENC_API std::vector<Index> t5_thresholds(Index nb, Index max_distance);

struct T5 {
  static constexpr Card card{"t5", "T5 relative position buckets", "arXiv:1910.10683", "sec. 2.1"};
  bool bidirectional = true;
  Index num_buckets = 32, max_distance = 128;
  double bias_scale = 1;  // x-transformers multiplies the bias by sqrt(head_dim)

  Index side() const noexcept { return bidirectional ? num_buckets / 2 : num_buckets; }

  // Bucket of delta = query - key.
  Index bucket(Index delta) const { return bucket(delta, t5_thresholds(side(), max_distance)); }
  Index bucket(Index delta, const std::vector<Index>& thresholds) const {
    const Index base = bidirectional && delta < 0 ? side() : 0;
    const Index n = !bidirectional && delta < 0                  ? 0
                    : delta == std::numeric_limits<Index>::min() ? kUnbounded
                                                                 : std::abs(delta);
    if (n < side() / 2) return base + n;
    const auto passed = std::upper_bound(thresholds.begin(), thresholds.end(), n);
    return base + side() / 2 + (passed - thresholds.begin());
  }

  // transformers: N(0, d_model^-1/2), where d_model = heads * head_dim.
  std::vector<Parameter> parameters(const ScoreShape& s) const {
    check_score_shape(s, "t5");
    check_fields();
    const double deviation = 1 / std::sqrt(static_cast<double>(s.heads * s.head_dim));
    return {{"table", {num_buckets, s.heads}, {InitialKind::normal, 0, deviation}, {}}};
  }

  void lower(const ScoreShape& s, std::span<const TensorView> p, LoweredTerms& out) const {
    check_parameter_count("t5", 1, p.size());
    const std::vector<double> e = parameter_values("t5", parameters(s)[0], p[0]);
    std::vector<double> table(e.size());
    for (Index h = 0; h < s.heads; ++h)
      for (Index r = 0; r < num_buckets; ++r) table[at(h, r)] = e[of_parameter(s, h, r)];
    const std::vector<Index> thresholds = t5_thresholds(side(), max_distance);
    const Index last = thresholds.empty() ? side() / 2 : thresholds.back();
    const Index lo = std::clamp(s.min_delta, bidirectional ? -last : -1, last);
    const Index hi = std::clamp(s.max_delta, bidirectional ? -last : -1, last);
    std::vector<std::int32_t> row;
    for (Index delta = lo; delta <= hi; ++delta)
      row.push_back(static_cast<std::int32_t>(bucket(delta, thresholds)));
    Term t;
    t.kind = TermKind::line;
    t.scale = bias_scale;
    t.lines[0] = out.line(std::move(row), lo);
    t.table = out.table(std::move(table), {s.heads, num_buckets});
    out.terms.push_back(t);
  }

  void pull_back(const ScoreShape& s, std::span<const TensorView> p,
                 std::span<const TermGradient> g, std::span<const TensorView> dp) const {
    check_parameter_count("t5", 1, p.size());
    check_parameter_count("t5", 1, dp.size());
    const std::vector<double> d =
        gradient_values("t5", gradient_of("t5", g, 0).table, {s.heads, num_buckets});
    std::vector<double> de(d.size());
    for (Index h = 0; h < s.heads; ++h)
      for (Index r = 0; r < num_buckets; ++r) de[of_parameter(s, h, r)] = d[at(h, r)];
    accumulate("t5", parameters(s)[0], dp[0], de);
  }

  bool operator==(const T5&) const = default;
  template <class S, class V>
  static constexpr void describe(S& s, V&& v) {
    v("bidirectional", s.bidirectional,
      Field{.doc = "half of the buckets for future keys (encoders); decoders: false",
            .required = true});
    v("num_buckets", s.num_buckets, Field{.doc = "rows of the table", .min = 2, .max = 65536});
    v("max_distance", s.max_distance,
      Field{.doc = "from here on one bucket", .unit = "tokens", .min = 2, .max = 1e9});
    v("bias_scale", s.bias_scale, Field{.doc = "multiplies the bias"});
  }

 private:
  std::size_t at(Index h, Index r) const { return static_cast<std::size_t>(h * num_buckets + r); }
  std::size_t of_parameter(const ScoreShape& s, Index h, Index r) const {
    return static_cast<std::size_t>(r * s.heads + h);
  }
  void check_fields() const {
    if (bidirectional && num_buckets % 2 != 0)
      refuse("t5", "num_buckets must be even when bidirectional", num_buckets);
    if (!std::isfinite(bias_scale)) refuse("t5", "bias_scale must be finite", bias_scale);
  }
};
static_assert(RelativeScheme<T5>);

}  // namespace posenc
