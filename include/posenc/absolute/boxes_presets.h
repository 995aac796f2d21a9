// SPDX-License-Identifier: Apache-2.0
// Boxes of the LayoutLM family. Coordinates are those of a page scaled to 1000.
#pragma once
#include "posenc/absolute/boxes.h"

namespace posenc::inline v0::boxes_presets {

// LayoutLM: all six summed.
inline Boxes layoutlm(Index width = 768, Index max_2d_position_embeddings = 1024) {
  Boxes s;
  s.width = width;
  s.rows = max_2d_position_embeddings;
  return s;
}
// LayoutLMv2 and LayoutXLM: concatenated; a reversed box is an error.
inline Boxes layoutlmv2(Index coordinate_size = 128, Index shape_size = 128,
                        Index max_2d_position_embeddings = 1024) {
  Boxes s = layoutlm(4 * coordinate_size + 2 * shape_size, max_2d_position_embeddings);
  s.coordinate = coordinate_size;
  s.shape = shape_size;
  return s;
}
// LayoutLMv3: heights and widths are clipped into their tables.
inline Boxes layoutlmv3(Index coordinate_size = 128, Index shape_size = 128,
                        Index max_2d_position_embeddings = 1024) {
  Boxes s = layoutlmv2(coordinate_size, shape_size, max_2d_position_embeddings);
  s.clip = true;
  return s;
}

}  // namespace posenc::v0::boxes_presets
