// SPDX-License-Identifier: Apache-2.0
#include "posenc/relative/shaw.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "posenc/core/error.h"
#include "relative/learned.h"
#include "relative/lowering.h"
#include "relative/term_names.h"

namespace posenc::inline v0 {
namespace {

constexpr std::string_view kShaw = Shaw::card.name;

Index shaw_value_dim(const ScoreShape& s) {
  return s.value_dim == 0 ? s.head_dim : s.value_dim;
}

// NEZHA's: row r is the sinusoid of position r, sine and cosine interleaved. It is not centred:
// distance 0 has the sinusoid of `left`.
std::vector<double> shaw_sinusoids(Index rows, Index width) {
  std::vector<double> table;
  table.reserve(static_cast<std::size_t>(rows * width));
  for (Index r = 0; r < rows; ++r)
    for (Index c = 0; c < width; ++c) {
      const double power = static_cast<double>(c - c % 2) / static_cast<double>(width);
      const double angle = static_cast<double>(r) * std::pow(10000.0, -power);
      table.push_back(c % 2 == 0 ? std::sin(angle) : std::cos(angle));
    }
  return table;
}

void shaw_in_reach(const Shaw& x, const ScoreShape& s) {
  if (x.beyond != ShawBeyond::refuse) return;
  if (s.range().max > x.left)
    refuse(kShaw, "distances to keys before the query must not be above left", s.range().max);
  if (s.range().min < -x.right)
    refuse(kShaw, "distances to keys after the query must not be above right", -s.range().min);
}

// What presets are made of.
Shaw shaw_both_sides(Index distance, std::optional<double> init = {}) {
  return {.left = distance, .right = distance, .init = init};
}
Shaw shaw_keys(Index left, Index right, ShawSign sign, double init) {
  return {.left = left, .right = right, .sign = sign, .values = ShawValues::none, .init = init};
}
// A row for every distance between two positions.
Shaw shaw_by_position(Index positions) {
  Shaw s = shaw_keys(positions - 1, positions - 1, ShawSign::query_minus_key, 0.02);
  s.beyond = ShawBeyond::refuse;
  return s;
}
// length, heads, head_dim
Shaw shaw_music(std::span<const Index> n) {
  Shaw s =
      shaw_keys(n[0] - 1, 0, ShawSign::key_minus_query, 1 / std::sqrt(static_cast<double>(n[2])));
  s.beyond = ShawBeyond::zero;
  s.groups = n[1];
  return s;
}
// distance, head_dim
Shaw shaw_vits(std::span<const Index> n) {
  Shaw s = shaw_both_sides(n[0], 1 / std::sqrt(static_cast<double>(n[1])));
  s.beyond = ShawBeyond::zero;
  s.groups = 1;
  return s;
}

detail::TermNames shaw_terms(const Shaw& s) {
  return {kShaw,
          {{"query", s.query_term}, {"key", s.key_term}, {"value", s.values != ShawValues::none}}};
}

}  // namespace

std::int32_t Shaw::row(Index delta) const noexcept {
  if (beyond == ShawBeyond::zero && (delta > left || delta < -right)) return -1;
  const Index d = std::clamp(delta, -right, left);
  return static_cast<std::int32_t>(sign == ShawSign::key_minus_query ? left - d : d + right);
}

std::vector<Parameter> Shaw::parameters(const ScoreShape& s) const {
  check_fields(s);
  if (table == ShawTable::sinusoid) return {};
  const ScoreAxes axes(s);
  const auto learned = [&](const char* name, const AxisSize& width) {
    Parameter p{name, {rows(), width}, {}, {}};
    if (groups > 0) p.shape.add_front(groups);
    const double limit = std::sqrt(6 / static_cast<double>(rows() + width.size));
    p.initial = init ? Initial{InitialKind::normal, 0, *init}
                     : Initial{InitialKind::uniform, -limit, limit};
    return p;
  };
  if (values != ShawValues::separate) return {learned("table", axes.head_dim)};
  return {learned("table_k", axes.head_dim), learned("table_v", axes.value_dim)};
}

void Shaw::lower(const ScoreShape& s, std::span<const ConstTensorView> p, LoweredTerms& out) const {
  const detail::LearnedValues value(*this, s, p);
  shaw_in_reach(*this, s);
  const Index g = std::max<Index>(groups, 1);
  const bool learned = table != ShawTable::sinusoid;
  const char* first_name = values == ShawValues::separate ? "table_k" : "table";
  const auto given = [&](const char* name, Index width) {
    return out.table(learned ? value[name] : shaw_sinusoids(rows(), width), learned ? g : 1, rows(),
                     width);
  };
  // Rows of every distance up to the first beyond the table on both sides.
  const IndexLine line = detail::line_over(kShaw, out, {-right - 1, left + 1},
                                           [this](Index delta) { return row(delta); });
  const ConstTensorView first = given(first_name, s.head_dim);
  const detail::TermNames names = shaw_terms(*this);
  detail::NamedTerms terms(names, out);
  if (query_term) terms.add("query", detail::query_term(first, line, s.content_scale()));
  if (key_term)
    terms.add("key", detail::key_term(first, line, key_scale.value_or(s.content_scale())));
  if (values == ShawValues::shared) terms.add("value", detail::value_term(first, line));
  if (values == ShawValues::separate)
    terms.add("value", detail::value_term(given("table_v", shaw_value_dim(s)), line));
}

// The gradient of a table is the sum over the terms that read it.
void Shaw::pull_back(const ScoreShape& s, std::span<const ConstTensorView> p, const CallData&,
                     const LoweredGradient& g, std::span<const TensorView> dp,
                     std::span<const TensorView>) const {
  const detail::LearnedValues value(*this, s, p);
  detail::LearnedGradients to(value);
  if (table == ShawTable::sinusoid) return to.check(dp);
  const char* first_name = values == ShawValues::separate ? "table_k" : "table";
  const detail::TermNames names = shaw_terms(*this);
  const detail::TermGradients of(names, g);
  const auto take = [&](const char* term, const char* name, Index width) {
    add_to(to[name], of.table(term, {1, std::max<Index>(groups, 1), rows(), width}));
  };
  if (query_term) take("query", first_name, s.head_dim);
  if (key_term) take("key", first_name, s.head_dim);
  if (values == ShawValues::shared) take("value", first_name, s.head_dim);
  if (values == ShawValues::separate) take("value", "table_v", shaw_value_dim(s));
  to.accumulate(dp);
}

void Shaw::check_fields(const ScoreShape& s) const {
  check_score_shape(s, kShaw);
  const Index most = Index{1} << 24;
  if (left < 0 || left > most) refuse_field(kShaw, "left", "must lie between 0 and 2^24", left);
  if (right < 0 || right > most - left)
    refuse_field(kShaw, "right", "must not be negative, left + right not above 2^24", right);
  if (groups < 0 || (groups > 0 && s.heads % groups != 0))
    refuse_field(kShaw, "groups", "must be 0 or divide the heads", groups);
  if (groups > 0 && table == ShawTable::sinusoid)
    refuse_field(kShaw, "groups", "must be 0 where the table is not learned", groups);
  if (!query_term && !key_term && values == ShawValues::none)
    refuse(kShaw, "one of query_term, key_term and values must be there", enum_text(values));
  if (values == ShawValues::shared && shaw_value_dim(s) != s.head_dim)
    refuse(kShaw, "with shared values value_dim must be head_dim", shaw_value_dim(s));
  if (key_scale && !std::isfinite(*key_scale))
    refuse_field(kShaw, "key_scale", "must be finite", *key_scale);
  if (init && !(std::isfinite(*init) && *init >= 0))
    refuse_field(kShaw, "init", "must be finite and not negative", *init);
}

std::vector<Preset<Shaw>> Shaw::presets() {
  using Sizes = std::span<const Index>;
  return {
      {"tensor2tensor", [](Sizes n) { return shaw_both_sides(n[0]); }, {{"distance", 16}}},
      {"opennmt",
       [](Sizes n) {
         Shaw s = shaw_both_sides(n[0], 1);
         s.values = ShawValues::shared;
         return s;
       },
       {{"distance", 20}}},
      {"bert_relative_key", [](Sizes n) { return shaw_by_position(n[0]); }, {{"positions", 512}}},
      {"bert_relative_key_query",
       [](Sizes n) {
         Shaw s = shaw_by_position(n[0]);
         s.key_term = true;
         return s;
       },
       {{"positions", 512}}},
      {"esm_relative_key_query",
       [](Sizes n) {
         Shaw s = shaw_by_position(n[0]);
         s.key_term = true;
         s.key_scale = 1;
         return s;
       },
       {{"positions", 1026}}},
      {"music_transformer", &shaw_music, {{"length", 512}, {"heads", 8}, {"head_dim", 64}}},
      {"nezha",
       [](Sizes n) {
         Shaw s = shaw_both_sides(n[0]);
         s.values = ShawValues::shared;
         s.table = ShawTable::sinusoid;
         return s;
       },
       {{"distance", 64}}},
      {"vits", &shaw_vits, {{"distance", 4}, {"head_dim", 96}}},
      {"wav2vec2_bert",
       [](Sizes n) { return shaw_keys(n[0], n[1], ShawSign::key_minus_query, 1); },
       {{"left", 64}, {"right", 8}}},
      {"speecht5",
       [](Sizes n) { return shaw_keys(n[0] - 1, n[0], ShawSign::query_minus_key, 1); },
       {{"distance", 160}}}};
}

}  // namespace posenc::v0
