// SPDX-License-Identifier: Apache-2.0
#include "posenc/rotary/rerotate.h"

#include <cmath>

#include "posenc/core/error.h"
#include "rotary/rerotation_state.h"

namespace posenc::inline v0 {
namespace {

Rerotation cannot_move(std::string reason) {
  return {MoveVerdict::refused, std::move(reason)};
}

Rerotation compare_blocks(const RotaryBlock& a, const RotaryBlock& b, Index index) {
  const std::string block = "block " + std::to_string(index) + ": ";
  const auto differ = [&](const char* what, Index from, Index to) {
    return cannot_move(block + what + " " + std::to_string(from) + " is not " + std::to_string(to));
  };
  if (a.offset != b.offset) return differ("offset", a.offset, b.offset);
  if (a.pairs() != b.pairs()) return differ("width", a.width(), b.width());
  if (a.pairing != b.pairing)
    return cannot_move(block + "pairing " + std::string(enum_text(a.pairing)) + " is not " +
                       std::string(enum_text(b.pairing)) + ": other channels rotate together");
  if (a.output_order != b.output_order)
    return cannot_move(block + "the rotated channels have another order");
  if (a.log2_decay != b.log2_decay || (!a.log2_decay.empty() && a.decay_scale != b.decay_scale))
    return cannot_move(block + "the decays (xPos) differ");
  if (!a.log2_decay.empty() && a.decay_center != b.decay_center)
    return cannot_move(block + "decay centre " + number_text(a.decay_center) + " is not " +
                       number_text(b.decay_center) +
                       ": queries of the new centre do not fit keys of the old");
  if (a.spectrum.heads != b.spectrum.heads)
    return differ("heads", a.spectrum.heads, b.spectrum.heads);
  return {MoveVerdict::moved, ""};
}

}  // namespace

Rerotation can_rerotate(const RotarySpec& from, const RotarySpec& to) {
  check_rotary(from);
  check_rotary(to);
  if (from.head_dim != to.head_dim)
    return cannot_move("head_dim " + std::to_string(from.head_dim) + " is not " +
                       std::to_string(to.head_dim));
  if (from.blocks.size() != to.blocks.size())
    return cannot_move(std::to_string(from.blocks.size()) + " blocks are not " +
                       std::to_string(to.blocks.size()));
  for (std::size_t i = 0; i < from.blocks.size(); ++i) {
    Rerotation r = compare_blocks(from.blocks[i], to.blocks[i], static_cast<Index>(i));
    if (r.verdict == MoveVerdict::refused) return r;
  }
  if (from.valid_from() > 1)
    return cannot_move(
        "the old frequencies hold from length " + std::to_string(from.valid_from()) +
        " on: keys cached while the sequence was shorter were rotated with different "
        "frequencies");
  if (detail::rotate_alike(from, to))
    return {MoveVerdict::kept, "both rotate alike: keys change only where their position does"};
  return {MoveVerdict::moved, "each pair rotates by p' f' - p f"};
}

// Rows of cosine and sine alone, from double: within u of their value.
void rerotate(const Heads& keys, const RotarySpec& from, const Positions& old_positions,
              const RotarySpec& to, const Positions& new_positions, const Executor& executor) {
  const auto state = detail::make_rerotation(from, to, key_type_of(keys.dtype), {}, true);
  detail::move_keys(
      detail::check_key_call(*state, keys, keys, nullptr, old_positions, new_positions), executor);
}

}  // namespace posenc::v0
