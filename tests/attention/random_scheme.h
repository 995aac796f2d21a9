// SPDX-License-Identifier: Apache-2.0
// Schemes of the score from the registry, their fields at random, small enough for a call of a few
// tokens.
#pragma once
#include <map>
#include <string>
#include <string_view>

#include "posenc/relative/any_scheme.h"
#include "support/random.h"

namespace posenc {

struct RandomScheme {
  AnyRelativeScheme scheme;
  std::string text;  // SCHEME
  // Of each integer input: its numbers are 0 .. n - 1, and what an index gives no row is -1.
  Index classes = 2;
};

// What a call has beside its ScoreShape.
struct RandomSizes {
  Index batch = 1, key_heads = 1;
};

std::size_t scheme_count();
std::string_view scheme_name(std::size_t which);
// Fields that the shape and a call of these sizes take. Throws std::logic_error where none do.
RandomScheme random_scheme(std::size_t which, const ScoreShape&, const RandomSizes&, test::Random&);

// A learned array: near what the scheme starts from, where it says so.
std::vector<double> random_parameter(const Parameter&, test::Random&);

}  // namespace posenc
