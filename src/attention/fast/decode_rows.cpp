// SPDX-License-Identifier: Apache-2.0
#include "attention/fast/decode_rows.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "core/parallel.h"

namespace posenc::inline v0::detail {
namespace {

// Steps of neighbouring entries are multiplied by whole panels.
Index panels_of_slice(const RowTerm& t, Index panel) noexcept {
  const Index all = block_count(t.steps(), panel);
  return t.by_line ? std::min(all, (kSliceKeys + kDecodeMostRows) / panel + 2) : all;
}
// Steps that are multiplied at once.
Index unit_of(const FastCall& c, const RowTerm& t) noexcept {
  return t.in_place ? kDecodeKeys : c.panel;
}

}  // namespace

DecodeRowTerm::DecodeRowTerm(const DecodeCall& d, const RowTerm& t, CallArena& arena) {
  const FastKernels& k = d.c.kernels;
  const Index count = d.together * kDecodeMostRows;
  if (t.of_keys) {
    if (!t.is_content() && t.channels < k.lanes) copies = arena.array<float>(kDecodeKeys * k.lanes);
    if (!arena.counts()) std::fill(copies.begin(), copies.end(), 0.0f);
    return;
  }
  width = panels_of_slice(t, unit_of(d.c, t)) * unit_of(d.c, t);
  x_width = whole_vectors(t.channels, k.lanes);
  products = arena.array<float>((count + k.few_rows) * width + k.lanes);
  first = arena.array<Index>(count);
  x = arena.array<float>(k.few_rows * x_width);
  rows = arena.array<float>(t.in_place ? kDecodeKeys * x_width : 0);
  sums = arena.array<float>(t.in_place ? d.sums_of_rows(k.few_rows) : 0);
  if (arena.counts()) return;
  std::fill(rows.begin(), rows.end(), 0.0f);
  // What is read of hidden keys must be finite.
  std::fill(products.begin(), products.end(), 0.0f);
  std::fill(first.begin(), first.end(), Index{0});
}

DecodeRows::DecodeRows(const DecodeCall& d, CallArena& arena) : d_(&d) {
  const std::span<const RowTerm> all = d.c.rows.all();
  terms_ = arena.made<DecodeRowTerm>(static_cast<Index>(all.size()), [&](Index n) {
    return DecodeRowTerm(d, all[static_cast<std::size_t>(n)], arena);
  });
  const Index some = all.empty() ? 0 : kDecodeKeys;
  starts_ = arena.array<float>(kDecodeMostRows * some);
  picks_ = arena.array<std::int32_t>(some), x_ = arena.array<float>(some);
}

// The vectors of `count` rows from n on, of one table; the rest of the strip is 0.
void DecodeRows::take_vectors(const RowTerm& t, DecodeRowTerm& of, const DecodeBlock& b, Index n,
                              Index count, Index slice) noexcept {
  const FastCall& c = d_->c;
  std::fill(of.x.begin(), of.x.end(), 0.0f);
  for (Index m = 0; m < count; ++m) {
    const FastRow& r = d_->rows[static_cast<std::size_t>(b.first + n + m)];
    float* x = of.x.data() + m * of.x_width;
    if (t.bounded[static_cast<std::size_t>(t.slab(r.b, r.h, c.H))] != 0 &&
        take_row_vector(c, t, r, x))
      continue;
    std::fill_n(x, of.x_width, 0.0f);
    d_->left[d_->at(slice, b.first + n + m)] = 1;
  }
}

void DecodeRows::multiply(const RowTerm& t, DecodeRowTerm& of, const DecodeBlock& b, Index slice,
                          Run keys) noexcept {
  const FastCall& c = d_->c;
  const Index panel = unit_of(c, t), most = c.kernels.few_rows;
  const auto row = [&](Index n) -> const FastRow& {
    return d_->rows[static_cast<std::size_t>(b.first + n)];
  };
  for (Index n = 0, count = 0; n < b.count; n += count) {
    const FastRow& r = row(n);
    const Index slab = t.slab(r.b, r.h, c.H);
    RowSteps::Range steps{t.steps() - 1, 0};
    for (count = 0; count < most && n + count < b.count; ++count) {
      const FastRow& next = row(n + count);
      if (t.slab(next.b, next.h, c.H) != slab || (t.holds_numbers && next.h != r.h)) break;
      const RowSteps::Range some = t.range(c, next, 1, keys.begin, keys.end - keys.begin);
      steps = {std::min(steps.first, some.first), std::max(steps.last, some.last)};
    }
    take_vectors(t, of, b, n, count, slice);
    const Index first = steps.first / panel, end = steps.last / panel + 1;
    std::fill_n(of.first.begin() + static_cast<Index>(at(b, n)), count, first * panel);
    if (t.in_place) {
      multiply_in_place(t, of, b, n, count, slice, {first * panel, end * panel});
      continue;
    }
    float* to = of.products.data() + static_cast<Index>(at(b, n)) * of.width;
    c.row_reads.products[1](to, of.width, of.x.data(), of.x_width,
                            t.table_of(slab) + first * panel * t.channels, panel * t.channels,
                            end - first, t.channels,
                            t.holds_numbers ? c.starts.line_of(r.b, r.h) + first * panel : nullptr);
  }
}

void DecodeRows::multiply_in_place(const RowTerm& t, DecodeRowTerm& of, const DecodeBlock& b,
                                   Index n, Index count, Index slice,
                                   const RowSteps::Range& steps) noexcept {
  const FastCall& c = d_->c;
  const FastRow& r = d_->rows[static_cast<std::size_t>(b.first + n)];
  const Index slab = t.slab(r.b, r.h, c.H);
  std::array<const void*, kDecodeKeys> rows;
  for (std::size_t s = 0; s < rows.size(); ++s)
    rows[s] = of.rows.data() + static_cast<Index>(s) * of.x_width;
  std::array<float, kDecodeMostRows * kDecodeKeys> products;
  bool bounded = true;
  const auto row_of_step = [&](Index step) {
    return step < t.steps() ? t.row[static_cast<std::size_t>(step)] : Index{-1};
  };
  for (Index first = steps.first; first < steps.last; first += kDecodeKeys) {
    for (Index s = 0; s < kDecodeKeys; ++s) {
      bounded = take_table_row(c.row_reads, t.term->table, slab, row_of_step(first + s), 1,
                               of.rows.data() + s * of.x_width) &&
                bounded;
    }
    FastDecodeHead h;
    h.k = rows.data(), h.q = of.x.data(), h.x = products.data();
    d_->kernels.scores[fast_type(DType::f32)](
        {&h, 1, count, of.x_width, of.x_width, of.sums.data()});
    for (Index row = 0; row < count; ++row) {
      float* to = of.products.data() + static_cast<Index>(at(b, n + row)) * of.width +
                  (first - steps.first);
      std::copy_n(products.data() + row * kDecodeKeys, kDecodeKeys, to);
      if (t.holds_numbers)
        c.row_reads.add_slice(to, c.starts.line_of(r.b, r.h) + first, kDecodeKeys);
    }
  }
  for (Index m = 0; !bounded && m < count; ++m) d_->left[d_->at(slice, b.first + n + m)] = 1;
}

namespace {

// Rows whose table float does not hold.
void leave_unbounded(const DecodeCall& d, const RowTerm& t, std::span<const DecodeBlock> blocks,
                     Index slice) noexcept {
  for (const DecodeBlock& b : blocks)
    for (Index n = b.first; n < b.first + b.count; ++n) {
      const FastRow& r = d.rows[static_cast<std::size_t>(n)];
      if (t.bounded[static_cast<std::size_t>(t.slab(r.b, r.h, d.c.H))] == 0)
        d.left[d.at(slice, n)] = 1;
    }
}

}  // namespace

void DecodeRows::begin(std::span<const DecodeBlock> blocks, Index slice) noexcept {
  first_row_ = blocks.front().first;
  const Run all{slice * kSliceKeys, std::min(d_->c.Tk, (slice + 1) * kSliceKeys)};
  std::size_t number = 0;
  for (const RowTerm& t : d_->c.rows.all()) {
    DecodeRowTerm& of = terms_[number++];
    if (t.of_keys) {
      leave_unbounded(*d_, t, blocks, slice);
      continue;
    }
    for (const DecodeBlock& b : blocks) {
      Run keys = d_->c.seen_by(b.groups, all);
      if (keys.begin >= keys.end) continue;
      keys = {keys.begin / kDecodeKeys * kDecodeKeys,
              block_count(keys.end, kDecodeKeys) * kDecodeKeys};
      multiply(t, of, b, slice, keys);
    }
  }
}

// Adds the product of each key with its row. Products of keys that a mask hides from this query may be none.
void DecodeRows::add_keys(const RowTerm& t, DecodeRowTerm& of, const FastRow& r,
                          const DecodeKeys& unit, Index count, float* to) noexcept {
  const FastCall& c = d_->c;
  const float* table = t.table_of(t.slab(r.b, r.h, c.H));
  const Index keys = unit.keys.end - unit.keys.begin;
  const std::int32_t* steps = t.by_line ? t.step + t.entry(c, r) + unit.keys.begin
                                        : pick_rows(c, t, r, unit.keys, count, picks_.data());
  std::array<const float*, kDecodeKeys> rows;
  std::array<const void*, kDecodeKeys> tokens;
  for (std::size_t j = 0; j < kDecodeKeys; ++j) {
    const bool hidden = static_cast<Index>(j) >= keys || unit.k[j] == unit.zeros;
    rows[j] = hidden ? table : table + steps[j] * t.channels;
    tokens[j] = hidden ? unit.zeros : unit.k[j];
    if (hidden || t.is_content()) continue;
    const float* own = t.own_key(r.place.row, unit.keys.begin + static_cast<Index>(j), r.h, c.H);
    tokens[j] = own;
    if (of.copies.empty()) continue;
    float* copy = of.copies.data() + static_cast<Index>(j) * c.kernels.lanes;
    std::copy_n(own, t.channels, copy);
    tokens[j] = copy;
  }
  const std::size_t type = t.is_content() ? d_->k.type : fast_type(DType::f32);
  d_->kernels.pair_scores[type](x_.data(), rows.data(), tokens.data(), t.channels);
  for (Index j = 0; j < count; ++j)
    if (to[j] != -HUGE_VALF) to[j] += x_[static_cast<std::size_t>(j)];
}

const float* DecodeRows::add(const DecodeBlock& b, Index n, const DecodeKeys& unit, Index count,
                             const float* start, double& base) noexcept {
  const FastCall& c = d_->c;
  const FastRow& r = d_->rows[static_cast<std::size_t>(b.first + n)];
  float* own = starts_.data() + n * kDecodeKeys;
  std::size_t number = 0;
  for (const RowTerm& t : c.rows.all()) {
    DecodeRowTerm& of = terms_[number++];
    const std::size_t row = at(b, n);
    const RowSteps::Range steps = t.range(c, r, 1, unit.keys.begin, count);
    const float* products =
        t.of_keys ? nullptr
                  : of.products.data() + static_cast<Index>(row) * of.width - of.first[row];
    if (!t.of_keys && t.by_line && steps.first == steps.last) {
      base += static_cast<double>(products[steps.first]);
      continue;
    }
    if (start == nullptr)
      std::fill_n(own, count, 0.0f);
    else if (start != own)
      std::copy_n(start, count, own);
    start = own;
    if (t.of_keys) {
      add_keys(t, of, r, unit, count, own);
    } else if (!t.by_line) {
      c.row_reads.add_indexed(own, products, pick_rows(c, t, r, unit.keys, count, picks_.data()),
                              count);
    } else if (steps.last - steps.first == count - 1) {
      c.row_reads.add_slice(own, products + steps.first, count);
    } else {
      c.row_reads.add_indexed(own, products, t.step + t.entry(c, r) + unit.keys.begin, count);
    }
  }
  return start;
}

}  // namespace posenc::v0::detail
