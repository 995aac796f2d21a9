// SPDX-License-Identifier: Apache-2.0
// What the laws check alike.
#pragma once
#include <string_view>

#include "posenc/core/error.h"

namespace posenc::inline v0 {

inline void require_positive(std::string_view field, Index value) {
  if (value < 1) refuse_field("law", field, "must be at least 1", value);
}

inline constexpr Index kLongestSearch = Index{1} << 20;

}  // namespace posenc::v0
