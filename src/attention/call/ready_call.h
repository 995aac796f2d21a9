// SPDX-License-Identifier: Apache-2.0
// A checked call as every engine needs it: sizes, head groups, orders and positions. No element of
// q, k or v is read.
#pragma once
#include <algorithm>
#include <optional>

#include "attention/call/grouping.h"
#include "attention/call/order_view.h"

namespace posenc::inline v0::detail {

// One axis of the positions.
struct AxisView {
  bool whole = false;        // both are integers: distances are taken in 64 bits
  bool consecutive = false;  // whole, and each row of keys counts up by one
  std::span<const Index> query_whole, key_whole;
  std::span<const double> query, key;
  Index query_rows = 1, key_rows = 1, queries = 0, keys = 0;

  std::size_t query_at(Index b, Index i) const noexcept {
    return static_cast<std::size_t>((query_rows == 1 ? 0 : b) * queries + i);
  }
  std::size_t key_at(Index r, Index j) const noexcept {
    return static_cast<std::size_t>((key_rows == 1 ? 0 : r) * keys + j);
  }
  double delta(Index b, Index i, Index r, Index j) const noexcept;
};

// A call with a region whose q and k are the call's own, rotated.
inline bool rotates_regions(const AttentionArgs& a) noexcept {
  return std::any_of(a.regions.begin(), a.regions.end(),
                     [](const ScoreRegion& r) { return r.rotary != nullptr; });
}

struct ReadyCall : OrderView {
  // The call must have passed check_attention and check_attention_indices. The arena must outlive the
  // call and its copies.
  ReadyCall(const AttentionArgs&, CallArena&);

  Index B, R, H, G, D, V;       // R: rows of keys, B unless packed queries read pages
  ConstHeads given_k, given_v;  // by_numbers
  std::span<const AxisView> axes;
  bool all_heads = false;  // a row needs all heads at once
  bool by_order = false;   // something runs over the keys in order

  Index group(Index h) const noexcept { return Grouping{H, G}.of(h); }
  Index key_slab(Index r, Index h) const noexcept { return r * G + group(h); }
  double factor(Index b, Index i) const noexcept;
  double head_scale(Index b, Index h) const noexcept;
  std::int32_t region_of(Index b, Index i, Index r, Index j) const noexcept;  // -1: none
  // Whether region n contains a pair, whatever those before it do.
  bool is_in_region(std::size_t n, Index b, Index i, Index r, Index j) const noexcept;
};

// Of all pairs on an axis whose keys count up by one: the smallest and largest distance. Few enough of them to be
// worth an array, else nothing.
struct WholeDistances {
  Index low = 0, high = 0;
};
std::optional<WholeDistances> consecutive_distances(const ReadyCall&, std::int32_t axis) noexcept;
// The same where keys do not count up by one, but positions are whole.
std::optional<WholeDistances> whole_distances(const ReadyCall&, std::int32_t axis) noexcept;

}  // namespace posenc::v0::detail
