// SPDX-License-Identifier: Apache-2.0
// Positions by the text of a rule: "shard tokens=16 ranks=4 rank=1 layout=zigzag". A rule has a name
// and keys, as a SCHEME has; what does not fit into a text comes as arrays by name.
#pragma once
#include <span>
#include <string_view>
#include <vector>

#include "posenc/positions/view.h"

namespace posenc::inline v0 {

struct RuleInfo {
  std::string_view name;
  std::string_view keys;      // "first=0 count step=1": with their defaults; others are required
  std::string_view arrays;    // names of the arrays that the rule needs
  std::string_view optional;  // names of those that it accepts
  std::string_view text;      // what it computes
};
// Every rule, in the order of the documentation.
POSENC_API std::span<const RuleInfo> position_rules() noexcept;
// The rule that a text names. Throws [rule]: no name, or one that no rule has.
POSENC_API const RuleInfo& position_rule(std::string_view text);

struct PositionArray {
  std::string_view name;
  ConstTensorView array;
};
struct RulePositions {
  OwnedPositions positions;
  // Of mrope, omni and xd_rope, one a batch entry: the position of a decoded token is the length of the
  // cache plus delta, on all streams. Empty: the rule has none.
  std::vector<double> delta{};
};
// Throws [rule]: a name, key or value that the rule does not have, a key without value, an array
// that is missing or not read; and what the function of the rule throws.
POSENC_API RulePositions positions_by_rule(std::string_view text,
                                           std::span<const PositionArray> arrays = {});

}  // namespace posenc::v0
