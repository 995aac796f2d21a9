// SPDX-License-Identifier: Apache-2.0
// Your own relative scheme: a learned penalty by distance, lowered to one product term.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "posenc/relative/scheme.h"

using namespace posenc;

// b_h(i, j) = -height_h (1 - exp(-|delta| / reach_h)), both learned.
struct Saturating {
  static constexpr Card card{"saturating", "a penalty that saturates", "", ""};
  std::vector<Parameter> parameters(const ScoreShape& s) const {
    const AxisSize heads = ScoreAxes(s).heads;  // with its name, for posenc list
    return {{"height", {heads}, {}, {}}, {"reach", {heads}, {}, {}}};
  }
  static Index far(const ScoreShape& s) { return std::max(-s.range().min, s.range().max); }
  void lower(const ScoreShape& s, std::span<const ConstTensorView> p, LoweredTerms& out) const {
    const std::vector<double> height = parameter_values("saturating", parameters(s)[0], p[0]);
    const std::vector<double> reach = parameter_values("saturating", parameters(s)[1], p[1]);
    std::vector<double> numbers;
    for (std::size_t h = 0; h < height.size(); ++h)
      for (Index d = 0; d <= far(s); ++d)
        numbers.push_back(height[h] * std::expm1(-double(d) / reach[h]));
    std::vector<std::int32_t> row;
    for (Index d = s.range().min; d <= s.range().max; ++d) row.push_back(std::int32_t(std::abs(d)));
    ProductTerm t;
    t.table = out.table(std::move(numbers), s.heads, far(s) + 1, 1);
    t.lines[0] = out.line(std::move(row), s.range().min);
    out.add(t);
  }
  void pull_back(const ScoreShape& s, std::span<const ConstTensorView> p, const CallData&,
                 const LoweredGradient& g, std::span<const TensorView> dp,
                 std::span<const TensorView>) const {
    const Index n = far(s) + 1;
    const std::vector<double> height = parameter_values("saturating", parameters(s)[0], p[0]);
    const std::vector<double> reach = parameter_values("saturating", parameters(s)[1], p[1]);
    const std::vector<double> d = gradient_values(
        "saturating", gradient_of("saturating", g.terms, 0).table, {1, s.heads, n, 1});
    std::vector<double> d_height(height.size()), d_reach(height.size());
    for (std::size_t i = 0; i < d.size(); ++i) {
      const std::size_t h = i / std::size_t(n);
      const double x = double(i % std::size_t(n)), e = std::exp(-x / reach[h]);
      d_height[h] += d[i] * (e - 1);
      d_reach[h] += d[i] * height[h] * e * x / (reach[h] * reach[h]);
    }
    accumulate("saturating", parameters(s), dp,
               std::vector<std::vector<double>>{d_height, d_reach});
  }
  bool operator==(const Saturating&) const = default;
  template <class S, class V>
  static constexpr void describe(S&, V&&) {}
};
static_assert(RelativeScheme<Saturating>);

int main() {
  const std::vector<double> height{1}, reach{2};
  const ConstTensorView parameters[] = {tensor(height.data(), {1}), tensor(reach.data(), {1})};
  LoweredTerms lowered;
  Saturating{}.lower({.heads = 1, .head_dim = 8, .distance = {{-7, 7}}}, parameters, lowered);
  const auto& t = std::get<ProductTerm>(lowered.terms[0]);
  const double bias = data_of<double>(t.table)[row_of(t.lines[0], 4)];
  std::printf("at distance 4: %.6f\n", bias);
  return std::abs(bias - std::expm1(-2.0)) < 1e-15 ? 0 : 1;
}
