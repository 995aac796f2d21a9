// SPDX-License-Identifier: Apache-2.0
#include "posenc/rotary/vision_presets.h"

#include <cmath>

#include "posenc/core/error.h"

namespace posenc::inline v0 {

namespace axial_presets {

Axial sam3_vision(Index head_dim, double base) {
  return two_axes(head_dim, Pairing::interleaved, base);
}

Axial step3_vision(Index head_dim, double base) {
  Axial a = two_axes(head_dim, Pairing::half_split, base);
  a.stream = {1, 0};
  return a;
}

Axial inkling2_vision(Index head_dim, double base) {
  Axial a = two_axes(head_dim, Pairing::interleaved, base);
  a.stream = {1, 0};
  return a;
}

Axial minimax_m3_vision(Index head_dim, double base) {
  const Index width = 2 * (head_dim / 6);
  Axial a;
  a.head_dim = head_dim;
  a.axes_dim = {width, width, width};
  a.pairing = Pairing::half_split;
  a.base = base;
  return a;
}

Axial efficient_loftr(Index hidden_size, double base) {
  Axial a = two_axes(hidden_size, Pairing::interleaved, base);
  a.order = AxialOrder::alternate;
  return a;
}

MixedAxes esmfold2(Index head_dim, Index spatial_pairs, double spatial_base, Index uid_pairs,
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

}  // namespace axial_presets

}  // namespace posenc::v0
