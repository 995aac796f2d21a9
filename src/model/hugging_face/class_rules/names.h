// SPDX-License-Identifier: Apache-2.0
// A list of pairs of names, in the order of the table.
#pragma once
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "posenc/core/dtype.h"
#include "posenc/io/json.h"

namespace posenc::hf {

struct NameMap {
  std::vector<std::pair<std::string, std::string>> pairs;
  bool empty() const { return pairs.empty(); }
  // Null when there is none.
  const std::string* find(std::string_view name) const;
  void set(std::string_view name, std::string value);
};
// {"name": "value", ...}
Json as_json(const NameMap&);
bool contains(const std::vector<std::string>&, std::string_view);

}  // namespace posenc::hf
