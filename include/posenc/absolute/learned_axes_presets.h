// SPDX-License-Identifier: Apache-2.0
// Tables for each axis, as in programs, by name; each comment names the positions.
#pragma once
#include <cmath>
#include <utility>
#include <vector>

#include "posenc/absolute/learned_axes.h"

namespace posenc::inline v0::learned_axes_presets {

// Reformer (transformers' AxialPositionEmbeddings): axial_pos_shape and axial_pos_embds_dim, which
// sum to the width; deviation axial_norm_std. arange(0, count), at most the product of the shape.
inline LearnedAxes reformer(std::vector<Index> shape = {64, 64},
                            std::vector<Index> widths = {64, 192}, double axial_norm_std = 1) {
  LearnedAxes s;
  for (const Index w : widths) s.width += w;
  s.shape = std::move(shape);
  s.widths = std::move(widths);
  s.flat = true;
  s.init = axial_norm_std;
  return s;
}
// axial-positional-embedding: axial_dims empty: summed. arange(0, count).
inline LearnedAxes axial_positional_embedding(Index width, std::vector<Index> axial_shape,
                                              std::vector<Index> axial_dims = {}) {
  LearnedAxes s = reformer(std::move(axial_shape), std::move(axial_dims));
  s.width = width;
  return s;
}
// DETR's learned variant: channels of x before those of y. grid({rows, columns}). Its tables are
// initialised uniformly in [0, 1).
inline LearnedAxes detr(Index width = 256, Index rows = 50) {
  LearnedAxes s;
  s.width = width;
  s.shape = {rows, rows};
  s.widths = {width / 2, width - width / 2};
  s.order = {1, 0};
  s.init = 1;
  s.initializer = TableInitial::uniform_positive;
  return s;
}
// tensor2tensor's learned N-D signal: zeros beyond the tables. grid(shape).
inline LearnedAxes tensor2tensor(Index width, std::vector<Index> shape) {
  LearnedAxes s;
  s.width = width;
  s.shape = std::move(shape);
  s.beyond = Beyond::zero;
  s.init = 1 / std::sqrt(static_cast<double>(width));
  s.gain = std::sqrt(static_cast<double>(width));
  return s;
}

}  // namespace posenc::v0::learned_axes_presets
