// SPDX-License-Identifier: Apache-2.0
#include "posenc/relative/swin.h"

#include <algorithm>

#include "relative/image_terms.h"
#include "relative/learned.h"
#include "relative/lowering.h"

namespace posenc::inline v0 {
namespace {

constexpr std::string_view kSwin = Swin::card.name;

detail::WindowRows swin_window(const Swin& x) {
  return {x.height, x.width, x.sign == DistanceSign::key_minus_query, false};
}

}  // namespace

Index Swin::row(Index dy, Index dx) const noexcept {
  const Index sense = sign == DistanceSign::key_minus_query ? -1 : 1;
  return (std::clamp(sense * dy, 1 - height, height - 1) + height - 1) * (2 * width - 1) +
         std::clamp(sense * dx, 1 - width, width - 1) + width - 1;
}

std::vector<Parameter> Swin::parameters(const ScoreShape& s) const {
  check_score_shape(s, kSwin);
  swin_window(*this).check(kSwin);
  const ScoreAxes axes(s);
  ArrayShape shape{rows(), axes.heads};
  if (table == WindowTable::heads_first) shape = {axes.heads, rows()};
  if (table == WindowTable::grid) shape = {axes.heads, 2 * height - 1, 2 * width - 1};
  return {{"table", shape, {InitialKind::truncated_normal, 0, 0.02}, {}}};
}

void Swin::lower(const ScoreShape& s, std::span<const ConstTensorView> p, LoweredTerms& out) const {
  const detail::LearnedValues value(*this, s, p);
  ProductTerm t = detail::number_term(
      out.table(detail::window_by_head(value["table"], table != WindowTable::rows, s.heads, rows()),
                s.heads, rows(), 1),
      {}, 1);
  swin_window(*this).add_lines(kSwin, t, out);
  out.add(t);
}

void Swin::pull_back(const ScoreShape& s, std::span<const ConstTensorView> p, const CallData&,
                     const LoweredGradient& g, std::span<const TensorView> dp,
                     std::span<const TensorView>) const {
  const detail::LearnedValues value(*this, s, p);
  const std::vector<double> d = detail::window_from_heads(
      gradient_values(kSwin, gradient_of(kSwin, g.terms, 0).table, {1, s.heads, rows(), 1}),
      table != WindowTable::rows, s.heads, rows());
  detail::LearnedGradients to(value);
  to["table"] = d;
  to.accumulate(dp);
}

}  // namespace posenc::v0
