// SPDX-License-Identifier: Apache-2.0
// Values of the SCHEME grammar.
#pragma once
#include <string>
#include <string_view>

#include "core/grammar.h"

namespace posenc::grammar {

struct ValueContext {
  std::string what;  // "rope: head_dim", for errors
  const Field& field;
  const ArrayLookup& arrays;
};
// Reads `text` into the value and checks its range. Throws [scheme] naming field, rule and value.
void parse_value(const ValueContext&, std::string_view text, const ValueRef&);

// At most 60 characters, others than printable ASCII replaced.
std::string shown(std::string_view);

}  // namespace posenc::grammar
