// SPDX-License-Identifier: Apache-2.0
// More towers by name, as transformers 5.23 runs them; the better known ones are in axial.h. Their
// base is a number of the config. Streams are (row, column) unless stated otherwise.
// Implementation: src/rotary/vision_presets.cpp.
#pragma once

#include "posenc/rotary/axial.h"
#include "posenc/rotary/mixed_axes.h"

namespace posenc::inline v0::axial_presets {

// SAM-3: row before column, neighbours paired.
POSENC_API Axial sam3_vision(Index head_dim, double base);
// Step-3.7: column before row, half-split.
POSENC_API Axial step3_vision(Index head_dim, double base);
// Inkling-2: column before row, neighbours paired.
POSENC_API Axial inkling2_vision(Index head_dim, double base);
// MiniMax-M3: streams (time, row, column) on the first 3 * 2 * floor(head_dim / 6) channels,
// half-split over those; the rest passes through.
POSENC_API Axial minimax_m3_vision(Index head_dim, double base);
// EfficientLoFTR: row and column alternate pair by pair over the whole hidden width, before heads
// are split; coordinates count from 1.
POSENC_API Axial efficient_loftr(Index hidden_size, double base);
// ESMFold-2: streams (x, y, z, number of the residue's space), real-valued; `spatial_pairs` for
// each of the three, frequency base^(-j/pairs), half-split; pairs beyond do not rotate.
POSENC_API MixedAxes esmfold2(Index head_dim, Index spatial_pairs, double spatial_base,
                              Index uid_pairs, double uid_base);

}  // namespace posenc::v0::axial_presets
