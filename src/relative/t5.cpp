// SPDX-License-Identifier: Apache-2.0
#include "posenc/relative/t5.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "posenc/core/error.h"
#include "relative/learned.h"
#include "relative/lowering.h"
#include "relative/natural.h"

namespace posenc::inline v0 {
namespace {

// (n / me)^K >= (max / me)^k, in whole numbers.
bool at_or_above_bucket(Index n, Index k, Index me, Index big_k, Index max_distance) {
  detail::Natural left = detail::power(n, big_k), right = detail::power(max_distance, k);
  right.multiply(detail::power(me, big_k - k));
  return left >= right;
}

}  // namespace

std::vector<Index> t5_thresholds(Index nb, Index max_distance) {
  if (nb < 2 || nb > 65536)
    refuse(T5::card.name, "buckets of a side must lie between 2 and 65536", nb);
  const Index me = nb / 2, big_k = nb - me;
  if (max_distance <= me)
    refuse_field(T5::card.name, "max_distance", "must be above half the buckets of a side",
                 max_distance);
  std::vector<Index> first;
  for (Index k = 1; k < big_k; ++k) {
    const long double ratio = static_cast<long double>(max_distance) / static_cast<long double>(me);
    const long double x =
        static_cast<long double>(me) *
        std::pow(ratio, static_cast<long double>(k) / static_cast<long double>(big_k));
    // The power is right to some 1e-17; only next to a whole number can that decide wrongly.
    const long double whole = std::round(x);
    if (std::fabs(x - whole) > 1e-12L * x)
      first.push_back(static_cast<Index>(std::ceil(x)));
    else
      first.push_back(
          static_cast<Index>(whole) +
          (at_or_above_bucket(static_cast<Index>(whole), k, me, big_k, max_distance) ? 0 : 1));
  }
  return first;
}

Index T5::bucket(Index delta, const std::vector<Index>& thresholds) const {
  const Index base = bidirectional && delta < 0 ? side() : 0;
  const Index n = !bidirectional && delta < 0                  ? 0
                  : delta == std::numeric_limits<Index>::min() ? kUnbounded
                                                               : std::abs(delta);
  if (n < side() / 2) return base + n;
  const auto passed = std::upper_bound(thresholds.begin(), thresholds.end(), n);
  return base + side() / 2 + (passed - thresholds.begin());
}

std::vector<Parameter> T5::parameters(const ScoreShape& s) const {
  check_score_shape(s, T5::card.name);
  check_fields();
  const ScoreAxes axes(s);
  const double deviation = 1 / std::sqrt(static_cast<double>(s.heads * s.head_dim));
  if (contextual)
    return {{"table",
             {axes.heads, axes.head_dim, num_buckets},
             {InitialKind::normal, 0, 1 / std::sqrt(static_cast<double>(s.head_dim))},
             {}}};
  const ArrayShape shape =
      heads_first ? ArrayShape{axes.heads, num_buckets} : ArrayShape{num_buckets, axes.heads};
  return {{"table", shape, {InitialKind::normal, 0, deviation}, {}}};
}

IndexLine T5::line(const ScoreShape& s, TermStore& store) const {
  check_fields();
  const std::vector<Index> thresholds = t5_thresholds(side(), max_distance);
  const auto at_axis = static_cast<std::int32_t>(axis);
  std::vector<std::int32_t> row;
  const Index last = thresholds.empty() ? side() / 2 : thresholds.back();
  const auto clamped = [&](Index x) { return std::clamp(x, bidirectional ? -last : -1, last); };
  const Index lo = per_unit == 0 ? clamped(s.range(axis).min) : 0;
  const Index hi = per_unit == 0 ? clamped(s.range(axis).max) : 0;
  if (per_unit == 0 && hi - lo < detail::kWholeRange) {
    for (Index delta = lo; delta <= hi; ++delta)
      row.push_back(static_cast<std::int32_t>(bucket(delta, thresholds)));
    return store.line(std::move(row), lo, at_axis);
  }
  const Index half = side() / 2;
  const auto first = [&](Index b) {  // real distance at which bucket b of a side starts
    const Index n = b <= half ? b : thresholds[static_cast<std::size_t>(b - half - 1)];
    return per_unit == 0 ? static_cast<double>(n) : static_cast<double>(n) / per_unit;
  };
  std::vector<double> edges;
  for (Index b = side() - 1; bidirectional && b > 0; --b) {
    row.push_back(static_cast<std::int32_t>(side() + b));
    // The distance -first(b) itself is of bucket b: the edge is just above it; of whole distances,
    // which are rounded down, at the next one.
    edges.push_back(per_unit == 0 ? 1 - first(b) : std::nextafter(-first(b), 1.0));
  }
  row.push_back(0);
  for (Index b = 1; b < side(); ++b) {
    row.push_back(static_cast<std::int32_t>(b));
    edges.push_back(first(b));
  }
  return store.line(std::move(row), std::move(edges), at_axis);
}

// fn(place in the lowered table [heads, buckets, channels], place in the parameter).
template <class F>
void T5::each(const ScoreShape& s, const F& fn) const {
  const Index channels = contextual ? s.head_dim : 1;
  std::size_t lowered = 0;
  for (Index h = 0; h < s.heads; ++h)
    for (Index r = 0; r < num_buckets; ++r)
      for (Index c = 0; c < channels; ++c) {
        Index place = heads_first ? h * num_buckets + r : r * s.heads + h;
        if (contextual) place = (h * channels + c) * num_buckets + r;
        fn(lowered++, static_cast<std::size_t>(place));
      }
}

void T5::lower(const ScoreShape& s, std::span<const ConstTensorView> p, LoweredTerms& out) const {
  const std::vector<double> e = detail::LearnedValues(*this, s, p)["table"];
  const Index channels = contextual ? s.head_dim : 1;
  std::vector<double> table(e.size());
  each(s, [&](std::size_t lowered, std::size_t parameter) { table[lowered] = e[parameter]; });
  ProductTerm t;
  t.scale = bias_scale;
  if (contextual) t.query = kContent;
  t.lines[0] = line(s, out);
  t.table = out.table(std::move(table), s.heads, num_buckets, channels);
  out.add(t);
  out.requests.scale = 1;
}

void T5::pull_back(const ScoreShape& s, std::span<const ConstTensorView> p, const CallData&,
                   const LoweredGradient& g, std::span<const TensorView> dp,
                   std::span<const TensorView>) const {
  detail::LearnedGradients to(detail::LearnedValues(*this, s, p));
  to.check(dp);
  const std::vector<double> d =
      gradient_values(T5::card.name, gradient_of(T5::card.name, g.terms, 0).table,
                      {1, s.heads, num_buckets, contextual ? s.head_dim : 1});
  std::vector<double>& de = to["table"];
  de.resize(d.size());
  each(s, [&](std::size_t lowered, std::size_t parameter) { de[parameter] = d[lowered]; });
  to.accumulate(dp);
}

std::vector<Preset<T5>> T5::presets() {
  using Sizes = std::span<const Index>;
  return {{"encoder", [](Sizes) { return T5{}; }, {}},
          {"decoder", [](Sizes) { return T5{.bidirectional = false}; }, {}}};
}

void T5::check_fields() const {
  if (bidirectional && num_buckets % 2 != 0)
    refuse_field(T5::card.name, "num_buckets", "must be even when bidirectional", num_buckets);
  if (!std::isfinite(bias_scale))
    refuse_field(T5::card.name, "bias_scale", "must be finite", bias_scale);
  if (axis < 0 || axis > 7) refuse_field(T5::card.name, "axis", "must lie between 0 and 7", axis);
  if (!std::isfinite(per_unit) || per_unit < 0)
    refuse_field(T5::card.name, "per_unit", "must be finite and not negative", per_unit);
  if (contextual && heads_first)
    refuse_field(T5::card.name, "heads_first", "is of a table of numbers; contextual must be false",
                 Index{1});
}

}  // namespace posenc::v0
