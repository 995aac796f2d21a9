// SPDX-License-Identifier: Apache-2.0
// Positions of a chunk of keys: old ones, new ones and the distances.
#include <cmath>

#include "rotary/rerotation_state.h"

namespace posenc::inline v0::detail {
namespace {

Positions chunk_view(const void* data, DType type, Index axes, Index n) noexcept {
  Positions p;
  p.data = data, p.type = type;
  p.axes = static_cast<std::int32_t>(axes), p.count = n;
  p.token_stride = 1, p.axis_stride = kKeyTokens;
  return p;
}

}  // namespace

void KeyChunk::read(const KeyCall& call, Index page, Index token, Index count) noexcept {
  group = page, first = token, n = count;
  const Positions& old = call.old_positions;
  const Positions& now = call.new_positions;
  const bool old_real = old.type == DType::f64, new_real = now.type == DType::f64;
  far = false;
  // New positions first, as in the axes of `difference`.
  const auto copy = [&](const Positions& p, bool by_group, bool real, Index row) noexcept {
    for (Index a = 0; a < p.axes; ++a, ++row)
      for (Index t = 0; t < n; ++t) {
        const Index at = position_offset(p, a, group, by_group ? 0 : first + t);
        const Index more = by_group ? first + t : 0;
        if (real) {
          fraction[row][t] = real_element(p.data, p.type, at) + static_cast<double>(more);
          far |= std::fabs(fraction[row][t]) > kFarKeyPosition;
        } else {
          whole[row][t] = integer_element(p.data, p.type, at) + more;
          far |= whole[row][t] > static_cast<Index>(kFarKeyPosition) ||
                 whole[row][t] < -static_cast<Index>(kFarKeyPosition);
        }
      }
  };
  copy(now, call.new_first, new_real, 0);
  copy(old, call.old_first, old_real, now.axes);
  to = chunk_view(whole[0], new_real ? DType::f64 : DType::i64, now.axes, n);
  from = chunk_view(whole[now.axes], old_real ? DType::f64 : DType::i64, old.axes, n);
  both = to;
  both.axes += old.axes;
  mixed = new_real != old_real;
  whole_distance = !new_real && !old_real && old.axes == now.axes;
  uniform = whole_distance;
  if (!uniform) return;
  distance = chunk_view(moved[0], DType::i64, now.axes, n);
  for (Index a = 0; a < now.axes; ++a)
    for (Index t = 0; t < n; ++t) {
      moved[a][t] = static_cast<std::int64_t>(static_cast<std::uint64_t>(whole[a][t]) -
                                              static_cast<std::uint64_t>(whole[now.axes + a][t]));
      uniform &= moved[a][t] == moved[a][0];
    }
}

bool KeyChunk::still() const noexcept {
  for (Index a = 0; a < to.axes; ++a)
    for (Index t = 0; t < n; ++t)
      if (whole_distance ? moved[a][t] != 0
                         : real_position(to, a, 0, t) != real_position(from, a, 0, t))
        return false;
  return true;
}

bool RerotationState::keeps(const KeyChunk& chunk) const noexcept {
  return to.spec.blocks.empty() || (same && chunk.still());
}

}  // namespace posenc::v0::detail
