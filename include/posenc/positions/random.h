// SPDX-License-Identifier: Apache-2.0
// Positions that are drawn in each training step: CAPE, SHAPE, randomised positions. Every draw is a function
// of seed, step of training and sequence (philox.h), so a run can be repeated on any machine, and
// does not depend on how a batch is split. Evaluation draws nothing.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "posenc/core/describe.h"
#include "posenc/positions/view.h"

namespace posenc::inline v0 {

// Batch entry b is sequence first_sequence + b.
struct DrawKey {
  std::uint64_t seed = 0, step = 0, first_sequence = 0;
};

// CAPE, Likhomanenko et al., arXiv:2106.03143, section 3.1:
//   p' = (p + shift_b + local_bi) e^(log_scale_b)
// shift_b ~ U(-max_global_shift, ..), local_bi ~ U(-max_local_shift, ..) times the time step,
// log_scale_b ~ U(-ln max_global_scaling, ..).
// Positions beyond a sequence's length are padding: from length on (at_length), or only after it
// (after_length: the public code, which keeps one token of padding).
enum class CapePadding : std::uint8_t { at_length, after_length };
template <>
struct EnumNames<CapePadding> {
  static constexpr std::array<std::string_view, 2> value{"at_length", "after_length"};
};
// What max_local_shift bounds: the shift itself (the paper), or its double (the public code since
// its release as a package).
enum class CapeLocal : std::uint8_t { whole, half };
template <>
struct EnumNames<CapeLocal> {
  static constexpr std::array<std::string_view, 2> value{"whole", "half"};
};
struct Cape {
  double max_global_shift = 0, max_local_shift = 0, max_global_scaling = 1;
  CapeLocal local = CapeLocal::whole;
  // In one dimension: the mean of the positions that are no padding is subtracted first (audio), in
  // evaluation too.
  bool normalise = false;
  CapePadding padding = CapePadding::at_length;
};
// What was drawn; empty members: nothing (evaluation).
struct CapeDraws {
  std::vector<double> shift;      // [b]; two axes: [2][b]
  std::vector<double> local;      // [b][t], in time steps or grid steps; two axes: [2][b][t]
  std::vector<double> log_scale;  // [b]
};
// Throws [cape]: negative or not finite bounds, max_global_scaling below 1, negative sizes.
POSENC_API CapeDraws draw_cape(const Cape&, Index batch, Index tokens, std::int32_t axes,
                               const DrawKey&);

// [b, t] of reals: i * time_step_b, padding at `padded` (pass it as zero_position to the scheme),
// minus the mean with `normalise`, then the draws (local ones times the time step).
// time_steps: one a batch entry, or one, or none (1); lengths: in the units of the positions, likewise, or
// none (no padding). Throws [cape]: sizes that disagree, numbers that are not finite, a batch entry without
// positions to normalise.
POSENC_API OwnedPositions cape_positions(const Cape&, Index batch, Index tokens,
                                         std::span<const double> time_steps,
                                         std::span<const double> lengths, const CapeDraws&,
                                         Index padded = -(Index{1} << 40));
// What a local shift of a grid is measured in: the step of the first axis (the public code, on both
// axes), or of its own.
enum class CapeStep : std::uint8_t { first_axis, own_axis };
template <>
struct EnumNames<CapeStep> {
  static constexpr std::array<std::string_view, 2> value{"first_axis", "own_axis"};
};
// Two axes (first, second) of a grid in [-1, 1], tokens row by row, each axis moved by its own
// draws, both stretched by one factor. Throws [cape].
POSENC_API OwnedPositions cape_grid_positions(Index first, Index second, Index batch,
                                              const CapeDraws&, CapeStep = CapeStep::first_axis);

// SHAPE, Kiyono et al., arXiv:2109.05644: all positions of a sequence plus one offset.
//   paper  k ~ U{0 .. max_shift}                        evaluation: 0
//   code   k ~ U{0 .. min(table - tokens, max_shift) - 1}   evaluation: max_shift, never drawn
enum class ShapeVariant : std::uint8_t { paper, code };
template <>
struct EnumNames<ShapeVariant> {
  static constexpr std::array<std::string_view, 2> value{"paper", "code"};
};
struct ShapeShift {
  Index max_shift = 0;
  ShapeVariant variant = ShapeVariant::paper;
  Index table = 0;  // rows of the code's table; 0: no limit
};
// One offset a batch entry. Throws [shape]: negative sizes; a code variant that has nothing to draw from.
POSENC_API std::vector<Index> shape_offsets(const ShapeShift&, Index batch, Index tokens,
                                            const DrawKey&);
POSENC_API Index shape_evaluation_offset(const ShapeShift&);

// Ruoss et al., arXiv:2305.16843: `tokens` distinct positions of 0 .. max_length - 1, in order. One
// draw serves a batch in the authors' code (key.first_sequence says which); training and evaluation
// draw alike. Positions of a text that is to be generated are drawn for its final length at once.
// Throws [randomised]: tokens above max_length or negative.
// The first position: drawn like the others, or 0 instead of the smallest one drawn
// (flashT5 @ 818f07c, which draws those of queries and of keys apart: by two seeds).
enum class RandomisedFirst : std::uint8_t { drawn, zero };
template <>
struct EnumNames<RandomisedFirst> {
  static constexpr std::array<std::string_view, 2> value{"drawn", "zero"};
};
POSENC_API OwnedPositions random_positions(Index max_length, Index tokens, const DrawKey&,
                                           RandomisedFirst = RandomisedFirst::drawn);
// Relative schemes and ALiBi do not use differences of these; they draw distances. Entry d of the result
// replaces the distance d = 0 .. tokens - 1: 0 and tokens - 1 distinct values of
// 1 .. max_length - 1, in order. Negative distances mirror them, or are drawn by another key.
POSENC_API std::vector<Index> random_distances(Index max_length, Index tokens, const DrawKey&);

}  // namespace posenc::v0
