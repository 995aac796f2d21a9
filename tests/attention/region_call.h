// SPDX-License-Identifier: Apache-2.0
// Calls with regions: q and k turned once more for each, in float and the same numbers as doubles.
#pragma once
#include <cmath>
#include <vector>

#include "attention/float_call.h"
#include "posenc/positions.h"

namespace posenc {

struct RegionCall : FloatCall {
  using FloatCall::FloatCall;

  // Adds a region whose q and k have these positions; `count` heads of k.
  void add(const DistanceRegion& r, Index count) {
    ScoreRegion region;
    region.chunk = r.chunk, region.low = r.low, region.high = r.high;
    const std::size_t at = copies.size();
    copies.push_back(turned(narrow[0], Tq, H, H, r.query));
    copies.push_back(turned(narrow[1], Tk, G, count, r.key));
    for (std::size_t n = at; n < at + 2; ++n)
      wide_copies.emplace_back(copies[n].begin(), copies[n].end());
    regions.push_back(region), wide_regions.push_back(region);
    heads_of_k.push_back(count);
    bind();
  }
  void add(const DistanceMap& map, Index count) {
    for (const DistanceRegion& r : map) add(r, count);
  }
  AttentionArgs plain() const override {
    AttentionArgs a = FloatCall::plain();
    a.regions = wide_regions;
    return a;
  }

  double base = 100;
  std::vector<std::vector<float>> copies;  // q and k by turns
  std::vector<std::vector<double>> wide_copies;
  std::vector<ScoreRegion> regions, wide_regions;
  std::vector<Index> heads_of_k;

 private:
  void bind() {
    for (std::size_t n = 0; n < regions.size(); ++n) {
      regions[n].qk = {view(copies[2 * n], Tq, H, D),
                       view(copies[2 * n + 1], Tk, heads_of_k[n], D)};
      wide_regions[n].qk = {view(wide_copies[2 * n], Tq, H, D),
                            view(wide_copies[2 * n + 1], Tk, heads_of_k[n], D)};
    }
    args.regions = regions;
  }
  // Pairs (c, c + D / 2) turned by their position; `to` heads of `from` ones, one after the other.
  std::vector<float> turned(const std::vector<float>& x, Index tokens, Index from, Index to,
                            const OwnedPositions& p) const {
    std::vector<float> y(static_cast<std::size_t>(B * tokens * to * D) + 1);
    const Index half = D / 2;
    for (Index n = 0; n < B * tokens * to; ++n) {
      const auto source = static_cast<std::size_t>((n / to * from + n % to % from) * D);
      const auto target = static_cast<std::size_t>(n * D);
      std::copy_n(x.begin() + static_cast<Index>(source), D,
                  y.begin() + static_cast<Index>(target));
      for (Index c = 0; c < half; ++c) {
        const double angle = position_at(p, 0, 0, n / to % tokens) *
                             std::pow(base, -static_cast<double>(c) / static_cast<double>(half));
        const auto at = static_cast<std::size_t>(c), other = static_cast<std::size_t>(c + half);
        const auto a = static_cast<double>(x[source + at]),
                   b = static_cast<double>(x[source + other]);
        y[target + at] = static_cast<float>(a * std::cos(angle) - b * std::sin(angle));
        y[target + other] = static_cast<float>(a * std::sin(angle) + b * std::cos(angle));
      }
    }
    return y;
  }
};

}  // namespace posenc
