// SPDX-License-Identifier: Apache-2.0
// Order and positions of a call: default positions, and a check whether positions contradict the order
// that masks use.
#pragma once
#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "posenc/attention/attention.h"
#include "posenc/core/describe.h"

namespace posenc::inline v0 {

// Places the queries among the keys: as the last or the first ones, of each packed sequence and of each
// sequence of pages separately. query_offset and query_offsets of Mask (empty: not needed).
enum class QueriesAt : std::uint8_t { end, start };
template <>
struct EnumNames<QueriesAt> {
  static constexpr std::array<std::string_view, 2> value{"end", "start"};
};
struct QueryOffsets {
  Index offset = 0;
  std::vector<Index> offsets{};
};
// Throws [attention]: what check_attention and check_attention_indices reject in the mask.
POSENC_API QueryOffsets query_offsets(const AttentionArgs&, QueriesAt);

struct CallPositions {
  OwnedPositions query, key;  // [1 or batch][tokens]
};
// The default positions of a call: each token at its order, inside its own sequence.
// Throws [attention]: what check_attention and check_attention_indices reject in the mask.
POSENC_API CallPositions default_positions(const AttentionArgs&);

// A causal mask uses order, which by default is the index in storage. Describes the first pair whose
// positions contradict it: a visible key with a later position than the query, or a hidden key with an
// earlier one (on all axes). Empty if there is none, the mask is not causal, or the call has orders or
// no positions. Padding, prefixes and pairs that other masks hide are ignored. The call must be valid.
POSENC_API std::string order_conflict(const AttentionArgs&);

}  // namespace posenc::v0
