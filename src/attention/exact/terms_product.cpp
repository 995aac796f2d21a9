// SPDX-License-Identifier: Apache-2.0
// S += scale <x_i, y_j, t_r>, by the factors that are there:
//   t      d t_r += dS
//   x t    d x_i += dS t_r,      d t_r += dS x_i
//   y t    d y_j += dS t_r,      d t_r += dS y_j
//   x y    d x_i += dS y_j,      d y_j += dS x_i
//   x y t  (t one number)        the same with dS t_r, and d t_r += dS x_i.y_j
#include <algorithm>

#include "attention/exact/row.h"

namespace posenc::inline v0::detail {
namespace {

Index keys_in(Runs runs) noexcept {
  Index n = 0;
  for (const Run& run : runs) n += run.end - run.begin;
  return n;
}

// What a product of a row reads.
struct ProductRow {
  ProductRow(const CallView& c, const TermView& v, const HeadRow& r, RowWork& w) noexcept
      : rows(pick_rows(c, v, r, r.runs, w.rows)),
        x(query_side(c, v, r)),
        y(key_side(c, v, r)),
        channels(v.table.channels),
        scale(v.scale),
        runs(r.runs) {
    if (v.table.given()) table = v.table.x.data() + v.table.at(r.b, r.h, c.H);
    levels = x != nullptr && v.table.rows <= 2 * keys_in(r.runs);
  }
  // fn(key, row of the table) of the pairs whose row is not negative.
  template <class F>
  void each_pair(const F& fn) const {
    each_key(runs, [&](Index j) {
      const Index row = rows == nullptr ? 0 : rows[j];
      if (row >= 0) fn(j, row);
    });
  }
  const std::int32_t* rows;
  const double* x;
  KeySide y;
  const double* table = nullptr;
  Index channels;
  double scale;
  Runs runs;
  bool levels = false;  // x . t is computed for each row of the table, not for each pair
};

void add_query_rows(const ProductRow& p, const TermView& v, RowWork& w, double* out) noexcept {
  if (!p.levels)
    return p.each_pair([&](Index j, Index row) {
      out[j] += p.scale * dot(p.x, p.table + row * p.channels, p.channels);
    });
  for (Index row = 0; row < v.table.rows; ++row)
    w.levels[static_cast<std::size_t>(row)] =
        p.scale * dot(p.x, p.table + row * p.channels, p.channels);
  p.each_pair([&](Index j, Index row) { out[j] += w.levels[static_cast<std::size_t>(row)]; });
}

void add_both(const ProductRow& p, double* out) noexcept {
  each_product(p.x, p.y, p.runs, [&](Index j, double xy) {
    const Index row = p.rows == nullptr ? 0 : p.rows[j];
    if (row >= 0) out[j] += p.scale * (p.table == nullptr ? xy : xy * p.table[row]);
  });
}

void pull_query_rows(const ProductRow& p, const TermView& v, const HeadRow& r, RowWork& w,
                     double* d_x, double* d_t) noexcept {
  const Index n = p.channels;
  const auto pull_row = [&](Index row, double d) {
    if (d_x != nullptr) add_scaled(d_x, d, p.table + row * n, n);
    if (d_t != nullptr) add_scaled(d_t + row * n, d, p.x, n);
  };
  if (!p.levels)
    return p.each_pair([&](Index j, Index row) { pull_row(row, p.scale * r.d_terms[j]); });
  std::fill_n(w.levels.begin(), v.table.rows, 0.0);
  p.each_pair([&](Index j, Index row) {
    w.levels[static_cast<std::size_t>(row)] += p.scale * r.d_terms[j];
  });
  for (Index row = 0; row < v.table.rows; ++row)
    if (const double d = w.levels[static_cast<std::size_t>(row)]; d != 0) pull_row(row, d);
}

void pull_key_rows(const ProductRow& p, const HeadRow& r, double* d_y, double* d_t) noexcept {
  const Index n = p.channels;
  p.each_pair([&](Index j, Index row) {
    const double d = p.scale * r.d_terms[j];
    if (d_y != nullptr) add_scaled(d_y + j * p.y.step, d, p.table + row * n, n);
    if (d_t != nullptr) add_scaled(d_t + row * n, d, p.y.data + j * p.y.step, n);
  });
}

void pull_both(const ProductRow& p, const HeadRow& r, double* d_x, double* d_y,
               double* d_t) noexcept {
  const Index n = p.y.channels;
  p.each_pair([&](Index j, Index row) {
    const double d = p.scale * r.d_terms[j] * (p.table == nullptr ? 1 : p.table[row]);
    if (d_x != nullptr) add_scaled(d_x, d, p.y.data + j * p.y.step, n);
    if (d_y != nullptr) add_scaled(d_y + j * p.y.step, d, p.x, n);
  });
  if (d_t == nullptr) return;
  each_product(p.x, p.y, p.runs, [&](Index j, double xy) {
    const Index row = p.rows == nullptr ? 0 : p.rows[j];
    if (row >= 0) d_t[row] += p.scale * r.d_terms[j] * xy;
  });
}

}  // namespace

void add_product(const CallView& c, const TermView& v, const HeadRow& r, RowWork& w,
                 double* out) noexcept {
  if (const double* band = band_values(c, v, r)) return c.lanes.add(out, band, r.runs);
  const ProductRow p(c, v, r, w);
  if (p.x != nullptr && p.y.data != nullptr) return add_both(p, out);
  if (p.x != nullptr) return add_query_rows(p, v, w, out);
  if (p.y.data != nullptr)
    return p.each_pair([&](Index j, Index row) {
      out[j] += p.scale * dot(p.y.data + j * p.y.step, p.table + row * p.channels, p.channels);
    });
  p.each_pair([&](Index j, Index row) { out[j] += p.scale * p.table[row]; });
}

void pull_product(const CallView& c, const TermView& v, HeadRow& r, RowWork& w, const TermPull& to,
                  Pull& pull) noexcept {
  if (v.adds_band) {  // sums along the diagonals: added to the rows at the end
    if (to.band != nullptr)
      c.lanes.add(to.band + v.table.slab(r.b, r.h, c.H) * v.band->size() + band_at(c, v, r),
                  r.d_terms, r.runs);
    return;
  }
  const ProductRow p(c, v, r, w);
  double* d_x = query_pull(c, v, r, to);
  double* d_y = key_pull(c, v, r, to, pull);
  double* d_t = to.table == nullptr ? nullptr : to.table + v.table.at(r.b, r.h, c.H);
  if (p.x != nullptr && p.y.data != nullptr) return pull_both(p, r, d_x, d_y, d_t);
  if (p.x != nullptr) return pull_query_rows(p, v, r, w, d_x, d_t);
  if (p.y.data != nullptr) return pull_key_rows(p, r, d_y, d_t);
  if (d_t == nullptr) return;
  p.each_pair([&](Index j, Index row) { d_t[row] += p.scale * r.d_terms[j]; });
}

}  // namespace posenc::v0::detail
