// SPDX-License-Identifier: Apache-2.0
#include "posenc/relative/local_window.h"

#include <cmath>
#include <span>
#include <utility>
#include <vector>

#include "posenc/core/error.h"
#include "relative/learned.h"
#include "relative/term_names.h"

namespace posenc::inline v0 {
namespace {

constexpr detail::TermNames kWindowTerms{LocalWindow::card.name, {{"inside"}, {"outside"}}};

}  // namespace

std::vector<Parameter> LocalWindow::parameters(const ScoreShape& s) const {
  check_score_shape(s, LocalWindow::card.name);
  check_fields();
  const ScoreAxes axes(s);
  return {{"near", {axes.heads, 2 * window + 1}, {}, {}}, {"far", {axes.heads}, {}, {}}};
}

void LocalWindow::lower(const ScoreShape& s, std::span<const ConstTensorView> p,
                        LoweredTerms& out) const {
  const detail::LearnedValues value(*this, s, p);
  const std::vector<double> near = value["near"];
  const std::vector<double> far = value["far"];
  const Index n = 2 * window + 1;
  std::vector<double> table;
  for (Index h = 0; h < s.heads; ++h)
    for (Index r = 0; r <= n; ++r)
      table.push_back(r < n ? near[static_cast<std::size_t>(h * n + r)]
                            : far[static_cast<std::size_t>(h)]);
  std::vector<std::int32_t> row;
  for (Index delta = -window - 1; delta <= window + 1; ++delta)
    row.push_back(static_cast<std::int32_t>(std::abs(delta) <= window ? delta + window : n));
  const auto far_row = static_cast<std::int32_t>(n);
  ProductTerm inside, outside;
  inside.table = outside.table = out.table(std::move(table), s.heads, n + 1, 1);
  inside.lines[0] = out.line(std::move(row), -window - 1, 0);
  inside.lines[1] = out.line({-1, 0, -1}, -1, 1);
  outside.lines[0] = out.line({far_row, -1, far_row}, -1, 1);
  detail::NamedTerms terms(kWindowTerms, out);
  terms.add("inside", inside);
  terms.add("outside", outside);
}

void LocalWindow::pull_back(const ScoreShape& s, std::span<const ConstTensorView> p,
                            const CallData&, const LoweredGradient& g,
                            std::span<const TensorView> dp, std::span<const TensorView>) const {
  const detail::LearnedValues value(*this, s, p);
  const Index n = 2 * window + 1;
  std::vector<double> d;
  const detail::TermGradients of(kWindowTerms, g);
  for (const char* name : {"inside", "outside"}) add_to(d, of.table(name, {1, s.heads, n + 1, 1}));
  std::vector<double> near, far;
  for (Index h = 0; h < s.heads; ++h)
    for (Index r = 0; r <= n; ++r)
      (r < n ? near : far).push_back(d[static_cast<std::size_t>(h * (n + 1) + r)]);
  detail::LearnedGradients to(value);
  to["near"] = near;
  to["far"] = far;
  to.accumulate(dp);
}

void LocalWindow::check_fields() const {
  if (window < 0 || window > 1000000)
    refuse_field(LocalWindow::card.name, "window", "must lie between 0 and 10^6", window);
}

}  // namespace posenc::v0
