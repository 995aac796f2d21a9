// SPDX-License-Identifier: Apache-2.0
#include "posenc/relative/sandwich.h"

#include <cmath>

#include "posenc/core/error.h"
#include "relative/lowering.h"

namespace posenc::inline v0 {
namespace {

constexpr std::string_view kSandwich = Sandwich::card.name;

}  // namespace

double Sandwich::bias(Index h, Index heads, Index distance) const {
  const Index half = width / 2, first = form == SandwichForm::nemo ? 1 : 0;
  double sum = form == SandwichForm::nemo ? -static_cast<double>(half) : 0;
  for (Index m = first; m < first + half; ++m)
    sum += std::cos(static_cast<double>(distance) *
                    std::pow(10000.0, -2 * static_cast<double>(m) / static_cast<double>(width)));
  return sum / (8 * static_cast<double>(h + 1) / static_cast<double>(heads));
}

void Sandwich::check_fields(const ScoreShape& s) const {
  check_score_shape(s, kSandwich);
  if (width < 2 || width % 2 != 0)
    refuse_field(kSandwich, "width", "must be positive and even", width);
}

std::vector<Parameter> Sandwich::parameters(const ScoreShape& s) const {
  check_fields(s);
  return {};
}

void Sandwich::lower(const ScoreShape& s, std::span<const ConstTensorView> p,
                     LoweredTerms& out) const {
  check_parameter_count(kSandwich, parameters(s).size(), p.size());
  const detail::Distances sizes(kSandwich, detail::magnitudes(s.range()), s.heads);
  std::vector<double> first, table;  // of the first head, and of all
  sizes.each([&](Index d) { first.push_back(bias(0, s.heads, d)); });
  for (Index h = 0; h < s.heads; ++h)
    for (const double x : first) table.push_back(x / static_cast<double>(h + 1));
  const IndexLine line =
      detail::line_over(kSandwich, out, s.range(), [&](Index d) { return sizes.row(std::abs(d)); });
  out.add(detail::number_term(out.table(std::move(table), s.heads, sizes.count(), 1), line, 1));
}

void Sandwich::pull_back(const ScoreShape& s, std::span<const ConstTensorView> p, const CallData&,
                         const LoweredGradient& g, std::span<const TensorView> dp,
                         std::span<const TensorView>) const {
  check_parameter_count(kSandwich, parameters(s).size(), p.size());
  check_parameter_count(kSandwich, 0, dp.size());
  const Index n = detail::Distances(kSandwich, detail::magnitudes(s.range()), s.heads).count();
  (void)gradient_values(kSandwich, gradient_of(kSandwich, g.terms, 0).table, {1, s.heads, n, 1});
}

}  // namespace posenc::v0
