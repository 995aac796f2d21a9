// SPDX-License-Identifier: Apache-2.0
// Sinusoids of images and videos as programs make them, by name. Positions are (row, column) or
// (frame, row, column), tokens row by row, unless stated otherwise; each comment names the function that makes them.
#pragma once
#include <algorithm>

#include "posenc/absolute/sinusoidal_nd.h"

namespace posenc::inline v0::sinusoidal_nd_presets {

// tatp22's PositionalEncoding1D, 2D and 3D: equal blocks of an even number of channels, the tail
// cut to `width`. grid(shape).
inline SinusoidalNd tatp22(Index width, Index axes) {
  if (width < 1 || axes < 1 || axes > 8)
    refuse_field("sinusoidal_nd", "tatp22", "needs a width and 1 to 8 axes", width);
  SinusoidalNd s;
  s.exponent_width = (width + 2 * axes - 1) / (2 * axes) * 2;
  s.odd = OddWidth::truncate;
  Index left = width;
  for (Index a = 0; a < axes; ++a) {
    s.widths.push_back(std::min(left, s.exponent_width));
    left -= s.widths.back();
  }
  return s;
}
// tensor2tensor's add_timing_signal_nd: floor(width / (2 axes)) timescales an axis; other channels
// are unchanged. One timescale an axis divides by zero there. grid(shape).
inline SinusoidalNd tensor2tensor(Index width, Index axes, double min_timescale = 1,
                                  double max_timescale = 10000) {
  const Index n = axes < 1 ? 0 : width / (2 * axes);
  if (n < 2)
    refuse_field("sinusoidal_nd", "tensor2tensor", "needs two timescales an axis, channels", width);
  SinusoidalNd s;
  s.widths.assign(static_cast<std::size_t>(axes), 2 * n);
  s.layout = SineLayout::halves;
  s.spacing = SineSpacing::t2t;
  s.base = max_timescale;
  s.min_timescale = min_timescale;
  return s;
}
// Two blocks of halves; the first is fed by `first_axis`.
inline SinusoidalNd vision(Index width, Index first_axis) {
  SinusoidalNd s;
  s.widths = {width / 2, width - width / 2};
  s.stream = {first_axis, 1 - first_axis};
  s.layout = SineLayout::halves;
  return s;
}
// MAE, ViT-MAE, DiT, diffusers in two dimensions: [sin x | cos x | sin y | cos y] although the
// variables are named the other way round. grid({rows, columns}), a zero row for the class token;
// diffusers: in_float32(scaled_grid({rows, columns}, {base_size, base_size})).
inline SinusoidalNd mae(Index width, double interpolation_scale = 1) {
  SinusoidalNd s = vision(width, 1);
  s.scale = {1 / interpolation_scale, 1 / interpolation_scale};
  return s;
}
// transformers' build_2d_sinusoidal_position_embedding: [sin y | cos y | sin x | cos x].
inline SinusoidalNd hf_vision(Index width, double temperature = 10000) {
  SinusoidalNd s = vision(width, 0);
  s.base = temperature;
  return s;
}
// diffusers in three dimensions: a quarter of the channels for time, then x, then y.
// grid({frames, rows, columns}).
inline SinusoidalNd diffusers_3d(Index width, double spatial_interpolation_scale = 1,
                                 double temporal_interpolation_scale = 1) {
  if (width < 16 || width % 16 != 0)
    refuse("sinusoidal_nd", "diffusers' video grid needs a multiple of 16 channels", width);
  SinusoidalNd s;
  const double space = 1 / spatial_interpolation_scale;
  s.widths = {width / 4, width * 3 / 8, width * 3 / 8};
  s.stream = {0, 2, 1};
  s.scale = {1 / temporal_interpolation_scale, space, space};
  s.layout = SineLayout::halves;
  return s;
}
// DETR and its descendants (Mask2Former, DAB-DETR ...): y first, interleaved; num_pos_feats
// channels an axis. counted_grid(mask): counts from 1, normalised to 2 pi where the model says so.
inline SinusoidalNd detr(Index num_pos_feats, double temperature = 10000) {
  SinusoidalNd s;
  s.widths = {num_pos_feats, num_pos_feats};
  s.base = temperature;
  return s;
}
// timm's build_sincos2d_pos_embed: "interleaved" is [sin a | cos a | sin b | cos b], otherwise
// [sin a | sin b | cos a | cos b]; (a, b) is (y, x). reverse_coord: grid({columns, rows}), which is
// (x, y) with x outermost, as timm flattens it.
inline SinusoidalNd timm(Index width, double temperature = 10000, bool interleave_sin_cos = false) {
  SinusoidalNd s = hf_vision(width, temperature);
  if (!interleave_sin_cos) s.arrangement = AxisArrangement::joint;
  return s;
}

}  // namespace posenc::v0::sinusoidal_nd_presets
