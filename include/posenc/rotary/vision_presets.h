// SPDX-License-Identifier: Apache-2.0
// More towers by name, as transformers 5.23 runs them; the better known ones are in axial.h. Their
// base is a number of the config and is given. Streams are (row, column) unless said.
#pragma once
#include <cmath>

#include "posenc/rotary/axial.h"
#include "posenc/rotary/mixed_axes.h"

namespace posenc::axial_presets {

// SAM-3: row before column, neighbours paired.
inline Axial sam3_vision(Index head_dim, double base) {
  return two_axes(head_dim, Pairing::interleaved, base);
}
// Step-3.7: column before row, half-split.
inline Axial step3_vision(Index head_dim, double base) {
  Axial a = two_axes(head_dim, Pairing::half_split, base);
  a.stream = {1, 0};
  return a;
}
// Inkling-2: column before row, neighbours paired.
inline Axial inkling2_vision(Index head_dim, double base) {
  Axial a = two_axes(head_dim, Pairing::interleaved, base);
  a.stream = {1, 0};
  return a;
}
// MiniMax-M3: streams (time, row, column) on the first 3 * 2 * floor(head_dim / 6) channels,
// half-split over those; the rest passes through.
inline Axial minimax_m3_vision(Index head_dim, double base) {
  const Index width = 2 * (head_dim / 6);
  Axial a;
  a.head_dim = head_dim;
  a.axes_dim = {width, width, width};
  a.pairing = Pairing::half_split;
  a.base = base;
  return a;
}
// EfficientLoFTR: row and column alternate pair by pair over the whole hidden width, before heads
// are split; coordinates count from 1.
inline Axial efficient_loftr(Index hidden_size, double base) {
  Axial a = two_axes(hidden_size, Pairing::interleaved, base);
  a.order = AxialOrder::alternate;
  return a;
}
// ESMFold-2: streams (x, y, z, number of the residue's space), real-valued; `spatial_pairs` for
// each of the three, frequency base^(-j/pairs), half-split; pairs beyond stand still.
inline MixedAxes esmfold2(Index head_dim, Index spatial_pairs, double spatial_base, Index uid_pairs,
                          double uid_base) {
  if (head_dim < 2 || head_dim % 2 != 0 || spatial_pairs < 0 || uid_pairs < 0 ||
      spatial_pairs > head_dim || uid_pairs > head_dim ||
      3 * spatial_pairs + uid_pairs > head_dim / 2)
    refuse("esmfold2", "3 * spatial_pairs + uid_pairs must fit half of an even head_dim", head_dim);
  const Index pairs = head_dim / 2;
  MixedAxes m;
  m.head_dim = head_dim;
  m.axes = 4;
  m.pairing = Pairing::half_split;
  m.frequencies.assign(static_cast<std::size_t>(4 * pairs), 0.0);
  const auto put = [&](Index stream, Index first, Index count, double base) {
    for (Index j = 0; j < count; ++j)
      m.frequencies[static_cast<std::size_t>(stream * pairs + first + j)] =
          std::pow(base, -static_cast<double>(j) / static_cast<double>(count));
  };
  for (Index a = 0; a < 3; ++a) put(a, a * spatial_pairs, spatial_pairs, spatial_base);
  put(3, 3 * spatial_pairs, uid_pairs, uid_base);
  return m;
}

}  // namespace posenc::axial_presets
