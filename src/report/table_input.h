// SPDX-License-Identifier: Apache-2.0
// Rows of what acts at the input, for tables and pictures.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "common.h"

namespace posenc::report {

// Whether the scheme enters at the input, and its rows alone, [batch * tokens, width]; what it
// learns comes from the file of --arrays, by name, or is drawn as it starts with --start.
bool is_input_scheme(const Encoding&);
Array input_rows(const Encoding&, const PositionList&, DType, const SubjectOptions&);
// Positions for which the tables of such a scheme have rows, by what it lowers to; none: it has no
// table, or a row for every position. axes: those that it reads.
struct TablePositions {
  std::optional<Index> count;
  Index axes = 1;
};
TablePositions table_positions(const Encoding&, const SubjectOptions&);
// Axes of positions that the terms read.
Index position_axes(const LoweredInput&);
// Coordinates of the cells that a list counts, row by row, of a grid of HxW.
PositionList cells_of(const std::string& grid, const PositionList&);
// What acts at the input of the model or of --tower; --input chooses where there are several.
const std::vector<InputEncoding>& inputs_of(const ModelSpec&, const SubjectOptions&);
const InputEncoding& chosen_input(const ModelSpec&, const SubjectOptions&);
// Its rows, learned ones from the weights beside the model's file. A list counts the rows of the
// model's own table of an image, or the cells of `grid` where the grid is that of each image.
Array model_rows(const ModelSpec&, const InputEncoding&, const PositionList&, DType,
                 const std::string& grid = "");

}  // namespace posenc::report
