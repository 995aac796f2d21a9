// SPDX-License-Identifier: Apache-2.0
// Returns the numbers of a list that a SCHEME names as @name: any callable.
#pragma once
#include <functional>
#include <string_view>
#include <vector>

namespace posenc::inline v0 {

struct ArrayLookup : std::function<std::vector<double>(std::string_view name)> {
  using function::function;
};

}  // namespace posenc::v0
