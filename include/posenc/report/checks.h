// SPDX-License-Identifier: Apache-2.0
// selftest and bench need code outside of this library: a program that links it passes functions here.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "posenc/report/request.h"

namespace posenc::report {

struct SelftestOptions {
  std::vector<std::string> suites, onnx;
  std::string map, filter;
};
struct BenchOptions {
  std::string filter;
  bool quick = false;
};
struct Checks {
  std::function<Report(const SelftestOptions&, const Request&)> selftest;
  std::function<Report(const BenchOptions&, const Request&)> bench;
};

}  // namespace posenc::report
