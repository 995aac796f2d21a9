// SPDX-License-Identifier: Apache-2.0
// Positions of the tokens of an image, for input encodings by rows and columns
// (InputEncoding::grid): ViT-MAE, DETR and similar models.
#pragma once
#include "posenc/model/spec.h"
#include "posenc/positions/view.h"

namespace posenc::inline v0 {

// Coordinates (row, column) of tokens that are counted: `before` ones in front of the cells, at
// (-1, -1), where the scheme's zero_position is, then the cells of the grid row by row. `tokens`:
// one axis, whole numbers. Throws [cells]: a grid without rows or columns, another number of axes,
// a token that is no whole number or beyond the grid.
POSENC_API OwnedPositions cells(const ImageGrid& grid, Index before, const Positions& tokens);

}  // namespace posenc::v0
