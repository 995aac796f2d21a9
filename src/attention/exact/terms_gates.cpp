// SPDX-License-Identifier: Apache-2.0
// S += scale p_ij, p_ij the sum of gates of the visible keys from j on, in key order; or q_i .
// table[row] at row p_ij, between rows by linear interpolation or as a mean of all rows.
#include <algorithm>
#include <cmath>

#include "attention/exact/row.h"

namespace posenc::inline v0::detail {
namespace {

// The rows of a table between which p lies; beyond the last row both are that one.
struct BetweenRows {
  BetweenRows(double p, Index rows) noexcept {
    const auto last = static_cast<double>(rows - 1);
    const double at = std::isnan(p) ? 0 : std::min(p, last), floor = std::floor(at);
    low = static_cast<Index>(floor);
    high = static_cast<Index>(std::ceil(at));
    weight = std::isnan(p) ? p : at - floor;
  }
  Index low, high;
  double weight;
};

// A gate and its derivative.
double open_gate(Gate kind, double z, double& slope) noexcept {
  const double small = std::exp(-std::fabs(z));
  const double open = z < 0 ? small / (1 + small) : 1 / (1 + small);
  const double shut = z < 0 ? 1 / (1 + small) : small / (1 + small);
  slope = kind == Gate::sigmoid ? open * shut : shut;
  return kind == Gate::sigmoid ? open : std::min(z, 0.0) - std::log1p(small);
}

bool counts(const CallView& c, const GatesTerm& t, const HeadRow& r, Index j) noexcept {
  return t.gate_own || c.key_order(r.place, j) != r.place.order;
}

// gate, its slope by x.y and the running sum p, by key.
void fill_gates(const CallView& c, const TermView& v, const GatesTerm& t, const HeadRow& r,
                RowWork& w) noexcept {
  each_product(query_side(c, v, r), key_side(c, v, r), r.runs, [&](Index j, double xy) {
    const auto n = static_cast<std::size_t>(j);
    double slope = 0;
    w.gate[n] = open_gate(t.gate, t.gate_scale * xy, slope);
    w.gate_slope[n] = t.gate_scale * slope;
  });
  double sum = 0;
  for (std::size_t s = r.ordered.size(); s-- > 0;) {
    const auto n = static_cast<std::size_t>(r.ordered[s]);
    if (counts(c, t, r, r.ordered[s])) sum += w.gate[n];
    w.gate_sum[n] = sum;
  }
}

double level(const CallView& c, const TermView& v, const HeadRow& r, Index row) noexcept {
  return dot(r.query, v.table.x.data() + v.table.at(r.b, r.h, c.H) + row * c.D, c.D);
}

// d of q . table[row]: d q += d t_row, d t_row += d q.
void pull_level(const CallView& c, const TermView& v, HeadRow& r, const TermPull& to, Index row,
                double d) noexcept {
  const Index at = v.table.at(r.b, r.h, c.H) + row * c.D;
  add_scaled(r.d_query, d, v.table.x.data() + at, c.D);
  if (to.table != nullptr) add_scaled(to.table + at, d, r.query, c.D);
}

// All levels of the row's query, by row.
void fill_levels(const CallView& c, const TermView& v, const HeadRow& r, RowWork& w) noexcept {
  for (Index m = 0; m < v.table.rows; ++m)
    w.gate_level[static_cast<std::size_t>(m)] = level(c, v, r, m);
}

// sum of w_m level_m, w_m = e^(-|p - m| / spread) over the sum of these; p is cut to the last row.
struct SpreadRows {
  SpreadRows(double p, const GatesTerm& t, Index table_rows, const RowWork& w) noexcept
      : rows(table_rows), spread(t.spread), at(std::min(p, static_cast<double>(rows - 1))) {
    // The largest exponent is that of the nearest row.
    nearest = std::fabs(at - std::round(at));
    for (Index m = 0; m < rows; ++m) {
      const double x = weight(m);
      sum += x, value += x * w.gate_level[static_cast<std::size_t>(m)];
    }
    value /= sum;
    if (std::isnan(p)) value = p;
  }
  double weight(Index m) const noexcept {
    return std::exp((nearest - std::fabs(at - static_cast<double>(m))) / spread);
  }
  // d value / d p; none beyond the last row.
  double slope(double p, const RowWork& w) const noexcept {
    if (p > static_cast<double>(rows - 1)) return 0;
    double mean = 0, product = 0;
    for (Index m = 0; m < rows; ++m) {
      const double x = at - static_cast<double>(m);
      const double a = (x > 0 ? -1 : x < 0 ? 1 : 0) * weight(m);
      mean += a, product += a * w.gate_level[static_cast<std::size_t>(m)];
    }
    return (product - value * mean) / (sum * spread);
  }
  Index rows;
  double spread, at, nearest = 0, sum = 0, value = 0;
};

double read_table(const CallView& c, const TermView& v, const GatesTerm& t, const HeadRow& r,
                  const RowWork& w, double p) noexcept {
  if (t.spread != 0) return SpreadRows(p, t, v.table.rows, w).value;
  const BetweenRows at(p, v.table.rows);
  return (1 - at.weight) * level(c, v, r, at.low) + at.weight * level(c, v, r, at.high);
}

// d of the value read at p goes to the rows of the table and to q; returns that of p. With a spread
// that of the rows is gathered in d_gate_level.
double pull_table(const CallView& c, const TermView& v, const GatesTerm& t, HeadRow& r, RowWork& w,
                  const TermPull& to, double p, double d) noexcept {
  if (t.spread != 0) {
    const SpreadRows at(p, t, v.table.rows, w);
    for (Index m = 0; m < at.rows; ++m)
      w.d_gate_level[static_cast<std::size_t>(m)] += d * at.weight(m) / at.sum;
    return d * at.slope(p, w);
  }
  const BetweenRows at(p, v.table.rows);
  pull_level(c, v, r, to, at.low, d * (1 - at.weight));
  pull_level(c, v, r, to, at.high, d * at.weight);
  return d * (level(c, v, r, at.high) - level(c, v, r, at.low));
}

}  // namespace

void add_gates(const CallView& c, const TermView& v, const GatesTerm& t, const HeadRow& r,
               RowWork& w, double* out) noexcept {
  fill_gates(c, v, t, r, w);
  if (t.spread != 0) fill_levels(c, v, r, w);
  each_key(r.runs, [&](Index j) {
    const double p = w.gate_sum[static_cast<std::size_t>(j)];
    out[j] += v.scale * (v.table.given() ? read_table(c, v, t, r, w, p) : p);
  });
}

// d gate_t = sum of d p_ij over j up to t in order: one running sum. d p_ij = dS, or dS times the
// slope of what is read of a table; nothing beyond the last row. d (x.y) = d gate times its slope.
void pull_gates(const CallView& c, const TermView& v, const GatesTerm& t, HeadRow& r, RowWork& w,
                const TermPull& to, Pull& pull) noexcept {
  fill_gates(c, v, t, r, w);
  const double* x = query_side(c, v, r);
  const KeySide y = key_side(c, v, r);
  double* d_x = query_pull(c, v, r, to);
  double* d_y = key_pull(c, v, r, to, pull);
  if (t.spread != 0) {
    fill_levels(c, v, r, w);
    std::fill(w.d_gate_level.begin(), w.d_gate_level.end(), 0.0);
  }
  double running = 0;
  for (const Index j : r.ordered) {
    const double d = t.scale * r.d_terms[j], p = w.gate_sum[static_cast<std::size_t>(j)];
    running += v.table.given() ? pull_table(c, v, t, r, w, to, p, d) : d;
    if (!counts(c, t, r, j)) continue;
    const double dz = running * w.gate_slope[static_cast<std::size_t>(j)];
    if (d_x != nullptr) add_scaled(d_x, dz, y.data + j * y.step, y.channels);
    if (d_y != nullptr) add_scaled(d_y + j * y.step, dz, x, y.channels);
  }
  for (Index m = 0; t.spread != 0 && m < v.table.rows; ++m)
    pull_level(c, v, r, to, m, w.d_gate_level[static_cast<std::size_t>(m)]);
}

}  // namespace posenc::v0::detail
