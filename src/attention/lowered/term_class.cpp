// SPDX-License-Identifier: Apache-2.0
// The one place that says how a term enters the scores. Engines and explain_plan use it.
#include <algorithm>

#include "posenc/attention/explain_plan.h"

namespace posenc::inline v0 {
namespace {

// The pair is disabled whatever its tokens are.
bool is_disabled(const PickedRows& t) noexcept {
  const auto negative = [](const std::int32_t* row, Index count) {
    return std::all_of(row, row + count, [](std::int32_t r) { return r < 0; });
  };
  for (const IndexLine& line : t.lines)
    if (line.row != nullptr && negative(line.row, line.count)) return true;
  const IndexPair& p = t.pair;
  return p.row != nullptr && negative(p.row, p.query_classes * p.key_classes);
}

auto lines_of(const PickedRows& t) noexcept {
  return std::count_if(t.lines.begin(), t.lines.end(),
                       [](const IndexLine& line) { return line.row != nullptr; });
}
bool picks_rows(const PickedRows& t) noexcept {
  return lines_of(t) > 0 || t.pair.row != nullptr;
}
// One distance picks the row, or there is one row for all pairs.
bool is_by_distance(const PickedRows& t) noexcept {
  return lines_of(t) <= 1 && t.pair.row == nullptr;
}

struct ClassOf {
  TermClass operator()(const LinearTerm&) const noexcept { return TermClass::linear; }
  TermClass operator()(const DecayTerm&) const noexcept { return TermClass::token_number; }
  TermClass operator()(const GatesTerm&) const noexcept { return TermClass::gates; }
  TermClass operator()(const DistanceMlpTerm&) const noexcept { return TermClass::distance_curve; }
  TermClass operator()(const ScoreMlpTerm&) const noexcept { return TermClass::all_heads; }
  TermClass operator()(const ValueRowsTerm& t) const noexcept {
    return is_disabled(t) ? TermClass::none : TermClass::value_rows;
  }
  TermClass operator()(const ProductTerm& t) const noexcept {
    if (is_disabled(t)) return TermClass::none;
    const bool x = t.query.present(), y = t.key.present();
    if (!x && !y) return is_by_distance(t) ? TermClass::band : TermClass::pair_number;
    if (!x || !y) return x ? TermClass::query_rows : TermClass::key_rows;
    if (!t.table.empty() || picks_rows(t)) return TermClass::weighted_product;
    // One vector for all queries, or for all keys: Transformer-XL's u.k.
    const auto is_one = [](const Factor& f) { return !f.content && f.given.tokens == 1; };
    return is_one(t.query) || is_one(t.key) ? TermClass::token_number : TermClass::product;
  }
};

}  // namespace

TermClass term_class(const Term& t) noexcept {
  const bool nothing = std::visit([](const auto& kind) { return kind.scale == 0; }, t);
  return nothing ? TermClass::none : std::visit(ClassOf{}, t);
}

}  // namespace posenc::v0
