// SPDX-License-Identifier: Apache-2.0
#include "posenc/relative/deberta.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "posenc/core/error.h"
#include "relative/layers/linear.h"
#include "relative/layers/row_norm.h"
#include "relative/learned.h"
#include "relative/lowering.h"
#include "relative/natural.h"
#include "relative/term_names.h"

namespace posenc::inline v0 {
namespace {

constexpr std::string_view kDeberta = Deberta::card.name;

// n^(mid-1) mid^c <= (M-1)^c mid^(mid-1).
bool deberta_at_most(Index n, Index c, Index mid, Index max_distance) {
  detail::Natural left = detail::power(n, mid - 1), right = detail::power(max_distance - 1, c);
  left.multiply(detail::power(mid, c));
  right.multiply(detail::power(mid, mid - 1));
  return right >= left;
}

// One of the two projections of E_rel.
struct DebertaSide {
  std::string weight_name, bias_name;
  std::vector<double> weight, bias;  // bias empty: none
  std::vector<double> table;         // [heads, 2 S, head_dim]; empty: no term reads it
};
// Names of the weight and the bias of a side, "k" or "q".
std::string deberta_weight(const Deberta& d, const char* side) {
  return (d.projection == DebertaProjection::own ? "w_pos_" : "w_") + std::string(side);
}
std::string deberta_bias(const Deberta& d, const char* side) {
  return (d.projection == DebertaProjection::own ? "b_pos_" : "b_") + std::string(side);
}
// What lower computes and pull_back computes again, the projected tables where they are wanted.
struct DebertaTables {
  std::vector<double> e, norm_weight, norm_bias;
  DebertaSide key, query;
};

// E_rel, normed: [2 S, width].
detail::RowBlock deberta_rows(const Deberta& d, const DebertaTables& t, Index width) {
  if (!d.norm) return detail::rows_of(t.e, width);
  return detail::normed_rows(t.e, width, d.norm_epsilon, t.norm_weight, t.norm_bias);
}

Index deberta_width(const Deberta& d, const ScoreShape& s) {
  return d.width > 0 ? d.width : s.heads * s.head_dim;
}

DebertaTables deberta_tables(const Deberta& d, const ScoreShape& s,
                             const detail::LearnedValues& value, bool projected) {
  const bool key = d.c2p || d.p2p, query = d.p2c || d.p2p;
  DebertaTables t;
  if (d.projection == DebertaProjection::tables) {
    t.key.table = value.if_any("pos_key");
    t.query.table = value.if_any("pos_query");
    return t;
  }
  t.e = value["e_rel"];
  t.norm_weight = value.if_any("norm_weight"), t.norm_bias = value.if_any("norm_bias");
  const Index n = 2 * d.span(), width = deberta_width(d, s);
  const detail::RowBlock rows = deberta_rows(d, t, width);
  const detail::HeadProjection to_heads{s.heads, s.head_dim, width, false};
  const auto read = [&](const char* name, DebertaSide& side) {
    side.weight_name = deberta_weight(d, name), side.bias_name = deberta_bias(d, name);
    side.weight = value[side.weight_name], side.bias = value.if_any(side.bias_name);
    if (projected) side.table = to_heads.table(rows, n, side.weight, side.bias);
  };
  if (key) read("k", t.key);
  if (query) read("q", t.query);
  return t;
}

// From the gradient of a projected table to those of weight and bias, and of the rows.
void deberta_unproject(const DebertaSide& side, const ScoreShape& s, const detail::RowBlock& rows,
                       const double* d_table, Index n, Index width, detail::LearnedGradients& d,
                       std::vector<double>& d_rows) {
  const detail::HeadProjection to_heads{s.heads, s.head_dim, width, false};
  d[side.weight_name] = to_heads.weight_gradient(rows, n, d_table);
  to_heads.add_row_gradient(side.weight, n, d_table, d_rows);
  if (!side.bias.empty()) d[side.bias_name] = to_heads.bias_gradient(n, d_table);
}

// The numbers of p2p by distance: visit(number, row of Q, row of K), both of the table of a head.
template <class Visit>
void deberta_position_pairs(const Deberta& d, const ScoreShape& s, const DistanceRange& r,
                            const Visit& visit) {
  const Index n = r.max - r.min + 1, rows = 2 * d.span();
  for (Index delta = r.min; delta <= r.max; ++delta) {
    const Index k = d.row(delta), q = d.p2c_index == DebertaP2c::code ? k : d.row(-delta);
    for (Index h = 0; h < s.heads; ++h)
      visit(static_cast<std::size_t>(h * n + delta - r.min),
            static_cast<std::size_t>((h * rows + q) * s.head_dim),
            static_cast<std::size_t>((h * rows + k) * s.head_dim));
  }
}

}  // namespace

std::vector<Index> deberta_thresholds(Index buckets, Index max_distance, Index n) {
  const Index mid = buckets / 2;
  if (buckets < 2 || buckets > 65536)
    refuse_field(kDeberta, "position_buckets", "must be 0 or lie between 2 and 65536", buckets);
  if (max_distance - 1 <= mid)
    refuse_field(kDeberta, "max_relative_positions",
                 "must be above half of position_buckets plus 1, " + std::to_string(mid + 1),
                 max_distance);
  std::vector<Index> last;
  if (mid == 1) return last;  // log(c) / log(max - 1) * (mid - 1) is 0: no bucket beyond the first
  const long double ratio =
      static_cast<long double>(max_distance - 1) / static_cast<long double>(mid);
  for (Index c = 1; c <= n; ++c) {
    const long double x =
        static_cast<long double>(mid) *
        std::pow(ratio, static_cast<long double>(c) / static_cast<long double>(mid - 1));
    if (x > 0x1p52L) break;
    // The power is right to some 1e-17; only next to a whole number can that decide wrongly.
    const long double whole = std::round(x);
    if (std::fabs(x - whole) > 1e-12L * x)
      last.push_back(static_cast<Index>(std::floor(x)));
    else
      last.push_back(static_cast<Index>(whole) -
                     (deberta_at_most(static_cast<Index>(whole), c, mid, max_distance) ? 0 : 1));
  }
  return last;
}

namespace {

// The bucket of a distance, with the thresholds made once.
struct DebertaRule {
  explicit DebertaRule(const Deberta& d)
      : mid(d.position_buckets / 2),
        clamp(d.clamp_distance ? d.max_relative_positions - 1 : kUnbounded),
        span(d.span()) {
    if (d.position_buckets > 0)
      last = deberta_thresholds(d.position_buckets, d.max_relative_positions, span - mid);
  }
  Index bucket(Index delta) const {
    if (mid == 0) return delta;
    const Index r = std::clamp(delta, -clamp, clamp), n = std::abs(r);
    if (n <= mid) return r;
    if (mid == 1) return r < 0 ? -1 : 1;
    const Index b =
        mid + 1 + static_cast<Index>(std::lower_bound(last.begin(), last.end(), n) - last.begin());
    return r < 0 ? -b : b;
  }
  Index row(Index delta) const {
    return std::clamp(bucket(std::clamp(delta, -kUnbounded, kUnbounded)), -span, span - 1) + span;
  }
  // From here on rows do not change.
  Index far() const { return mid == 0 ? span : last.empty() ? mid : last.back() + 1; }

