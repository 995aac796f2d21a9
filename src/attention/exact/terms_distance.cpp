// SPDX-License-Identifier: Apache-2.0
// S += scale mlp_h(psi(delta) / (psi(max(p_i, L)) + epsilon)), psi(y) = ln(|c y| + 1).
#include <algorithm>
#include <cmath>

#include "attention/exact/row.h"

namespace posenc::inline v0::detail {
namespace {

// psi of a number and its derivatives by c and by the number.
struct Psi {
  double value, by_c, by_y;
};
Psi psi_of(bool keep_sign, double c, double y) noexcept {
  const double z = c * y, below = std::fabs(z) + 1;
  const double sign = keep_sign && y < 0 ? -1 : 1;
  const double slope = (z > 0 ? sign : z < 0 ? -sign : 0) / below;
  return {sign * std::log(below), slope * y, slope * c};
}

// What a distance_mlp of a row reads.
struct DistanceRow {
  DistanceRow(const CallView& c, const TermView& v, const DistanceMlpTerm& t,
              const HeadRow& r) noexcept
      : mlp(v.mlp),
        axis(c.axes[static_cast<std::size_t>(t.axis)]),
        row(r),
        keep_sign(t.keep_sign),
        table_at(v.table.at(r.b, r.h, c.H)),
        out_at(Grouping{c.H, v.mlp.out_groups}.of(r.h) * v.mlp.units),
        bias_at(Grouping{c.H, v.mlp.bias_groups}.of(r.h)) {
    const double* table = v.table.x.data() + table_at;
    const double p = axis.query[axis.query_at(r.b, r.i)];
    c_scale = table[0];
    limit = psi_of(keep_sign, c_scale, std::max(p, table[1]));
    below = limit.value + t.epsilon;
    share = table[1] > p ? 1 : table[1] == p ? 0.5 : 0;
  }
  Psi distance(Index j) const noexcept {
    return psi_of(keep_sign, c_scale, axis.delta(row.b, row.i, row.place.row, j));
  }
  double unit(Index u, double x) const noexcept {
    const auto n = static_cast<std::size_t>(u);
    return mlp.in[n] * x + mlp.in_bias[n];
  }
  double out(Index u) const noexcept { return mlp.out[static_cast<std::size_t>(out_at + u)]; }

  const DenseMlp& mlp;
  const AxisView& axis;
  const HeadRow& row;
  bool keep_sign;
  Index table_at, out_at, bias_at;
  double c_scale = 0, below = 0;
  double share = 0;  // of the gradient that L gets: one half where the position equals it
  Psi limit{};
};

}  // namespace

void add_distance_mlp(const CallView& c, const TermView& v, const DistanceMlpTerm& t,
                      const HeadRow& r, double* out) noexcept {
  const DistanceRow d(c, v, t, r);
  const double bias = v.mlp.out_bias[static_cast<std::size_t>(d.bias_at)];
  each_key(r.runs, [&](Index j) {
    const double x = d.distance(j).value / d.below;
    double sum = bias;
    for (Index u = 0; u < v.mlp.units; ++u) sum += d.out(u) * v.mlp.act(d.unit(u, x));
    out[j] += v.scale * sum;
  });
}

// With x = psi(delta) / below: d out_bias += dS, d out_u += dS act(y_u), dy_u = dS out_u act',
// d in_u += dy_u x, d in_bias_u += dy_u, dx = sum of dy_u in_u; d c through both psi, d L through
// the second: d below = -dx x / below.
void pull_distance_mlp(const CallView& c, const TermView& v, const DistanceMlpTerm& t,
                       const HeadRow& r, const TermPull& to) noexcept {
  const DistanceRow row(c, v, t, r);
  const DenseMlp& m = v.mlp;
  double d_c = 0, d_limit = 0;
  each_key(r.runs, [&](Index j) {
    const double d = v.scale * r.d_terms[j];
    const Psi psi = row.distance(j);
    const double x = psi.value / row.below;
    double dx = 0;
    for (Index u = 0; u < m.units; ++u) {
      const double y = row.unit(u, x), dy = d * row.out(u) * m.act_slope(y);
      if (to.out != nullptr) to.out[row.out_at + u] += d * m.act(y);
      if (to.in != nullptr) to.in[u] += dy * x;
      if (to.in_bias != nullptr) to.in_bias[u] += dy;
      dx += dy * m.in[static_cast<std::size_t>(u)];
    }
    if (to.out_bias != nullptr) to.out_bias[row.bias_at] += d;
    const double d_below = -dx * x / row.below;
    d_c += dx * psi.by_c / row.below + d_below * row.limit.by_c;
    d_limit += d_below * row.limit.by_y * row.share;
  });
  if (to.table == nullptr) return;
  to.table[row.table_at] += d_c;
  to.table[row.table_at + 1] += d_limit;
}

}  // namespace posenc::v0::detail
