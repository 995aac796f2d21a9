// SPDX-License-Identifier: Apache-2.0
// selftest and bench: posenc starts posenc-checks beside it, which runs them.
#pragma once
#include <string>
#include <vector>

#include "verb.h"

namespace posenc::cli {

struct SelftestOptions {
  std::vector<std::string> suites, onnx;
  std::string map, filter;
};
Report selftest(const SelftestOptions&, const Request&);

struct BenchOptions {
  std::string filter;
  bool quick = false;
};
Report bench(const BenchOptions&, const Request&);

}  // namespace posenc::cli
