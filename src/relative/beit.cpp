// SPDX-License-Identifier: Apache-2.0
#include "posenc/relative/beit.h"

#include "relative/image_terms.h"
#include "relative/learned.h"
#include "relative/lowering.h"

namespace posenc::inline v0 {
namespace {

constexpr std::string_view kBeit = Beit::card.name;

detail::WindowRows beit_window(const Beit& x) {
  return {x.height, x.width, false, false};
}

}  // namespace

std::vector<Parameter> Beit::parameters(const ScoreShape& s) const {
  check_score_shape(s, kBeit);
  beit_window(*this).check(kBeit);
  const ScoreAxes axes(s);
  const ArrayShape shape =
      heads_first ? ArrayShape{axes.heads, rows()} : ArrayShape{rows(), axes.heads};
  return {{"table", shape, {}, {}}};
}

std::vector<Input> Beit::inputs(const ScoreShape&) const {
  return detail::class_inputs();
}

// Two terms of one table, each void where the other one serves.
void Beit::lower(const ScoreShape& s, std::span<const ConstTensorView> p, LoweredTerms& out) const {
  const detail::LearnedValues value(*this, s, p);
  const ConstTensorView table = out.table(
      detail::window_by_head(value["table"], heads_first, s.heads, rows()), s.heads, rows(), 1);
  ProductTerm patches = detail::number_term(table, {}, 1), others = patches;
  beit_window(*this).add_lines(kBeit, patches, out);
  patches.pair = detail::patches_alone(out);
  const auto n = static_cast<std::int32_t>(beit_window(*this).rows());
  others.pair = out.pair({-1, n + 1, n, n + 2}, 2, 2);
  out.add(patches);
  out.add(others);
}

void Beit::bind(const ScoreShape&, std::span<const ConstTensorView>, const CallData& call,
                std::span<Term> terms, TermStore&) const {
  detail::bind_classes(kBeit, call, terms);
}

void Beit::pull_back(const ScoreShape& s, std::span<const ConstTensorView> p, const CallData&,
                     const LoweredGradient& g, std::span<const TensorView> dp,
                     std::span<const TensorView>) const {
  const detail::LearnedValues value(*this, s, p);
  std::vector<double> d;
  for (const std::size_t n : {std::size_t{0}, std::size_t{1}})
    add_to(d,
           gradient_values(kBeit, gradient_of(kBeit, g.terms, n).table, {1, s.heads, rows(), 1}));
  d = detail::window_from_heads(d, heads_first, s.heads, rows());
  detail::LearnedGradients to(value);
  to["table"] = d;
  to.accumulate(dp);
}

}  // namespace posenc::v0
