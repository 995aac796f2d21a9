// SPDX-License-Identifier: Apache-2.0
// Scores in regions: Self-Extend, ReRoPE and dual chunk as their authors' programs computed them,
// from our position maps, a plain rotation and the reference.
#include <gtest/gtest.h>

#include <cmath>

#include "posenc/positions.h"
#include "support/attention_reference.h"
#include "support/suite.h"

namespace posenc {
namespace {

const support::Suite& engines() {
  static const support::Suite s("rotary_engines");
  return s;
}

// x [1, H, T, 8] turned, half-split, base 10000.
std::vector<double> turned(const support::SuiteArray& x, const OwnedPositions& p) {
  std::vector<double> y = x.value;
  const Index tokens = x.dim(2), half = x.dim(3) / 2;
  for (Index h = 0; h < x.dim(1); ++h)
    for (Index t = 0; t < tokens; ++t)
      for (Index i = 0; i < half; ++i) {
        const double angle = position_at(p, 0, 0, t) *
                             std::pow(10000.0, -static_cast<double>(i) / static_cast<double>(half));
        const auto at = static_cast<std::size_t>((h * tokens + t) * 2 * half + i);
        const auto other = at + static_cast<std::size_t>(half);
        y[at] = x.value[at] * std::cos(angle) - x.value[other] * std::sin(angle);
        y[other] = x.value[at] * std::sin(angle) + x.value[other] * std::cos(angle);
      }
  return y;
}

void expect_scores(const std::string& name, const DistanceMap& map,
                   const std::vector<double>& query_factor = {}) {
  SCOPED_TRACE(name);
  const auto q = engines()(name, "q"), k = engines()(name, "k"), want = engines()(name, "scores");
  const Index h = q.dim(1), t = q.dim(2), d = q.dim(3);
  std::vector<double> kept_q = q.value, kept_k = k.value, out(kept_q.size());
  const auto view = [&](std::vector<double>& v) {
    return heads(tensor(v.data(), {1, h, t, d}), HeadsLayout::bhtd);
  };
  std::vector<std::vector<double>> copies;
  for (const DistanceRegion& r : map) {
    copies.push_back(turned(q, r.query));
    copies.push_back(turned(k, r.key));
  }
  std::vector<ScoreRegion> regions;
  for (std::size_t r = 0; r < map.size(); ++r) {
    ScoreRegion s;
    s.qk = {view(copies[2 * r]), view(copies[2 * r + 1])};
    s.chunk = map[r].chunk;
    s.low = map[r].low;
    s.high = map[r].high;
    regions.push_back(s);
  }
  const OwnedPositions p = arange(0, t);
  AttentionArgs a;
  a.q = view(kept_q);
  a.k = view(kept_k);
  a.v = view(kept_k);
  a.query_positions = a.key_positions = p;
  a.scale = 1 / std::sqrt(static_cast<double>(d));
  a.mask.causal = true;
  a.regions = regions;
  if (!query_factor.empty()) a.query_factor = tensor(query_factor.data(), {1, t});
  support::AttentionDetail detail;
  support::attention_forward(a, {view(out), {}}, &detail);
  for (Index n = 0; n < h; ++n)
    for (Index i = 0; i < t; ++i)
      for (Index j = 0; j <= i; ++j) {
        const auto at = static_cast<std::size_t>((n * t + i) * t + j);
        EXPECT_NEAR(detail.scores[at], want.value[at], 2e-6) << n << " " << i << " " << j;
      }
}

std::vector<Index> to(Index n) {
  return std::get<std::vector<Index>>(arange(0, n).value);
}

TEST(Regions, SelfExtendDualChunkAndReRope) {
  const auto p30 = to(30), p20 = to(20), p33 = to(33), p14 = to(14), p6 = to(6);
  expect_scores("paper_self_extend", self_extend(p30, p30, 8, 4, SelfExtendRatio::real));
  expect_scores("paper_self_extend_real_ratio", self_extend(p20, p20, 6, 4, SelfExtendRatio::real));
  expect_scores("paper_self_extend_short", self_extend(p6, p6, 8, 4, SelfExtendRatio::real));
  expect_scores("paper_dual_chunk", dual_chunk(p33, p33, {12, 2}));
  std::vector<double> logn;  // max(1, ln(position + 1) / ln(training length))
  for (const Index i : p14)
    logn.push_back(std::fmax(1, std::log(static_cast<double>(i + 1)) / std::log(8.0)));
  expect_scores("paper_rerope", rerope(p14, p14, 5), logn);
  expect_scores("paper_leaky_rerope", leaky_rerope(p14, p14, 5, 4), logn);
}

}  // namespace
}  // namespace posenc
