// SPDX-License-Identifier: Apache-2.0
// What kernels of attention and their callers share.
#pragma once
#include <span>

#include "posenc/core/dtype.h"

namespace posenc::inline v0::detail {

inline constexpr Index kTile = 16;  // keys that one pass over the channels serves
inline Index whole_tiles(Index tokens) {
  return (tokens + kTile - 1) / kTile * kTile;
}

// Keys [begin, end).
struct Run {
  Index begin, end;
};
using Runs = std::span<const Run>;

template <class F>
void each_key(Runs runs, const F& fn) {
  for (const Run& run : runs)
    for (Index j = run.begin; j < run.end; ++j) fn(j);
}

}  // namespace posenc::v0::detail
