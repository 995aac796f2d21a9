// SPDX-License-Identifier: Apache-2.0
// Queries, keys and start values of a strip in one region.
#include <algorithm>
#include <cmath>

#include "attention/fast/work.h"

namespace posenc::inline v0::detail {

void take_region_queries(const FastCall& c, FastWork& w) noexcept {
  for (std::size_t number = 0; number < c.regions.size(); ++number) {
    float* all = w.regions.q.data() + number * w.q.size();
    for (const RowGroup& g : w.groups)
      for (Index n = 0; n < g.rows; ++n) {
        const FastRow& r = g.row[n];
        float* to = all + (g.first + n) * c.channels;
        const auto factor = static_cast<float>(c.row_factor(r.b, r.h, r.i) * kLog2E);
        if (std::isfinite(factor) &&
            take_vector(c.kernels, c.regions.qk(static_cast<int>(number)).q, r.b, r.i, r.h, factor,
                        to, c.channels))
          continue;
        w.left[static_cast<std::size_t>(g.first + n)] = 1;
        std::fill_n(to, c.channels, 0.0f);
      }
  }
}

const float* pack_region(const FastCall& c, const FastRowBlock& block, int number, Run keys,
                         FastWork& w) noexcept {
  const RegionSet bit = kNoRegion << (number + 1);
  float* to = number < 0 ? w.keys.data()
                         : w.regions.keys.data() + static_cast<std::size_t>(number) * w.keys.size();
  if ((w.regions.packed & bit) == 0) {
    w.regions.packed |= bit;
    c.fill_region_tokens(number, block.row, block.head, keys, c.seen_by(w.groups, keys),
                         w.copies.data(), w.tokens.data());
    const DType type = number < 0 ? c.k.dtype : c.regions.qk(number).k.dtype;
    if (!c.kernels.pack_keys[fast_type(type)](to, w.tokens.data(), keys.end - keys.begin, c.D,
                                              c.channels))
      w.regions.unbounded |= bit;
  }
  return (w.regions.unbounded & bit) == 0 ? to : nullptr;
}

Run hide_other_regions(const FastCall& c, const FastRowWork& w, const RowGroup& g, int number,
                       Run keys, bool given, StripStarts& s) noexcept {
  const Run some{keys.begin, keys.begin + s.keys};
  Run all{some.end, some.begin};
  for (Index n = 0; n < g.rows; ++n) {
    float* to = w.region_starts.data() + n * w.block_keys;
    const Run run = c.regions.hide_others(number, g.row[n], some, given ? s.at[n] : nullptr,
                                          whole_vectors(s.keys, c.kernels.lanes), to);
    if (run.begin < run.end) all = {std::min(all.begin, run.begin), std::max(all.end, run.end)};
    s.at[n] = to;
  }
  s.keys = std::max<Index>(0, all.end - keys.begin);
  return all;
}

}  // namespace posenc::v0::detail
