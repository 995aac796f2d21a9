// SPDX-License-Identifier: Apache-2.0
#include "posenc/rotary/rerotation_plan.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/known_enum.h"
#include "posenc/core/error.h"
#include "rotary/compat.h"
#include "rotary/rerotation_state.h"

namespace posenc::inline v0 {
namespace detail {
namespace {

DType arithmetic_of(KeyType t) {
  check_known("rerotate", "type", t);
  return t == KeyType::q8_0 ? DType::f32 : static_cast<DType>(t);
}

// Where the rotated channels stand in the keys, without a phase of its own.
RotarySpec stored_order(const RotarySpec& spec) {
  RotarySpec r = spec;
  r.precision = Precision::exact;
  for (RotaryBlock& b : r.blocks) {
    if (b.output_order == OutputOrder::even_then_odd) b.pairing = Pairing::half_split;
    b.output_order = OutputOrder::in_place;
    b.direction = 1;
    b.log2_decay.clear();
  }
  return r;
}

// A spectrum that holds for every length, whose frequencies are set by the caller.
void keep_heads_alone(Spectrum& s, Index axes) {
  const Index count = s.heads * axes * s.pairs();
  s.axes = axes;
  s.frequency.assign(static_cast<std::size_t>(count), 0);
  s.geometric.reset();
  s.drop_ggml("its frequencies are those of a move");
  s.valid_from = 0, s.valid_to = kUnbounded;
  s.gain = 1;
}

// frequencies [heads, axes, pairs] of `part`, times factor, from axis `first` of `s` on.
void put_frequencies(Spectrum& s, const Spectrum& part, Index first, double factor) {
  const Index pairs = part.pairs();
  for (Index h = 0; h < part.heads; ++h)
    for (Index a = 0; a < part.axes; ++a)
      for (Index i = 0; i < pairs; ++i)
        s.frequency[static_cast<std::size_t>((h * s.axes + first + a) * pairs + i)] =
            factor * part.frequency[static_cast<std::size_t>((h * part.axes + a) * pairs + i)];
}

// Rotates by p' - p.
RotarySpec shift_spec(const RotarySpec& to) {
  RotarySpec r = stored_order(to);
  for (std::size_t i = 0; i < r.blocks.size(); ++i) {
    const RotaryBlock& b = to.blocks[i];
    Spectrum& s = r.blocks[i].spectrum;
    keep_heads_alone(s, b.spectrum.axes);
    put_frequencies(s, b.spectrum, 0, b.direction);
  }
  return r;
}

// Rotates by f' p' - f p: the new positions, then the old ones, on axes of their own.
RotarySpec difference_spec(const RotarySpec& from, const RotarySpec& to) {
  RotarySpec r = stored_order(to);
  const Index axes = to.axes();
  for (std::size_t i = 0; i < r.blocks.size(); ++i) {
    const RotaryBlock &before = from.blocks[i], &after = to.blocks[i];
    Spectrum& s = r.blocks[i].spectrum;
    keep_heads_alone(s, axes + from.axes());
    put_frequencies(s, after.spectrum, 0, after.direction);
    put_frequencies(s, before.spectrum, axes, -before.direction);
    s.gain = after.spectrum.gain / before.spectrum.gain;
  }
  return r;
}

void check_side_precision(const RotarySpec& spec) {
  for (const RotaryBlock& b : spec.blocks) {
    check_compat(b.spectrum, spec.precision);
    if (spec.precision != Precision::exact && b.spectrum.axes > kMaxCompatAxes)
      refuse("rerotate", "compatibility precisions support at most 16 axes", b.spectrum.axes);
  }
}

}  // namespace

std::vector<Index> rotated_blocks(const RotarySpec& spec, bool cut_blocks) {
  if (spec.head_dim % kQ8Numbers != 0)
    refuse_field("rerotate", "head size", "of q8_0 keys must be a multiple of 32", spec.head_dim);
  std::vector<Index> rotated(static_cast<std::size_t>(spec.head_dim / kQ8Numbers)), list;
  for (const RotaryBlock& b : spec.blocks)
    for (Index i = b.offset; i < b.offset + b.width(); ++i)
      ++rotated[static_cast<std::size_t>(i / kQ8Numbers)];
  for (std::size_t i = 0; i < rotated.size(); ++i) {
    if (rotated[i] == 0) continue;
    const auto block = static_cast<Index>(i);
    if (rotated[i] < kQ8Numbers && !cut_blocks)
      refuse("rerotate",
             "channels " + std::to_string(block * kQ8Numbers) + " to " +
                 std::to_string(block * kQ8Numbers + kQ8Numbers - 1) +
                 " share a q8_0 block, and a move rounds all of them: set cut_blocks to allow it "
                 "where only some rotate, rotated channels of the block",
             rotated[i]);
    list.push_back(block);
  }
  return list;
}

bool rotate_alike(const RotarySpec& a, const RotarySpec& b) {
  if (a.precision != b.precision || a.bfloat16_rounds_once != b.bfloat16_rounds_once) return false;
  for (std::size_t i = 0; i < a.blocks.size(); ++i) {
    const RotaryBlock &x = a.blocks[i], &y = b.blocks[i];
    if (x.direction != y.direction || x.spectrum.frequency != y.spectrum.frequency ||
        x.spectrum.axes != y.spectrum.axes || x.spectrum.gain != y.spectrum.gain)
      return false;
    if (a.precision == Precision::ggml && x.spectrum.ggml != y.spectrum.ggml) return false;
  }
  return true;
}

RerotationState::RerotationState(const RotarySpec& before, const RotarySpec& after, KeyType t,
                                 RerotationOptions options, bool rows_alone)
    : from(before),
      to(after),
      type(t),
      by_rows(rows_alone),
      stored(stored_order(after), arithmetic_of(t)) {
  check_side_precision(before), check_side_precision(after);
  const bool exact = before.precision == Precision::exact && after.precision == Precision::exact;
  same = rotate_alike(before, after);
  turns = same && exact;
  for (const RotaryBlock& b : after.blocks) decays = decays || !b.log2_decay.empty();
  rows = &row_kernels(active_isa());
  if (t == KeyType::q8_0) {
    if (decays)
      refuse("rerotate",
             "keys of xPos decay pair by pair, and numbers of a q8_0 block share a scale: move "
             "them in "
             "another type, type",
             "q8_0");
    q8 = &q8_kernels(active_isa());
    blocks = rotated_blocks(after, options.cut_blocks);
  }
  if (by_rows || !exact || decays) return;
  if (turns) shift.emplace(shift_spec(after), arithmetic_of(t));
  if (before.axes() + after.axes() <= kMaxAxes)
    difference.emplace(difference_spec(before, after), arithmetic_of(t));
}

DType RerotationState::element() const noexcept {
  return type == KeyType::q8_0 ? DType::u8 : static_cast<DType>(type);
}

std::shared_ptr<const RerotationState> make_rerotation(const RotarySpec& from, const RotarySpec& to,
                                                       KeyType type, RerotationOptions options,
                                                       bool rows_alone) {
  const Rerotation r = can_rerotate(from, to);
  if (r.verdict == MoveVerdict::refused) refuse("rerotate", r.reason);
  return std::make_shared<const RerotationState>(from, to, type, options, rows_alone);
}

}  // namespace detail

KeyType key_type_of(DType t) {
  if (!is_float(t))
    refuse_field("rerotate", "dtype", "must be f64, f32, f16 or bf16", dtype_name(t));
  return static_cast<KeyType>(t);
}

RerotationPlan::RerotationPlan(const RotarySpec& from, const RotarySpec& to, KeyType type,
                               RerotationOptions options)
    : state_(detail::make_rerotation(from, to, type, options, false)) {}

namespace {

MoveVerdict move_checked(const detail::RerotationState& s, const ConstHeads& in, const Heads& out,
                         const KeyPages* pages, const Positions& old_positions,
                         const Positions& new_positions, const Executor& executor) {
  return detail::move_keys(detail::check_key_call(s, in, out, pages, old_positions, new_positions),
                           executor);
}

}  // namespace

MoveVerdict RerotationPlan::move(const Heads& keys, const Positions& old_positions,
                                 const Positions& new_positions, const Executor& executor) const {
  return move_checked(*state_, keys, keys, nullptr, old_positions, new_positions, executor);
}
MoveVerdict RerotationPlan::move_into(const ConstHeads& keys, const Heads& out,
                                      const Positions& old_positions,
                                      const Positions& new_positions,
                                      const Executor& executor) const {
  return move_checked(*state_, keys, out, nullptr, old_positions, new_positions, executor);
}
MoveVerdict RerotationPlan::move_pages(const Heads& pool, const KeyPages& pages,
                                       const Positions& old_positions,
                                       const Positions& new_positions,
                                       const Executor& executor) const {
  return move_checked(*state_, pool, pool, &pages, old_positions, new_positions, executor);
}
MoveVerdict RerotationPlan::move_pages_into(const ConstHeads& pool, const Heads& out_pool,
                                            const KeyPages& pages, const Positions& old_positions,
                                            const Positions& new_positions,
                                            const Executor& executor) const {
  return move_checked(*state_, pool, out_pool, &pages, old_positions, new_positions, executor);
}

MoveVerdict RerotationPlan::verdict() const noexcept {
  return state_->same ? MoveVerdict::kept : MoveVerdict::moved;
}
KeyType RerotationPlan::type() const noexcept {
  return state_->type;
}
const RotarySpec& RerotationPlan::from() const noexcept {
  return state_->from.spec;
}
const RotarySpec& RerotationPlan::to() const noexcept {
  return state_->to.spec;
}

// A move rounds both numbers of a pair to `unit` of themselves, or to half a scale of the largest number of
// their blocks, which no pair's length is below; and errors of cosine, sine and sums are at most
// `arithmetic` of the length. An error may lengthen a pair, so that the next one is larger: (1 + one)^n - 1.
double RerotationPlan::bound(Index moves) const {
  if (moves < 0) refuse_field("rerotate", "moves", "must not be negative", moves);
  const bool wide = state_->type == KeyType::f64;
  // cos and sin within 1.1e-7 (3e-16) each, products and sums rounded once each.
  const double unit = wide ? 0x1p-53 : 0x1p-24;
  const double arithmetic =
      std::numbers::sqrt2 * (wide ? 3e-16 : 1.1e-7) + (1 + std::numbers::sqrt2) * unit;
  double one = arithmetic;
  if (state_->type == KeyType::f16) one += 0x1p-11;
  if (state_->type == KeyType::bf16) one += 0x1p-8;
  if (state_->type == KeyType::q8_0) one += std::numbers::sqrt2 * (1 + 0x1p-11) / 254;
  const double lengths = std::expm1(static_cast<double>(moves) * std::log1p(one));
  return state_->type == KeyType::q8_0 ? std::numbers::sqrt2 * lengths : lengths;
}

}  // namespace posenc::v0
