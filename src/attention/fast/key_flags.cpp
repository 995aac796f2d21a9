// SPDX-License-Identifier: Apache-2.0
#include "attention/fast/key_flags.h"

#include <cmath>

namespace posenc::inline v0::detail {

KeyFlags::KeyFlags(const ReadyCall& c, CallArena& arena) : keys_(c.Tk) {
  const ConstTensorView& visible = c.args.mask.key_visible;
  if (visible.empty()) return;
  shown_ = arena.array<Index>(c.R * (keys_ + 1));
  starts_ = arena.array<float>(c.R * keys_);
  if (arena.counts()) return;
  for (Index row = 0; row < c.R; ++row) {
    Index* sum = shown_.data() + row * (keys_ + 1);
    float* start = starts_.data() + row * keys_;
    sum[0] = 0;
    for (Index j = 0; j < keys_; ++j) {
      const bool shown = read_index(visible, row, j) != 0;
      sum[j + 1] = sum[j] + (shown ? 1 : 0);
      start[j] = shown ? 0 : -HUGE_VALF;
    }
  }
}

}  // namespace posenc::v0::detail
