// SPDX-License-Identifier: Apache-2.0
// What a RerotationPlan prepares, and a call of it.
#pragma once
#include <atomic>
#include <memory>
#include <optional>
#include <vector>

#include "kernels/q8_0.h"
#include "kernels/token.h"
#include "posenc/rotary/rerotation_plan.h"
#include "rotary/key_rows.h"
#include "rotary/plan_state.h"

namespace posenc::inline v0::detail {

struct KeyChunk;

struct RerotationState {
  KeyRotation from, to;
  KeyType type = KeyType::f32;
  bool same = false;     // both rotate alike: keys that do not move are kept
  bool turns = false;    // ... in exact turns: the distance p' - p is all that counts
  bool decays = false;   // xPos
  bool by_rows = false;  // rows of cosine and sine alone: the bounds of `rerotate`
  // Rotate by rows; by the distance; by old and new positions, on axes of their own. In the dtype of
  // the arithmetic: f32 of q8_0.
  RotaryPlan stored;
  std::optional<RotaryPlan> shift, difference;
  const RowKernels* rows = nullptr;
  const Q8Kernels* q8 = nullptr;
  std::vector<Index> blocks;  // of q8_0, within a head, that have rotated channels

  RerotationState(const RotarySpec&, const RotarySpec&, KeyType, RerotationOptions,
                  bool rows_alone);
  Index head_size() const noexcept { return to.spec.head_dim; }
  DType element() const noexcept;              // of the views: u8 of q8_0
  bool keeps(const KeyChunk&) const noexcept;  // its tokens as they are stored
};

// The blocks of q8_0 of a head that rotate. Throws [rerotate]: those that rotate in part, unless cut_blocks.
std::vector<Index> rotated_blocks(const RotarySpec&, bool cut_blocks);
// Keys at one position are the same numbers after both; of specs that can_rerotate does not refuse.
bool rotate_alike(const RotarySpec&, const RotarySpec&);
// Throws [rerotate]. rows_alone: see by_rows.
std::shared_ptr<const RerotationState> make_rerotation(const RotarySpec& from, const RotarySpec& to,
                                                       KeyType, RerotationOptions, bool rows_alone);

// A checked call. A group is an entry of the batch or a listed page.
struct KeyCall {
  const RerotationState& state;
  Heads in, out;  // whole tensors or pools
  bool in_place = true;
  Positions old_positions, new_positions;
  bool old_first = false, new_first = false;  // of a group's first token only
  const Index *in_pages = nullptr, *out_pages = nullptr, *used = nullptr;
  Index groups = 0;

  Index tokens(Index group) const noexcept { return used != nullptr ? used[group] : in.tokens; }
};

// Throws [rerotate] by the rules of the header.
KeyCall check_key_call(const RerotationState&, const ConstHeads& in, const Heads& out,
                       const KeyPages* pages, const Positions& old_positions,
                       const Positions& new_positions);
MoveVerdict move_keys(const KeyCall&, const Executor&);
// Throws [rerotate]: a key would leave the range of its dtype (xPos).
void check_range(const KeyCall&);

inline constexpr Index kKeyTokens = 64;             // of a chunk
inline constexpr double kFarKeyPosition = 0x1p36;   // beyond: by rows
inline constexpr double kMostKeyPosition = 0x1p37;  // of a plan

// Old and new positions of the tokens of a chunk, and what they tell.
struct KeyChunk {
  Index group = 0, first = 0, n = 0;
  bool far = false;             // beyond kFarKeyPosition
  bool mixed = false;           // old and new positions are of two types: `both` cannot be read
  bool whole_distance = false;  // `distance` can be read: integers
  bool uniform = false;         // ... and is the same for all tokens
  Positions from, to, distance, both;
  union {
    std::int64_t whole[2 * kMaxAxes][kKeyTokens];
    double fraction[2 * kMaxAxes][kKeyTokens];
  };
  std::int64_t moved[kMaxAxes][kKeyTokens];

  void read(const KeyCall&, Index group, Index first, Index n) noexcept;
  bool still() const noexcept;  // no token moves
};

}  // namespace posenc::v0::detail
