// SPDX-License-Identifier: Apache-2.0
// Grids of images and videos as lists of Python.
#pragma once
#include <string>
#include <vector>

#include "arrays.h"
#include "posenc/core/error.h"
#include "posenc/positions/mrope.h"

namespace posenc::python {

inline std::vector<VisionGrid> grids_of(const char* who, nb::handle list, const char* name) {
  std::vector<VisionGrid> grids;
  if (list.is_none()) return grids;
  for (const nb::handle h : nb::iter(list)) {
    std::vector<double> v;
    if (!nb::try_cast<std::vector<double>>(h, v) || v.size() < 3 || v.size() > 4)
      refuse_field(who, name, "must be (frames, rows, columns) or have seconds as a fourth",
                   text_of(nb::repr(h)));
    grids.push_back({static_cast<Index>(v[0]), static_cast<Index>(v[1]), static_cast<Index>(v[2]),
                     v.size() == 4 ? v[3] : VisionGrid{}.seconds});
  }
  return grids;
}

}  // namespace posenc::python
