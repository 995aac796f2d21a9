// SPDX-License-Identifier: Apache-2.0
// The channels that a term acts on.
#pragma once
#include <string>

#include "posenc/core/error.h"

namespace posenc::inline v0::detail {

// `have`: channels of x and of what was appended before the term.
inline void check_window(std::string_view who, Index first, Index width, Index have) {
  if (first >= 0 && first <= have - width) return;
  refuse(who,
         "the channels of a term must lie inside those of x, of which there are " +
             std::to_string(have) + "; its width is " + std::to_string(width) +
             ", its first channel",
         first);
}

}  // namespace posenc::v0::detail
