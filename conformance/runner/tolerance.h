// SPDX-License-Identifier: Apache-2.0
// What a case allows, and the comparison. An element passes when |got - want| <= abs + rel |want|.
#pragma once
#include <functional>
#include <optional>
#include <span>

#include "conformance/runner/suite.h"

namespace posenc::conformance {

struct Tolerance {
  double abs = 0, rel = 0;
  std::vector<double> abs_by_position;  // by the first axis of the array; empty: abs
  bool exact = false;                   // integers: equal whatever the numbers say
  // A departure that the case admits (params.departs): the distance must lie above the tolerance
  // and within this number, so that a departure that has gone is noticed.
  std::optional<double> known_difference;
};

// The check's named block, else the array's own entry, else `f64` for names ending in _f64, else
// the case's abs and rel. A block written out in the check can only tighten.
Tolerance tolerance_for(const Case&, const Json& check, const Slice& array);

// The element that comes closest to its limit, or passes it furthest.
struct Worst {
  std::string array;
  std::vector<Index> index;
  double got = 0, want = 0, allowed = 0;
  double ratio = -1;  // |got - want| / allowed; infinite where nothing is allowed and they differ
};

struct Comparison {
  Index compared = 0;
  bool failed = false;
  double largest = 0;  // of |got - want|
  Worst worst;

  // One element. Infinities must be equal, NaN meets only NaN.
  void element(double got, double want, double allowed, const std::string& array,
               std::function<std::vector<Index>()> index);
};

// got in the row-major order of the slice.
void compare(Comparison&, std::span<const double> got, const Slice& want, const Tolerance&);

}  // namespace posenc::conformance
