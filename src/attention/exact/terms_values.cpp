// SPDX-License-Identifier: Apache-2.0
// o_i += scale sum_j P_ij t_r.
#include "attention/exact/row.h"

namespace posenc::inline v0::detail {

void add_value_rows(const CallView& c, const TermView& v, const HeadRow& r, RowWork& w,
                    double* out) noexcept {
  const Runs runs = value_runs(c, w, r);
  const std::int32_t* rows = pick_rows(c, v, r, runs, w.rows);
  const double* table = v.table.x.data() + v.table.at(r.b, r.h, c.H);
  each_key(runs, [&](Index j) {
    const Index row = rows == nullptr ? 0 : rows[j];
    if (row >= 0) add_scaled(out, v.scale * r.mixed[j], table + row * c.V, c.V);
  });
}

// d t_r += P_ij D_i, dP_ij += D_i.t_r.
void pull_value_rows(const CallView& c, const TermView& v, HeadRow& r, RowWork& w,
                     const TermPull& to) noexcept {
  const Runs runs = value_runs(c, w, r);
  const std::int32_t* rows = pick_rows(c, v, r, runs, w.rows);
  const Index at = v.table.at(r.b, r.h, c.H);
  each_key(runs, [&](Index j) {
    const Index row = rows == nullptr ? 0 : rows[j];
    if (row < 0) return;
    const double* t = v.table.x.data() + at + row * c.V;
    r.d_mixed[j] += v.scale * dot(r.d_out, t, c.V);
    if (to.table != nullptr)
      add_scaled(to.table + at + row * c.V, v.scale * r.mixed[j], r.d_out, c.V);
  });
}

}  // namespace posenc::v0::detail
