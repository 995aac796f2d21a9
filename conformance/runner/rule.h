// SPDX-License-Identifier: Apache-2.0
// "name key=value key=[a,b]": a rule for positions or for distances.
#pragma once
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "posenc/core/describe.h"
#include "posenc/core/error.h"

namespace posenc::conformance {

class Rule {
 public:
  // Throws [rule]: an item that is no key=value, a key given twice.
  explicit Rule(std::string_view text);
  const std::string& name() const { return name_; }
  bool has(std::string_view key) const;
  // Throws [rule] when a key without fallback is missing or its value is of another kind.
  Index integer(std::string_view key) const;
  Index integer(std::string_view key, Index fallback) const;
  double number(std::string_view key) const;
  double number(std::string_view key, double fallback) const;
  bool flag(std::string_view key) const;  // key=true
  const std::string& word(std::string_view key) const { return text(key); }
  std::vector<double> numbers(std::string_view key) const;
  std::vector<Index> integers(std::string_view key) const;
  template <NamedEnum E>
  E choice(std::string_view key, E fallback) const {
    if (!has(key)) return fallback;
    for (std::size_t i = 0; i < EnumNames<E>::value.size(); ++i)
      if (EnumNames<E>::value[i] == text(key)) return static_cast<E>(i);
    refuse("rule", std::string(key) + " has no such value", text(key));
  }
  // Throws [rule] naming the first key that nothing asked for, so that none is ignored.
  void all_used() const;

 private:
  const std::string& text(std::string_view key) const;

  std::string name_;
  std::map<std::string, std::string, std::less<>> values_;
  mutable std::map<std::string, bool, std::less<>> used_;
};

}  // namespace posenc::conformance
