// SPDX-License-Identifier: Apache-2.0
// The coordinates are those of transformers 5.23: modeling_vit_mae.py (index), modeling_detr.py
// (counted), modeling_deformable_detr.py (centred), image_processing_pix2struct.py (from_one).
#include "posenc/model/cells.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>
#include <vector>

#include "posenc/positions/sequence.h"
#include "positions/exact.h"

namespace posenc::inline v0 {
namespace {

constexpr const char* kCells = "cells";

// Which cell token t of row b is: less than 0 in front of them.
Index cell_of(const Positions& p, Index b, Index t, Index before, Index count,
              const std::string& rule) {
  const double token = position_at(p, 0, p.batch == 1 ? 0 : b, t);
  if (!(token >= 0 && token < static_cast<double>(count)) || token != std::floor(token))
    refuse_field(kCells, "positions", rule, token);
  return static_cast<Index>(token) - before;
}

std::string rule_of(const ImageGrid& grid, Index before, Index count) {
  const std::string shape = std::to_string(grid.rows) + " x " + std::to_string(grid.columns);
  return "must be 0 to " + std::to_string(count - 1) + ", " +
         (before > 0 ? std::to_string(before) + " in front of the cells, then " : std::string()) +
         shape + " cells row by row";
}

// Of number i of n on one axis.
double angle(CellCoordinates how, Index i, Index n) {
  const double count = static_cast<double>(i) + (how == CellCoordinates::centred ? 0.5 : 1);
  return count / (static_cast<double>(n) + 1e-6) * (2 * std::numbers::pi);
}

// [row, column][batch][tokens] of at(cell, axis); -1 in front of the cells.
template <class T, class F>
OwnedPositions both_axes(const std::vector<Index>& cell, Index batch, const F& at) {
  std::vector<T> out(2 * cell.size());
  for (std::size_t i = 0; i < cell.size(); ++i)
    for (std::size_t axis = 0; axis < 2; ++axis)
      out[axis * cell.size() + i] = cell[i] < 0 ? T{-1} : at(cell[i], axis);
  return own(std::move(out), batch, 2);
}

}  // namespace

OwnedPositions cells(const ImageGrid& grid, Index before, const Positions& tokens) {
  if (grid.rows < 1 || grid.columns < 1)
    refuse(kCells, "a grid must have rows and columns", std::min(grid.rows, grid.columns));
  if (before < 0) refuse(kCells, "tokens in front of the cells must not be negative", before);
  if (tokens.axes != 1)
    refuse(kCells, "tokens are counted on one axis", static_cast<Index>(tokens.axes));
  const Index count = add_exact(multiply_exact(grid.rows, grid.columns, kCells), before, kCells);
  const std::string rule = rule_of(grid, before, count);
  std::vector<Index> cell;
  cell.reserve(static_cast<std::size_t>(tokens.batch * tokens.count));
  for (Index b = 0; b < tokens.batch; ++b)
    for (Index t = 0; t < tokens.count; ++t)
      cell.push_back(cell_of(tokens, b, t, before, count, rule));
  const auto number = [&](Index k, std::size_t axis) {
    return axis == 0 ? k / grid.columns : k % grid.columns;
  };
  const CellCoordinates how = grid.coordinates;
  if (how == CellCoordinates::index || how == CellCoordinates::from_one)
    return both_axes<Index>(cell, tokens.batch, [&](Index k, std::size_t axis) {
      return number(k, axis) + (how == CellCoordinates::from_one ? 1 : 0);
    });
  return both_axes<double>(cell, tokens.batch, [&](Index k, std::size_t axis) {
    return angle(how, number(k, axis), axis == 0 ? grid.rows : grid.columns);
  });
}

}  // namespace posenc::v0
