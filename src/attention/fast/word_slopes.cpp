// SPDX-License-Identifier: Apache-2.0
#include "attention/fast/word_slopes.h"

#include <algorithm>
#include <cmath>

#include "attention/fast/backward_call.h"

namespace posenc::inline v0::detail {
namespace {

Index whole_panels(const BackwardCall& c, Index channels) noexcept {
  return block_count(channels, c.panel) * c.panel;
}

// Whether gradients of what is added read s in float.
bool reads_scores(const BackwardCall& c) noexcept {
  return !c.terms.none() || !c.curve_gradients.none();
}

void clear(std::uint32_t* x, Index begin, Index end) noexcept {
  if (begin < end) std::fill(x + begin, x + end, 0u);
}

// 0 behind what is written of the rows of a group.
void clear_words(const BackwardCall& c, const BackwardTile& t, const RowGroup& g, Index written,
                 BackwardWork& w) noexcept {
  const Index stride = c.tiles.tile_stride, row = g.first - t.first_row(), count = t.count();
  for (Index n = 0; n < g.rows; n += 2) {
    clear(w.words.p_pairs.data() + (row + n) / 2 * stride, written, count);
    clear(w.words.s_pairs.data() + (row + n) / 2 * stride, written, count);
  }
  for (Index n = 0; n < g.rows; ++n) {
    clear(w.words.s_keys.data() + (row + n) * (stride / 2), written / 2, (count + 1) / 2);
    if (float* x = t.s + (row + n) * stride; reads_scores(c))
      std::fill(x + written, x + std::max(written, end_of_rows(c, t.keys)), 0.0f);
  }
}

void fill_word_group(const BackwardCall& c, const BackwardTile& t, const RowGroup& g,
                     BackwardWork& w) noexcept {
  const Index stride = c.tiles.tile_stride, row = g.first - t.first_row();
  Index written = 0;
  if (weighs(g, t.keys) && c.reads(g, t.keys)) {
    WordSlopeWork& m = w.words;
    StripStarts start;
    const bool given = fill_starts(c, w, g, t.keys, start);
    for (Index n = 0; n < g.rows; ++n) {
      const FastRow& r = g.row[n];
      start.shift[n] = n < g.count
                           ? static_cast<float>(start.base[n] - c.facts.log2_sum(r.b, r.h, r.i))
                           : -HUGE_VALF;
    }
    WordTileRows rows;
    rows.q = m.q.data() + g.first * m.q_words, rows.g = m.g.data() + g.first * m.value_words;
    rows.factors = m.factors.data() + g.first, rows.less = w.less.data() + g.first;
    rows.start = given ? start.at : nullptr, rows.shift = start.shift, rows.keys = start.keys;
    rows.s = reads_scores(c) ? t.s + row * stride : nullptr;
    rows.p_pairs = m.p_pairs.data() + row / 2 * stride;
    rows.s_pairs = m.s_pairs.data() + row / 2 * stride;
    rows.s_keys = m.s_keys.data() + row * (stride / 2);
    c.slopes->slopes[g.kind][given ? 1 : 0](
        {m.keys.data(), m.values.data(), m.q_words, m.value_words}, rows);
    written = whole_vectors(start.keys, c.tiles.lanes);
  }
  clear_words(c, t, g, written, w);
}

}  // namespace

const WordSlopeKernels* word_slopes_of(const FastCall& c, const FastTileKernels& tiles,
                                       const ConstHeads& d_out) noexcept {
  if (!takes_words(c) || d_out.dtype != DType::bf16) return nullptr;
  if (!is_readable(c.q) || !is_readable(c.k) || !is_readable(c.given_v) || !is_readable(d_out))
    return nullptr;
  const WordSlopeKernels* words = word_slope_kernels(active_isa());
  return words != nullptr && words->lanes == tiles.lanes && words->tile_stride == tiles.tile_stride
             ? words
             : nullptr;
}

WordSlopeWork::WordSlopeWork(const BackwardCall& c, Index rows, CallArena& arena) {
  if (c.slopes == nullptr) return;
  const FastTileKernels& t = c.tiles;
  const Index q_panels = whole_panels(c, c.D), value_panels = whole_panels(c, c.V);
  const auto zeros = [&](Index n) {
    const std::span<std::uint32_t> x = arena.array<std::uint32_t>(n);
    if (!arena.counts()) std::fill(x.begin(), x.end(), 0u);
    return x;
  };
  q_words = (c.D + 1) / 2, value_words = (c.V + 1) / 2;
  q = zeros(rows * q_words), g = zeros(rows * value_words);
  q_pairs = zeros((rows + 1) / 2 * q_panels), g_pairs = zeros((rows + 1) / 2 * value_panels);
  factors = arena.array<float>(rows);
  if (!arena.counts()) std::fill(factors.begin(), factors.end(), 0.0f);
  keys = zeros(t.tile_keys * q_words), values = zeros(t.tile_keys * value_words);
  key_pairs = zeros(t.tile_keys / 2 * q_panels);
  const Index tile = (t.tile_rows + t.rows) / 2 * t.tile_stride;
  p_pairs = zeros(tile), s_pairs = zeros(tile), s_keys = zeros(tile);
}

void take_word_rows(const BackwardCall& c, const ConstHeads& d_out, Index b, Index h,
                    BackwardWork& w) noexcept {
  WordSlopeWork& m = w.words;
  const double* sums = c.facts.log2_sums(b, h);
  const auto take = [&](const ConstHeads& x, Index words, std::uint32_t* rows, std::uint32_t* pairs,
                        Index width) {
    const Index most = c.tiles.tile_keys;  // an even number
    const std::byte* from = token_at(x, b, 0, h);
    const Index step = x.token_stride * size_of(x.dtype);
    for (Index first = 0; first < c.Tq; first += most) {
      const Index count = std::min(most, c.Tq - first);
      for (Index n = 0; n < count; ++n) {
        const bool sees_none = sums[first + n] == HUGE_VAL;
        const void* row = sees_none ? nullptr : from + (first + n) * step;
        w.tokens[static_cast<std::size_t>(n)] = row;
        if (sees_none)
          std::fill_n(rows + (first + n) * words, words, 0u);
        else
          c.slopes->take_row(rows + (first + n) * words, row, x.dim, words);
      }
      c.slopes->pack_pairs(pairs + first / 2 * width, w.tokens.data(), count, x.dim);
    }
  };
  take(c.q, m.q_words, m.q.data(), m.q_pairs.data(), whole_panels(c, c.D));
  take(d_out, m.value_words, m.g.data(), m.g_pairs.data(), whole_panels(c, c.V));
  for (Index i = 0; i < c.Tq; ++i) {
    const auto n = static_cast<std::size_t>(i);
    m.factors[n] = static_cast<float>(c.row_factor(b, h, i) * kLog2E);
    w.less[n] = static_cast<float>(c.facts.less(b, h, i));
  }
}

void take_word_keys(const BackwardCall& c, Index count, BackwardWork& w) noexcept {
  c.slopes->pack_keys(w.words.keys.data(), w.tokens.data(), count, c.D, w.words.q_words);
  c.slopes->pack_pairs(w.words.key_pairs.data(), w.tokens.data(), count, c.D);
}

void take_word_values(const BackwardCall& c, Index count, BackwardWork& w) noexcept {
  c.slopes->pack_keys(w.words.values.data(), w.tokens.data(), count, c.V, w.words.value_words);
}

void add_word_tile(const BackwardCall& c, const BackwardTile& t, float* dq, float* dk, float* dv,
                   BackwardWork& w) noexcept {
  for (const RowGroup* g = t.first; g < t.end; ++g) fill_word_group(c, t, *g, w);
  const WordSlopeWork& m = w.words;
  const Index row = t.first_row(), rows = t.rows(), pairs = (rows + 1) / 2, count = t.count();
  const auto pair = [&](const std::span<std::uint32_t>& of, Index channels) {
    return of.data() + row / 2 * whole_panels(c, channels);
  };
  const WordSlopeKernels& k = *c.slopes;
  k.add_outer(dv, m.p_pairs.data(), pair(m.g_pairs, c.V), pairs, count, c.g_width);
  k.add_outer(dk, m.s_pairs.data(), pair(m.q_pairs, c.D), pairs, count, c.q_width);
  k.add_rows(dq + row * c.q_width, m.s_keys.data(), m.key_pairs.data(), rows, (count + 1) / 2,
             c.q_width);
}

}  // namespace posenc::v0::detail
