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

Index channels(const Call& c, const Term& t) {
  if (t.query.present()) return t.query.content ? c.D : t.query.given.dim;
  if (t.key.present()) return t.key.content ? c.D : t.key.given.dim;
  return 1;
}
// The table's channel: where query and key are multiplied too it has a single one.
Index table_channel(const Term& t, Index x) {
  return t.table.shape[3] == 1 ? 0 : x;
}

bool on_side(const Call& c, const Term& t, Index b, Index i, Index j) {
  if (t.side == Side::both) return true;
  const bool past = c.key_order(c.key_row(b, i), j) <= c.query_order(b, i);
  return past == (t.side == Side::past);
}

// psi(y) = ln(|c y| + 1), with the sign of y where the term keeps it, and its slopes.
struct Psi {
  double value, by_c, by_y;
};
Psi psi_of(const Term& t, double c, double y) {
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
DistanceInput distance_input(const Call& c, const Term& t, Index b, Index h, Index i, Index j) {
  const double scale = table_value(c, t, b, h, 0, 0), l = table_value(c, t, b, h, 0, 1);
  const double p = c.query_position(t.axis, b, i);
  DistanceInput d{};
  d.distance = psi_of(t, scale, c.delta(t.axis, b, i, j));
  d.limit = psi_of(t, scale, std::max(p, l));
  d.below = d.limit.value + t.epsilon;
  d.x = d.distance.value / d.below;
  d.share = l > p ? 1 : l == p ? 0.5 : 0;
  return d;
}

double distance_mlp(const Call& c, const Term& t, Index b, Index h, Index i, Index j) {
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

void pull_distance_mlp(const Call& c, const Term& t, const TermGradient& to, Index b, Index h,
                       Index i, Index j, double d) {
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
  add_table(c, t, to, b, h, 0, 0, dx * in.distance.by_c / in.below + d_below * in.limit.by_c);
  add_table(c, t, to, b, h, 0, 1, d_below * in.limit.by_y * in.share);
}

double product(const Call& c, const Term& t, Index b, Index h, Index i, Index j) {
  const Index r = table_row(c, t, b, i, j);
  double sum = 0;
  for (Index x = 0; r >= 0 && x < channels(c, t); ++x) {
    const double row = t.table.empty() ? 1 : table_value(c, t, b, h, r, table_channel(t, x));
    sum += query_value(c, t, b, i, h, x) * key_value(c, t, b, i, j, h, x) * row;
  }
  return sum;
}

void pull_product(const Call& c, const Term& t, const TermGradient& to, Pulled& pulled, Index b,
                  Index h, Index i, Index j, double d) {
  const Index r = table_row(c, t, b, i, j);
  for (Index x = 0; r >= 0 && x < channels(c, t); ++x) {
    const double row = t.table.empty() ? 1 : table_value(c, t, b, h, r, table_channel(t, x));
    const double q = query_value(c, t, b, i, h, x), k = key_value(c, t, b, i, j, h, x);
    pull_query(c, t, to, pulled, b, i, h, x, d * k * row);
    pull_key(c, t, to, pulled, b, i, j, h, x, d * q * row);
    if (!t.table.empty()) add_table(c, t, to, b, h, r, table_channel(t, x), d * q * k);
  }
}

}  // namespace

Index table_row(const Call& c, const Term& t, Index b, Index i, Index j) {
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

double table_value(const Call& c, const Term& t, Index b, Index h, Index r, Index x) {
  return get(t.table, {b, group(h, c.H, t.table.shape[1]), r, x});
}
void add_table(const Call& c, const Term& t, const TermGradient& to, Index b, Index h, Index r,
               Index x, double d) {
  add(to.table, {b, group(h, c.H, t.table.shape[1]), r, x}, d);
}

double query_value(const Call& c, const Term& t, Index b, Index i, Index h, Index x) {
  if (t.query.content) return c.query(b, i, h, x);
  if (!t.query.present()) return 1;
  return get(t.query.given, b, i, group(h, c.H, t.query.given.heads), x);
}
double key_value(const Call& c, const Term& t, Index b, Index i, Index j, Index h, Index x) {
  if (t.key.content) return c.key(b, i, j, h, x);
  if (!t.key.present()) return 1;
  return get(t.key.given, c.key_row(b, i), j, group(h, c.H, t.key.given.heads), x);
}
void pull_query(const Call& c, const Term& t, const TermGradient& to, Pulled& pulled, Index b,
                Index i, Index h, Index x, double d) {
  if (t.query.content)
    pulled.q[c.at_q(b, i, h, x)] += d;
  else if (t.query.present())
    add(to.query, b, i, group(h, c.H, t.query.given.heads), x, d);
}
void pull_key(const Call& c, const Term& t, const TermGradient& to, Pulled& pulled, Index b,
              Index i, Index j, Index h, Index x, double d) {
  if (t.key.content)
    pulled.k[c.at_k(c.key_row(b, i), j, h, x)] += d;
  else if (t.key.present())
    add(to.key, c.key_row(b, i), j, group(h, c.H, t.key.given.heads), x, d);
}

double pair_value(const Call& c, const Term& t, Index b, Index h, Index i, Index j) {
  switch (t.kind) {
    case TermKind::linear: {
      const double delta = c.delta(t.axis, b, i, j);
      return table_value(c, t, b, h, 0, delta > 0 ? 0 : 1) * std::fabs(delta);
    }
    case TermKind::product:
      return product(c, t, b, h, i, j);
    case TermKind::decay:
      if (!on_side(c, t, b, i, j)) return 0;
      return (t.query.present() ? query_value(c, t, b, i, h, 0) : 0) -
             (t.key.present() ? key_value(c, t, b, i, j, h, 0) : 0);
    case TermKind::distance_mlp:
      return distance_mlp(c, t, b, h, i, j);
    default:
      return 0;
  }
}

void pull_pair(const Call& c, const Term& t, const TermGradient& to, Pulled& pulled, Index b,
               Index h, Index i, Index j, double d) {
  switch (t.kind) {
    case TermKind::linear: {
      const double delta = c.delta(t.axis, b, i, j);
      return add_table(c, t, to, b, h, 0, delta > 0 ? 0 : 1, d * std::fabs(delta));
    }
    case TermKind::product:
      return pull_product(c, t, to, pulled, b, h, i, j, d);
    case TermKind::decay:
      if (!on_side(c, t, b, i, j)) return;
      pull_query(c, t, to, pulled, b, i, h, 0, d);
      return pull_key(c, t, to, pulled, b, i, j, h, 0, -d);
    case TermKind::distance_mlp:
      return pull_distance_mlp(c, t, to, b, h, i, j, d);
    default:
      return;
  }
}

double value_of(const Call& c, Index b, Index h, Index i, Index j, Index x) {
  double v = c.v[c.at_v(c.key_row(b, i), j, h, x)];
  for (const Term& t : c.args.terms) {
    if (t.kind != TermKind::value_rows) continue;
    const Index r = table_row(c, t, b, i, j);
    if (r >= 0) v += t.scale * table_value(c, t, b, h, r, x);
  }
  return v;
}

}  // namespace posenc::support
