// SPDX-License-Identifier: Apache-2.0
// A plan to move cached keys: from the rotation `from` to the rotation `to`, checked and prepared once.
// Immutable, thread-safe, cheap to copy. A call scans its positions and page numbers, checks its
// tensors in O(1), and allocates nothing unless the cosines of one token need more than 32 KiB or (q8_0)
// its keys more than 64 KiB as f32.
// Before you move keys: a shift of all keys needs no move. Rotate the query by position - shift
// (docs/engines.md, "Moving cached keys").
#pragma once
#include <memory>
#include <span>

#include "posenc/core/key_blocks.h"
#include "posenc/rotary/rerotate.h"

namespace posenc::inline v0 {

namespace detail {
struct RerotationState;
}  // namespace detail

// How keys are stored. q8_0: ggml's blocks along a head, whose size must be a multiple of 32; key_blocks (core/key_blocks.h)
// makes their views.
enum class KeyType : std::uint8_t { f64, f32, f16, bf16, q8_0 };
template <>
struct EnumNames<KeyType> {
  static constexpr std::array<std::string_view, 5> value{"f64", "f32", "f16", "bf16", "q8_0"};
};
// Throws [rerotate] for integers.
POSENC_API KeyType key_type_of(DType);

struct RerotationOptions {
  // q8_0: a block that the end of the rotated window cuts is rewritten too, which rounds channels that
  // do not rotate. Otherwise such a plan is refused.
  bool cut_blocks = false;
};

// Pages of a pool [pages, page size, heads, head size], in any order.
struct KeyPages {
  std::span<const Index> pages = {};   // numbers of the pages that are read
  std::span<const Index> out = {};     // and written; empty: the same
  std::span<const Index> tokens = {};  // used slots of each page, from its first; empty: all
};

class POSENC_API RerotationPlan {
 public:
  // Throws [rerotate]: can_rerotate refuses; a q8_0 block that the window cuts; q8_0 with xPos.
  RerotationPlan(const RotarySpec& from, const RotarySpec& to, KeyType, RerotationOptions = {});
  RerotationPlan(const RotarySpec& from, const RotarySpec& to, DType t, RerotationOptions o = {})
      : RerotationPlan(from, to, key_type_of(t), o) {}

  // Moves keys [batch, tokens, heads, head size] in place, or into other memory that does not overlap
  // them. Returns kept if no key changed (`into` copies then), otherwise moved. Positions of each
  // token, one row or one for each of the batch, at most 2^37 in magnitude.
  // Throws [rerotate], before anything is written: tensors or positions that do not fit the plan or
  // each other; positions at or beyond valid_to of their spec; xPos: keys that leave the dtype's range.
  MoveVerdict move(const Heads& keys, const Positions& old_positions,
                   const Positions& new_positions, const Executor& = default_executor()) const;
  MoveVerdict move_into(const ConstHeads& keys, const Heads& out, const Positions& old_positions,
                        const Positions& new_positions, const Executor& = default_executor()) const;
  // The same for listed pages. Positions have a row for each listed page (batch), or one for all: a
  // position for each slot, or one, that of the first slot; slot s is then at s positions more. With
  // several axes and another rotation the latter is refused, since axes need not advance together.
  // A page may be written once, and read by no other entry of the list.
  MoveVerdict move_pages(const Heads& pool, const KeyPages&, const Positions& old_positions,
                         const Positions& new_positions,
                         const Executor& = default_executor()) const;
  MoveVerdict move_pages_into(const ConstHeads& pool, const Heads& out_pool, const KeyPages&,
                              const Positions& old_positions, const Positions& new_positions,
                              const Executor& = default_executor()) const;

  // kept if both rotations are the same: then only keys whose position changes are rewritten.
  MoveVerdict verdict() const noexcept;
  // Largest error of a pair after n moves, in a row, by this plan or one of the same type: distance to the
  // exact pair over its length. Of numbers in the normal range of the dtype: f16 numbers below
  // 2^-14 add 2^-25 each a move. q8_0: over the largest absolute value that the blocks that share
  // rotated pairs had before the first move, if their scales are at least 2^-14.
  double bound(Index moves = 1) const;
  KeyType type() const noexcept;
  const RotarySpec& from() const noexcept POSENC_LIFETIME_BOUND;
  const RotarySpec& to() const noexcept POSENC_LIFETIME_BOUND;

 private:
  friend struct detail::StateAccess;
  std::shared_ptr<const detail::RerotationState> state_;
};

}  // namespace posenc::v0
