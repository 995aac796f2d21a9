// SPDX-License-Identifier: Apache-2.0
// Terms of a row: which rows and factors they read, and the small kinds, linear and decay.
#include <cmath>

#include "attention/exact/row.h"

namespace posenc::inline v0::detail {
namespace {

const double* table_of(const CallView& c, const TermView& v, const HeadRow& r) noexcept {
  return v.table.x.data() + v.table.at(r.b, r.h, c.H);
}
const AxisView& axis_of(const CallView& c, std::int32_t axis) noexcept {
  return c.axes[static_cast<std::size_t>(axis)];
}

// Sum of the rows of all lines and of the pair; -1 as soon as one is negative.
std::int32_t picked_row(const CallView& c, const PickedRows& t, const HeadRow& r,
                        Index j) noexcept {
  std::int32_t sum = 0;
  for (const IndexLine& line : t.lines) {
    if (line.row == nullptr) continue;
    const double delta = axis_of(c, line.axis).delta(r.b, r.i, r.place.row, j);
    const std::int32_t row = row_of(line, delta);
    if (row < 0) return -1;
    sum += row;
  }
  if (t.pair.row == nullptr) return sum;
  const Index query = read_index(t.pair.query_class, r.b, r.i);
  const Index key = read_index(t.pair.key_class, r.place.row, j);
  const std::int32_t row = t.pair.row[query * t.pair.key_classes + key];
  return row < 0 ? -1 : sum + row;
}

// S += scale (table[0] max(delta, 0) + table[1] max(-delta, 0)).
void add_linear(const CallView& c, const TermView& v, const LinearTerm& t, const HeadRow& r,
                double* out) noexcept {
  if (const double* band = band_values(c, v, r)) return c.lanes.add(out, band, r.runs);
  const double *table = table_of(c, v, r), scale = v.scale;
  const AxisView& axis = axis_of(c, t.axis);
  each_key(r.runs, [&](Index j) {
    const double delta = axis.delta(r.b, r.i, r.place.row, j);
    out[j] += scale * (delta > 0 ? table[0] * delta : table[1] * -delta);
  });
}
// d table = sum of dS |delta| by side.
void pull_linear(const CallView& c, const TermView& v, const LinearTerm& t, const HeadRow& r,
                 const TermPull& to) {
  if (to.table == nullptr) return;
  double sum[2] = {};
  if (v.adds_band) {
    const Index at = band_at(c, v, r);
    sum[0] = c.lanes.dot(r.d_terms, v.band->positive_distance.data() + at, r.runs);
    sum[1] = c.lanes.dot(r.d_terms, v.band->negative_distance.data() + at, r.runs);
  } else {
    const AxisView& axis = axis_of(c, t.axis);
    each_key(r.runs, [&](Index j) {
      const double delta = axis.delta(r.b, r.i, r.place.row, j);
      sum[delta > 0 ? 0 : 1] += r.d_terms[j] * std::fabs(delta);
    });
  }
  double* d_table = to.table + v.table.at(r.b, r.h, c.H);
  d_table[0] += v.scale * sum[0];
  d_table[1] += v.scale * sum[1];
}

bool on_side(const CallView& c, const DecayTerm& t, const HeadRow& r, Index j) noexcept {
  return t.side == Side::both ||
         (c.key_order(r.place, j) <= r.place.order) == (t.side == Side::past);
}

// S += scale (x_i - y_j).
void add_decay(const CallView& c, const TermView& v, const DecayTerm& t, const HeadRow& r,
               double* out) noexcept {
  const double* x = query_side(c, v, r);
  const KeySide y = key_side(c, v, r);
  each_key(r.runs, [&](Index j) {
    if (on_side(c, t, r, j))
      out[j] +=
          v.scale * ((x != nullptr ? *x : 0.0) - (y.data != nullptr ? y.data[j * y.step] : 0.0));
  });
}
// d x_i += sum_j dS, d y_j -= sum_i dS.
void pull_decay(const CallView& c, const TermView& v, const DecayTerm& t, HeadRow& r,
                const TermPull& to, Pull& pull) noexcept {
  double* d_x = query_pull(c, v, r, to);
  double* d_y = key_pull(c, v, r, to, pull);
  const Index step = key_side(c, v, r).step;
  each_key(r.runs, [&](Index j) {
    if (!on_side(c, t, r, j)) return;
    const double d = v.scale * r.d_terms[j];
    if (d_x != nullptr) *d_x += d;
    if (d_y != nullptr) d_y[j * step] -= d;
  });
}

}  // namespace

Index band_at(const CallView& c, const TermView& v, const HeadRow& r) noexcept {
  const AxisView& a = axis_of(c, v.band_axis);
  // The sum is small, what is added need not be: positions may stand at the ends of 64 bits.
  const auto key = static_cast<std::uint64_t>(a.key_whole[a.key_at(r.place.row, 0)]);
  const auto query = static_cast<std::uint64_t>(a.query_whole[a.query_at(r.b, r.i)]);
  return static_cast<Index>(static_cast<std::uint64_t>(v.band->high) - query + key);
}
const double* band_values(const CallView& c, const TermView& v, const HeadRow& r) noexcept {
  if (!v.adds_band) return nullptr;
  return v.band->values.data() + v.table.slab(r.b, r.h, c.H) * v.band->size() + band_at(c, v, r);
}

const std::int32_t* pick_rows(const CallView& c, const TermView& v, const HeadRow& r, Runs runs,
                              std::span<std::int32_t> memory) noexcept {
  const PickedRows& t = *picked_rows(*v.term);
  bool picks = t.pair.row != nullptr;
  for (const IndexLine& line : t.lines) picks |= line.row != nullptr;
  if (!picks) return nullptr;
  if (v.band != nullptr) return v.band->rows.data() + band_at(c, v, r);
  each_key(runs, [&](Index j) { memory[static_cast<std::size_t>(j)] = picked_row(c, t, r, j); });
  return memory.data();
}

const double* query_side(const CallView& c, const TermView& v, const HeadRow& r) noexcept {
  if (v.query.content) return r.query;
  if (!v.query.given()) return nullptr;
  return v.query.x.data() + v.query.at(r.b, r.h, c.H) + r.i * v.query.step();
}

KeySide key_side(const CallView& c, const TermView& v, const HeadRow& r) noexcept {
  if (v.key.content) {
    const Index slab = c.key_slab(r.place.row, r.h);
    return {c.k.data() + slab * c.Tk * c.D, c.D, c.D,
            c.k_tiles.data() + slab * tiles_size(c.Tk, c.D), &c.lanes};
  }
  if (!v.key.given()) return {};
  const Index slab = v.key.slab(r.place.row, r.h, c.H);
  return {v.key.x.data() + slab * v.key.tokens * v.key.channels, v.key.step(), v.key.channels,
          v.key.tiles.empty()
              ? nullptr
              : v.key.tiles.data() + slab * tiles_size(v.key.tokens, v.key.channels),
          &c.lanes};
}

double* query_pull(const CallView& c, const TermView& v, HeadRow& r, const TermPull& to) noexcept {
  if (v.query.content) return r.d_query;
  if (to.query == nullptr) return nullptr;
  return to.query + v.query.at(r.b, r.h, c.H) + r.i * v.query.step();
}
double* key_pull(const CallView& c, const TermView& v, const HeadRow& r, const TermPull& to,
                 Pull& pull) noexcept {
  if (v.key.content) return pull.k + c.key_slab(r.place.row, r.h) * c.Tk * c.D;
  return to.key == nullptr ? nullptr : to.key + v.key.at(r.place.row, r.h, c.H);
}

namespace {

// A term of a row, by its kind.
struct AddTerm {
  const CallView& c;
  const TermView& v;
  const HeadRow& r;
  RowWork& w;
  double* out;

