// SPDX-License-Identifier: Apache-2.0
#include "attention/fast/decode_values.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace posenc::inline v0::detail {

DecodeValues::DecodeValues(const DecodeCall& d, CallArena& arena) : d_(&d) {
  const std::span<const ValueRowTerm> all = d.c.value_rows.all();
  const Index rows = d.together * kDecodeMostRows;
  terms_ = arena.made<Term>(static_cast<Index>(all.size()), [&](Index n) {
    const ValueRowTerm& t = all[static_cast<std::size_t>(n)];
    Term of;
    of.width = t.by_line ? std::min(t.steps(), kSliceKeys) : t.steps();
    of.sums = arena.array<float>(rows * of.width);
    of.first = arena.array<Index>(rows);
    return of;
  });
}

void DecodeValues::begin(std::span<const DecodeBlock> blocks, Index slice) noexcept {
  first_row_ = blocks.front().first;
  const FastCall& c = d_->c;
  const Index key = slice * kSliceKeys, count = std::min(kSliceKeys, c.Tk - key);
  std::size_t number = 0;
  for (const ValueRowTerm& t : c.value_rows.all()) {
    Term& of = terms_[number++];
    for (const DecodeBlock& b : blocks)
      for (Index n = 0; n < b.count; ++n) {
        const FastRow& r = d_->rows[static_cast<std::size_t>(b.first + n)];
        of.first[at(b, n)] = t.range(c, r, 1, key, count).first;
        std::fill_n(of.sums.begin() + static_cast<Index>(at(b, n)) * of.width, of.width, 0.0f);
        if (t.bounded[static_cast<std::size_t>(t.slab(r.b, r.h, c.H))] == 0)
          d_->left[d_->at(slice, b.first + n)] = 1;
      }
  }
}

void DecodeValues::add(const DecodeBlock& b, Index n, Run keys, const float* weights, Index count,
                       double moved) noexcept {
  const FastCall& c = d_->c;
  const FastRow& r = d_->rows[static_cast<std::size_t>(b.first + n)];
  std::size_t number = 0;
  for (const ValueRowTerm& t : c.value_rows.all()) {
    Term& of = terms_[number++];
    float* sums = of.sums.data() + static_cast<Index>(at(b, n)) * of.width;
    if (moved != 0) {
      const auto factor = static_cast<float>(std::exp2(-moved));
      for (Index step = 0; step < of.width; ++step) sums[step] *= factor;
    }
    if (t.by_line) {
      const Index first = of.first[at(b, n)];
      each_step_sum(t.step + t.entry(c, r) + keys.begin, weights, count,
                    [&](Index step, float sum) { sums[step - first] += sum; });
      continue;
    }
    for (Index j = 0; j < count; ++j)
      if (const Index row = picked_row(c, *t.term, r, keys.begin + j); row >= 0)
        sums[row] += weights[j];
  }
}

// Rows of the table in the place of values.
void DecodeValues::put(const ValueRowTerm& t, const Term& of, const DecodeBlock& b, Index n,
                       Index slice) noexcept {
  const FastRow& r = d_->rows[static_cast<std::size_t>(b.first + n)];
  const Index first = of.first[at(b, n)], count = std::min(of.width, t.steps() - first);
  float* sums = of.sums.data() + static_cast<Index>(at(b, n)) * of.width;
  const Index width = whole_vectors(d_->c.V, d_->kernels.lanes);
  const float* rows = t.table.data() + t.slab(r.b, r.h, d_->c.H) * t.slab_size + first * width;
  for (Index step = 0; step < count; step += kDecodeKeys) {
    std::array<const void*, kDecodeKeys> tokens;
    const Index some = std::min(kDecodeKeys, count - step);
    for (Index m = 0; m < some; ++m)
      tokens[static_cast<std::size_t>(m)] = rows + (step + m) * width;
    FastDecodeHead h;
    h.v = tokens.data(), h.x = sums + step, h.out = d_->out_of(slice, b.first + n), h.keys = some;
    d_->kernels.values[fast_type(DType::f32)](d_->v.of({&h, 1}, 1));
  }
}

void DecodeValues::end(std::span<const DecodeBlock> blocks, Index slice, bool low_only) noexcept {
  std::size_t number = 0;
  for (const ValueRowTerm& t : d_->c.value_rows.all()) {
    const Term& of = terms_[number++];
    for (const DecodeBlock& b : blocks)
      for (Index n = 0; (b.low || !low_only) && n < b.count; ++n) put(t, of, b, n, slice);
  }
}

}  // namespace posenc::v0::detail
