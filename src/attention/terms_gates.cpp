// SPDX-License-Identifier: Apache-2.0
// S += scale p_ij, p_ij the sum of gates of the visible keys from j on, in key order; or q_i .
// table[row] at row p_ij, between rows by linear interpolation.
#include <algorithm>
#include <cmath>

#include "attention/row.h"

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

bool counts(const CallView& c, const Term& t, const HeadRow& r, Index j) noexcept {
  return t.gate_own || c.key_order(r.place, j) != r.place.order;
}

// gate, its slope by x.y and the running sum p, by key.
void fill_gates(const CallView& c, const TermView& v, const HeadRow& r, RowWork& w) noexcept {
  const Term& t = *v.term;
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

}  // namespace

void add_gates(const CallView& c, const TermView& v, const HeadRow& r, RowWork& w,
               double* out) noexcept {
  fill_gates(c, v, r, w);
  each_key(r.runs, [&](Index j) {
    double value = w.gate_sum[static_cast<std::size_t>(j)];
    if (v.table.given()) {
      const BetweenRows at(value, v.table.rows);
      value = (1 - at.weight) * level(c, v, r, at.low) + at.weight * level(c, v, r, at.high);
    }
    out[j] += v.term->scale * value;
  });
}

// d gate_t = sum of d p_ij over j up to t in order: one running sum. d p_ij = dS, or dS times the
// step between two rows; nothing beyond the last row. d (x.y) = d gate times its slope.
void pull_gates(const CallView& c, const TermView& v, HeadRow& r, RowWork& w, const TermPull& to,
                Pull& pull) noexcept {
  const Term& t = *v.term;
  fill_gates(c, v, r, w);
  const double* x = query_side(c, v, r);
  const KeySide y = key_side(c, v, r);
  double* d_x = query_pull(c, v, r, to);
  double* d_y = key_pull(c, v, r, to, pull);
  double running = 0;
  for (const Index j : r.ordered) {
    const double d = t.scale * r.d_terms[j];
    if (!v.table.given()) {
      running += d;
    } else {
      const BetweenRows at(w.gate_sum[static_cast<std::size_t>(j)], v.table.rows);
      pull_level(c, v, r, to, at.low, d * (1 - at.weight));
      pull_level(c, v, r, to, at.high, d * at.weight);
      running += d * (level(c, v, r, at.high) - level(c, v, r, at.low));
    }
    if (!counts(c, t, r, j)) continue;
    const double dz = running * w.gate_slope[static_cast<std::size_t>(j)];
    if (d_x != nullptr) add_scaled(d_x, dz, y.data + j * y.step, y.channels);
    if (d_y != nullptr) add_scaled(d_y + j * y.step, dz, x, y.channels);
  }
}

}  // namespace posenc::v0::detail
