// SPDX-License-Identifier: Apache-2.0
// Named axes of a case's arrays: one letter an axis, (hd) for a merged one, a digit for channels
// of a fixed number; a letter that comes twice is one axis stored as several, row by row.
//   b batch   t tokens   h heads   d channels   a position axes
#pragma once
#include <map>
#include <string_view>
#include <vector>

#include "posenc/core/dtype.h"

namespace posenc::conformance {

struct Axis {
  Index size = 1, stride = 0;  // elements
};

class Axes {
 public:
  // Of a dense row-major array. `known`: sizes that merged axes need (all but one of each).
  Axes(const std::vector<Index>& shape, std::string_view letters,
       const std::map<char, Index>& known);
  Axis operator[](char letter) const;
  // Index in the array of every element, in the order of `letters` (last fastest): each comes once.
  // Throws where the array has an axis that is none of them.
  std::vector<Index> walk(std::string_view letters) const;

 private:
  std::map<char, Axis> axes_;
  Index count_ = 1;  // elements of the array
};

}  // namespace posenc::conformance
