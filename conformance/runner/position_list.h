// SPDX-License-Identifier: Apache-2.0
// Positions of a check: from an array of the case, from a range or list in the check, or by a rule.
#pragma once
#include "conformance/runner/check.h"
#include "posenc/positions.h"

namespace posenc::conformance {

// Of `in.positions` (an array, "a+b" the sum of two, with letters a, b, t in `axes`; a list of
// arrays or ranges, one a position axis) or `positions` ("3:15", a list, a list a position axis,
// {"rule": "..."}); `repeat_axes` gives one list to several axes. Throws [case] when there is neither.
OwnedPositions positions_of(const Check&, std::string_view key = "positions");
bool has_positions(const Check&, std::string_view key = "positions");

// The rules of the operation `positions`; `in` names the arrays they read.
struct BuiltPositions {
  OwnedPositions positions;
  std::vector<double> deltas;  // rope delta of each row, where the rule has one
};
BuiltPositions build_positions(const Check&, std::string_view rule);
// The rules of drawn_positions.cpp; false: none of them.
class Rule;
bool build_drawn_positions(const Check&, const Rule&, OwnedPositions&);

}  // namespace posenc::conformance
