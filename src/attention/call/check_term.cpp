// SPDX-License-Identifier: Apache-2.0
// Terms: each kind has the arrays it reads, of shapes that fit, and no others.
#include <algorithm>
#include <cmath>

#include "attention/call/check_parts.h"
#include "core/extent.h"
#include "core/known_enum.h"
#include "core/shape.h"
#include "posenc/core/error.h"

namespace posenc::inline v0::detail {
namespace {

// A term of a call under check.
struct Checked {
  const AttentionArgs& a;
  const CallSizes& s;
  const Term& t;
  std::string what;  // "term product "
};

bool picks_rows(const Term& t) {
  for (const IndexLine& line : t.lines)
    if (line.row != nullptr) return true;
  return t.pair.row != nullptr;
}

void check_picks(const Checked& c) {
  for (const IndexLine& line : c.t.lines) {
    if (line.row == nullptr) continue;
    if (line.count < 1) refuse(kAttention, c.what + "line must have at least one row", line.count);
    if (line.count > kMostSize)
      refuse(kAttention, c.what + "line must have at most 2^40 rows", line.count);
    needs_axis(c.a, line.axis, c.what + "line");
  }
  const IndexPair& p = c.t.pair;
  if (p.row == nullptr) return;
  if (p.query_classes < 1 || p.key_classes < 1)
    refuse(kAttention, c.what + "pair must have classes", std::min(p.query_classes, p.key_classes));
  if (saturated_product({p.query_classes, p.key_classes}) > kMostSize)
    refuse(kAttention, c.what + "pair must have at most 2^40 rows, classes of queries",
           p.query_classes);
  if (p.query_class.empty() || p.key_class.empty())
    refuse(kAttention, c.what + "pair must have the classes of queries and keys");
  check_integer(p.query_class, {one_or(c.s.batch), c.s.queries}, c.what + "query_class");
  check_integer(p.key_class, {one_or(c.s.key_rows), c.s.keys}, c.what + "key_class");
}

void check_table(const Checked& c, Index rows, Index channels) {
  check_given(c.t.table, {one_or(c.s.batch), divisor_of(c.s.heads), rows, channels},
              c.what + "table");
}

// A table of rows that lines and a pair pick.
void check_row_table(const Checked& c, Index channels) {
  check_table(c, kAny, channels);
  if (c.t.table.shape[2] < 1) refuse(kAttention, c.what + "table must have rows", Index{0});
  if (c.t.table.shape[2] > 1 && !picks_rows(c.t))
    refuse(kAttention, c.what + "must have a line or a pair that picks its rows");
}

// Channels of a factor, 0 where it is absent.
Index check_factor(const Checked& c, const Factor& f, bool query) {
  const std::string what = c.what + (query ? "query" : "key");
  if (f.content && f.given.data != nullptr)
    refuse(kAttention, what + " must be the content or given, not both");
  if (f.content) return c.s.dim;
  if (f.given.data == nullptr) return 0;
  const ConstHeads& x = f.given;
  const Index rows = query ? c.s.batch : c.s.key_rows, tokens = query ? c.s.queries : c.s.keys;
  if (!is_float(x.dtype))
    refuse(kAttention, what + " must be of a float type", dtype_name(x.dtype));
  check_extent(kAttention, what, x);
  if (!fits(x.batch, one_or(rows)) || !fits(x.tokens, one_or(tokens)) ||
      !fits(x.heads, divisor_of(c.s.heads)) || x.dim < 1)
    refuse_shape(kAttention,
                 what + " must be " +
                     wanted_text({one_or(rows), one_or(tokens), divisor_of(c.s.heads), kAny}),
                 shape_text(x));
  return x.dim;
}

void check_product(const Checked& c) {
  const Index x = check_factor(c, c.t.query, true), y = check_factor(c, c.t.key, false);
  if (x > 0 && y > 0 && x != y)
    refuse(kAttention, c.what + "key must have the channels of query, " + std::to_string(x), y);
  check_picks(c);
  if (c.t.table.empty()) {
    if (x == 0 || y == 0) refuse(kAttention, c.what + "must have a table, or a query and a key");
    return;
  }
  if (x > 0 && y > 0) {
    if (c.t.table.rank == 4 && c.t.table.shape[3] != 1)
      refuse(kAttention,
             c.what + "table must have one channel where query and key are multiplied too",
             c.t.table.shape[3]);
    return check_row_table(c, 1);
  }
  check_row_table(c, x + y > 0 ? x + y : 1);
}

void check_decay(const Checked& c) {
  if (!c.t.query.present() && !c.t.key.present())
    refuse(kAttention, c.what + "must have a query or a key");
  for (const bool query : {true, false}) {
    const Index n = check_factor(c, query ? c.t.query : c.t.key, query);
    if (n > 1) refuse(kAttention, c.what + (query ? "query" : "key") + " must have one channel", n);
  }
  check_known(kAttention, "the side of a term", c.t.side);
}

void check_gates(const Checked& c) {
  const Index x = check_factor(c, c.t.query, true), y = check_factor(c, c.t.key, false);
  if (x == 0 || y == 0) refuse(kAttention, c.what + "must have a query and a key");
  if (x != y)
    refuse(kAttention, c.what + "key must have the channels of query, " + std::to_string(x), y);
  check_known(kAttention, "the gate of a term", c.t.gate);
  if (!std::isfinite(c.t.gate_scale))
    refuse(kAttention, c.what + "gate_scale must be finite", c.t.gate_scale);
  if (!std::isfinite(c.t.spread) || c.t.spread < 0)
    refuse(kAttention, c.what + "spread must be finite and not negative", c.t.spread);
  if (c.t.table.empty() && c.t.spread != 0)
    refuse(kAttention, c.what + "with a spread must have a table", c.t.spread);
  if (c.t.table.empty()) return;
  // The rows of a table are counted from 0 up; sums of logarithms go down.
  if (c.t.gate == Gate::log_sigmoid)
    refuse(kAttention, c.what + "with a table must have the gate sigmoid", enum_text(c.t.gate));
  check_table(c, kAny, c.s.dim);
  if (c.t.table.shape[2] < 1) refuse(kAttention, c.what + "table must have rows", Index{0});
}

void check_mlp(const Checked& c, Index channels, bool kernels) {
  const Mlp& m = c.t.mlp;
  check_given(m.in, {kAny, channels, kernels ? kAny : 1}, c.what + "mlp in");
  const Index width = m.in.shape[0], kernel = m.in.shape[2];
  if (width < 1) refuse(kAttention, c.what + "mlp must have units", width);
  if (kernel < 1 || kernel % 2 == 0) refuse(kAttention, c.what + "kernel must be odd", kernel);
  check_given(m.in_bias, {width}, c.what + "mlp in_bias");
  check_given(m.out, {divisor_of(c.s.heads), width, kernel}, c.what + "mlp out");
  check_given(m.out_bias, {divisor_of(c.s.heads)}, c.what + "mlp out_bias");
  if (!std::isfinite(m.slope)) refuse(kAttention, c.what + "slope must be finite", m.slope);
}

void check_distance_mlp(const Checked& c) {
  check_table(c, 1, 2);
  check_mlp(c, 1, false);
  if (!std::isfinite(c.t.epsilon) || c.t.epsilon < 0)
    refuse(kAttention, c.what + "epsilon must be finite and not negative", c.t.epsilon);
  needs_axis(c.a, c.t.axis, c.what);
}

void check_score_mlp(const Checked& c, std::size_t number) {
  if (number + 1 != c.a.terms.size())
    refuse(kAttention, c.what + "must be the last term, at most one, number",
           static_cast<Index>(number));
  const Index h = c.s.heads, channels = c.t.mlp.in.rank == 3 ? c.t.mlp.in.shape[1] : h;
  if (channels != h && channels != 2 * h)
    refuse(kAttention,
           c.what + "mlp in must have " + std::to_string(h) + " or " + std::to_string(2 * h) +
               " channels",
           channels);
  check_mlp(c, channels, true);
}

// What a kind does not read must not be set.
void check_unread(const Checked& c) {
  const TermKind k = c.t.kind;
  const bool rows = k == TermKind::product || k == TermKind::value_rows;
  const bool factors = k == TermKind::product || k == TermKind::decay || k == TermKind::gates;
  const bool mlp = k == TermKind::distance_mlp || k == TermKind::score_mlp;
  if (!rows && picks_rows(c.t)) refuse(kAttention, c.what + "must not have a line or a pair");
  if (!factors && (c.t.query.present() || c.t.key.present()))
    refuse(kAttention, c.what + "must not have a query or a key");
  if (!mlp && !c.t.mlp.in.empty()) refuse(kAttention, c.what + "must not have an mlp");
  if ((k == TermKind::decay || k == TermKind::score_mlp) && !c.t.table.empty())
    refuse(kAttention, c.what + "must not have a table");
  if (k != TermKind::gates && c.t.spread != 0)
    refuse(kAttention, c.what + "must not have a spread", c.t.spread);
}

}  // namespace

void check_term(const AttentionArgs& a, const CallSizes& s, std::size_t number) {
  const Term& t = a.terms[number];
  check_known(kAttention, "the kind of a term", t.kind);
  const Checked c{a, s, t, "term " + std::string(enum_text(t.kind)) + " "};
  if (!std::isfinite(t.scale)) refuse(kAttention, c.what + "scale must be finite", t.scale);
  check_unread(c);
  switch (t.kind) {
    case TermKind::linear:
      check_table(c, 1, 2);
      return needs_axis(a, t.axis, c.what);
    case TermKind::product:
      return check_product(c);
    case TermKind::decay:
      return check_decay(c);
    case TermKind::gates:
      return check_gates(c);
    case TermKind::distance_mlp:
      return check_distance_mlp(c);
    case TermKind::score_mlp:
      return check_score_mlp(c, number);
    case TermKind::value_rows:
      check_picks(c);
      return check_row_table(c, s.value_dim);
  }
}

}  // namespace posenc::v0::detail
