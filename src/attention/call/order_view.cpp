// SPDX-License-Identifier: Apache-2.0
#include "attention/call/order_view.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace posenc::inline v0::detail {
namespace {

std::span<const Index> orders_of(const ConstTensorView& v, CallArena& arena) {
  const std::span<Index> x = arena.objects<Index>(v.shape[0] * v.shape[1]);
  Index* to = x.data();
  const bool copies = v.dtype == DType::i64 && v.stride[1] == 1;
  for (Index b = 0; b < v.shape[0]; ++b, to += v.shape[1])
    if (copies)
      std::copy_n(static_cast<const Index*>(v.data) + b * v.stride[0], v.shape[1], to);
    else
      for (Index t = 0; t < v.shape[1]; ++t) to[t] = read_index(v, b, t);
  return x;
}

// fn(begin, end): the keys of each sequence of a row, or all of them.
template <class F>
void each_sequence(const ConstTensorView& cu, Index keys, const F& fn) {
  if (cu.empty()) return fn(Index{0}, keys);
  for (Index s = 0; s + 1 < cu.shape[0]; ++s) fn(read_index(cu, s), read_index(cu, s + 1));
}

bool are_ascending(std::span<const Index> orders, Index keys, const ConstTensorView& cu) {
  bool all = true;
  for (auto row = orders.begin(); row < orders.end() && all; row += keys)
    each_sequence(cu, keys, [&](Index begin, Index end) {
      all = all && std::is_sorted(row + begin, row + end);
    });
  return all;
}

// The orders of each row of keys, of padding that of a key before it.
void replace_padding(const OrderView& o, Index rows, Index* to) {
  for (Index row = 0; row < rows; ++row, to += o.Tk)
    each_sequence(o.args.mask.key_cu_seqlens, o.Tk, [&](Index begin, Index end) {
      const QueryPlace p{row, begin, end, 0};
      Index last = std::numeric_limits<Index>::min();
      for (Index j = begin; j < end; ++j)
        to[j] = last = o.is_padding(p, j) ? last : o.key_order(p, j);
    });
}

// [rows, keys]: the keys of each row and each of its sequences in their order, those of one order as they are stored.
void sort_keys(std::span<const Index> orders, Index keys, const ConstTensorView& cu,
               Index* sorted) {
  for (auto order = orders.begin(); order < orders.end(); order += keys, sorted += keys) {
    std::iota(sorted, sorted + keys, Index{0});
    each_sequence(cu, keys, [&](Index begin, Index end) {
      // std::stable_sort allocates.
      std::sort(sorted + begin, sorted + end, [&](Index x, Index y) {
        return order[x] != order[y] ? order[x] < order[y] : x < y;
      });
    });
  }
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
  find_ascending(arena);
}

// What is taken from the arena does not depend on the orders, so that a workspace serves others too.
void OrderView::find_ascending(CallArena& arena) {
  const Mask& m = args.mask;
  const bool has_padding = !m.key_length.empty() || !m.key_visible.empty();
  const Index rows = args.block_table.empty() ? args.q.batch : args.block_table.shape[0];
  const std::span<Index> sorted = arena.objects<Index>(key_order_rows * Tk);
  const std::span<Index> others = arena.objects<Index>(has_padding ? rows * Tk : 0);
  const std::span<std::int32_t> places = arena.objects<std::int32_t>(key_order_rows * Tk);
  ascending = key_orders, ascending_rows = key_order_rows;
  if (Tk == 0 || are_ascending(key_orders, Tk, m.key_cu_seqlens)) return;
  sort_keys(key_orders, Tk, m.key_cu_seqlens, sorted.data());
  keys_by_order = sorted;
  replace_padding(*this, has_padding ? rows : 0, others.data());
  ascends = has_padding && are_ascending(others, Tk, m.key_cu_seqlens);
  ascending = others, ascending_rows = rows;
  if (ascends || Tk > std::numeric_limits<std::int32_t>::max()) return;
  for (std::size_t n = 0; n < sorted.size(); ++n) {
    const auto place = static_cast<Index>(n) % Tk;
    places[n - static_cast<std::size_t>(place) + static_cast<std::size_t>(sorted[n])] =
        static_cast<std::int32_t>(place);
  }
  ranks = places;
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

Index OrderView::first_key(const QueryPlace& p, Index order) const noexcept {
  if (key_orders.empty()) return p.begin + std::clamp<Index>(order, 0, p.end - p.begin);
  if (ascends) {
    const auto row = ascending.begin() + (ascending_rows == 1 ? 0 : p.row) * Tk;
    return std::lower_bound(row + p.begin, row + p.end, order) - row;
  }
  const auto row = keys_by_order.begin() + (key_order_rows == 1 ? 0 : p.row) * Tk;
  return std::lower_bound(row + p.begin, row + p.end, order,
                          [&](Index j, Index x) { return key_order(p, j) < x; }) -
         row;
}

Index OrderView::key_at_own_order(const QueryPlace& p) const noexcept {
  if (key_orders.empty()) return p.order >= 0 && p.order < p.end - p.begin ? p.begin + p.order : -1;
  for (Index j = keys_by_order.empty() ? first_key(p, p.order) : p.begin; j < p.end; ++j)
    if (key_order(p, j) == p.order) return j;
  return -1;
}

Index OrderView::own_key(const QueryPlace& p) const noexcept {
  if (key_orders.empty()) {
    const Index j = key_at_own_order(p);
    return j >= 0 && is_padding(p, j) ? -1 : j;
  }
  for (Index j = ascends ? first_key(p, p.order) : p.begin; j < p.end; ++j)
    if (key_order(p, j) == p.order && !is_padding(p, j)) return j;
  return -1;
}

}  // namespace posenc::v0::detail
