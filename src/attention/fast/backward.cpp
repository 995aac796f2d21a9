// SPDX-License-Identifier: Apache-2.0
// Gradients of q, k, v and of what is added to the scores. A piece of work is the heads of a group against a slice of
// the keys: head by head, tiles of keys outside, tiles of rows inside. Weights are computed again from the sums of
// the forward pass, so that nothing of all pairs is kept.
#include <algorithm>
#include <cmath>

#include "attention/call/add_to.h"
#include "attention/call/pieces.h"
#include "attention/fast/backward_rows.h"
#include "attention/fast/engine.h"
#include "attention/fast/stage_gradients.h"
#include "core/element.h"
#include "core/parallel.h"
#include "posenc/attention/explain_plan.h"
#include "posenc/core/error.h"

namespace posenc::inline v0::detail {
namespace {

struct Piece {
  Index b, group, slice;
  Run heads, keys;
};
Run keys_of(const BackwardCall& c, Index slice) noexcept {
  return {slice * c.cut.slice_keys, std::min(c.Tk, (slice + 1) * c.cut.slice_keys)};
}
Piece piece_of(const BackwardCall& c, Index n) noexcept {
  const Index slice = n % c.cut.slices, parts = c.head_parts, share = c.H / c.G;
  const Index part = n / c.cut.slices % parts, owner = n / c.cut.slices / parts;
  const Index group = owner % c.G, first = group * share;
  return {owner / c.G,
          group,
          slice,
          {first + share * part / parts, first + share * (part + 1) / parts},
          keys_of(c, slice)};
}

GateTile gate_tile(const BackwardTile& t, const RowGroup& g, const BackwardWork& w,
                   const FastTileKeys& packed) noexcept {
  return {&g, &g - w.groups.begin(), g.first - t.first->first, t.keys, &packed};
}

// Whether a group has gradients in a tile.
bool reads(const BackwardCall& c, const BackwardWork& w, const RowGroup& g, Run keys) noexcept {
  return weighs(g, keys) && c.reads(g, keys) &&
         c.stick_gradients.has_gradients(g, &g - w.groups.begin(), keys, w.stick_gradients);
}

// Regions of a group in a tile.
RegionSet regions_of(const BackwardCall& c, const RowGroup& g, Run keys) noexcept {
  return c.regions.none() ? kNoRegion : c.regions.of(g, keys);
}

// Zeros behind what is written of the rows of a group.
void clear_rest(const BackwardCall& c, const BackwardTile& t, const RowGroup& g, Index written,
                BackwardWork& w) noexcept {
  const FastTileKernels& k = c.tiles;
  const Index at = (g.first - t.first->first) * k.tile_stride, end = end_of_rows(c, t.keys);
  for (Index n = 0; written < end && n < g.rows; ++n) {
    std::fill(t.p + at + n * k.tile_stride + written, t.p + at + n * k.tile_stride + end, 0.0f);
    std::fill(t.s + at + n * k.tile_stride + written, t.s + at + n * k.tile_stride + end, 0.0f);
    if (w.products.empty()) continue;
    float* products = w.products.data() + (t.s - w.s.data()) + at + n * k.tile_stride;
    std::fill(products + written, products + end, 0.0f);
  }
}

// p and s of one group. What it does not see, and pairs of other regions, are 0.
void fill_group(const BackwardCall& c, const BackwardTile& t, const RowGroup& g,
                const TileRegion& r, BackwardWork& w) noexcept {
  const FastTileKernels& k = c.tiles;
  const RegionSet regions = regions_of(c, g, t.keys);
  const Index at = (g.first - t.first->first) * k.tile_stride;
  Index written = 0;
  if (reads(c, w, g, t.keys) && (regions & (kNoRegion << (r.number + 1))) != 0) {
    StripStarts start;
    bool given = fill_starts(c, w, g, t.keys, start);
    if (!is_single(regions))
      hide_other_regions(c, w, g, r.number, t.keys, given, start), given = true;
    FastTileRows rows;
    rows.q = r.q + g.first * c.q_width, rows.g = w.g.data() + g.first * c.g_width;
    rows.start = given ? start.at : nullptr, rows.keys = start.keys;
    const FastTileKeys tile{r.keys, w.values.data(), c.channels, c.V, c.q_width, c.g_width};
    if (!c.gates.none() &&
        c.gate_gradients.open(gate_tile(t, g, w, tile), rows, start, w.gate_gradients))
      rows.start = start.at, given = true;
    if (!c.stick_gradients.none()) {
      c.stick_gradients.open(gate_tile(t, g, w, tile), rows, start, w.stick_gradients);
      rows.start = start.at, given = true;
    }
    for (Index n = 0; n < g.rows; ++n)
      start.shift[n] =
          static_cast<float>(start.base[n] - w.reference[static_cast<std::size_t>(g.first + n)]);
    rows.shift = start.shift;
    const ValueGroup group{g,       &g - w.groups.begin(),
                           t.keys,  whole_vectors(start.keys, k.lanes),
                           rows.g,  t.p + at,
                           t.s + at};
    rows.less = c.value_gradients.take_less(group, w.less.data() + g.first, w.value_gradients);
    rows.p = t.p + at, rows.s = t.s + at;
    if (!c.weights.none()) {
      const float* weight[kMostStripRows];
      if (!given) fill_zeros(c, g, start);
      rows.start = start.at;
      fill_weights(c, g, t.keys.begin, weight);
      c.weight_kernels.slopes[g.kind](tile, rows, weight, w.products.data() + (rows.s - w.s.data()),
                                      k.tile_stride);
    } else if (c.is_capped())
      c.cap_kernels.slopes[g.kind](tile,
                                   {rows, start.base, w.reference.data() + g.first,
                                    w.cap_slopes.data() + (rows.s - w.s.data())},
                                   c.cap, k.tile_stride);
    else
      k.slopes[g.kind][given ? 1 : 0](tile, rows);
    c.value_gradients.add_slopes(group, w.value_gradients);
    written = group.count;
  }
  clear_rest(c, t, g, written, w);
}

// What comes back from key to key is added to s.
void pull_back(const BackwardCall& c, const BackwardTile& t, BackwardWork& w) noexcept {
  for (const RowGroup* g = t.first; g < t.end; ++g) {
    if (!reads(c, w, *g, t.keys)) continue;
    float* s = t.s + (g->first - t.first->first) * c.tiles.tile_stride;
    if (!c.gates.none())
      c.gate_gradients.pull(gate_tile(t, *g, w, {}), s, w.gate_gradients);
    else
      c.stick_gradients.pull(gate_tile(t, *g, w, {}), s, w.stick_gradients);
  }
}

// Of what is added to the scores, from s in float.
void add_terms(BackwardCall& c, const Piece& piece, Index part, const BackwardTile& t,
               BackwardWork& w) noexcept {
  const Index rows = t.rows();
  if (!c.row_gradients.none())
    c.row_gradients.add({t.first_row(), t.first->row, t.s, rows, t.keys, w.key_rows.data(),
                         w.dk.data() + (t.keys.begin - piece.keys.begin) * c.q_width},
                        w, w.row_gradients);
  c.curve_gradients.add(t.first->row, t.s, rows, c.tiles.tile_stride, t.keys, w.curve_gradients);
  if (!c.terms.none())
    c.terms.add({t.first->row, t.s, rows, c.tiles.tile_stride, t.keys, piece.slice,
                 w.diagonals.data(), w.classes.runs.data(), w.picks.data()},
                part);
}

void run_tile(BackwardCall& c, const Piece& piece, Index part, const BackwardTile& t,
              const TileRegion& r, BackwardWork& w) noexcept {
  const Index row = t.first_row(), rows = t.rows(), count = t.count();
  const Index at = t.keys.begin - piece.keys.begin;
  if (c.slopes != nullptr) {
    add_word_tile(c, t, r.dq, r.dk + at * c.q_width, w.dv.data() + at * c.g_width, w);
    return add_terms(c, piece, part, t, w);
  }
  for (const RowGroup* g = t.first; g < t.end; ++g) fill_group(c, t, *g, r, w);
  const float *q = r.q + row * c.q_width, *g = w.g.data() + row * c.g_width;
  if (c.is_capped()) {
    if (!c.cap.starts) add_terms(c, piece, part, t, w);
    c.cap_kernels.multiply(t.s, w.cap_slopes.data() + (t.s - w.s.data()), rows, count,
                           c.tiles.tile_stride);
  }
  c.value_gradients.add_tile({t.first, t.end, t.first - w.groups.begin(), t.keys, g, t.p},
                             w.value_gradients);
  c.tiles.add_outer(w.dv.data() + at * c.g_width, t.p, g, rows, count, c.g_width);
  if (!c.gates.none() || !c.weights.none()) add_terms(c, piece, part, t, w);
  c.gate_gradients.begin_tile(rows, count, w.gate_gradients);
  if (c.passes_back()) pull_back(c, t, w);
  c.gate_gradients.add_products(
      {row, rows, t.keys, w.key_rows.data(), w.dk.data() + at * c.q_width}, w.gate_gradients);
  if (!c.weights.none())
    c.weight_gradients.pull({t.first->row, t.s, w.products.data() + (t.s - w.s.data()), rows,
                             t.keys, w.diagonals.data()},
                            piece.slice);
  c.tiles.add_outer(r.dk + at * c.q_width, t.s, q, rows, count, c.q_width);
  c.tiles.add_rows(r.dq + row * c.q_width, t.s, r.key_rows, rows, count, c.q_width);
  if (c.gates.none() && c.weights.none() && (!c.is_capped() || c.cap.starts))
    add_terms(c, piece, part, t, w);
}

// Counts of gates, or what is left of sticks, before the tiles of a head: from the last one on, as long as a row counts.
template <class Gradients, class Work>
void count(BackwardCall& c, const Gradients& of, const Piece& piece, Index h, Work& to,
           BackwardWork& w) noexcept {
  if (of.none()) return;
  const Index size = c.tiles.tile_keys;
  const FastTileKeys tile{w.keys.data(), w.values.data(), c.channels, c.V, c.q_width, c.g_width};
  for (Index n = block_count(piece.keys.end, size) - 1; n >= 0; --n) {
    const Run keys{n * size, std::min(piece.keys.end, (n + 1) * size)};
    bool taken = false;
    for (const RowGroup& g : w.groups) {
      if (!of.counts(g, to) || !c.reads(g, keys)) continue;
      if (!taken) take_keys(c, piece.b, h, keys, w), taken = true;
      StripStarts start;
      FastTileRows rows;
      rows.q = w.q.data() + g.first * c.q_width;
      rows.start = fill_starts(c, w, g, keys, start) ? start.at : nullptr, rows.keys = start.keys;
      for (Index m = 0; m < g.rows; ++m) start.shift[m] = static_cast<float>(start.base[m]);
      rows.shift = start.shift;
      if (rows.keys > 0) of.add_counts({&g, &g - w.groups.begin(), 0, keys, &tile}, rows, to);
    }
  }
}

// All tiles of one head against the keys of the piece.
void run_head(BackwardCall& c, const Piece& piece, Index h, Index part, float* dq,
              BackwardWork& w) noexcept {
  const FastTileKernels& k = c.tiles;
  const Index margin = k.tile_stride - k.tile_keys;
  float* const p = c.slopes != nullptr ? nullptr : w.p.data() + margin;
  for (Index first = piece.keys.begin; first < piece.keys.end; first += k.tile_keys) {
    const Run keys{first, std::min(piece.keys.end, first + k.tile_keys)};
    bool taken = false;
    for (const RowGroup* g = w.groups.begin(); g < w.groups.end();) {
      const RowGroup *begin = g, *seen = nullptr, *last = nullptr;
      for (; g < w.groups.end() && g->first + g->rows - begin->first <= k.tile_rows; ++g)
        if (reads(c, w, *g, keys)) seen = seen == nullptr ? g : seen, last = g;
      if (seen == nullptr) continue;
      if (!taken) take_keys(c, piece.b, h, keys, w), taken = true;
      RegionSet regions = 0;
      for (const RowGroup* one = seen; one <= last; ++one)
        if (reads(c, w, *one, keys)) regions |= regions_of(c, *one, keys);
      Regions::each(regions, [&](int number) {
        run_tile(c, piece, part, {seen, last + 1, keys, p, w.s.data() + margin},
                 c.region_gradients.open(c, piece.b, h, keys, number, dq, w), w);
      });
    }
  }
}

void run_piece(BackwardCall& c, const ConstAttentionResult& d, Index n, Index part,
               BackwardWork& w) noexcept {
  const Piece p = piece_of(c, n);
  const Index keys = p.keys.end - p.keys.begin + c.tiles.rows;
  if (!c.key_sums.empty()) {
    const Index size = c.padded_keys();
    w.dk = {c.key_sum(n), static_cast<std::size_t>(size * c.q_width)};
    w.dv = {c.key_sum(n) + size * c.q_width, static_cast<std::size_t>(size * c.g_width)};
  }
  std::fill_n(w.dk.data(), keys * c.q_width, 0.0f);
  std::fill_n(w.dv.data(), keys * c.g_width, 0.0f);
  for (Index h = p.heads.begin; h < p.heads.end; ++h) {
    float* dq = c.q_sums.empty() ? w.dq.data() : c.q_sum(p.slice, p.b, h);
    std::fill_n(dq, c.padded_rows() * c.q_width, 0.0f);
    take_head(c, d, p.b, h, w);
    c.region_gradients.begin_head(w);
    c.value_gradients.begin_head(w.value_gradients);
    c.curve_gradients.begin_head(w.curve_gradients);
    count(c, c.gate_gradients, p, h, w.gate_gradients, w);
    count(c, c.stick_gradients, p, h, w.stick_gradients, w);
    c.stick_gradients.give_rest(w, w.g.data(), w.dv.data(), w.stick_gradients);
    run_head(c, p, h, part, dq, w);
    c.row_gradients.close_tiles(w, w.row_gradients);
    c.value_gradients.end_head(p.b, h, part, w.g.data(), {w.groups.begin(), w.groups.end()},
                               w.value_gradients);
    c.curve_gradients.end_head(p.b, h, p.slice, w.curve_gradients);
    c.gate_gradients.end_head(p.b, h, w.q.data(), w.gate_gradients);
    c.products.add_keys(p.b, h, p.slice, p.keys, w.dk.data(), c.q_width);
    if (c.q_sums.empty()) {
      for (Index i = 0; !c.wide.none() && i < c.Tq; ++i)
        c.products.add_query(p.b, h, i, dq + i * c.q_width);
      put_queries(c, p.b, h, {0, c.Tq}, dq, w);
    }
    c.region_gradients.end_head(c, p.b, h, w);
    c.row_gradients.end_head(p.b, h, w.row_gradients);
  }
  if (c.key_sums.empty()) put_keys(c, p.b, p.group, p.keys, w.dk.data(), w.dv.data());
}

// Parts of the heads are added in their order.
void add_head_parts(BackwardCall& c, Index tasks, const Executor& executor) noexcept {
  if (c.key_sums.empty()) return;
  const Index slices = c.cut.slices, tiles = block_count(c.cut.slice_keys, c.tiles.tile_keys);
  parallel_for(executor, c.B * c.G * slices * tiles, tasks, [&](Index begin, Index end) noexcept {
    for (Index n = begin; n < end; ++n) {
      const Index owner = n / tiles / slices, slice = n / tiles % slices;
      const Run all = keys_of(c, slice);
      const Index first = all.begin + n % tiles * c.tiles.tile_keys;
      const Run keys{first, std::min(all.end, first + c.tiles.tile_keys)};
      if (keys.begin >= keys.end) continue;
      const Index count = keys.end - keys.begin, at = first - all.begin;
      const auto sum = [&](Index start, Index width) {
        const auto part = [&](Index m) {
          return c.key_sum((owner * c.head_parts + m) * slices + slice) + start + at * width;
        };
        for (Index m = 1; m < c.head_parts; ++m)
          c.kernels.add_rows(part(0), width, part(m), width, count, width, 1);
        return part(0);
      };
      const float* dk = sum(0, c.q_width);
      put_keys(c, owner / c.G, owner % c.G, keys, dk, sum(c.padded_keys() * c.q_width, c.g_width));
    }
  });
}

// Slices are added in their order.
void add_slices(BackwardCall& c, std::span<BackwardWork> works, const Executor& executor) noexcept {
  if (c.q_sums.empty()) return;
  parallel_for(executor, c.B * c.H * c.Tq, static_cast<Index>(works.size()),
               [&](Index begin, Index end, Index task) noexcept {
                 for (Index row = begin; row < end; ++row) {
                   const Index i = row % c.Tq, h = row / c.Tq % c.H, b = row / c.Tq / c.H;
                   float* sum = c.q_sum(0, b, h) + i * c.q_width;
                   for (Index slice = 1; slice < c.cut.slices; ++slice) {
                     const float* x = c.q_sum(slice, b, h) + i * c.q_width;
                     for (Index d = 0; d < c.channels; ++d) sum[d] += x[d];
                   }
                   put_queries(c, b, h, {i, i + 1}, sum, works[static_cast<std::size_t>(task)]);
                 }
               });
  if (c.wide.none()) return;
  for (Index b = 0; b < c.B; ++b)
    for (Index h = 0; h < c.H; ++h)
      for (Index i = 0; i < c.Tq; ++i)
        c.products.add_query(b, h, i, c.q_sum(0, b, h) + i * c.q_width);
}

}  // namespace

std::string_view fast_backward_why_not(const ReadyCall& call, const LoweredCall& lowered) {
  if (!call.args.block_table.empty()) return "it computes no gradients of paged keys";
  for (const Term& t : call.args.terms) {
    if (const std::string_view why = CurveGradients::why_not(call, t); !why.empty()) return why;
  }
  return fast_why_not(call, lowered);
}

bool fast_backward(const ReadyCall& call, const LoweredCall& lowered,
                   const ConstAttentionResult& result, const ConstAttentionResult& d,
                   const AttentionGradients& g, CallArena& arena, const Executor& executor) {
  BackwardCall c(call, lowered, d.out, g, arena, executor);
  const Index parts = c.terms.parts();
  const Index most = most_tasks(c), tasks = task_count(executor, parts, most);
  const std::span<BackwardWork> works =
      arena.made<BackwardWork>(tasks, [&](Index) { return BackwardWork(c, arena); });
  const std::span<double> stage_sums = arena.array<double>(largest_stage_array(g));
  if (arena.counts()) return true;
  if (!c.facts.find(result, d, executor) || !c.curve_gradients.find_knots(executor)) {
    if (is_cancelled(executor)) throw Cancelled("attention");
    return false;
  }
  if (!c.writes) clear_overwritten(g);
  each_piece(executor, parts, most, [&](Index part, Index task) noexcept {
    for (Index n = c.terms.first_of(part); n < c.terms.first_of(part + 1); ++n)
      if (!is_cancelled(executor)) run_piece(c, d, n, part, works[static_cast<std::size_t>(task)]);
  });
  add_slices(c, works, executor);
  add_head_parts(c, tasks, executor);
  add_factors(c);
  c.terms.finish();
  c.products.finish(executor);
  c.row_gradients.finish(executor);
  c.value_gradients.finish();
  c.gate_gradients.finish(executor);
  c.curve_gradients.finish();
  c.weight_gradients.finish();
  c.region_gradients.finish(c, executor);
  if (!c.args.prepare.empty() || rotates_regions(c.args))
    pull_fast_stages(c, lowered, stage_sums, executor);
  return true;
}

}  // namespace posenc::v0::detail
