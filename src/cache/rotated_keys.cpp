// SPDX-License-Identifier: Apache-2.0
#include "cache/rotated_keys.h"

#include "cache/stored_numbers.h"
#include "core/head_views.h"
#include "core/q8_0.h"
#include "posenc/core/error.h"
#include "rotary/rerotation_state.h"

namespace posenc::inline v0::detail {
namespace {

// Channels of all heads, as they are stored.
Heads channel_range(Heads h, Index first, Index count) noexcept {
  h.data = static_cast<std::byte*>(h.data) + first * h.dim_stride * size_of(h.dtype);
  h.dim = count;
  return h;
}

// forward: rotated at their anchors, to the numbers that append stores. inverse: turned back from there.
struct TurnedKeys {
  const CacheState& s;
  RotateMode mode;
  const Executor& executor;
  std::vector<Index> blocks{};  // of q8_0 that rotate

  void run(bool cut_blocks) {
    if (s.pool->sizes.key_type == KeyType::q8_0)
      blocks = rotated_blocks(s.rotation->spec, cut_blocks);
    for (const PageUse& u : s.sequence.uses)
      for_each_run(u.there, [&](Index slot, Index n) { turn(u.page, slot, n); });
  }

  void turn(Index page, Index slot, Index n) const {
    const CacheRotation& r = *s.rotation;
    const KeyType type = s.pool->sizes.key_type;
    const Heads keys = s.pool->key_slots(page, slot, n);
    Positions at{s.pool->anchors(page, 0) + slot, DType::i64, static_cast<std::int32_t>(s.axes()),
                 n};
    at.axis_stride = s.page_size();
    const bool wide = r.wide && type == KeyType::f64;
    FloatTokens memory(n, keys.heads, s.pool->sizes.head_dim, wide);
    const Heads floats = memory.view(n);
    read_stored(keys, type, floats);
    (wide ? *r.wide : r.narrow).apply(QK{{}, floats}, at, mode, executor);
    if (type != KeyType::q8_0) return store_numbers(floats, type, keys);
    // Other blocks keep their bytes, because the caller may have made them by another rule.
    for (const Index b : blocks)
      store_numbers(channel_range(floats, b * kQ8Numbers, kQ8Numbers), type,
                    channel_range(keys, b * kQ8Bytes, kQ8Bytes));
  }
};

// Anchors of a part beside one shift. Its pages then have one use each.
void set_shift(CacheState& part, const std::vector<Index>& shift) {
  Change c{part.sequence};
  c.next.uses.clear(), c.next.shift.clear();
  for (std::size_t use = 0; use < part.sequence.uses.size(); ++use) {
    const PageUse& u = part.sequence.uses[use];
    for (Index axis = 0; axis < part.axes(); ++axis) {
      const Index by = part.shift_of(use)[axis] - shift[static_cast<std::size_t>(axis)];
      for_each_slot(u.there, [&](Index slot) { part.pool->anchors(u.page, axis)[slot] += by; });
    }
    const std::size_t before = c.next.uses.size();
    add_use(c.next, u, shift.data());
    if (c.next.uses.size() == before) c.released.push_back(u.page);
  }
  part.commit(std::move(c));
}

}  // namespace

void rotate_part(CacheState& part, const CacheState& before, bool cut_blocks,
                 const Executor& executor) {
  part.find_bounds(part.sequence);
  set_shift(part, shift_of_new(before, part.sequence.lowest, part.sequence.highest));
  part.rotation = before.rotation, part.keeping = KeyKeeping::anchored;
  TurnedKeys{part, RotateMode::forward, executor}.run(cut_blocks);
  ++part.sequence.moves;
}

void turn_back_part(CacheState& part, bool cut_blocks, const Executor& executor) {
  for (const RotaryBlock& b : part.rotation->spec.blocks)
    if (!b.log2_decay.empty())
      refuse_field(kCache, "append",
                   "refused: xPos scales keys by a power of their position, so keys that are "
                   "turned back have no bound. Append them from an unrotated cache");
  TurnedKeys{part, RotateMode::inverse, executor}.run(cut_blocks);
  ++part.sequence.moves;
}

}  // namespace posenc::v0::detail
