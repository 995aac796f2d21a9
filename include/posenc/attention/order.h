// SPDX-License-Identifier: Apache-2.0
// Order and positions of a call: the positions of tokens that count up in their order, and whether
// positions that are given contradict the order by which masks go.
#pragma once
#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "posenc/attention/attention.h"
#include "posenc/core/describe.h"

namespace posenc::inline v0 {

// Where the queries are among the keys: the last of them or the first, of each packed sequence and
// of each row of pages by itself. query_offset and query_offsets of Mask (empty: not needed).
enum class QueriesAt : std::uint8_t { end, start };
template <>
struct EnumNames<QueriesAt> {
  static constexpr std::array<std::string_view, 2> value{"end", "start"};
};
struct QueryOffsets {
  Index offset = 0;
  std::vector<Index> offsets{};
};
// Throws [attention]: what check_attention and check_attention_indices refuse of the mask.
POSENC_API QueryOffsets query_offsets(const AttentionArgs&, QueriesAt);

struct CallPositions {
  OwnedPositions query, key;  // [1 or rows][tokens]
};
// Each token at its order, inside its own sequence: what a call means that gives no positions.
// Throws [attention]: what check_attention and check_attention_indices refuse of the mask.
POSENC_API CallPositions default_positions(const AttentionArgs&);

// A causal mask goes by order, and without orders that is the place in storage. The first pair for
// which positions say otherwise, as a sentence: a key that is seen lies at a later position than
// the query, or a hidden one at an earlier position (on all axes). Empty: there is none, the mask
// is not causal, orders are given, or no positions. Pairs that something else hides, padding and
// prefixes do not count. The call must be a valid one.
POSENC_API std::string order_conflict(const AttentionArgs&);

}  // namespace posenc::v0
