// SPDX-License-Identifier: Apache-2.0
// Calls whose tokens are cells of a grid: --grid, or the grid that the scheme is made for.
#pragma once
#include <string>

#include "attend_call.h"

namespace posenc::report {

// read_subject; of a model whose layer has tables of each axis (decomposed) they are resized to
// `grid` ("": none), as its program does. Throws InputError: a layer of windows of another size.
Subject read_subject_on_grid(const SubjectOptions&, const std::string& grid);
// Rows and columns of the tokens of a call that was read. A list of positions counts the cells of
// --grid; without positions every cell is a token. Throws where no grid is known and one is needed.
void place_on_grid(AttendCall&, const AttendOptions&, const ScoreEncodings&);

}  // namespace posenc::report
