// SPDX-License-Identifier: Apache-2.0
// Which keys a layer of a model sees.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "posenc/core/describe.h"

namespace posenc::inline v0 {

enum class AttentionKind : std::uint8_t { full, sliding, chunked, linear, none };
template <>
struct EnumNames<AttentionKind> {
  static constexpr std::array<std::string_view, 5> value{"full", "sliding", "chunked", "linear",
                                                         "none"};
};
// Tokens that see each other regardless of order. The rest of the layer's mask, without keys after the
// query, applies to all other pairs.
struct TokenMask {
  std::string tokens;        // what they are: images, prefix
  std::string input;         // the model input that contains the types: token_type_ids
  std::vector<Index> types;  // its values whose tokens see each other
  bool runs = false;         // each run of such tokens separately; false: all of them together
  // Keys further back than AttentionSpec::left are hidden from these tokens too; false: they are
  // visible. Keys after the query are visible up to the end of the tokens.
  bool within_window = false;
  bool operator==(const TokenMask&) const = default;
};
// The block of each token, -1 where it has none: tokens of one block see each other.
POSENC_API std::vector<Index> token_blocks(const TokenMask&, std::span<const Index> types);

struct AttentionSpec {
  AttentionKind kind = AttentionKind::full;
  std::optional<Index> left, right,
      chunk;                               // visible keys besides the query's own; none = unbounded
  std::optional<TokenMask> by_token_type;  // then `left` is that of the other tokens

  // Whether the layer has attention by a softmax over keys.
  bool attends() const { return kind != AttentionKind::linear && kind != AttentionKind::none; }
  // No key after the query is visible, except by tokens that see each other.
  bool is_causal() const { return by_token_type || right == Index{0}; }
};
// Whether query i of a sequence sees key j; `blocks`: of by_token_type.
POSENC_API bool sees(const AttentionSpec&, std::span<const Index> blocks, Index i, Index j);

}  // namespace posenc::v0
