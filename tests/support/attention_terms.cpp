// SPDX-License-Identifier: Apache-2.0
// Terms that a pair decides by itself, forward and backward.
#include <algorithm>
#include <cmath>

#include "support/attention_parts.h"

namespace posenc::support {
namespace {

// By the comment of IndexLine, one row after another.
Index line_row(const IndexLine& line, double delta) {
  Index slot = 0;
  if (line.edges != nullptr) {
    while (slot + 1 < line.count && line.edges[slot] <= delta) ++slot;
    return line.row[slot];
  }
  while (slot + 1 < line.count && static_cast<double>(line.lo + slot + 1) <= delta) ++slot;
  return line.row[slot];
}

Index channels(const Call& c, const ProductTerm& t) {
  if (t.query.present()) return t.query.content ? c.D : t.query.given.dim;
  if (t.key.present()) return t.key.content ? c.D : t.key.given.dim;
  return 1;
}
// The table's channel: where query and key are multiplied too it has a single one.
Index table_channel(const ProductTerm& t, Index x) {
  return t.table.shape[3] == 1 ? 0 : x;
}

bool on_side(const Call& c, const DecayTerm& t, Index b, Index i, Index j) {
  if (t.side == Side::both) return true;
  const bool past = c.key_order(c.key_row(b, i), j) <= c.query_order(b, i);
  return past == (t.side == Side::past);
}

// psi(y) = ln(|c y| + 1), with the sign of y where the term keeps it, and its slopes.
struct Psi {
  double value, by_c, by_y;
};
Psi psi_of(const DistanceMlpTerm& t, double c, double y) {
  const double sign = t.keep_sign && y < 0 ? -1 : 1;
  const double below = std::fabs(c * y) + 1, direction = c * y < 0 ? -1 : c * y > 0 ? 1 : 0;
  return {sign * std::log(below), sign * direction * y / below, sign * direction * c / below};
}

// distance_mlp of one pair: what goes in and how it was made.
struct DistanceInput {
  Psi distance, limit;
  double below, x;
  double share;  // of the gradient that L gets: one half where the query's position equals it
};
DistanceInput distance_input(const Call& c, const DistanceMlpTerm& t, Index b, Index h, Index i,
                             Index j) {
  const double scale = table_value(c, t.table, b, h, 0, 0), l = table_value(c, t.table, b, h, 0, 1);
  const double p = c.query_position(t.axis, b, i);
  DistanceInput d{};
  d.distance = psi_of(t, scale, c.delta(t.axis, b, i, j));
  d.limit = psi_of(t, scale, std::max(p, l));
  d.below = d.limit.value + t.epsilon;
  d.x = d.distance.value / d.below;
  d.share = l > p ? 1 : l == p ? 0.5 : 0;
  return d;
}

double pair_of(const Call& c, const DistanceMlpTerm& t, Index b, Index h, Index i, Index j) {
  const double x = distance_input(c, t, b, h, i, j).x;
  const Mlp& m = t.mlp;
  const Index g = group(h, c.H, m.out.shape[0]);
  double sum = get(m.out_bias, {group(h, c.H, m.out_bias.shape[0])});
  for (Index u = 0; u < m.in.shape[0]; ++u) {
    const double y = get(m.in, {u, 0, 0}) * x + get(m.in_bias, {u});
    sum += get(m.out, {g, u, 0}) * (y < 0 ? m.slope * y : y);
  }
  return sum;
}

void pull_of(const Call& c, const DistanceMlpTerm& t, const TermGradient& to, Pulled&, Index b,
             Index h, Index i, Index j, double d) {
  const DistanceInput in = distance_input(c, t, b, h, i, j);
  const Mlp& m = t.mlp;
  const Index g = group(h, c.H, m.out.shape[0]);
  add(to.mlp.out_bias, {group(h, c.H, m.out_bias.shape[0])}, d);
  double dx = 0;
  for (Index u = 0; u < m.in.shape[0]; ++u) {
    const double w = get(m.in, {u, 0, 0}), y = w * in.x + get(m.in_bias, {u});
    const double slope = y < 0 ? m.slope : 1, dy = d * get(m.out, {g, u, 0}) * slope;
    add(to.mlp.out, {g, u, 0}, d * slope * y);
    add(to.mlp.in, {u, 0, 0}, dy * in.x);
    add(to.mlp.in_bias, {u}, dy);
    dx += dy * w;
  }
  const double d_below = -dx * in.x / in.below;
  add_table(c, t.table, to, b, h, 0, 0, dx * in.distance.by_c / in.below + d_below * in.limit.by_c);
  add_table(c, t.table, to, b, h, 0, 1, d_below * in.limit.by_y * in.share);
}

double pair_of(const Call& c, const ProductTerm& t, Index b, Index h, Index i, Index j) {
  const Index r = table_row(c, t, b, i, j);
  double sum = 0;
  for (Index x = 0; r >= 0 && x < channels(c, t); ++x) {
    const double row = t.table.empty() ? 1 : table_value(c, t.table, b, h, r, table_channel(t, x));
    sum += query_value(c, t.query, b, i, h, x) * key_value(c, t.key, b, i, j, h, x) * row;
  }
  return sum;
}

void pull_of(const Call& c, const ProductTerm& t, const TermGradient& to, Pulled& pulled, Index b,
             Index h, Index i, Index j, double d) {
  const Index r = table_row(c, t, b, i, j);
  for (Index x = 0; r >= 0 && x < channels(c, t); ++x) {
    const double row = t.table.empty() ? 1 : table_value(c, t.table, b, h, r, table_channel(t, x));
    const double q = query_value(c, t.query, b, i, h, x), k = key_value(c, t.key, b, i, j, h, x);
    pull_query(c, t.query, to, pulled, b, i, h, x, d * k * row);
    pull_key(c, t.key, to, pulled, b, i, j, h, x, d * q * row);
    if (!t.table.empty()) add_table(c, t.table, to, b, h, r, table_channel(t, x), d * q * k);
  }
}

double pair_of(const Call& c, const LinearTerm& t, Index b, Index h, Index i, Index j) {
  const double delta = c.delta(t.axis, b, i, j);
  return table_value(c, t.table, b, h, 0, delta > 0 ? 0 : 1) * std::fabs(delta);
}
void pull_of(const Call& c, const LinearTerm& t, const TermGradient& to, Pulled&, Index b, Index h,
             Index i, Index j, double d) {
  const double delta = c.delta(t.axis, b, i, j);
  add_table(c, t.table, to, b, h, 0, delta > 0 ? 0 : 1, d * std::fabs(delta));
}

double pair_of(const Call& c, const DecayTerm& t, Index b, Index h, Index i, Index j) {
  if (!on_side(c, t, b, i, j)) return 0;
  return (t.query.present() ? query_value(c, t.query, b, i, h, 0) : 0) -
         (t.key.present() ? key_value(c, t.key, b, i, j, h, 0) : 0);
}
void pull_of(const Call& c, const DecayTerm& t, const TermGradient& to, Pulled& pulled, Index b,
             Index h, Index i, Index j, double d) {
  if (!on_side(c, t, b, i, j)) return;
  pull_query(c, t.query, to, pulled, b, i, h, 0, d);
  pull_key(c, t.key, to, pulled, b, i, j, h, 0, -d);
}

// What a pair does not decide by itself.
template <class T>
double pair_of(const Call&, const T&, Index, Index, Index, Index) {
  return 0;
}
template <class T>
void pull_of(const Call&, const T&, const TermGradient&, Pulled&, Index, Index, Index, Index,
             double) {}

}  // namespace

Index table_row(const Call& c, const PickedRows& t, Index b, Index i, Index j) {
  Index sum = 0;
  for (const IndexLine& line : t.lines) {
    if (line.row == nullptr) continue;
    const Index r = line_row(line, c.delta(line.axis, b, i, j));
    if (r < 0) return -1;
    sum += r;
  }
  if (t.pair.row == nullptr) return sum;
  const auto query = static_cast<Index>(get(t.pair.query_class, {b, i}));
  const auto key = static_cast<Index>(get(t.pair.key_class, {c.key_row(b, i), j}));
  const Index r = t.pair.row[query * t.pair.key_classes + key];
  return r < 0 ? -1 : sum + r;
}

double table_value(const Call& c, const ConstTensorView& table, Index b, Index h, Index r,
                   Index x) {
  return get(table, {b, group(h, c.H, table.shape[1]), r, x});
}
void add_table(const Call& c, const ConstTensorView& table, const TermGradient& to, Index b,
               Index h, Index r, Index x, double d) {
  add(to.table, {b, group(h, c.H, table.shape[1]), r, x}, d);
}

double query_value(const Call& c, const Factor& f, Index b, Index i, Index h, Index x) {
  if (f.content) return c.query(b, i, h, x);
  if (!f.present()) return 1;
  return get(f.given, b, i, group(h, c.H, f.given.heads), x);
}
double key_value(const Call& c, const Factor& f, Index b, Index i, Index j, Index h, Index x) {
  if (f.content) return c.key(b, i, j, h, x);
  if (!f.present()) return 1;
  return get(f.given, c.key_row(b, i), j, group(h, c.H, f.given.heads), x);
}
void pull_query(const Call& c, const Factor& f, const TermGradient& to, Pulled& pulled, Index b,
                Index i, Index h, Index x, double d) {
  if (f.content)
    pulled.q[c.at_q(b, i, h, x)] += d;
  else if (f.present())
    add(to.query, b, i, group(h, c.H, f.given.heads), x, d);
}
void pull_key(const Call& c, const Factor& f, const TermGradient& to, Pulled& pulled, Index b,
              Index i, Index j, Index h, Index x, double d) {
  if (f.content)
    pulled.k[c.at_k(c.key_row(b, i), j, h, x)] += d;
  else if (f.present())
    add(to.key, c.key_row(b, i), j, group(h, c.H, f.given.heads), x, d);
}

double pair_value(const Call& c, const Term& term, Index b, Index h, Index i, Index j) {
  return std::visit([&](const auto& t) { return pair_of(c, t, b, h, i, j); }, term);
}

void pull_pair(const Call& c, const Term& term, const TermGradient& to, Pulled& pulled, Index b,
               Index h, Index i, Index j, double d) {
  std::visit([&](const auto& t) { pull_of(c, t, to, pulled, b, h, i, j, d); }, term);
}

double value_of(const Call& c, Index b, Index h, Index i, Index j, Index x) {
  double v = c.v[c.at_v(c.key_row(b, i), j, h, x)];
  for (const Term& term : c.args.terms) {
    const auto* t = std::get_if<ValueRowsTerm>(&term);
    if (t == nullptr) continue;
    const Index r = table_row(c, *t, b, i, j);
    if (r >= 0) v += t->scale * table_value(c, t->table, b, h, r, x);
  }
  return v;
}

}  // namespace posenc::support
