// SPDX-License-Identifier: Apache-2.0
#include "posenc/relative/levit.h"

#include "relative/image_terms.h"
#include "relative/learned.h"
#include "relative/lowering.h"

namespace posenc::inline v0 {
namespace {

constexpr std::string_view kLevit = Levit::card.name;

detail::WindowRows levit_window(const Levit& x) {
  return {x.height, x.width, false, true};
}

}  // namespace

std::vector<Parameter> Levit::parameters(const ScoreShape& s) const {
  check_score_shape(s, kLevit);
  levit_window(*this).check(kLevit);
  const ScoreAxes axes(s);
  const ArrayShape shape =
      heads_first ? ArrayShape{axes.heads, rows()} : ArrayShape{rows(), axes.heads};
  return {{"table", shape, {}, {}}};
}

void Levit::lower(const ScoreShape& s, std::span<const ConstTensorView> p,
                  LoweredTerms& out) const {
  const detail::LearnedValues value(*this, s, p);
  ProductTerm t = detail::number_term(
      out.table(detail::window_by_head(value["table"], heads_first, s.heads, rows()), s.heads,
                rows(), 1),
      {}, 1);
  levit_window(*this).add_lines(kLevit, t, out);
  out.add(t);
}

void Levit::pull_back(const ScoreShape& s, std::span<const ConstTensorView> p, const CallData&,
                      const LoweredGradient& g, std::span<const TensorView> dp,
                      std::span<const TensorView>) const {
  const detail::LearnedValues value(*this, s, p);
  const std::vector<double> d = detail::window_from_heads(
      gradient_values(kLevit, gradient_of(kLevit, g.terms, 0).table, {1, s.heads, rows(), 1}),
      heads_first, s.heads, rows());
  detail::LearnedGradients to(value);
  to["table"] = d;
  to.accumulate(dp);
}

}  // namespace posenc::v0
