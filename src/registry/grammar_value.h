// SPDX-License-Identifier: Apache-2.0
// Values of the SCHEME grammar.
#pragma once
#include <string>
#include <string_view>

#include "registry/grammar.h"

namespace posenc::inline v0::grammar {

struct ValueContext {
  std::string_view part, name;  // "rope", "head_dim": for errors
  const Field& field;
  const ArrayLookup& arrays;
  std::string what() const { return std::string(part) + ": " + std::string(name); }
};
// Reads `text` into the value and checks its range. Throws [scheme] naming field, rule and value.
void parse_value(const ValueContext&, std::string_view text, const ValueRef&);

// The same of a value that has its type already; null takes an optional value away.
void set_value(const ValueContext&, const Json&, const ValueRef&);

}  // namespace posenc::v0::grammar
