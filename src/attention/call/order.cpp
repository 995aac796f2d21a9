// SPDX-License-Identifier: Apache-2.0
#include "posenc/attention/order.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "attention/call/check_parts.h"
#include "attention/call/order_view.h"
#include "core/element.h"
#include "posenc/core/error.h"
#include "posenc/positions/sequence.h"

namespace posenc::inline v0 {
namespace detail {
namespace {

// Positions as doubles, [axes, rows, tokens].
struct PositionRows {
  explicit PositionRows(const Positions& p) : axes(p.axes), rows(p.batch), tokens(p.count) {
    for (std::int32_t n = 0; n < axes; ++n)
      for (Index b = 0; b < rows; ++b)
        for (Index t = 0; t < tokens; ++t) x.push_back(position_at(p, n, b, t));
  }
  const double* row(std::int32_t axis, Index b) const noexcept {
    return x.data() + (axis * rows + (rows == 1 ? 0 : b)) * tokens;
  }
  std::int32_t axes;
  Index rows, tokens;
  std::vector<double> x;
};

// Of query and key on every axis: -1 the key is earlier, 1 later, 0 neither on all of them.
int key_side(const PositionRows& q, const PositionRows& k, Index b, Index i, Index row,
             Index j) noexcept {
  bool earlier = false, later = false;
  for (std::int32_t n = 0; n < std::min(q.axes, k.axes); ++n) {
    const double x = q.row(n, b)[i], y = k.row(n, row)[j];
    earlier = earlier || y < x;
    later = later || y > x;
  }
  return earlier == later ? 0 : later ? 1 : -1;
}

// Whether something beside the order hides a pair.
class OtherMasks {
 public:
  explicit OtherMasks(const OrderView& view) : o_(view), m_(view.args.mask) {}

  bool hides(Index b, Index i, const QueryPlace& p, Index j) const noexcept {
    if (o_.is_padding(p, j)) return true;
    if (!m_.query_document.empty() &&
        read_index(m_.query_document, b, i) != read_index(m_.key_document, p.row, j))
      return true;
    return hidden_pair(m_.visible, b, i, j, true) || hidden_pair(m_.bias, b, i, j, false);
  }

 private:
  // For all heads.
  bool hidden_pair(const ConstTensorView& v, Index b, Index i, Index j, bool flags) const noexcept {
    if (v.empty()) return false;
    const auto at = [&](std::size_t n, Index x) { return v.shape[n] == 1 ? 0 : x * v.stride[n]; };
    const Index groups = v.rank == 2 ? 1 : v.shape[1];
    for (Index g = 0; g < groups; ++g) {
      const Index where =
          v.rank == 2 ? at(0, i) + at(1, j) : at(0, b) + at(1, g) + at(2, i) + at(3, j);
      if (flags ? static_cast<const std::uint8_t*>(v.data)[where] != 0
                : float_element(v.data, v.dtype, where) != -HUGE_VAL)
        return false;
    }
    return true;
  }

