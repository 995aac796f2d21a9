// SPDX-License-Identifier: Apache-2.0
// Where lists of a SCHEME that stand as @name come from: any callable.
#pragma once
#include <functional>
#include <string_view>
#include <vector>

namespace posenc::inline v0 {

struct ArrayLookup : std::function<std::vector<double>(std::string_view name)> {
  using function::function;
};

}  // namespace posenc::v0
