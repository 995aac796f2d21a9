// SPDX-License-Identifier: Apache-2.0
// Words of the command line for the library's enums.
#pragma once
#include <string>
#include <string_view>

#include "common.h"
#include "posenc/core/describe.h"

namespace posenc::report {

template <NamedEnum E>
E enum_word(std::string_view option, std::string_view word) {
  std::string known;
  for (std::size_t i = 0; i < EnumNames<E>::value.size(); ++i) {
    if (EnumNames<E>::value[i] == word) return static_cast<E>(i);
    known += (known.empty() ? "" : ", ") + std::string(EnumNames<E>::value[i]);
  }
  throw UsageError(std::string(option) + " must be one of " + known + ", got \"" +
                   std::string(word) + "\"");
}

}  // namespace posenc::report
