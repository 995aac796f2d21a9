// SPDX-License-Identifier: Apache-2.0
// JSON as Python writes it: with the tokens NaN, Infinity and -Infinity, where the caller asks.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "posenc/io/json.h"

namespace posenc::inline v0 {

struct NonFinite {
  std::vector<std::string> path;  // keys and indices that lead to it
  std::string place, token;       // "#/a/1", "-Infinity"
};

// As parse_json, but those tokens are null, and listed.
Json parse_json(std::string_view text, const std::string& file, std::vector<NonFinite>& found);

}  // namespace posenc::v0
