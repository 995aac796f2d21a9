// SPDX-License-Identifier: Apache-2.0
// Pictures of several schemes as one.
#pragma once
#include <string>
#include <vector>

#include "chart.h"

namespace posenc::report {

// The pictures of one scheme, and its name in the legend.
struct Compared {
  std::string name;
  std::vector<Figure> figures;
};
// Lines of the same kind in one picture each; of every scheme its own colour, and of its heads the
// first and the last. Throws UsageError: pictures that are no lines; InputError: axes that differ.
std::vector<Figure> compared(const std::vector<Compared>&);

}  // namespace posenc::report