  void operator()(const ProductTerm&) const noexcept { add_product(c, v, r, w, out); }
  void operator()(const LinearTerm& t) const noexcept { add_linear(c, v, t, r, out); }
  void operator()(const DecayTerm& t) const noexcept { add_decay(c, v, t, r, out); }
  void operator()(const GatesTerm& t) const noexcept { add_gates(c, v, t, r, w, out); }
  void operator()(const DistanceMlpTerm& t) const noexcept { add_distance_mlp(c, v, t, r, out); }
  void operator()(const ScoreMlpTerm&) const noexcept {}   // of all heads
  void operator()(const ValueRowsTerm&) const noexcept {}  // of the output
};

struct PullTerm {
  const CallView& c;
  const TermView& v;
  HeadRow& r;
  RowWork& w;
  const TermPull& to;
  Pull& pull;

  void operator()(const ProductTerm&) const noexcept { pull_product(c, v, r, w, to, pull); }
  void operator()(const LinearTerm& t) const noexcept { pull_linear(c, v, t, r, to); }
  void operator()(const DecayTerm& t) const noexcept { pull_decay(c, v, t, r, to, pull); }
  void operator()(const GatesTerm& t) const noexcept { pull_gates(c, v, t, r, w, to, pull); }
  void operator()(const DistanceMlpTerm& t) const noexcept { pull_distance_mlp(c, v, t, r, to); }
  void operator()(const ScoreMlpTerm&) const noexcept {}
  void operator()(const ValueRowsTerm&) const noexcept {}
};

}  // namespace

void add_term(const CallView& c, const TermView& v, const HeadRow& r, RowWork& w,
              double* out) noexcept {
  std::visit(AddTerm{c, v, r, w, out}, *v.term);
}

void pull_term(const CallView& c, const TermView& v, HeadRow& r, RowWork& w, const TermPull& to,
               Pull& pull) noexcept {
  std::visit(PullTerm{c, v, r, w, to, pull}, *v.term);
}

}  // namespace posenc::v0::detail
