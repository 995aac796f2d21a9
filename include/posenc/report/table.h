// SPDX-License-Identifier: Apache-2.0
// posenc table: frequencies, turns, angles, cosines and sines, biases and rows.
#pragma once
#include <string>

#include "posenc/report/request.h"
#include "posenc/report/subject.h"

namespace posenc::report {

struct TableOptions {
  SubjectOptions subject;
  std::string positions, what, layout, precision, dtype;  // "": the default
  std::string grid;                                       // HxW: the positions count its cells
  Index heads = 0;                                        // of --what bias
};

// Arrays if the request has a path or is in memory, otherwise a text.
Report table(TableOptions, const Request&);

}  // namespace posenc::report
