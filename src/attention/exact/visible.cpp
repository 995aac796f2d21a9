// SPDX-License-Identifier: Apache-2.0
// Which keys a query sees, as runs. Where the order is that of storage, causal masks, windows,
// chunks, sides and sequences are bounds of a range; what is left is asked key by key.
#include <algorithm>
#include <cmath>
#include <limits>

#include "attention/exact/call_view.h"
#include "core/element.h"

namespace posenc::inline v0::detail {
namespace {

// Orders are any 64-bit numbers; sums of a few of them fit here.
__extension__ using Wide = __int128;
constexpr Wide kFirst = std::numeric_limits<Index>::min(), kEnd = Wide{kUnbounded} + 1;

// Orders that a query may see: [low, high), of which below `left` only 0 .. sinks - 1.
struct OrderRange {
  Wide low = kFirst, high = kEnd, left = kFirst;
  Index sinks = 0;
  bool holds(Index order) const noexcept {
    return order >= low && order < high && (order >= left || (order >= 0 && order < sinks));
  }
};

OrderRange orders_seen(const CallView& c, Index b, Index h, Wide own) noexcept {
  const Mask& m = c.args.mask;
  OrderRange s;
  s.sinks = m.sink_tokens;
  if (m.causal) {
    s.high = own + 1;
    if (!m.prefix.empty()) s.high = std::max<Wide>(s.high, whole_number(m.prefix, b));
  }
  if (m.window_left != kUnbounded) s.left = own - m.window_left;
  if (m.window_right != kUnbounded) s.high = std::min(s.high, own + m.window_right + 1);
  if (!m.head_side.empty()) {
    const auto side = static_cast<Side>(whole_number(m.head_side, h));
    if (side == Side::past) s.high = std::min(s.high, own + 1);
    if (side == Side::future) s.low = std::max(s.low, own);
  }
  if (m.chunk > 0) {
    Index origin = 0;
    if (!m.chunk_origin.empty())
      origin = whole_number(m.chunk_origin, b, h / (c.H / m.chunk_origin.shape[1]));
    const Wide inside = (own - origin) % m.chunk;
    const Wide first = own - inside - (inside < 0 ? m.chunk : 0);
    s.low = std::max(s.low, first);
    s.high = std::min(s.high, first + m.chunk);
  }
  return s;
}

// An entry of [B|1, G, Tq, Tk] or [Tq, Tk].
Index pair_offset(const ConstTensorView& v, Index heads, Index b, Index h, Index i) noexcept {
  const auto at = [&](std::size_t n, Index x) { return v.shape[n] == 1 ? 0 : x * v.stride[n]; };
  if (v.rank == 2) return at(0, i);
  return at(0, b) + at(1, h / (heads / v.shape[1])) + at(2, i);
}
Index key_stride(const ConstTensorView& v) noexcept {
  const auto last = static_cast<std::size_t>(v.rank - 1);
  return v.shape[last] == 1 ? 0 : v.stride[last];
}

// What is asked of each key.
struct KeyFilter {
  KeyFilter(const CallView& view, Index b, Index h, Index i, const QueryPlace& p) noexcept
      : c(view), m(view.args.mask), place(p), row(b) {
    ordered = !c.key_orders.empty();
    if (!m.visible.empty()) visible_at = pair_offset(m.visible, c.H, b, h, i);
    if (!m.bias.empty()) bias_at = pair_offset(m.bias, c.H, b, h, i);
    if (!m.query_document.empty()) document = whole_number(m.query_document, b, i);
  }
  bool needed() const noexcept {
    return ordered || !m.visible.empty() || !m.bias.empty() || !m.query_document.empty() ||
           !m.key_visible.empty();
  }
  bool shows(const OrderRange& seen, Index j) const noexcept {
    if (ordered && !seen.holds(c.key_order(place, j))) return false;
    if (!m.query_document.empty() && whole_number(m.key_document, place.row, j) != document)
      return false;
    if (!m.key_visible.empty() && whole_number(m.key_visible, place.row, j) == 0) return false;
    if (!m.visible.empty() && static_cast<const std::uint8_t*>(
                                  m.visible.data)[visible_at + j * key_stride(m.visible)] == 0)
      return false;
    return m.bias.empty() ||
           float_element(m.bias.data, m.bias.dtype, bias_at + j * key_stride(m.bias)) != -HUGE_VAL;
  }
  const CallView& c;
  const Mask& m;
  const QueryPlace& place;
  Index row;
  bool ordered = false;
  Index visible_at = 0, bias_at = 0, document = 0;
};

void add_run(const KeyFilter& filter, const OrderRange& seen, Run run,
             std::vector<Run>& runs) noexcept {
  if (run.begin >= run.end) return;
  if (!filter.needed()) return runs.push_back(run);
  for (Index j = run.begin; j < run.end; ++j) {
    if (!filter.shows(seen, j)) continue;
    const Index first = j;
    while (j + 1 < run.end && filter.shows(seen, j + 1)) ++j;
    runs.push_back({first, j + 1});
  }
}

}  // namespace

void find_visible(const CallView& c, Index b, Index h, Index i, const QueryPlace& p,
                  std::vector<Run>& runs) noexcept {
  runs.clear();
  const Mask& m = c.args.mask;
  const OrderRange seen = orders_seen(c, b, h, p.order);
  const KeyFilter filter(c, b, h, i, p);
  Run all{p.begin, p.end};
  if (!m.key_length.empty()) all.end = std::min(all.end, whole_number(m.key_length, p.row));
  if (filter.ordered) return add_run(filter, seen, all, runs);
  const auto key = [&](Wide order) {  // of an order, inside the keys there are
    return static_cast<Index>(std::clamp<Wide>(order, 0, p.end - p.begin)) + p.begin;
  };
  all.begin = std::max(all.begin, key(seen.low));
  all.end = std::min(all.end, key(seen.high));
  const Index left = std::max(all.begin, key(seen.left));
  const Index sinks = std::min({key(seen.sinks), left, all.end});
  if (sinks == left) return add_run(filter, seen, all, runs);
  add_run(filter, seen, {all.begin, sinks}, runs);
  add_run(filter, seen, {left, all.end}, runs);
}

}  // namespace posenc::v0::detail
