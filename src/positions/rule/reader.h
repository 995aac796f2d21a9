// SPDX-License-Identifier: Apache-2.0
// The keys and arrays of one rule.
#pragma once
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "posenc/core/describe.h"
#include "posenc/core/error.h"
#include "posenc/positions/mrope.h"
#include "posenc/positions/rule.h"

namespace posenc::inline v0::detail {

// Names and defaults come from RuleInfo::keys alone. Every function throws [rule] with the name
// of the key or array.
class RuleReader {
 public:
  RuleReader(std::string_view text, std::span<const PositionArray> arrays);

  std::string_view name() const { return about_->name; }
  Index whole(std::string_view key) const;
  double real(std::string_view key) const;
  bool flag(std::string_view key) const;
  std::string_view word(std::string_view key) const { return value(key); }
  std::vector<Index> wholes(std::string_view key) const;  // [1,2]
  std::vector<double> reals(std::string_view key) const;
  template <NamedEnum E>
  E choice(std::string_view key) const {
    const std::string_view given = value(key);
    std::string known;
    for (std::size_t i = 0; i < EnumNames<E>::value.size(); ++i) {
      if (EnumNames<E>::value[i] == given) return static_cast<E>(i);
      known += (known.empty() ? "" : ", ") + std::string(EnumNames<E>::value[i]);
    }
    refuse_key(key, "must be one of " + known, given);
  }

  bool has_array(std::string_view name) const;
  ConstTensorView array(std::string_view name) const;  // empty: an optional one that is not there
  std::vector<Index> whole_array(std::string_view name) const;  // [n]
  std::vector<double> real_array(std::string_view name) const;  // [n], none where it is not there
  // [n, 3] of frames, rows, columns; `seconds` [n] where there is such an array.
  std::vector<VisionGrid> grids(std::string_view name, std::string_view seconds = {}) const;

 private:
  std::string_view value(std::string_view key) const;
  [[noreturn]] void refuse_key(std::string_view key, const std::string& rule,
                               std::string_view got) const;
  void check_keys() const;
  void check_arrays() const;

  const RuleInfo* about_;
  std::map<std::string_view, std::string_view> given_;
  std::span<const PositionArray> arrays_;
};

std::vector<std::string_view> words_of(std::string_view text);

}  // namespace posenc::v0::detail
