// SPDX-License-Identifier: Apache-2.0
// Positions of tokens of several kinds on common axes: text, image patches, audio frames. Every
// token has a modality and coordinates, in units that all of them share (seconds,
// metres, pixels of the original); CAPE's positions in seconds are the case of one axis.
#pragma once
#include <span>
#include <vector>

#include "posenc/positions/view.h"

namespace posenc::inline v0 {

// One stretch of tokens of one kind. Coordinate a of token t is
//   origin[a] + scale[a] * position(t) on axis stream[a];   stream[a] = -1: the kind has no such
//   axis
struct Modality {
  Index id = 0;
  OwnedPositions positions;    // batch of 1, own units: text arange, image grid, audio frames
  std::vector<Index> stream;   // axis of `positions` for every common axis, or -1
  std::vector<double> scale;   // common units a step of its own; empty: 1
  std::vector<double> origin;  // where it begins; empty: 0
};

// The coordinate of a token that lacks the axis: its row is zero (zero_position).
inline constexpr Index kAbsent = -(Index{1} << 40);

// The stretches after each other, [1 + axes][1][tokens] of reals: axis 0 is the id, the others are
// the common axes. Throws [modalities]: no stretch, lists of another length than axes, an axis that
// the positions lack, a negative id, numbers that are not finite, a batch above 1.
POSENC_API OwnedPositions modality_positions(std::span<const Modality>, std::int32_t axes);

}  // namespace posenc::v0
