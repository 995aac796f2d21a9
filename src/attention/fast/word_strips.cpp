// SPDX-License-Identifier: Apache-2.0
#include "attention/fast/word_strips.h"

#include <algorithm>
#include <cmath>

#include "attention/fast/work.h"

namespace posenc::inline v0::detail {

bool takes_words(const FastCall& c) noexcept {
  const AttentionArgs& a = c.args;
  return a.q.dtype == DType::bf16 && a.k.dtype == DType::bf16 && a.v.dtype == DType::bf16 &&
         a.prepare.empty() && c.wide.none() && c.rows.none() && c.value_rows.none() &&
         c.gates.none() && c.weights.none() && c.regions.none() && a.softcap == 0 &&
         !breaks_sticks(a);
}

const WordKernels* words_of(const FastCall& c) noexcept {
  if (!takes_words(c)) return nullptr;
  const WordKernels* words = word_kernels(active_isa());
  return words != nullptr && words->lanes == c.kernels.lanes ? words : nullptr;
}

WordWork::WordWork(const FastCall& c, Index rows, CallArena& arena) {
  if (c.words == nullptr) return;
  const Index pairs = c.strips.block_keys / 2;
  q = arena.array<std::uint32_t>(rows * c.channel_words);
  factors = arena.array<float>(rows);
  keys = arena.array<std::uint32_t>(c.strips.block_keys * c.channel_words);
  values = arena.array<std::uint32_t>(pairs * c.value_panels * c.panel);
  weights = arena.array<std::uint32_t>(c.strips.rows * pairs);
  rounded = arena.array<float>(rows * c.kernels.lanes);
}

void take_word_queries(const FastCall& c, FastWork& w) noexcept {
  const ConstHeads& q = c.q;
  for (std::size_t n = 0; n < w.rows.size(); ++n) {
    const FastRow& r = w.rows[n];
    const void* from = adjacent(
        q, r.b * q.batch_stride + r.i * q.token_stride + r.h * q.head_stride, w.copies.data());
    std::uint32_t* to = w.words.q.data() + static_cast<Index>(n) * c.channel_words;
    float& factor = w.words.factors[n];
    factor = static_cast<float>(c.row_factor(r.b, r.h, r.i) * kLog2E);
    if (c.words->take_row(to, from, c.D, c.channel_words) && std::isfinite(factor)) continue;
    w.left[n] = 1, factor = 0;
    std::fill_n(to, c.channel_words, 0u);
  }
}

bool pack_words(const FastCall& c, const FastRowBlock& block, Run keys, FastWork& w) noexcept {
  const Index count = keys.end - keys.begin, group = c.group(block.head);
  const Run seen = c.seen_by(w.groups, keys);
  c.fill_tokens(c.k, block.row, group, keys, seen, w.copies.data(), w.tokens.data());
  const bool k =
      c.words->pack_keys(w.words.keys.data(), w.tokens.data(), count, c.D, c.channel_words);
  c.fill_tokens(c.given_v, block.row, group, keys, seen, w.copies.data(), w.tokens.data());
  return c.words->pack_values(w.words.values.data(), w.tokens.data(), count, c.V) && k;
}

bool run_words(const FastCall& c, FastWork& w, const RowGroup& g, const FastStrip& rows, bool start,
               bool careful) noexcept {
  const WordBlock block{w.words.keys.data(), w.words.values.data(), c.channel_words,
                        c.value_vectors};
  WordStrip strip;
  strip.rows = rows;
  strip.q = w.words.q.data() + g.first * c.channel_words;
  strip.factors = w.words.factors.data() + g.first;
  strip.weights = w.words.weights.data();
  strip.rounded = w.words.rounded.data() + g.first * c.kernels.lanes;
  if (rows.first) std::fill_n(strip.rounded, g.rows * c.kernels.lanes, 0.0f);
  const std::size_t kind = start ? 1 : 0;
  return (!careful && c.words->strip[g.kind][kind](block, strip)) ||
         c.words->rescale[g.kind][kind](block, strip);
}

void finish_words(const FastCall& c, FastWork& w, const RowGroup& g) noexcept {
  if (!g.begun) return;
  float totals[kMostStripRows];
  c.kernels.add_lanes(totals, w.words.rounded.data() + g.first * c.kernels.lanes, g.rows);
  float* out = w.out.data() + g.first * c.value_panels * c.panel;
  for (Index n = 0; n < g.rows; ++n) {
    const float sum = w.totals[static_cast<std::size_t>(g.first + n)];
    const float factor = totals[n] > 0 ? sum / totals[n] : 1;
    for (Index p = 0; p < c.value_panels; ++p) {
      float* x = out + (p * g.rows + n) * c.panel;
      for (Index d = 0; d < c.panel; ++d) x[d] *= factor;
    }
  }
}

}  // namespace posenc::v0::detail