  Index mid, clamp, span;
  std::vector<Index> last;
};

}  // namespace

Index Deberta::bucket(Index delta) const {
  return DebertaRule(*this).bucket(std::clamp(delta, -kUnbounded, kUnbounded));
}
Index Deberta::row(Index delta) const {
  return DebertaRule(*this).row(delta);
}

double Deberta::scale(const ScoreShape& s) const {
  if (s.scale) return *s.scale;
  const Index c = count > 0 ? count : 1 + (c2p ? 1 : 0) + (p2c ? 1 : 0) + (p2p ? 1 : 0);
  return 1 / std::sqrt(static_cast<double>(c * s.head_dim));
}

DistanceRange Deberta::range(const ScoreShape& s) const {
  const Index far = DebertaRule(*this).far();
  return detail::clipped(s.range(), -far, far);
}

IndexLine Deberta::rows(const ScoreShape& s, TermStore& store, bool mirrored) const {
  const DebertaRule rule(*this);
  return detail::line_over(kDeberta, store, range(s),
                           [&](Index delta) { return rule.row(mirrored ? -delta : delta); });
}

namespace {

detail::TermNames deberta_terms(const Deberta& d) {
  return {kDeberta, {{"c2p", d.c2p}, {"p2c", d.p2c}, {"p2p", d.p2p}}};
}

}  // namespace

void Deberta::lower(const ScoreShape& s, std::span<const ConstTensorView> p,
                    LoweredTerms& out) const {
  const detail::TermNames names = deberta_terms(*this);
  detail::NamedTerms terms(names, out);
  DebertaTables t = deberta_tables(*this, s, {*this, s, p}, true);
  const Index n = 2 * span();
  const double by = scale(s);
  std::vector<double> numbers;
  DistanceRange r;
  if (p2p) {
    r = range(s);
    detail::check_distances(kDeberta, r.max - r.min + 1, s.heads);
    numbers.assign(static_cast<std::size_t>(s.heads * (r.max - r.min + 1)), 0.0);
    deberta_position_pairs(*this, s, r, [&](std::size_t i, std::size_t q, std::size_t k) {
      for (std::size_t c = 0; c < static_cast<std::size_t>(s.head_dim); ++c)
        numbers[i] += t.query.table[q + c] * t.key.table[k + c];
    });
  }
  if (c2p)
    terms.add("c2p", detail::query_term(out.table(std::move(t.key.table), s.heads, n, s.head_dim),
                                        rows(s, out, false), by));
  if (p2c)
    terms.add("p2c", detail::key_term(out.table(std::move(t.query.table), s.heads, n, s.head_dim),
                                      rows(s, out, p2c_index == DebertaP2c::paper), by));
  if (p2p)
    terms.add(
        "p2p",
        detail::number_term(
            out.table(std::move(numbers), s.heads, r.max - r.min + 1, 1),
            detail::line_over(kDeberta, out, r, [&](Index delta) { return delta - r.min; }), by));
  out.requests.scale = by;
}

void Deberta::pull_back(const ScoreShape& s, std::span<const ConstTensorView> p, const CallData&,
                        const LoweredGradient& g, std::span<const TensorView> dp,
                        std::span<const TensorView>) const {
  // Tables are met by the gradient of p2p alone.
  const detail::LearnedValues value(*this, s, p);
  const DebertaTables t = deberta_tables(*this, s, value, p2p);
  const Index n = 2 * span();
  const std::vector<Index> shape{1, s.heads, n, s.head_dim};
  const detail::TermNames names = deberta_terms(*this);
  const detail::TermGradients of(names, g);
  const auto of_table = [&](std::string_view name, bool given) {
    return given ? of.table(name, shape) : gradient_values(kDeberta, TensorView{}, shape);
  };
  std::vector<double> d_key = of_table("c2p", c2p), d_query = of_table("p2c", p2c);
  if (p2p) {
    const DistanceRange r = range(s);
    const std::vector<double> e = of.table("p2p", {1, s.heads, r.max - r.min + 1, 1});
    deberta_position_pairs(*this, s, r, [&](std::size_t i, std::size_t q, std::size_t k) {
      for (std::size_t c = 0; c < static_cast<std::size_t>(s.head_dim); ++c) {
        d_query[q + c] += e[i] * t.key.table[k + c];
        d_key[k + c] += e[i] * t.query.table[q + c];
      }
    });
  }
  detail::LearnedGradients to(value);
  if (projection == DebertaProjection::tables) {
    if (needs_key()) to["pos_key"] = std::move(d_key);
    if (needs_query()) to["pos_query"] = std::move(d_query);
    return to.accumulate(dp);
  }
  const Index wide = deberta_width(*this, s);
  const detail::RowBlock rows = deberta_rows(*this, t, wide);
  std::vector<double> d_rows(t.e.size(), 0.0);
  if (needs_key()) deberta_unproject(t.key, s, rows, d_key.data(), n, wide, to, d_rows);
  if (needs_query()) deberta_unproject(t.query, s, rows, d_query.data(), n, wide, to, d_rows);
  if (norm) {
    const detail::RowNorm of_rows(t.e, wide, norm_epsilon);
    std::vector<double>&d_weight = to["norm_weight"], &d_bias = to["norm_bias"];
    d_weight.resize(t.norm_weight.size()), d_bias.resize(t.norm_bias.size());
    detail::pull_row_weights(of_rows, t.norm_weight, d_rows, d_weight, d_bias);
    of_rows.pull_back(d_rows);
  }
  to["e_rel"] = std::move(d_rows);
  to.accumulate(dp);
}

std::vector<Parameter> Deberta::parameters(const ScoreShape& s) const {
  check_fields(s);
  const ScoreAxes axes(s);
  const Initial normal{InitialKind::normal, 0, init}, zeros{};
  const Index n = 2 * span();
  const AxisSize out = axes.heads * axes.head_dim, wide = width > 0 ? AxisSize(width) : out;
  std::vector<Parameter> p;
  if (projection == DebertaProjection::tables) {
    if (needs_key()) p.push_back({"pos_key", {axes.heads, n, axes.head_dim}, normal, {}});
    if (needs_query()) p.push_back({"pos_query", {axes.heads, n, axes.head_dim}, normal, {}});
    return p;
  }
  p.push_back({"e_rel", {n, wide}, normal, {}});
  if (norm) {
    p.push_back({"norm_weight", {wide}, {InitialKind::constant, 1, 0}, {}});
    p.push_back({"norm_bias", {wide}, zeros, {}});
  }
  if (needs_key()) {
    p.push_back({deberta_weight(*this, "k"), {out, wide}, normal, {}});
    if (key_bias) p.push_back({deberta_bias(*this, "k"), {out}, zeros, {}});
  }
  if (needs_query()) {
    p.push_back({deberta_weight(*this, "q"), {out, wide}, normal, {}});
    p.push_back({deberta_bias(*this, "q"), {out}, zeros, {}});
  }
  return p;
}

void Deberta::check_fields(const ScoreShape& s) const {
  check_score_shape(s, kDeberta);
  if (max_relative_positions < 1 || max_relative_positions > 1000000)
    refuse_field(kDeberta, "max_relative_positions", "must lie between 1 and 1000000",
                 max_relative_positions);
  if (position_buckets != 0)
    (void)deberta_thresholds(position_buckets, max_relative_positions, 0);
  else if (clamp_distance)
    refuse_field(kDeberta, "clamp_distance", "goes with position_buckets", position_buckets);
  if (!c2p && !p2c && !p2p) refuse(kDeberta, "c2p, p2c or p2p must be on", Index{0});
  if (count < 0 || count > 4) refuse_field(kDeberta, "count", "must lie between 0 and 4", count);
  if (width < 0) refuse_field(kDeberta, "width", "must not be negative", width);
  if (!std::isfinite(norm_epsilon) || norm_epsilon < 0)
    refuse_field(kDeberta, "norm_epsilon", "must be finite and not negative", norm_epsilon);
}

std::vector<Preset<Deberta>> Deberta::presets() {
  using Sizes = std::span<const Index>;
  const auto buckets = [](Sizes) { return Deberta{}; };
  return {{"v1",
           [](Sizes) {
             return Deberta{.position_buckets = 0,
                            .projection = DebertaProjection::own,
                            .key_bias = false,
                            .norm = false};
           },
           {}},
          {"v2_xlarge", buckets, {}},
          {"v3_base", buckets, {}},
          {"mdeberta_v3_base", buckets, {}}};
}

}  // namespace posenc::v0
