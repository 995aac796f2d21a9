// SPDX-License-Identifier: Apache-2.0
#include "heads_order.h"

#include <fmt/format.h>

#include "posenc/report/request.h"

namespace posenc::report {

HeadsLayout heads_order(const Array& a, const std::string& word, const char* which) {
  if (!word.empty()) {
    if (word != "thd" && word != "bthd" && word != "bhtd" && word != "tbhd")
      throw UsageError("--order must be one of thd, bthd, bhtd, tbhd, got \"" + word + "\"");
    const HeadsLayout l = layout_from_name(word);
    if (layout_name(l).size() != a.shape.size())
      throw UsageError(fmt::format("--order {} has {} axes, {} has {}", word, layout_name(l).size(),
                                   which, a.shape.size()));
    return l;
  }
  if (a.shape.size() == 3) return HeadsLayout::thd;
  if (a.shape.size() == 4)
    throw UsageError(
        fmt::format("{} has four axes: --order bthd, bhtd or tbhd must say which is which", which));
  throw InputError(fmt::format("{} must have three or four axes, got {}", which, a.shape.size()));
}

}  // namespace posenc::report
