// SPDX-License-Identifier: Apache-2.0
// The place of a parameter or input in the list of its scheme.
#pragma once
#include <algorithm>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace posenc::inline v0::detail {

// Throws std::logic_error: the scheme declares no array of this name.
template <class Named>
std::size_t index_of(std::string_view who, const std::vector<Named>& declared,
                     std::string_view name) {
  const auto at = std::ranges::find(declared, name, &Named::name);
  if (at == declared.end())
    throw std::logic_error("[" + std::string(who) + "] has no array " + std::string(name));
  return static_cast<std::size_t>(at - declared.begin());
}

}  // namespace posenc::v0::detail
