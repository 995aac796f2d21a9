// SPDX-License-Identifier: Apache-2.0
// bias, buckets: what stands in the score, as far as schemes of it are there.
#include <algorithm>

#include "conformance/runner/encoding.h"
#include "conformance/runner/parameters.h"
#include "conformance/runner/position_list.h"
#include "conformance/runner/tensors.h"
#include "posenc/core/error.h"
#include "posenc/relative/scheme.h"

namespace posenc::conformance {
namespace {

// A term that depends on the distance alone, as attention/term.h writes it.
double distance_bias(const Term& t, Index h, Index delta) {
  const std::vector<double> table =
      make_array(t.table).doubles();  // [1, heads or 1, rows, channels]
  const Index rows = t.table.shape[2], channels = t.table.shape[3];
  const Index head = t.table.shape[1] == 1 ? 0 : h;
  const auto at = [&](Index r, Index c) {
    return table[static_cast<std::size_t>((head * rows + r) * channels + c)];
  };
  if (t.kind == TermKind::linear) {
    const auto past = static_cast<double>(std::max<Index>(delta, 0));
    const auto future = static_cast<double>(std::max<Index>(-delta, 0));
    return t.scale * (at(0, 0) * past + at(0, 1) * future);
  }
  if (t.kind != TermKind::product || t.query.present() || t.key.present() ||
      t.lines[0].row == nullptr || t.lines[1].row != nullptr || t.pair.row != nullptr)
    throw NotExpressible("bias compares terms that depend on one distance alone");
  const std::int32_t r = row_of(t.lines[0], static_cast<double>(delta));
  return r < 0 ? 0 : t.scale * at(r, 0);
}

// Value of the lowered terms that depend on the distance alone, [head, query, key].
std::vector<double> biases(const LoweredTerms& lowered, const OwnedPositions& query,
                           const OwnedPositions& key, Index heads) {
  const Positions q = query, k = key;
  std::vector<double> out;
  for (Index h = 0; h < heads; ++h)
    for (Index i = 0; i < query.count(); ++i)
      for (Index j = 0; j < key.count(); ++j) {
        const Index delta = integer_position_at(q, 0, 0, i) - integer_position_at(k, 0, 0, j);
        double sum = 0;
        for (const Term& t : lowered.terms) sum += distance_bias(t, h, delta);
        out.push_back(sum);
      }
  return out;
}

// The bias of one scheme of a check, [heads, queries, keys].
struct Bias {
  std::vector<double> value;
  std::vector<Index> shape;
};
Bias bias_of(const Check& check) {
  const Encoding encoding = encoding_of(check);
  const OwnedPositions query = positions_of(check, "q_positions");
  const OwnedPositions key = positions_of(check, "k_positions");
  ScoreShape shape;
  shape.heads = static_cast<Index>(check.number("heads", 0));
  shape.head_dim = static_cast<Index>(check.number("head_dim", 1));
  shape.distance = {{-(Index{1} << 20), Index{1} << 20}};
  return std::visit(
      [&](const auto& scheme) -> Bias {
        using S = std::decay_t<decltype(scheme)>;
        if constexpr (RelativeScheme<S>) {
          const Given given = given_parameters(check, scheme.parameters(shape));
          LoweredTerms lowered;
          scheme.lower(shape, given.views, lowered);
          return {biases(lowered, query, key, shape.heads),
                  {shape.heads, query.count(), key.count()}};
        } else {
          refuse("case", "bias needs a relative scheme", S::card.name);
        }
      },
      encoding.scheme);
}

}  // namespace

// The bias of a relative scheme, or the sum of several (`sum`: checks that inherit this one).
void run_bias(Check& check) {
  const Json* terms = check.part("sum");
  Bias total;
  if (terms == nullptr) {
    total = bias_of(check);
  } else {
    for (std::size_t n = 0; n < terms->as_array().size(); ++n) {
      const Bias one = bias_of(check.inherited(terms->as_array()[n], Check::place("sum", n)));
      if (n > 0 && one.shape != total.shape)
        refuse("case", "the terms of a sum must have one shape", static_cast<Index>(n));
      total.shape = one.shape;
      total.value.resize(one.value.size(), 0.0);
      for (std::size_t i = 0; i < one.value.size(); ++i) total.value[i] += one.value[i];
    }
  }
  check.expect("bias", total.value, total.shape);
}

// T5's bucket of every distance query - key in `positions`, or of every two of q_positions and
// k_positions.
void run_buckets(Check& check) {
  const Encoding encoding = encoding_of(check);
  const T5* scheme = std::get_if<T5>(&encoding.scheme);
  if (scheme == nullptr) refuse("case", "buckets needs the scheme t5");
  std::vector<Index> distances, shape;
  if (has_positions(check, "q_positions")) {
    const OwnedPositions query = positions_of(check, "q_positions");
    const OwnedPositions key = positions_of(check, "k_positions");
    for (const Index i : std::get<std::vector<Index>>(query.value))
      for (const Index j : std::get<std::vector<Index>>(key.value)) distances.push_back(i - j);
    shape = {query.count(), key.count()};
  } else {
    const OwnedPositions given = positions_of(check);
    distances = std::get<std::vector<Index>>(given.value);
    shape = {given.axes, given.batch, given.count()};
  }
  std::vector<double> buckets;
  for (const Index d : distances) buckets.push_back(static_cast<double>(scheme->bucket(d)));
  check.expect("bucket", buckets, shape);
}

}  // namespace posenc::conformance
