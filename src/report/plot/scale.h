// SPDX-License-Identifier: Apache-2.0
// From values to pixels, and round tick marks.
#pragma once
#include <string>
#include <vector>

#include "chart.h"

namespace posenc::report {

class Scale {
 public:
  // [low, high] in values onto [from, to] in pixels.
  Scale(const Axis&, double low, double high, double from, double to);
  double operator()(double value) const;
  std::vector<double> ticks() const;
  std::string tick_text(double) const;
  double low() const { return low_; }
  double high() const { return high_; }

 private:
  bool log_, whole_;
  double low_, high_, from_, to_;
};

}  // namespace posenc::report
