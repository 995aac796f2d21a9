// SPDX-License-Identifier: Apache-2.0
// What ALiBi reads of each call: the sequences of a ragged call, the positions of keys of Falcon.
#include <algorithm>
#include <string>
#include <vector>

#include "core/convert.h"
#include "posenc/core/error.h"
#include "posenc/positions/sequence.h"
#include "posenc/relative/alibi.h"
#include "relative/call_inputs.h"
#include "relative/lowering.h"

namespace posenc::inline v0 {
namespace {

constexpr std::string_view kAlibi = Alibi::card.name;

double bfloat16(double x) {
  return static_cast<double>(f32_from_bf16(bf16_from(static_cast<float>(x))));
}

// Which sequence each query of each row is of, checked.
std::vector<Index> alibi_sequences(const ConstTensorView& given, const CallData& call,
                                   Index sequences) {
  if (given.rank != 2 || given.shape[1] != call.queries)
    refuse_field(kAlibi, "query_sequence", "must be [batch, queries], queries", call.queries);
  std::vector<Index> all = detail::whole_numbers(kAlibi, given);
  for (const Index n : all)
    if (n < 0 || n >= sequences)
      refuse_field(kAlibi, "query_sequence",
                   "must lie between 0 and sequences - 1 = " + std::to_string(sequences - 1), n);
  return all;
}

// Minus bf16(bf16(m) bf16(j)), [rows, keys, heads].
std::vector<double> falcon_biases(const std::vector<double>& slope, const CallData& call) {
  const Positions& p = call.key_positions;
  const Index rows = p.data == nullptr ? 1 : p.batch;
  std::vector<double> out;
  for (Index b = 0; b < rows; ++b)
    for (Index j = 0; j < call.keys; ++j) {
      const double at = p.data == nullptr ? static_cast<double>(j) : position_at(p, 0, b, j);
      for (const double m : slope) out.push_back(-bfloat16(bfloat16(m) * bfloat16(at)));
    }
  return out;
}

}  // namespace

std::vector<Input> Alibi::inputs(const ScoreShape&) const {
  if (sequences == 0) return {};
  return {{.name = "query_sequence", .shape = {kBatch, kQueries}, .integer = true}};
}

// S += scale <x_i, t_r>: x the two slopes of the query's sequence, t the distances on each side.
void Alibi::lower_sequences(const ScoreShape& s, LoweredTerms& out) const {
  const DistanceRange& r = s.range(axis);
  const detail::Distances all(kAlibi, r, 2);
  std::vector<double> sides;
  const double ahead = future == AlibiFuture::signed_distance ? 1 : -1;
  all.each([&](Index delta) {
    sides.push_back(delta > 0 ? past_offset - static_cast<double>(delta) : 0);
    sides.push_back(delta < 0 ? ahead * static_cast<double>(-delta) : 0);
  });
  ProductTerm t;
  t.scale = bias_scale;
  t.table = out.table(std::move(sides), 1, all.count(), 2);
  t.lines[0] = detail::line_over(
      kAlibi, out, r, [&](Index delta) { return all.row(delta); }, static_cast<std::int32_t>(axis));
  out.add(t);
}

void Alibi::bind(const ScoreShape& s, std::span<const ConstTensorView> p, const CallData& call,
                 std::span<Term> terms, TermStore& store) const {
  if (precision == AlibiPrecision::falcon_bfloat16) {
    const std::vector<double> m = slope(s.heads);
    const Index rows = call.key_positions.data == nullptr ? 1 : call.key_positions.batch;
    auto& t = std::get<DecayTerm>(terms[0]);
    t.query.given = store.vectors({0}, 1, 1, 1, 1);
    t.key.given = store.vectors(falcon_biases(m, call), rows, call.keys, s.heads, 1);
    return;
  }
  if (sequences == 0) return;
  const auto m = slopes_of(s, p);
  const ConstTensorView given = detail::CallInputs(*this, s, call)["query_sequence"];
  const std::vector<Index> of = alibi_sequences(given, call, sequences);
  std::vector<double> x;
  for (const Index n : of)
    for (Index h = 0; h < s.heads; ++h)
      for (const std::vector<double>& side : m)
        x.push_back(side[static_cast<std::size_t>(n * s.heads + h)]);
  std::get<ProductTerm>(terms[0]).query.given =
      store.vectors(std::move(x), given.shape[0], call.queries, s.heads, 2);
}

std::vector<std::vector<double>> Alibi::pull_sequences(const ScoreShape& s, const CallData& call,
                                                       const LoweredGradient& g) const {
  const ConstTensorView given = detail::CallInputs(*this, s, call)["query_sequence"];
  const std::vector<Index> of = alibi_sequences(given, call, sequences);
  const std::vector<double> d = detail::vectors_gradient(
      kAlibi, gradient_of(kAlibi, g.terms, 0).query, {given.shape[0], call.queries, s.heads, 2});
  std::vector<std::vector<double>> dm(
      2, std::vector<double>(static_cast<std::size_t>(sequences * s.heads)));
  for (std::size_t i = 0; i < of.size(); ++i)
    for (Index h = 0; h < s.heads; ++h)
      for (std::size_t side = 0; side < 2; ++side)
        dm[future == AlibiFuture::own_slopes ? side : 0]
          [static_cast<std::size_t>(of[i] * s.heads + h)] +=
            d[(i * static_cast<std::size_t>(s.heads) + static_cast<std::size_t>(h)) * 2 + side];
  return dm;
}

}  // namespace posenc::v0
