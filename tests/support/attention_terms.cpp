// SPDX-License-Identifier: Apache-2.0
// Every kind of term, forward and backward, one row of scores at a time.
#include <algorithm>
#include <cmath>

#include "posenc/positions/sequence.h"
#include "support/attention_parts.h"

namespace posenc::support {
namespace {

double real_position(const Positions& p, std::int32_t axis, Index b, Index t) {
  return position_at(p, axis, p.batch == 1 ? 0 : b, t);
}
double real_delta(const AttentionArgs& a, std::int32_t axis, Index b, Index i, Index j) {
  return real_position(a.query_positions, axis, b, i) - real_position(a.key_positions, axis, b, j);
}

double factor(const AttentionArgs& a, Index b, Index i) {
  return get(a.query_factor, {b, i}, 1);
}

// FIRE of one pair: x and what its derivatives need.
struct Fire {
  double delta, c, n, x, below;
  bool from_threshold;
  double tie;
};
double psi(double c, double y) {
  return std::log(std::fabs(c * y) + 1);
}
double psi_by_c(double c, double y) {
  return (c > 0 ? 1 : c < 0 ? -1 : 0) * std::fabs(y) / (std::fabs(c * y) + 1);
}
double psi_by_y(double c, double y) {
  return std::fabs(c) * (y > 0 ? 1 : y < 0 ? -1 : 0) / (std::fabs(c * y) + 1);
}
Fire fire_at(const AttentionArgs& a, const Term& t, Index b, Index i, Index j) {
  Fire f{};
  f.delta = real_delta(a, t.axis, b, i, j);
  f.c = get(t.table3, {0});
  const double at = real_position(a.query_positions, t.axis, b, i), l = get(t.table3, {1});
  f.n = std::max(at, l);
  f.tie = l > at ? 1 : l == at ? 0.5 : 0;
  f.below = psi(f.c, f.n) + t.epsilon;
  f.x = (t.sign && f.delta < 0 ? -1 : 1) * psi(f.c, f.delta) / f.below;
  return f;
}
double activation(double y, double slope) {
  return y > 0 ? y : slope * y;
}
double activation_slope(double y, double slope) {
  return y > 0 ? 1 : slope;
}

double fire_value(const Term& t, Index h, double x) {
  const Index w = t.table.shape[1];
  double s = get(t.table2, {h, w});
  for (Index u = 0; u < w; ++u)
    s += get(t.table2, {h, u}) *
         activation(get(t.table, {0, u}) * x + get(t.table, {1, u}), t.slope);
  return s;
}

void pull_fire(const AttentionArgs& a, const Term& t, const TermGradient& g, Index b, Index h,
               Index i, Index j, double d) {
  const Fire f = fire_at(a, t, b, i, j);
  const Index w = t.table.shape[1];
  double dx = 0;
  add(g.table2, {h, w}, d);
  for (Index u = 0; u < w; ++u) {
    const double y = get(t.table, {0, u}) * f.x + get(t.table, {1, u});
    add(g.table2, {h, u}, d * activation(y, t.slope));
    const double dy = d * get(t.table2, {h, u}) * activation_slope(y, t.slope);
    add(g.table, {0, u}, dy * f.x);
    add(g.table, {1, u}, dy);
    dx += dy * get(t.table, {0, u});
  }
  const double sign = t.sign && f.delta < 0 ? -1 : 1;
  const double d_below = -dx * f.x / f.below;
  add(g.table3, {0}, dx * sign * psi_by_c(f.c, f.delta) / f.below + d_below * psi_by_c(f.c, f.n));
  add(g.table3, {1}, d_below * psi_by_y(f.c, f.n) * f.tie);
}

// CoPE of one row.
struct Cope {
  std::vector<double> gate, sum, level;  // [K], [K], [n] = g_i q_i . table[m]
  std::vector<bool> seen;
};
const ConstHeads& gate_keys(const AttentionArgs& a, const Term& t) {
  return t.gate_key.data != nullptr ? t.gate_key : a.qk.k;
}
Cope cope_row(const AttentionArgs& a, const Term& t, Index b, Index h, Index i) {
  const Sizes s(a);
  Cope c;
  const double g = factor(a, b, i);
  for (Index j = 0; j < s.K; ++j) {
    c.seen.push_back(visible(a, b, h, i, j));
    double z = 0;
    for (Index d = 0; d < s.D; ++d)
      z += g * get(a.qk.q, b, i, h, d) * get(gate_keys(a, t), b, j, h / s.group, d);
    c.gate.push_back(c.seen.back() ? 1 / (1 + std::exp(-t.gate_scale * z)) : 0);
  }
  c.sum.assign(static_cast<std::size_t>(s.K), 0);
  double total = 0;
  for (std::size_t j = c.gate.size(); j-- > 0;) c.sum[j] = total += c.gate[j];
  for (Index m = 0; m < t.table.shape[1]; ++m) {
    double e = 0;
    for (Index d = 0; d < s.D; ++d) e += g * get(a.qk.q, b, i, h, d) * get(t.table, {h, m, d});
    c.level.push_back(e);
  }
  return c;
}
double cope_position(const Cope& c, std::size_t j) {
  return std::min(c.sum[j], static_cast<double>(c.level.size()) - 1);
}

void pull_cope(const AttentionArgs& a, const Term& t, const TermGradient& g,
               const AttentionGradients& all, Index b, Index h, Index i,
               const std::vector<double>& d) {
  const Sizes s(a);
  const Cope c = cope_row(a, t, b, h, i);
  std::vector<double> d_level(c.level.size(), 0), d_position(d.size(), 0);
  for (std::size_t j = 0; j < d.size(); ++j) {
    const double p = cope_position(c, j), w = p - std::floor(p), dc = t.scale * d[j];
    const auto lo = static_cast<std::size_t>(std::floor(p));
    const auto hi = static_cast<std::size_t>(std::ceil(p));
    d_level[lo] += (1 - w) * dc;
    d_level[hi] += w * dc;
    if (c.sum[j] <= static_cast<double>(c.level.size()) - 1)
      d_position[j] = dc * (c.level[hi] - c.level[lo]);
  }
  const double f = factor(a, b, i);
  double prefix = 0;
  for (Index j = 0; j < s.K; ++j) {
    const auto n = static_cast<std::size_t>(j);
    prefix += d_position[n];
    if (!c.seen[n]) continue;
    const double dz = prefix * c.gate[n] * (1 - c.gate[n]) * t.gate_scale;
    for (Index x = 0; x < s.D; ++x) {
      const double q = get(a.qk.q, b, i, h, x), k = get(gate_keys(a, t), b, j, h / s.group, x);
      add(all.qk.q, b, i, h, x, dz * f * k);
      add(t.gate_key.data != nullptr ? g.gate_key : all.qk.k, b, j, h / s.group, x, dz * f * q);
      add(all.query_factor, {b, i}, dz * q * k);
    }
  }
  for (Index m = 0; m < t.table.shape[1]; ++m)
    for (Index x = 0; x < s.D; ++x) {
      const double de = d_level[static_cast<std::size_t>(m)];
      const double q = get(a.qk.q, b, i, h, x), e = get(t.table, {h, m, x});
      add(all.qk.q, b, i, h, x, de * f * e);
      add(g.table, {h, m, x}, de * f * q);
      add(all.query_factor, {b, i}, de * q * e);
    }
}

double pair_value(const AttentionArgs& a, const Term& t, Index b, Index h, Index i, Index j) {
  const Sizes s(a);
  double v = 0;
  switch (t.kind) {
    case TermKind::linear: {
      const double delta = real_delta(a, t.axis, b, i, j);
      return get(t.table, {h, delta > 0 ? 0 : 1}) * std::fabs(delta);
    }
    case TermKind::line: {
      const Index r = row_of(a, t, b, i, j);
      return r < 0 ? 0 : get(t.table, {h, r});
    }
    case TermKind::vectors:
      return get(t.table, {b, h, j}) + get(t.table2, {b, h, i});
    case TermKind::extra_channels:
      for (Index x = 0; x < t.table.shape[3]; ++x)
        v += get(t.table, {b, i, h, x}) * get(t.table2, {b, j, h, x});
      return v;
    case TermKind::query_bias:
      for (Index x = 0; x < s.D; ++x)
        v += get(t.query_bias, {h, x}) * get(a.qk.k, b, j, h / s.group, x);
      return v;
    case TermKind::query_rows:
    case TermKind::key_rows: {
      const Index r = row_of(a, t, b, i, j);
      if (r < 0) return 0;
      for (Index x = 0; x < s.D; ++x) {
        const double met =
            t.kind == TermKind::key_rows
                ? get(a.qk.k, b, j, h / s.group, x)
                : factor(a, b, i) * get(a.qk.q, b, i, h, x) + get(t.query_bias, {h, x});
        v += met * get(t.table, {h, r, x});
      }
      return v;
    }
    case TermKind::fire:
      return fire_value(t, h, fire_at(a, t, b, i, j).x);
    default:
      return 0;
  }
}

// d: of the pair's value, the term's scale included.
void pull_rows(const AttentionArgs& a, const Term& t, const TermGradient& g,
               const AttentionGradients& all, Index b, Index h, Index i, Index j, double d) {
  const Sizes s(a);
  const Index r = row_of(a, t, b, i, j);
  if (r < 0) return;
  const double f = factor(a, b, i);
  for (Index x = 0; x < s.D; ++x) {
    const double row = get(t.table, {h, r, x});
    if (t.kind == TermKind::key_rows) {
      add(all.qk.k, b, j, h / s.group, x, d * row);
      add(g.table, {h, r, x}, d * get(a.qk.k, b, j, h / s.group, x));
      continue;
    }
    const double q = get(a.qk.q, b, i, h, x);
    add(all.qk.q, b, i, h, x, d * f * row);
    add(all.query_factor, {b, i}, d * q * row);
    add(g.query_bias, {h, x}, d * row);
    add(g.table, {h, r, x}, d * (f * q + get(t.query_bias, {h, x})));
  }
}

void pull_pair(const AttentionArgs& a, const Term& t, const TermGradient& g,
               const AttentionGradients& all, Index b, Index h, Index i, Index j, double d) {
  const Sizes s(a);
  switch (t.kind) {
    case TermKind::linear: {
      const double delta = real_delta(a, t.axis, b, i, j);
      return add(g.table, {h, delta > 0 ? 0 : 1}, d * std::fabs(delta));
    }
    case TermKind::line: {
      const Index r = row_of(a, t, b, i, j);
      if (r >= 0) add(g.table, {h, r}, d);
      return;
    }
    case TermKind::vectors:
      add(g.table, {b, h, j}, d);
      return add(g.table2, {b, h, i}, d);
    case TermKind::extra_channels:
      for (Index x = 0; x < t.table.shape[3]; ++x) {
        add(g.table, {b, i, h, x}, d * get(t.table2, {b, j, h, x}));
        add(g.table2, {b, j, h, x}, d * get(t.table, {b, i, h, x}));
      }
      return;
    case TermKind::query_bias:
      for (Index x = 0; x < s.D; ++x) {
        add(g.query_bias, {h, x}, d * get(a.qk.k, b, j, h / s.group, x));
        add(all.qk.k, b, j, h / s.group, x, d * get(t.query_bias, {h, x}));
      }
      return;
    case TermKind::query_rows:
    case TermKind::key_rows:
      return pull_rows(a, t, g, all, b, h, i, j, d);
    case TermKind::fire:
      return pull_fire(a, t, g, b, h, i, j, d);
    default:
      return;
  }
}

}  // namespace

void add_term(const AttentionArgs& a, const Term& t, Index b, Index h, Index i,
              std::vector<double>& sum) {
  if (t.kind == TermKind::cope) {
    const Cope c = cope_row(a, t, b, h, i);
    for (std::size_t j = 0; j < sum.size(); ++j) {
      const double p = cope_position(c, j), w = p - std::floor(p);
      sum[j] += t.scale * ((1 - w) * c.level[static_cast<std::size_t>(std::floor(p))] +
                           w * c.level[static_cast<std::size_t>(std::ceil(p))]);
    }
    return;
  }
  for (std::size_t j = 0; j < sum.size(); ++j)
    sum[j] += t.scale * pair_value(a, t, b, h, i, static_cast<Index>(j));
}

void pull_term(const AttentionArgs& a, const Term& t, const TermGradient* g,
               const AttentionGradients& all, Index b, Index h, Index i,
               const std::vector<double>& d) {
  const TermGradient none;
  if (t.kind == TermKind::cope) return pull_cope(a, t, g != nullptr ? *g : none, all, b, h, i, d);
  for (std::size_t j = 0; j < d.size(); ++j)
    if (d[j] != 0)
      pull_pair(a, t, g != nullptr ? *g : none, all, b, h, i, static_cast<Index>(j),
                t.scale * d[j]);
}

}  // namespace posenc::support
