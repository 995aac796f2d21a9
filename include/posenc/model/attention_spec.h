// SPDX-License-Identifier: Apache-2.0
// Which keys a layer of a model sees.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "posenc/core/describe.h"

namespace posenc::inline v0 {

enum class AttentionKind : std::uint8_t { full, sliding, chunked, linear, none };
template <>
struct EnumNames<AttentionKind> {
  static constexpr std::array<std::string_view, 5> value{"full", "sliding", "chunked", "linear",
                                                         "none"};
};
struct AttentionSpec {
  AttentionKind kind = AttentionKind::full;
  std::optional<Index> left, right, chunk;  // visible keys beside the query's own; none = unbounded

  // By a softmax over keys.
  bool attends() const { return kind != AttentionKind::linear && kind != AttentionKind::none; }
};

}  // namespace posenc::v0
