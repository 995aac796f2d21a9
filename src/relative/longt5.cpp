// SPDX-License-Identifier: Apache-2.0
#include "posenc/relative/longt5.h"

#include "posenc/core/error.h"
#include "relative/call_inputs.h"
#include "relative/learned.h"
#include "relative/lowering.h"

namespace posenc::inline v0 {
namespace {

constexpr std::string_view kLongT5 = LongT5::card.name;
// Of the terms, in order: of local keys and of global ones.
constexpr std::array<const char*, 2> kLongT5Tables{"table", "global_table"};

}  // namespace

T5 LongT5::rule(Index axis) const {
  T5 t;
  t.num_buckets = num_buckets;
  t.max_distance = max_distance;
  t.axis = axis;
  return t;
}

std::vector<Parameter> LongT5::parameters(const ScoreShape& s) const {
  Parameter table = rule(0).parameters(s)[0], other = table;
  other.name = kLongT5Tables[1];
  return {table, other};
}

std::vector<Input> LongT5::inputs(const ScoreShape&) const {
  return {{.name = "key_global", .shape = {kBatch, kKeys}, .integer = true}};
}

// Each term is void where the other serves.
void LongT5::lower(const ScoreShape& s, std::span<const ConstTensorView> p,
                   LoweredTerms& out) const {
  const detail::LearnedValues value(*this, s, p);
  for (std::size_t n = 0; n < 2; ++n) {
    ProductTerm t = detail::number_term(
        out.table(detail::transposed_list(value[kLongT5Tables[n]], num_buckets, s.heads), s.heads,
                  num_buckets, 1),
        rule(static_cast<Index>(n)).line(s, out), 1);
    t.pair = out.pair(n == 0 ? std::vector<std::int32_t>{0, -1} : std::vector<std::int32_t>{-1, 0},
                      1, 2);
    out.add(t);
  }
  out.requests.scale = 1;
}

// All queries are of one kind.
void LongT5::bind(const ScoreShape& s, std::span<const ConstTensorView>, const CallData& call,
                  std::span<Term> terms, TermStore& store) const {
  const detail::CallInputs given(*this, s, call);
  const ConstTensorView queries = detail::one_class(store, call.queries, 0);
  detail::bind_pairs(terms, queries, given["key_global"]);
}

void LongT5::pull_back(const ScoreShape& s, std::span<const ConstTensorView> p, const CallData&,
                       const LoweredGradient& g, std::span<const TensorView> dp,
                       std::span<const TensorView>) const {
  const detail::LearnedValues value(*this, s, p);
  detail::LearnedGradients to(value);
  for (std::size_t n = 0; n < 2; ++n)
    to[kLongT5Tables[n]] =
        detail::transposed_list(gradient_values(kLongT5, gradient_of(kLongT5, g.terms, n).table,
                                                {1, s.heads, num_buckets, 1}),
                                s.heads, num_buckets);
  to.accumulate(dp);
}

}  // namespace posenc::v0
