// SPDX-License-Identifier: Apache-2.0
// The order of the tokens of a call: where each query is among its keys, and which keys are its own
// sequence's.
#pragma once
#include "attention/call/call_arena.h"
#include "posenc/attention/attention.h"

namespace posenc::inline v0::detail {

// An entry of an integer view; an axis of one entry serves all. grouping.h: entries of float views.
Index read_index(const ConstTensorView&, Index a, Index b = 0) noexcept;

// Where a query is: its row of keys, the keys [begin, end) of its sequence, its order.
struct QueryPlace {
  Index row, begin, end, order;
};

struct OrderView {
  // The call must have passed check_attention and check_attention_indices. The arena must outlive the
  // view and its copies.
  OrderView(const AttentionArgs&, CallArena&);

  const AttentionArgs& args;
  Index Tq, Tk;
  std::span<const Index> sequence;                  // [Tq] of packed queries
  std::span<const Index> query_orders, key_orders;  // given ones, [rows, T]
  Index query_order_rows = 1, key_order_rows = 1;
  std::span<const Index> keys_by_order;  // [key_order_rows, Tk]; empty: in storage
  // The orders of the keys of each sequence never fall, padding aside: masks by order show runs of them. `ascending` has
  // no orders of padding, [1 or rows of keys, Tk]; empty without given orders.
  bool ascends = true;
  std::span<const Index> ascending;
  Index ascending_rows = 1;
  // Where they do not ascend: the place of each key in keys_by_order, [key_order_rows, Tk]; empty if 32 bits do not hold it.
  std::span<const std::int32_t> ranks;

  QueryPlace place(Index b, Index i) const noexcept;
  Index key_order(const QueryPlace& p, Index j) const noexcept {
    if (key_orders.empty()) return j - p.begin;
    return key_orders[static_cast<std::size_t>((key_order_rows == 1 ? 0 : p.row) * Tk + j)];
  }
  // The key at place s of [begin, end) in order.
  Index key_in_order(const QueryPlace& p, Index s) const noexcept {
    if (keys_by_order.empty()) return s;
    return keys_by_order[static_cast<std::size_t>((key_order_rows == 1 ? 0 : p.row) * Tk + s)];
  }
  bool is_padding(const QueryPlace& p, Index j) const noexcept;
  // The first key of the query's sequence whose order is at least `order`, or its end: where orders do not ascend, its
  // place in keys_by_order.
  Index first_key(const QueryPlace&, Index order) const noexcept;
  // The key of the query's own order, -1: none. own_key: none either where it is padding.
  Index key_at_own_order(const QueryPlace&) const noexcept;
  Index own_key(const QueryPlace&) const noexcept;

 private:
  void find_ascending(CallArena&);
};

// Each token at its order, inside its own sequence, [1 or rows, tokens]: what a call means that gives
// no positions. The masks must have passed check_mask and check_attention_indices.
struct OrderPositions {
  Positions query, key;
};
OrderPositions positions_by_order(const AttentionArgs&, CallArena&);

}  // namespace posenc::v0::detail
