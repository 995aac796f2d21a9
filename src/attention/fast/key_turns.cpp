// SPDX-License-Identifier: Apache-2.0
#include "attention/fast/key_turns.h"

#include <array>

#include "attention/call/rotation_positions.h"
#include "attention/fast/row_blocks.h"
#include "core/element.h"
#include "phase/rows.h"

namespace posenc::inline v0::detail {
namespace {

bool is_single_rotation(const ReadyCall& c) noexcept {
  const AttentionArgs& a = c.args;
  return a.prepare.size() == 1 && a.prepare[0].kind == StageKind::rotate && !a.prepare[0].value &&
         a.regions.empty();
}

// Positions of a row of keys that follow each other on all axes, from the first one on. Unsigned: any position has a next
// one.
Index run_of(const Positions& p, Index first) noexcept {
  if (p.type == DType::f64) return 1;
  const auto at = [&](Index axis, Index n) {
    return static_cast<std::uint64_t>(integer_position(p, axis, 0, n));
  };
  const auto follows = [&](Index n) {
    for (Index axis = 0; axis < p.axes; ++axis)
      if (at(axis, n) - at(axis, first) != static_cast<std::uint64_t>(n - first)) return false;
    return true;
  };
  Index end = first + 1;
  while (end < p.count && follows(end)) ++end;
  return end - first;
}

}  // namespace

bool turns_in_place(const RotarySpec& spec, Index head_dim, Index lanes) noexcept {
  if (spec.blocks.size() != 1 || spec.precision != Precision::exact) return false;
  const RotaryBlock& b = spec.blocks[0];
  const auto whole = [&](Index n) { return n % lanes == 0; };
  const Index vectors = b.pairing == Pairing::interleaved ? b.width() : b.pairs();
  return b.spectrum.heads == 1 && b.log2_decay.empty() && b.pairs() > 0 &&
         (b.pairing == Pairing::half_split || b.pairing == Pairing::interleaved) &&
         b.output_order == OutputOrder::in_place && whole(vectors) && whole(b.offset) &&
         whole(head_dim);
}

KeyTurns::KeyTurns(const ReadyCall& c, const LoweredCall& lowered, bool reads_keys_else,
                   CallArena& arena) {
  if (!is_single_rotation(c) || reads_keys_else || !has_few_rows(c)) return;
  const RotarySpec& spec = *c.args.prepare[0].rotary;
  kernels_ = &fast_decode_kernels(active_isa());
  if (!turns_in_place(spec, c.D, kernels_->lanes)) return;
  plan_ = lowered.narrow_rotation(0);
  if (plan_ == nullptr)
    plan_ = &own_.emplace(spec, DType::f32, PlanOptions{.outside = OutsideRange::allow});
  const RotaryBlock& b = spec.blocks[0];
  repeats_ = b.pairing == Pairing::interleaved ? 2 : 1;
  columns_ = repeats_ * b.pairs(), stride_ = 2 * columns_;
  steps_ = arena.array<float>(kDecodeKeys * stride_);
  if (arena.counts()) return;
  positions_ = rotation_positions(spec, c.args.key_positions);
  check_positions(positions_, "rotary");  // fill cannot throw
  std::array<std::int64_t, kDecodeKeys> at;
  for (std::size_t n = 0; n < at.size(); ++n) at[n] = static_cast<std::int64_t>(n);
  Positions first{at.data(), DType::i64, positions_.axes, kDecodeKeys};
  first.axis_stride = 0;  // the same on all axes
  write(first, steps_.data());
  const auto gain = static_cast<float>(b.spectrum.gain);
  for (float& x : steps_) x /= gain;
}

// FastTurns::rows, with the gain. Clockwise is a negative sine.
void KeyTurns::write(Positions p, float* to) const {
  const TensorView rows{.data = to,
                        .dtype = DType::f32,
                        .rank = 2,
                        .shape = {p.count, stride_ / repeats_},
                        .stride = {stride_, repeats_}};
  plan_->rows(p, rows, inline_executor());
  if (plan_->spec().blocks[0].direction < 0)
    for (Index n = 0; n < p.count; ++n)
      for (Index i = 0; i < columns_; i += repeats_) to[n * stride_ + columns_ + i] *= -1;
  for (Index n = 0; repeats_ == 2 && n < p.count * stride_; n += 2) to[n + 1] = to[n];
}

void KeyTurns::fill(Index row, Run keys, float* rows) const noexcept {
  const Positions all = slice_positions(positions_, row, keys);
  for (Index n = 0, count = 0; n < all.count; n += count) {
    count = run_of(all, n);
    float* first = rows + n * stride_;
    write(slice_positions(all, 0, {n, n + 1}), first);
    kernels_->turn_rows(first, steps_.data(), stride_, count);
  }
}

FastTurns KeyTurns::of(const float* rows) const noexcept {
  const RotaryBlock& b = plan_->spec().blocks[0];
  FastTurns t;
  t.rows = rows, t.stride = stride_, t.offset = b.offset, t.pairs = b.pairs();
  t.interleaved = b.pairing == Pairing::interleaved;
  return t;
}

}  // namespace posenc::v0::detail
