// SPDX-License-Identifier: Apache-2.0
// Keys and values of a call in double: those that some query may see, or, for a few queries, a few
// at a time by the rows that read them.
#pragma once
#include "attention/exact/call_view.h"
#include "core/parallel.h"

namespace posenc::inline v0::detail {

// The copies that a call makes of q, k and v, by its shape.
struct CallCopies {
  bool streams = false;   // keys and values are converted a few at a time, and not kept
  bool key_rows = false;  // k is kept as rows beside its tiles
  Index bytes = 0;        // v too in a backward pass
};
CallCopies call_copies(const AttentionArgs&, bool backward);

// Keys or values that are converted at a time where a call streams them: they stay in the first cache.
inline Index streamed_keys(Index channels) {
  return std::max(kTile, 4096 / std::max<Index>(1, channels) / kTile * kTile);
}
// At most so many keys as prepared, as tiles; `to` has room for them twice.
void stream_key_tiles(const CallView&, Index r, Index g, Run some, double* to) noexcept;

// Reads keys and values: all that some query may see, each once.
void load_keys(CallView&, bool backward, CallArena&, const Executor&);
// The tiles of k, and backward of v, from the rows: after the stages.
void make_key_tiles(CallView&, bool backward, CallArena&, const Executor&);

// fn(row, group, tokens) in parallel for all keys of the tiles that some query may see.
template <class F>
void each_seen_keys(const CallView& c, Index values_a_key, const Executor& executor, const F& fn) {
  constexpr Index kTiles = 8;
  const Index tiles = whole_tiles(c.Tk) / kTile, blocks = block_count(tiles, kTiles);
  const Index most = c.R * c.G * c.Tk * values_a_key / kValuesPerTask;
  parallel_for(executor, c.R * c.G * blocks, most, [&](Index begin, Index end) noexcept {
    for (Index n = begin; n < end; ++n) {
      const Index slab = n / blocks, r = slab / c.G, last = c.key_end(r);
      Index t = n % blocks * kTiles;
      for (const Index stop = std::min(tiles, t + kTiles); t < stop; ++t) {
        if (!c.is_seen(r, t)) continue;
        const Index first = t;
        while (t + 1 < stop && c.is_seen(r, t + 1)) ++t;
        const Run some{first * kTile, std::min(last, (t + 1) * kTile)};
        if (some.begin < some.end) fn(r, slab % c.G, some);
      }
    }
  });
}

}  // namespace posenc::v0::detail
