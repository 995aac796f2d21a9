// SPDX-License-Identifier: Apache-2.0
// Orders, positions and who sees whom.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "posenc/positions/sequence.h"
#include "support/attention_parts.h"

namespace posenc::support {
namespace {

Index integer(const ConstTensorView& v, std::initializer_list<Index> at) {
  return get_integer(v, at);
}

// Orders may stand at the ends of 64 bits.
__extension__ using Order = __int128;

// Which sequence token t is in, and its boundaries.
struct Sequence {
  Index number, begin, end;
};
Sequence sequence_of(const ConstTensorView& cu, Index t) {
  Index s = 0;
  while (integer(cu, {s + 1}) <= t) ++s;
  return {s, integer(cu, {s}), integer(cu, {s + 1})};
}

double floor_of(double x, Index n) {
  return std::floor(x / static_cast<double>(n));
}
Order chunk_of(Order order, Index n) {
  Order c = order / n;
  while (c * n > order) --c;
  return c;
}

bool side_hides(const Mask& m, Index h, Order qo, Order ko) {
  const auto side = static_cast<Side>(static_cast<int>(get(m.head_side, {h})));
  return (side == Side::past && ko > qo) || (side == Side::future && ko < qo);
}

// By orders alone.
bool order_shows(const Mask& m, Index heads, Index b, Index h, Order qo, Order ko) {
  if (m.causal && ko > qo && (m.prefix.empty() || ko >= integer(m.prefix, {b}))) return false;
  const bool sink = ko >= 0 && ko < m.sink_tokens;
  if (m.window_left != kUnbounded && ko < qo - m.window_left && !sink) return false;
  if (m.window_right != kUnbounded && ko > qo + m.window_right) return false;
  if (!m.head_side.empty() && side_hides(m, h, qo, ko)) return false;
  if (m.chunk == 0) return true;
  const ConstTensorView& o = m.chunk_origin;
  const Index origin = o.empty() ? 0 : integer(o, {b, group(h, heads, o.shape[1])});
  return chunk_of(qo - origin, m.chunk) == chunk_of(ko - origin, m.chunk);
}

}  // namespace

Index Call::key_row(Index b, Index i) const {
  if (args.block_table.empty() || args.mask.query_cu_seqlens.empty()) return b;
  return sequence_of(args.mask.query_cu_seqlens, i).number;
}

Index Call::query_order(Index b, Index i) const {
  const Mask& m = args.mask;
  if (!m.query_order.empty()) return integer(m.query_order, {b, i});
  if (m.query_cu_seqlens.empty()) return m.query_offset + i;
  const Sequence s = sequence_of(m.query_cu_seqlens, i);
  const Index keys = m.key_cu_seqlens.empty() ? integer(m.key_length, {s.number})
                                              : integer(m.key_cu_seqlens, {s.number + 1}) -
                                                    integer(m.key_cu_seqlens, {s.number});
  return i - s.begin + keys - (s.end - s.begin) + m.query_offset;
}

Index Call::key_order(Index r, Index j) const {
  const Mask& m = args.mask;
  if (!m.key_order.empty()) return integer(m.key_order, {r, j});
  return m.key_cu_seqlens.empty() ? j : j - sequence_of(m.key_cu_seqlens, j).begin;
}

Index Call::own_key(Index b, Index i) const {
  const Mask& m = args.mask;
  for (Index j = 0; j < Tk; ++j) {
    const Index row = key_row(b, i);
    if (key_order(row, j) != query_order(b, i)) continue;
    if (!m.key_length.empty() && j >= integer(m.key_length, {row})) continue;
    if (!m.key_visible.empty() && integer(m.key_visible, {row, j}) == 0) continue;
    if (m.key_cu_seqlens.empty() ||
        sequence_of(m.key_cu_seqlens, j).number == sequence_of(m.query_cu_seqlens, i).number)
      return j;
  }
  return -1;
}

std::vector<Index> Call::keys_in_order(Index r) const {
  std::vector<Index> keys(static_cast<std::size_t>(Tk));
  std::iota(keys.begin(), keys.end(), Index{0});
  std::stable_sort(keys.begin(), keys.end(),
                   [&](Index x, Index y) { return key_order(r, x) < key_order(r, y); });
  return keys;
}

std::vector<Index> Call::own_sequence(Index b, Index i) const {
  std::vector<Index> keys = keys_in_order(key_row(b, i));
  const Mask& m = args.mask;
  if (m.key_cu_seqlens.empty()) return keys;
  const Index own = sequence_of(m.query_cu_seqlens, i).number;
  std::erase_if(keys, [&](Index j) { return sequence_of(m.key_cu_seqlens, j).number != own; });
  return keys;
}

double Call::query_position(std::int32_t axis, Index b, Index i) const {
  const Positions& p = args.query_positions;
  return position_at(p, axis, p.batch == 1 ? 0 : b, i);
}
double Call::key_position(std::int32_t axis, Index r, Index j) const {
  const Positions& p = args.key_positions;
  return position_at(p, axis, p.batch == 1 ? 0 : r, j);
}

int Call::region(Index b, Index i, Index j) const {
  for (std::size_t n = 0; n < args.regions.size(); ++n) {
    const ScoreRegion& s = args.regions[n];
    const double ahead = floor_of(query_position(s.axis, b, i), s.chunk) -
                         floor_of(key_position(s.axis, key_row(b, i), j), s.chunk);
    if (ahead >= static_cast<double>(s.low) && ahead <= static_cast<double>(s.high))
      return static_cast<int>(n);
  }
  return -1;
}

bool Call::is_visible(Index b, Index h, Index i, Index j) const {
  const Mask& m = args.mask;
  const Index r = key_row(b, i);
  if (!m.key_cu_seqlens.empty() &&
      sequence_of(m.query_cu_seqlens, i).number != sequence_of(m.key_cu_seqlens, j).number)
    return false;
  if (!m.key_length.empty() && j >= integer(m.key_length, {r})) return false;
  if (!order_shows(m, H, b, h, query_order(b, i), key_order(r, j))) return false;
  if (!m.query_document.empty() &&
      integer(m.query_document, {b, i}) != integer(m.key_document, {r, j}))
    return false;
  if (get(m.key_visible, {r, j}, 1) == 0) return false;
  if (get_pair(m.visible, H, b, h, i, j, 1) == 0) return false;
  return get_pair(m.bias, H, b, h, i, j, 0) != -HUGE_VAL;
}

}  // namespace posenc::support
