// SPDX-License-Identifier: Apache-2.0
#include "attention/call/visible_runs.h"

#include <algorithm>
#include <cmath>
#include <limits>

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

OrderRange orders_seen(const ReadyCall& c, Index b, Index h, Wide own) noexcept {
  const Mask& m = c.args.mask;
  OrderRange s;
  s.sinks = m.sink_tokens;
  if (m.causal) {
    s.high = own + 1;
    if (!m.prefix.empty()) s.high = std::max<Wide>(s.high, read_index(m.prefix, b));
  }
  if (m.window_left != kUnbounded) s.left = own - m.window_left;
  if (m.window_right != kUnbounded) s.high = std::min(s.high, own + m.window_right + 1);
  if (!m.head_side.empty()) {
    const auto side = static_cast<Side>(read_index(m.head_side, h));
    if (side == Side::past) s.high = std::min(s.high, own + 1);
    if (side == Side::future) s.low = std::max(s.low, own);
  }
  if (m.chunk > 0) {
    Index origin = 0;
    if (!m.chunk_origin.empty())
      origin = read_index(m.chunk_origin, b, Grouping{c.H, m.chunk_origin.shape[1]}.of(h));
    const Wide inside = (own - origin) % m.chunk;
    const Wide first = own - inside - (inside < 0 ? m.chunk : 0);
    s.low = std::max(s.low, first);
    s.high = std::min(s.high, first + m.chunk);
  }
  return s;
}

// The masks that are read for each key.
struct KeyFilter {
  KeyFilter(const ReadyCall& view, Index b, Index h, Index i, const QueryPlace& p) noexcept
      : c(view), m(view.args.mask), place(p), row(b) {
    ordered = !c.ascends;
    if (!m.visible.empty()) visible = pair_row(m.visible, c.H, b, h, i);
    if (!m.bias.empty()) bias = pair_row(m.bias, c.H, b, h, i);
    if (!m.query_document.empty()) document = read_index(m.query_document, b, i);
  }
  bool needed() const noexcept { return reads_keys(c); }
  bool shows(const OrderRange& seen, Index j) const noexcept {
    if (ordered && !seen.holds(c.key_order(place, j))) return false;
    if (!m.query_document.empty() && read_index(m.key_document, place.row, j) != document)
      return false;
    if (!m.key_visible.empty() && read_index(m.key_visible, place.row, j) == 0) return false;
    if (!m.visible.empty() && static_cast<const std::uint8_t*>(m.visible.data)[visible.at(j)] == 0)
      return false;
    return m.bias.empty() || float_element(m.bias.data, m.bias.dtype, bias.at(j)) != -HUGE_VAL;
  }
  const ReadyCall& c;
  const Mask& m;
  const QueryPlace& place;
  Index row;
  bool ordered = false;
  PairRow visible, bias;
  Index document = 0;
};

void add_run(const KeyFilter& filter, const OrderRange& seen, Run run, RunList& runs) noexcept {
  if (!filter.needed()) return runs.push_back(run);
  for (Index j = run.begin; j < run.end; ++j) {
    if (!filter.shows(seen, j)) continue;
    const Index first = j;
    while (j + 1 < run.end && filter.shows(seen, j + 1)) ++j;
    runs.push_back({first, j + 1});
  }
}

// The first key of [p.begin, p.end) whose order is at least `order`.
Index first_key(const ReadyCall& c, const QueryPlace& p, Wide order) noexcept {
  if (order <= kFirst) return p.begin;
  return order >= kEnd ? p.end : c.first_key(p, static_cast<Index>(order));
}

// Runs of keys of these orders, in storage or, where orders do not ascend, in their order.
VisibleBounds runs_of(const ReadyCall& c, const OrderRange& seen, const QueryPlace& p,
                      Run all) noexcept {
  VisibleBounds bounds;
  const auto put = [&](Index begin, Index end) {
    if (begin < end) bounds.run[bounds.count++] = {begin, end};
  };
  all.begin = std::max(all.begin, first_key(c, p, seen.low));
  all.end = std::min(all.end, first_key(c, p, seen.high));
  const Index left = std::max(all.begin, first_key(c, p, seen.left));
  if (left == all.begin || seen.sinks == 0) {
    put(left, all.end);
    return bounds;
  }
  const Run sinks{std::max(all.begin, first_key(c, p, 0)),
                  std::min({first_key(c, p, seen.sinks), left, all.end})};
  if (sinks.begin < sinks.end && sinks.end == left) {
    put(sinks.begin, all.end);
    return bounds;
  }
  put(sinks.begin, sinks.end);
  put(left, all.end);
  return bounds;
}

VisibleBounds bounds_of(const ReadyCall& c, const OrderRange& seen, const QueryPlace& p) noexcept {
  const Mask& m = c.args.mask;
  Run all{p.begin, p.end};
  if (!m.key_length.empty()) all.end = std::min(all.end, read_index(m.key_length, p.row));
  if (c.ascends) return runs_of(c, seen, p, all);
  VisibleBounds bounds;
  if (all.begin < all.end) bounds.run[bounds.count++] = all;
  return bounds;
}

}  // namespace

bool reads_pairs(const ReadyCall& c) noexcept {
  const Mask& m = c.args.mask;
  return !c.ascends || !m.visible.empty() || !m.bias.empty() || !m.query_document.empty();
}
bool reads_ranks(const ReadyCall& c) noexcept {
  const Mask& m = c.args.mask;
  return !c.ranks.empty() && m.visible.empty() && m.bias.empty() && m.query_document.empty();
}
bool reads_keys(const ReadyCall& c) noexcept {
  return reads_pairs(c) || !c.args.mask.key_visible.empty();
}

