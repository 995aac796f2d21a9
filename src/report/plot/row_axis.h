// SPDX-License-Identifier: Apache-2.0
// The axis of a heat map whose rows are positions.
#pragma once
#include "chart.h"
#include "options.h"

namespace posenc::report {

constexpr Index kMostRows = 2048;
constexpr Index kMostCells = Index{1} << 22;

// Throws UsageError: rows that no picture shows; InputError: more cells than a picture should hold.
void check_drawable(Index rows, Index columns);

// Names rows of `h` by their positions, and lists all of them for `data`. Several axes of positions
// have no one number a row: those rows are numbered. Positions too long to print stand relative to
// the first.
void name_rows(HeatMap& h, const PositionList& list);

// The numbers 0 .. count - 1 as positions.
PositionList first_positions(Index count);

}  // namespace posenc::report
