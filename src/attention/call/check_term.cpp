// SPDX-License-Identifier: Apache-2.0
// Terms: the arrays of each kind have shapes that fit.
#include <algorithm>
#include <cmath>

#include "attention/call/check_parts.h"
#include "core/extent.h"
#include "core/known_enum.h"
#include "core/shape.h"
#include "posenc/core/error.h"

namespace posenc::inline v0::detail {
namespace {

// The call of a term under check.
struct Checked {
  const AttentionArgs& a;
  const CallSizes& s;
  std::size_t number;  // of the term
  FieldName what;      // "term product "
};

bool picks_rows(const PickedRows& t) {
  for (const IndexLine& line : t.lines)
    if (line.row != nullptr) return true;
  return t.pair.row != nullptr;
}

void check_picks(const Checked& c, const PickedRows& t) {
  for (const IndexLine& line : t.lines) {
    if (line.row == nullptr) continue;
    if (line.count < 1)
      refuse_field(kAttention, c.what + "line", "must have at least one row", line.count);
    if (line.count > kMostSize)
      refuse_field(kAttention, c.what + "line", "must have at most 2^40 rows", line.count);
    needs_axis(c.a, line.axis, {c.what, "line"});
  }
  const IndexPair& p = t.pair;
  if (p.row == nullptr) return;
  if (p.query_classes < 1 || p.key_classes < 1)
    refuse_field(kAttention, c.what + "pair", "must have classes",
                 std::min(p.query_classes, p.key_classes));
  if (saturated_product({p.query_classes, p.key_classes}) > kMostSize)
    refuse_field(kAttention, c.what + "pair", "must have at most 2^40 rows, classes of queries",
                 p.query_classes);
  if (p.query_class.empty() || p.key_class.empty())
    refuse_field(kAttention, c.what + "pair", "must have the classes of queries and keys");
  check_integer(p.query_class, {one_or(c.s.batch), c.s.queries}, {c.what, "query_class"});
  check_integer(p.key_class, {one_or(c.s.key_rows), c.s.keys}, {c.what, "key_class"});
}

void check_table(const Checked& c, const ConstTensorView& table, Index rows, Index channels) {
  check_given(table, {one_or(c.s.batch), divisor_of(c.s.heads), rows, channels}, {c.what, "table"});
}

// A table of rows that lines and a pair pick.
void check_row_table(const Checked& c, const PickedRows& t, Index channels) {
  check_table(c, t.table, kAny, channels);
  if (t.table.shape[2] < 1) refuse_field(kAttention, c.what + "table", "must have rows", Index{0});
  if (t.table.shape[2] > 1 && !picks_rows(t))
    refuse_sentence(kAttention, c.what.name(),
                    c.what + "must have a line or a pair that picks its rows");
}

// Channels of a factor, 0 where it is absent.
Index check_factor(const Checked& c, const Factor& f, bool query) {
  const FieldName what(c.what, query ? "query" : "key");
  if (f.content && f.given.data != nullptr)
    refuse_field(kAttention, what, "must be the call's own array or vectors of the term, not both");
  if (f.content) return c.s.dim;
  if (f.given.data == nullptr) return 0;
  const ConstHeads& x = f.given;
  const Index rows = query ? c.s.batch : c.s.key_rows, tokens = query ? c.s.queries : c.s.keys;
  if (!is_float(x.dtype))
    refuse_field(kAttention, what, "must be of a float type", dtype_name(x.dtype));
  check_extent(kAttention, what, x);
  if (!fits(x.batch, one_or(rows)) || !fits(x.tokens, one_or(tokens)) ||
      !fits(x.heads, divisor_of(c.s.heads)) || x.dim < 1)
    refuse_shape(kAttention, what,
                 std::string("must be ") +
                     wanted_text({one_or(rows), one_or(tokens), divisor_of(c.s.heads), kAny}),
                 shape_text(x));
  return x.dim;
}

void check_kind(const Checked& c, const ProductTerm& t) {
  const Index x = check_factor(c, t.query, true), y = check_factor(c, t.key, false);
  if (x > 0 && y > 0 && x != y)
    refuse_field(kAttention, c.what + "key",
                 "must have the channels of query, " + std::to_string(x), y);
  check_picks(c, t);
  if (t.table.empty()) {
    if (x == 0 || y == 0)
      refuse_sentence(kAttention, c.what.name(),
                      c.what + "must have a table, or a query and a key");
    return;
  }
  if (x > 0 && y > 0) {
    if (t.table.rank == 4 && t.table.shape[3] != 1)
      refuse_field(kAttention, c.what + "table",
                   "must have one channel where query and key are multiplied too",
                   t.table.shape[3]);
    return check_row_table(c, t, 1);
  }
  check_row_table(c, t, x + y > 0 ? x + y : 1);
}

void check_kind(const Checked& c, const DecayTerm& t) {
  if (!t.query.present() && !t.key.present())
    refuse_sentence(kAttention, c.what.name(), c.what + "must have a query or a key");
  for (const bool query : {true, false}) {
    const Index n = check_factor(c, query ? t.query : t.key, query);
    if (n > 1)
      refuse_field(kAttention, c.what + (query ? "query" : "key"), "must have one channel", n);
  }
  check_known(kAttention, "the side of a term", t.side);
}

void check_kind(const Checked& c, const GatesTerm& t) {
  const Index x = check_factor(c, t.query, true), y = check_factor(c, t.key, false);
  if (x == 0 || y == 0)
    refuse_sentence(kAttention, c.what.name(), c.what + "must have a query and a key");
  if (x != y)
    refuse_field(kAttention, c.what + "key",
                 "must have the channels of query, " + std::to_string(x), y);
  check_known(kAttention, "the gate of a term", t.gate);
  if (!std::isfinite(t.gate_scale))
    refuse_field(kAttention, c.what + "gate_scale", "must be finite", t.gate_scale);
  if (!std::isfinite(t.spread) || t.spread < 0)
    refuse_field(kAttention, c.what + "spread", "must be finite and not negative", t.spread);
  if (t.table.empty() && t.spread != 0)
    refuse_number(kAttention, c.what + "spread", c.what + "with a spread must have a table",
                  t.spread);
  if (t.table.empty()) return;
  // The rows of a table are counted from 0 up; sums of logarithms go down.
  if (t.gate == Gate::log_sigmoid)
    refuse_sentence(kAttention, c.what + "gate", c.what + "with a table must have the gate sigmoid",
                    enum_text(t.gate));
  check_table(c, t.table, kAny, c.s.dim);
  if (t.table.shape[2] < 1) refuse_field(kAttention, c.what + "table", "must have rows", Index{0});
}

void check_mlp(const Checked& c, const Mlp& m, Index channels, bool kernels) {
  check_given(m.in, {kAny, channels, kernels ? kAny : 1}, {c.what, "mlp in"});
  const Index width = m.in.shape[0], kernel = m.in.shape[2];
  if (width < 1) refuse_field(kAttention, c.what + "mlp", "must have units", width);
  if (kernel < 1 || kernel % 2 == 0)
    refuse_field(kAttention, c.what + "kernel", "must be odd", kernel);
  check_given(m.in_bias, {width}, {c.what, "mlp in_bias"});
  check_given(m.out, {divisor_of(c.s.heads), width, kernel}, {c.what, "mlp out"});
  check_given(m.out_bias, {divisor_of(c.s.heads)}, {c.what, "mlp out_bias"});
  if (!std::isfinite(m.slope))
    refuse_field(kAttention, c.what + "slope", "must be finite", m.slope);
}

void check_kind(const Checked& c, const LinearTerm& t) {
  check_table(c, t.table, 1, 2);
  needs_axis(c.a, t.axis, c.what);
}

void check_kind(const Checked& c, const DistanceMlpTerm& t) {
  check_table(c, t.table, 1, 2);
  check_mlp(c, t.mlp, 1, false);
  if (!std::isfinite(t.epsilon) || t.epsilon < 0)
    refuse_field(kAttention, c.what + "epsilon", "must be finite and not negative", t.epsilon);
  needs_axis(c.a, t.axis, c.what);
}

void check_kind(const Checked& c, const ScoreMlpTerm& t) {
  if (c.number + 1 != c.a.terms.size())
    refuse_number(kAttention, c.what.name(), c.what + "must be the last term, at most one, number",
                  static_cast<Index>(c.number));
  const Index h = c.s.heads, channels = t.mlp.in.rank == 3 ? t.mlp.in.shape[1] : h;
  if (channels != h && channels != 2 * h)
    refuse_field(kAttention, c.what + "mlp in",
                 "must have " + std::to_string(h) + " or " + std::to_string(2 * h) + " channels",
                 channels);
  check_mlp(c, t.mlp, channels, true);
}

void check_kind(const Checked& c, const ValueRowsTerm& t) {
  check_picks(c, t);
  check_row_table(c, t, c.s.value_dim);
}

}  // namespace

void check_term(const AttentionArgs& a, const CallSizes& s, std::size_t number) {
  const Term& term = a.terms[number];
  const Checked c{a, s, number, {"term ", term_name(term), " "}};
  std::visit(
      [&](const auto& t) {
        if (!std::isfinite(t.scale))
          refuse_field(kAttention, c.what + "scale", "must be finite", t.scale);
        check_kind(c, t);
      },
      term);
}

}  // namespace posenc::v0::detail