VisibleBounds visible_bounds(const ReadyCall& c, Index b, Index h, const QueryPlace& p) noexcept {
  return bounds_of(c, orders_seen(c, b, h, p.order), p);
}

RankRuns rank_runs(const ReadyCall& c, Index b, Index h, const QueryPlace& p) noexcept {
  const VisibleBounds runs = runs_of(c, orders_seen(c, b, h, p.order), p, {p.begin, p.end});
  RankRuns ranks;
  for (std::size_t n = 0; n < runs.count; ++n) {
    ranks.begin[n] = static_cast<std::int32_t>(runs.run[n].begin);
    ranks.end[n] = static_cast<std::int32_t>(runs.run[n].end);
  }
  return ranks;
}

bool are_places_alike(const ReadyCall& c) noexcept {
  const Mask& m = c.args.mask;
  return c.sequence.empty() && c.args.block_table.empty() && c.query_order_rows == 1 &&
         (c.key_orders.empty() || (c.ascends ? c.ascending_rows : c.key_order_rows) == 1) &&
         m.query_offsets.empty() && m.prefix.empty() && m.key_length.empty() &&
         m.chunk_origin.empty();
}

Index most_runs(const ReadyCall& c) noexcept {
  return reads_keys(c) || !c.key_orders.empty() ? c.Tk / 2 + 2 : 2;  // whatever the orders are
}

void find_visible(const ReadyCall& c, Index b, Index h, Index i, const QueryPlace& p, Run keys,
                  RunList& runs) noexcept {
  runs.clear();
  const OrderRange seen = orders_seen(c, b, h, p.order);
  const KeyFilter filter(c, b, h, i, p);
  const VisibleBounds bounds = bounds_of(c, seen, p);
  for (const Run& run : bounds.runs()) {
    const Run some{std::max(run.begin, keys.begin), std::min(run.end, keys.end)};
    if (some.begin < some.end) add_run(filter, seen, some, runs);
  }
}
void find_visible(const ReadyCall& c, Index b, Index h, Index i, const QueryPlace& p,
                  RunList& runs) noexcept {
  find_visible(c, b, h, i, p, {0, c.Tk}, runs);
}

bool sees_any(const ReadyCall& c, Index b, Index h, Index i, const QueryPlace& p) noexcept {
  const OrderRange seen = orders_seen(c, b, h, p.order);
  const KeyFilter filter(c, b, h, i, p);
  const VisibleBounds bounds = bounds_of(c, seen, p);
  const auto shows = [&](Index j) { return filter.shows(seen, j); };
  return std::any_of(bounds.run, bounds.run + bounds.count, [&](const Run& run) {
    for (Index j = run.begin; j < run.end; ++j)
      if (!filter.needed() || shows(j)) return true;
    return false;
  });
}

MaskBlock mask_block(const ReadyCall& c, Index b, Index h, Run queries, Run keys) noexcept {
  bool any = false, all = true;
  for (Index i = queries.begin; i < queries.end; ++i) {
    const QueryPlace p = c.place(b, i);
    const OrderRange seen = orders_seen(c, b, h, p.order);
    const KeyFilter filter(c, b, h, i, p);
    Index visible = 0;
    const VisibleBounds bounds = bounds_of(c, seen, p);
    for (const Run& run : bounds.runs()) {
      const Run some{std::max(run.begin, keys.begin), std::min(run.end, keys.end)};
      if (!filter.needed()) visible += std::max<Index>(0, some.end - some.begin);
      for (Index j = some.begin; filter.needed() && j < some.end; ++j)
        visible += filter.shows(seen, j) ? 1 : 0;
    }
    any |= visible > 0;
    all &= visible == keys.end - keys.begin;
    if (any && !all) return MaskBlock::mixed;
  }
  return any ? MaskBlock::whole : MaskBlock::hidden;
}

std::span<const std::uint8_t> tiles_seen(const ReadyCall& c, bool own, CallArena& arena) {
  const Mask& m = c.args.mask;
  const Index tiles = whole_tiles(c.Tk) / kTile;
  const std::span<std::uint8_t> seen = arena.objects<std::uint8_t>(c.R * tiles);
  const bool by_head = !m.head_side.empty() || (!m.chunk_origin.empty() && m.chunk > 0);
  const Index found = !own && are_places_alike(c) ? std::min<Index>(1, c.B) : c.B;
  for (Index b = 0; b < found; ++b)
    for (Index h = 0; h < (by_head ? c.H : 1); ++h)
      for (Index i = 0; i < c.Tq; ++i) {
        const QueryPlace p = c.place(b, i);
        const auto row = seen.begin() + p.row * tiles;
        const VisibleBounds bounds = visible_bounds(c, b, h, p);
        for (const Run& run : bounds.runs())
          std::fill(row + run.begin / kTile, row + whole_tiles(run.end) / kTile, std::uint8_t{1});
        if (const Index j = own ? c.own_key(p) : -1; j >= 0) row[j / kTile] = 1;
      }
  for (Index b = found; b < c.B; ++b) std::copy_n(seen.begin(), tiles, seen.begin() + b * tiles);
  return seen;
}

}  // namespace posenc::v0::detail
