// SPDX-License-Identifier: Apache-2.0
// Rows of a decoding call: how they are found, and how their slices are joined.
#include <algorithm>
#include <cmath>

#include "attention/fast/decode.h"
#include "attention/fast/decode_products.h"
#include "attention/fast/decode_rows.h"
#include "attention/fast/decode_scans.h"
#include "core/element.h"
#include "core/parallel.h"

namespace posenc::inline v0::detail {

DecodeTokens::DecodeTokens(const ConstHeads& t, Index lanes)
    : x(&t),
      copied(t.dim_stride != 1 || t.dim < lanes),
      type(copied ? fast_type(DType::f32) : fast_type(t.dtype)),
      channels(copied ? whole_vectors(t.dim, lanes) : t.dim),
      width(whole_vectors(t.dim, lanes)) {}

FastDecodeHeads DecodeTokens::of(std::span<const FastDecodeHead> heads, Index rows,
                                 std::span<float> sums) const noexcept {
  FastDecodeHeads all;
  all.first = heads.data(), all.count = static_cast<Index>(heads.size()), all.rows = rows;
  all.width = width, all.channels = channels, all.sums = sums.data();
  all.access = access;
  return all;
}

void place_tail(const DecodeTokens& t, Index lanes, float* q) noexcept {
  const Index whole = t.channels / lanes * lanes;
  if (whole == t.channels) return;
  std::copy_backward(q + whole, q + t.channels, q + t.width);
  std::fill_n(q + whole, t.width - t.channels, 0.0f);
}

DecodeCall::DecodeCall(const FastCall& call, CallArena& arena)
    : c(call),
      kernels(fast_decode_kernels(active_isa())),
      k(call.k, kernels.lanes),
      v(call.given_v, kernels.lanes),
      slices(block_count(call.Tk, kSliceKeys)) {
  // A block has all heads of a key head, or one where these read other keys.
  const Index heads = c.splits_groups() ? c.H : c.G;
  if (k.x->head_stride < k.x->token_stride) together = heads;
  const Index most_blocks = c.B * heads * c.Tq, most_rows = c.B * c.H * c.Tq;
  blocks = arena.objects<DecodeBlock>(most_blocks);
  rows = arena.array<FastRow>(most_rows);
  const std::span<RowGroup> groups = arena.array<RowGroup>(most_rows);
  copy = arena.array<std::byte>(static_cast<Index>(c.copy_bytes));
  wide = arena.array<float>(c.wide.none() ? 0 : c.channels);
  q = arena.array<float>(most_rows * k.width);
  regions = arena.made<DecodeRegion>(static_cast<Index>(c.regions.size()), [&](Index n) {
    return DecodeRegion{DecodeTokens(c.regions.qk(static_cast<int>(n)).k, kernels.lanes),
                        arena.array<float>(most_rows * k.width)};
  });
  out = arena.array<float>(slices * most_rows * v.width);
  sums = arena.array<float>(slices * most_rows * kernels.lanes);
  reference = arena.array<double>(slices * most_rows);
  left = arena.array<std::uint8_t>(slices * most_rows);
  tops = arena.array<double>(most_rows);
  if (arena.counts()) return;
  BoundedList<FastRow> row_list(rows);
  BoundedList<RowGroup> group_list(groups);
  blocks = blocks.first(c.blocks.size());
  std::fill(left.begin(), left.end(), std::uint8_t{0});
  for (std::size_t n = 0; n < blocks.size(); ++n) {
    blocks[n].first = static_cast<Index>(row_list.size());
    blocks[n].groups = groups.subspan(group_list.size());
    blocks[n].rows = c.blocks[n];
    add_block(c.blocks[n], row_list, group_list);
    DecodeBlock& b = blocks[n];
    b.groups = b.groups.first(static_cast<std::size_t>(b.rows.head_end - b.rows.head));
    b.count = (b.rows.head_end - b.rows.head) * (b.rows.end - b.rows.begin);
    find_tops(c, b.groups, tops.data() + b.first);
  }
}

void DecodeCall::add_block(const FastRowBlock& block, BoundedList<FastRow>& row_list,
                           BoundedList<RowGroup>& group_list) noexcept {
  const std::size_t begin = row_list.size();
  for (Index h = block.head; h < block.head_end; ++h) {
    RowGroup g;
    g.first = static_cast<Index>(row_list.size() - begin);
    g.count = g.rows = block.end - block.begin;
    g.row = row_list.end();
    for (Index i = block.begin; i < block.end; ++i) row_list.push_back(c.row(block.b, h, i));
    find_bounds(g);
    group_list.push_back(g);
  }
}

void DecodeCall::take_queries(DecodeProducts& of_terms) noexcept {
  for (const DecodeBlock& b : blocks) take_queries(b, of_terms), take_region_queries(b);
}

void DecodeCall::take_region_queries(const DecodeBlock& b) noexcept {
  for (std::size_t region = 0; region < regions.size(); ++region)
    for (Index n = b.first; n < b.first + b.count; ++n) {
      const FastRow& r = rows[static_cast<std::size_t>(n)];
      const auto factor = static_cast<float>(c.row_factor(r.b, r.h, r.i) * kLog2E);
      float* to = regions[region].q.data() + n * k.width;
      if (!std::isfinite(factor) ||
          !take_vector(c.kernels, c.regions.qk(static_cast<int>(region)).q, r.b, r.i, r.h, factor,
                       to, k.width)) {
        left[at(0, n)] = 1;
        std::fill_n(to, k.width, 0.0f);
      }
      place_tail(regions[region].k, kernels.lanes, to);
    }
}

void DecodeCall::take_queries(const DecodeBlock& b, DecodeProducts& of_terms) noexcept {
  const ConstHeads& x = c.q;
  for (Index n = b.first; n < b.first + b.count; ++n) {
    const FastRow& r = rows[static_cast<std::size_t>(n)];
    const Index from = r.b * x.batch_stride + r.i * x.token_stride + r.h * x.head_stride;
    const auto factor = static_cast<float>(c.row_factor(r.b, r.h, r.i) * kLog2E);
    float* to = q.data() + n * k.width;
    std::fill_n(to, k.width, 0.0f);
    bool bounded = std::isfinite(factor);
    if (c.wide.none()) {
      bounded = bounded && c.kernels.take_row[fast_type(x.dtype)](
                               to, adjacent(x, from, copy.data()), c.D, factor);
    } else {
      bounded = bounded && c.take_query(r.b, r.h, r.i, wide.data(), c.channels);
      if (!bounded) std::fill(wide.begin(), wide.end(), 0.0f);
      std::copy_n(wide.data(), c.D, to);
      of_terms.take_query(wide.data(), n);
    }
    if (!bounded) {
      left[at(0, n)] = 1;
      std::fill_n(to, k.width, 0.0f);
    }
    place_tail(k, kernels.lanes, to);
  }
}

const void* copy_token(const DecodeCall& d, const DecodeTokens& t, const void* token,
                       float* copy) noexcept {
  std::fill_n(copy, t.width, 0.0f);
  d.c.kernels.take_row[fast_type(t.x->dtype)](copy, token, t.x->dim, 1);
  return copy;
}

void find_given_tokens(const DecodeCall& d, const DecodeTokens& t, const GivenKeys& g,
                       std::span<const void* const> k, const std::byte* zeros,
                       std::span<const void*> to, std::span<float> copies) noexcept {
  for (Index n = 0; n < kDecodeKeys; ++n) {
    const auto at = static_cast<std::size_t>(n);
    to[at] = zeros;
    if (n >= g.keys.end - g.keys.begin || k[at] == zeros) continue;
    to[at] = given_vector(*t.x, d.c.H, g.row, g.keys.begin + n, g.head);
    if (t.copied) to[at] = copy_token(d, t, to[at], copies.data() + n * t.width);
  }
}

DecodeSum sum_of_slices(const DecodeCall& d, Index row) noexcept {
  const auto sum_of = [&](Index slice) {
    float sum = 0;
    d.c.kernels.add_lanes(&sum, d.sums_of(slice, row), 1);
    return static_cast<double>(sum);
  };
  DecodeSum all{0, -HUGE_VAL};
  for (Index slice = 0; slice < d.slices; ++slice)
    if (sum_of(slice) > 0) all.reference = std::max(all.reference, d.reference[d.at(slice, row)]);
  if (all.reference == -HUGE_VAL) return {0, 0};
  for (Index slice = 0; slice < d.slices; ++slice)
    if (const double sum = sum_of(slice); sum > 0)
      all.sum += sum * std::exp2(d.reference[d.at(slice, row)] - all.reference);
  return all;
}

namespace {

// The values of all slices, relative to a reference: channels side by side, in slice 0.
float* join_values(const DecodeCall& d, Index row, double reference) noexcept {
  float* to = d.out_of(0, row);
  const auto factor = [&](Index slice) {
    return static_cast<float>(std::exp2(d.reference[d.at(slice, row)] - reference));
  };
  if (const float by = factor(0); by != 1)
    for (Index n = 0; n < d.v.width; ++n) to[n] *= by;
  for (Index slice = 1; slice < d.slices; ++slice)
    d.c.kernels.add_rows(to, 0, d.out_of(slice, row), 0, 1, d.v.width, factor(slice));
  const Index lanes = d.kernels.lanes, whole = d.v.channels / lanes * lanes;
  if (whole < d.v.channels)
    std::copy(to + whole + (d.v.width - d.v.channels), to + d.v.width, to + whole);
  return to;
}

// What is left of a stick, times the value of the query's own key. False: float cannot work with that value.
bool add_own_value(const FastCall& c, const FastRow& r, double rest, DecodeScanWork& w,
                   float* out) noexcept {
  if (c.args.normalisation != Normalisation::stick_breaking_own) return true;
  const Index own = c.own_key(r.place);
  if (own < 0) return true;
  const ConstHeads& v = c.given_v;
  const void* value = c.token(v, r.place.row, c.group(r.h), own, w.copy.data());
  if (!c.kernels.take_row[fast_type(v.dtype)](w.own.data(), value, c.V, 1)) return false;
  c.kernels.add_rows(out, 0, w.own.data(), 0, 1, c.V, static_cast<float>(rest));
  return true;
}

}  // namespace

void put_decoded(DecodeCall& d, const DecodeScans& scans, const DecodeBlock& b,
                 const AttentionResult& result, std::uint8_t* left, DecodeScanWork& w) noexcept {
  const FastCall& c = d.c;
  for (Index n = b.first; n < b.first + b.count; ++n) {
    const FastRow& r = d.rows[static_cast<std::size_t>(n)];
    RowTotal t{0, 0};
    float* from = nullptr;
    bool whole = true;
    if (breaks_sticks(c.args)) {
      t = scans.join_sticks(d, n);
      from = join_values(d, n, 0);
      whole = add_own_value(c, r, std::exp(t.log_sum_exp), w, from);
    } else {
      const DecodeSum sum = sum_of_slices(d, n);
      t = total_of(c, sum.sum, sum.reference, r.h, !result.log_sum_exp.empty());
      from = join_values(d, n, sum.reference);
    }
    t.leaves = !whole || std::isnan(t.sum) || std::isnan(t.log_sum_exp) ||
               !std::all_of(from, from + c.V, [](float x) { return std::isfinite(x); });
    for (Index slice = 0; slice < d.slices; ++slice)
      t.leaves = t.leaves || d.left[d.at(slice, n)] != 0;
    left[(r.b * c.H + r.h) * c.Tq + r.i] = t.leaves ? 1 : 0;
    put_rows(c, &r, &t, 1, from, 1, result);
  }
}

}  // namespace posenc::v0::detail
