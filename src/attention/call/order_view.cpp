// SPDX-License-Identifier: Apache-2.0
#include "attention/call/order_view.h"

#include <algorithm>
#include <numeric>

namespace posenc::inline v0::detail {
namespace {

std::span<const Index> orders_of(const ConstTensorView& v, CallArena& arena) {
  const std::span<Index> x = arena.objects<Index>(v.shape[0] * v.shape[1]);
  std::size_t n = 0;
  for (Index b = 0; b < v.shape[0]; ++b)
    for (Index t = 0; t < v.shape[1]; ++t) x[n++] = read_index(v, b, t);
  return x;
}

// [rows, keys]: the keys of each row and each of its sequences in their order, those of one order as they are stored.
std::span<const Index> sort_keys(std::span<const Index> orders, Index keys,
                                 const ConstTensorView& cu, CallArena& arena) {
  const std::span<Index> sorted = arena.objects<Index>(static_cast<Index>(orders.size()));
  if (keys == 0) return sorted;
  const auto size = static_cast<std::size_t>(keys);
  for (std::size_t from = 0; from < sorted.size(); from += size) {
    const std::span<const Index> order = orders.subspan(from, size);
    const std::span<Index> row = sorted.subspan(from, size);
    std::iota(row.begin(), row.end(), Index{0});
    for (Index s = 0; s == 0 || s + 1 < cu.shape[0]; ++s) {
      const Index begin = cu.empty() ? 0 : read_index(cu, s);
      const Index end = cu.empty() ? keys : read_index(cu, s + 1);
      // std::stable_sort allocates.
      std::sort(row.begin() + begin, row.begin() + end, [&](Index x, Index y) {
        const Index a = order[static_cast<std::size_t>(x)], b = order[static_cast<std::size_t>(y)];
        return a != b ? a < b : x < y;
      });
    }
  }
  return sorted;
}

std::span<const Index> sequences_of(const ConstTensorView& cu, Index tokens, CallArena& arena) {
  if (cu.empty()) return {};
  const std::span<Index> x = arena.objects<Index>(tokens);
  for (Index s = 0; s + 1 < cu.shape[0]; ++s)
    std::fill(x.begin() + read_index(cu, s), x.begin() + read_index(cu, s + 1), s);
  return x;
}

}  // namespace

OrderView::OrderView(const AttentionArgs& a, CallArena& arena)
    : args(a),
      Tq(a.q.tokens),
      Tk(a.block_table.empty() ? a.k.tokens : a.block_table.shape[1] * a.k.tokens),
      sequence(sequences_of(a.mask.query_cu_seqlens, a.q.tokens, arena)) {
  const Mask& m = args.mask;
  if (m.query_order.empty()) return;
  query_orders = orders_of(m.query_order, arena);
  key_orders = orders_of(m.key_order, arena);
  query_order_rows = m.query_order.shape[0];
  key_order_rows = m.key_order.shape[0];
  keys_by_order = sort_keys(key_orders, Tk, m.key_cu_seqlens, arena);
}

QueryPlace OrderView::place(Index b, Index i) const noexcept {
  const Mask& m = args.mask;
  QueryPlace p{b, 0, Tk, i};
  Index s = b;  // the batch entry or the sequence
  if (!m.query_cu_seqlens.empty()) {
    s = sequence[static_cast<std::size_t>(i)];
    Index keys = 0;
    if (m.key_cu_seqlens.empty()) {  // paged: the row of pages is the sequence
      p.row = s;
      keys = read_index(m.key_length, s);
    } else {
      p.begin = read_index(m.key_cu_seqlens, s);
      p.end = read_index(m.key_cu_seqlens, s + 1);
      keys = p.end - p.begin;
    }
    p.order = i - read_index(m.query_cu_seqlens, s + 1) + keys;
  }
  p.order += m.query_offset + (m.query_offsets.empty() ? 0 : read_index(m.query_offsets, s));
  if (!query_orders.empty())
    p.order = query_orders[static_cast<std::size_t>((query_order_rows == 1 ? 0 : b) * Tq + i)];
  return p;
}

bool OrderView::is_padding(const QueryPlace& p, Index j) const noexcept {
  const Mask& m = args.mask;
  return (!m.key_length.empty() && j >= read_index(m.key_length, p.row)) ||
         (!m.key_visible.empty() && read_index(m.key_visible, p.row, j) == 0);
}

Index OrderView::key_at_own_order(const QueryPlace& p) const noexcept {
  if (key_orders.empty()) return p.order >= 0 && p.order < p.end - p.begin ? p.begin + p.order : -1;
  for (Index j = p.begin; j < p.end; ++j)
    if (key_order(p, j) == p.order) return j;
  return -1;
}

Index OrderView::own_key(const QueryPlace& p) const noexcept {
  if (key_orders.empty()) {
    const Index j = key_at_own_order(p);
    return j >= 0 && is_padding(p, j) ? -1 : j;
  }
  for (Index j = p.begin; j < p.end; ++j)
    if (key_order(p, j) == p.order && !is_padding(p, j)) return j;
  return -1;
}

}  // namespace posenc::v0::detail
