// SPDX-License-Identifier: Apache-2.0
// Whether a list has a value.
#pragma once
#include <algorithm>
#include <initializer_list>
#include <string_view>

namespace posenc::inline v0 {

template <class List, class T>
bool contains(const List& all, const T& one) {
  return std::ranges::find(all, one) != std::ranges::end(all);
}
inline bool contains(std::initializer_list<std::string_view> all, std::string_view one) {
  return std::ranges::find(all, one) != all.end();
}

}  // namespace posenc::v0
