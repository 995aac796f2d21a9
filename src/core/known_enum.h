// SPDX-License-Identifier: Apache-2.0
// Values of an enum come from callers, who can cast any number to it.
#pragma once
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "posenc/core/describe.h"
#include "posenc/core/error.h"

namespace posenc::inline v0::detail {

[[noreturn, gnu::cold, gnu::noinline]] inline void refuse_unknown(
    std::string_view who, std::string_view what, std::span<const std::string_view> names,
    std::size_t value) {
  std::string list;
  for (const std::string_view n : names)
    if (n != "unset") list += (list.empty() ? "" : ", ") + std::string(n);
  refuse_field(who, what, std::string("must be one of ") + list, static_cast<Index>(value));
}

// One comparison for a value that the enum has.
template <NamedEnum E>
void check_known(std::string_view who, std::string_view what, E e) {
  const auto value = static_cast<std::size_t>(e);
  if (value >= EnumNames<E>::value.size()) refuse_unknown(who, what, EnumNames<E>::value, value);
}

}  // namespace posenc::v0::detail