  const OrderView& o_;
  const Mask& m_;
};

std::string place_text(const Positions& p, Index row, Index token) {
  std::string text = std::to_string(token) + " at position ";
  for (std::int32_t n = 0; n < p.axes; ++n)
    text += (n == 0 ? "" : ", ") + number_text(position_at(p, n, p.batch == 1 ? 0 : row, token));
  return text;
}

std::string conflict_text(const AttentionArgs& a, Index b, Index i, Index row, Index j, bool seen) {
  return "[attention] a causal mask goes by the place in storage, and the positions say otherwise: "
         "query " +
         place_text(a.query_positions, b, i) + (seen ? " sees" : " does not see") + " key " +
         place_text(a.key_positions, row, j) + "; query_order and key_order state the order";
}

// Positions of one axis that rise with the order, as nearly all do: no pair of the row needs a look.
bool rises(const OrderView& o, const PositionRows& q, const PositionRows& k, Index b) {
  if (q.axes != 1 || k.axes != 1) return false;
  Index checked = -1;  // the first key of the sequence that was checked
  for (Index i = 0; i < o.Tq; ++i) {
    const QueryPlace p = o.place(b, i);
    const double* const key = k.row(0, p.row);
    if (const Index sequence = p.begin + p.row * o.Tk; sequence != checked) {
      checked = sequence;
      if (!std::is_sorted(key + p.begin, key + p.end)) return false;
    }
    const double own = q.row(0, b)[i];
    const Index next = p.begin + std::clamp<Index>(p.order + 1, 0, p.end - p.begin);  // hidden
    if ((next > p.begin && key[next - 1] > own) || (next < p.end && key[next] < own)) return false;
  }
  return true;
}

}  // namespace
}  // namespace detail

QueryOffsets query_offsets(const AttentionArgs& a, QueriesAt at) {
  using namespace detail;
  check_tensors(a);
  const Mask& m = a.mask;
  const CallSizes s(a);
  const bool packed = !m.query_cu_seqlens.empty(), paged = !a.block_table.empty();
  const bool start = at == QueriesAt::start;
  if (packed ? !start : start || !paged) return {packed || start ? 0 : s.keys - s.queries, {}};
  check_mask(a, s);
  check_attention_indices(a);
  QueryOffsets o;
  const auto size = [](const ConstTensorView& cu, Index n) {
    return read_index(cu, n + 1) - read_index(cu, n);
  };
  if (packed)
    for (Index n = 0; n + 1 < m.query_cu_seqlens.shape[0]; ++n)
      o.offsets.push_back(size(m.query_cu_seqlens, n) -
                          (paged ? read_index(m.key_length, n) : size(m.key_cu_seqlens, n)));
  else
    for (Index b = 0; b < s.batch; ++b)
      o.offsets.push_back(read_index(m.key_length, b) - s.queries);
  if (o.offsets.empty()) return o;
  if (std::all_of(o.offsets.begin(), o.offsets.end(),
                  [&](Index n) { return n == o.offsets.front(); })) {
    o.offset = o.offsets.front();
    o.offsets.clear();
  }
  return o;
}

namespace detail {
namespace {

Positions dense_positions(std::span<const Index> x, Index rows) {
  const Index tokens = static_cast<Index>(x.size()) / std::max<Index>(1, rows);
  return positions(tensor(x.data(), {rows, tokens}));
}

}  // namespace

OrderPositions positions_by_order(const AttentionArgs& a, CallArena& arena) {
  const OrderView o(a, arena);
  const Mask& m = a.mask;
  const Index query_rows = std::max(
      o.query_orders.empty() ? 1 : o.query_order_rows,
      m.query_cu_seqlens.empty() && !m.query_offsets.empty() ? m.query_offsets.shape[0] : 1);
  const std::span<Index> query = arena.objects<Index>(query_rows * o.Tq);
  for (Index b = 0; b < query_rows; ++b)
    for (Index i = 0; i < o.Tq; ++i)
      query[static_cast<std::size_t>(b * o.Tq + i)] = o.place(b, i).order;
  OrderPositions p{dense_positions(query, query_rows), {}};
  if (!o.key_orders.empty()) {
    p.key = dense_positions(o.key_orders, o.key_order_rows);
    return p;
  }
  const std::span<Index> key = arena.objects<Index>(o.Tk);
  std::iota(key.begin(), key.end(), Index{0});
  for (Index s = 0; !m.key_cu_seqlens.empty() && s + 1 < m.key_cu_seqlens.shape[0]; ++s)
    std::iota(key.begin() + read_index(m.key_cu_seqlens, s),
              key.begin() + read_index(m.key_cu_seqlens, s + 1), Index{0});
  p.key = dense_positions(key, 1);
  return p;
}

}  // namespace detail

CallPositions default_positions(const AttentionArgs& a) {
  using namespace detail;
  check_tensors(a);
  check_mask(a, CallSizes(a));
  check_attention_indices(a);
  CallArena arena;
  const OrderPositions of_order = positions_by_order(a, arena);
  const auto owned = [](const Positions& p) {
    const auto* x = static_cast<const Index*>(p.data);
    return explicit_positions(std::vector<Index>(x, x + p.batch * p.count), p.batch);
  };
  return {owned(of_order.query), owned(of_order.key)};
}

std::string order_conflict(const AttentionArgs& a) {
  using namespace detail;
  const Mask& m = a.mask;
  if (!m.causal || !m.query_order.empty() || a.query_positions.data == nullptr ||
      a.key_positions.data == nullptr)
    return {};
  CallArena arena;
  const OrderView o(a, arena);
  const OtherMasks others(o);
  const PositionRows query(a.query_positions), key(a.key_positions);
  for (Index b = 0; b < a.q.batch; ++b) {
    if (rises(o, query, key, b)) continue;
    const Index prefix =
        m.prefix.empty() ? 0 : read_index(m.prefix, m.prefix.shape[0] == 1 ? 0 : b);
    for (Index i = 0; i < o.Tq; ++i) {
      const QueryPlace p = o.place(b, i);
      if (const Index own = o.key_at_own_order(p); own >= 0 && o.is_padding(p, own)) continue;
      for (Index j = p.begin; j < p.end; ++j) {
        const Index order = j - p.begin;
        const int side = key_side(query, key, b, i, p.row, j);
        const bool seen = order <= p.order;
        if (side == 0 || seen == (side < 0) || order < prefix || others.hides(b, i, p, j)) continue;
        return conflict_text(a, b, i, p.row, j, seen);
      }
    }
  }
  return {};
}

}  // namespace posenc::v0
