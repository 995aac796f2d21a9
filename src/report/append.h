// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <fmt/format.h>

#include <iterator>
#include <string>
#include <utility>

namespace posenc::report {

template <class... T>
void append(std::string& to, fmt::format_string<T...> format, T&&... values) {
  fmt::format_to(std::back_inserter(to), format, std::forward<T>(values)...);
}

}  // namespace posenc::report
