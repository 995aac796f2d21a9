// SPDX-License-Identifier: Apache-2.0
// posenc extend: a learned table in a file at another size.
#pragma once
#include <optional>
#include <string>

#include "posenc/report/request.h"

namespace posenc::report {

struct ExtendOptions {
  std::string weights, tensor, to, how, grid, order, border, scale, rows;
  Index prefix = 0, suffix = 0;
  bool align_corners = false, antialias = false;
  std::optional<double> a, alpha;
  double offset = 0;
};

// Writes the new file, Request::path; the text says what was done.
Report extend(const ExtendOptions&, const Request&);

}  // namespace posenc::report
