// SPDX-License-Identifier: Apache-2.0
#include "posenc/relative/marian_alibi.h"

#include <cmath>

#include "posenc/core/error.h"
#include "relative/learned.h"
#include "relative/lowering.h"

namespace posenc::inline v0 {
namespace {

constexpr std::string_view kMarianAlibi = MarianAlibi::card.name;

struct MarianNumbers {
  std::vector<double> slope, bias;
};

MarianNumbers marian_start(MarianAttention attention, Index heads) {
  const std::vector<double> first{-2, -1, -0.5, -0.25}, offsets{1, -2, 3, -4, 5, -6, 7, -8};
  MarianNumbers n;
  for (Index h = 0; h < heads; ++h) {
    const auto at = static_cast<std::size_t>(h);
    switch (attention) {
      case MarianAttention::encoder:
        n.slope.push_back(at < first.size() ? first[at] : -0.05);
        n.bias.push_back(at < offsets.size() ? offsets[at] : 0);
        break;
      case MarianAttention::decoder:
        n.slope.push_back(-std::exp2(-8 * static_cast<double>(h + 1) / static_cast<double>(heads)));
        n.bias.push_back(0);
        break;
      case MarianAttention::cross:
        n.slope.push_back(-0.1);
        n.bias.push_back(0.3);
        break;
    }
  }
  return n;
}

MarianNumbers marian_numbers(const MarianAlibi& x, const ScoreShape& s,
                             std::span<const ConstTensorView> p) {
  const detail::LearnedValues value(x, s, p);
  return {value["slopes"], value["biases"]};
}

// j - i + b at a distance.
double marian_place(Index delta, double bias) {
  return -static_cast<double>(delta) + bias;
}

}  // namespace

std::vector<Parameter> MarianAlibi::parameters(const ScoreShape& s) const {
  check_score_shape(s, kMarianAlibi);
  const ScoreAxes axes(s);
  if (axis < 0 || axis > 7) refuse_field(kMarianAlibi, "axis", "must lie between 0 and 7", axis);
  MarianNumbers n = marian_start(attention, s.heads);
  return {{"slopes", {axes.heads}, {}, std::move(n.slope)},
          {"biases", {axes.heads}, {}, std::move(n.bias)}};
}

void MarianAlibi::lower(const ScoreShape& s, std::span<const ConstTensorView> p,
                        LoweredTerms& out) const {
  const MarianNumbers n = marian_numbers(*this, s, p);
  const DistanceRange& r = s.range(axis);
  const detail::Distances all(kMarianAlibi, r, s.heads);
  const Index rows = all.count();
  std::vector<double> table;
  table.reserve(static_cast<std::size_t>(s.heads * rows));
  for (std::size_t h = 0; h < n.slope.size(); ++h) {
    const double m = absolute ? -std::abs(n.slope[h]) : n.slope[h];
    all.each([&](Index delta) { table.push_back(m * std::abs(marian_place(delta, n.bias[h]))); });
  }
  const IndexLine line = detail::line_over(
      kMarianAlibi, out, r, [&](Index delta) { return all.row(delta); },
      static_cast<std::int32_t>(axis));
  out.add(detail::number_term(out.table(std::move(table), s.heads, rows, 1), line, 1));
}

void MarianAlibi::pull_back(const ScoreShape& s, std::span<const ConstTensorView> p,
                            const CallData&, const LoweredGradient& g,
                            std::span<const TensorView> dp, std::span<const TensorView>) const {
  const MarianNumbers n = marian_numbers(*this, s, p);
  const DistanceRange& r = s.range(axis);
  const detail::Distances all(kMarianAlibi, r, s.heads);
  const Index rows = all.count();
  const std::vector<double> d = gradient_values(
      kMarianAlibi, gradient_of(kMarianAlibi, g.terms, 0).table, {1, s.heads, rows, 1});
  detail::LearnedGradients to(detail::LearnedValues(*this, s, p));
  std::vector<double>&d_slope = to["slopes"], &d_bias = to["biases"];
  d_slope.resize(n.slope.size()), d_bias.resize(n.slope.size());
  for (std::size_t h = 0; h < n.slope.size(); ++h) {
    const double m = absolute ? -std::abs(n.slope[h]) : n.slope[h];
    const double by_m = absolute && n.slope[h] >= 0 ? -1 : 1;
    std::size_t row = h * static_cast<std::size_t>(rows);
    all.each([&](Index delta) {
      const double x = marian_place(delta, n.bias[h]);
      const double up = d[row++];
      d_slope[h] += up * by_m * std::abs(x);
      d_bias[h] += up * m * (x > 0 || (x == 0 && absolute) ? 1 : x < 0 ? -1 : 0);
    });
  }
  to.accumulate(dp);
}

}  // namespace posenc::v0
