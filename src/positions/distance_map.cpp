// SPDX-License-Identifier: Apache-2.0
#include "posenc/positions/distance_map.h"

#include <algorithm>
#include <cmath>

#include "posenc/positions/sequence.h"
#include "positions/exact.h"

namespace posenc::inline v0 {
namespace {

OwnedPositions copy(std::span<const Index> p) {
  return own(std::vector<Index>(p.begin(), p.end()));
}
template <class T, class F>
OwnedPositions each(std::span<const Index> p, const F& f) {
  std::vector<T> v;
  v.reserve(p.size());
  for (const Index x : p) v.push_back(f(x));
  return own(std::move(v));
}

void needs_window(Index window, std::string_view who) {
  if (window < 1) refuse_field(who, "window", "must be positive", window);
}

DistanceRegion near(std::span<const Index> q, std::span<const Index> k, Index window) {
  DistanceRegion r;
  r.high = window - 1;
  r.query = copy(q);
  r.key = copy(k);
  return r;
}
DistanceRegion far(Index window, OwnedPositions q, OwnedPositions k) {
  DistanceRegion r;
  r.low = window;
  r.query = std::move(q);
  r.key = std::move(k);
  return r;
}

}  // namespace

bool DistanceRegion::contains(Index pq, Index pk) const noexcept {
  const Index q = floor_divide(pq, chunk), k = floor_divide(pk, chunk);
  Index ahead = 0;
  if (__builtin_sub_overflow(q, k, &ahead)) ahead = q < k ? -kUnbounded : kUnbounded;
  return ahead >= low && ahead <= high;
}

double mapped_distance(const DistanceMap& map, std::span<const Index> pq, std::span<const Index> pk,
                       Index i, Index j) {
  if (i < 0 || i >= static_cast<Index>(pq.size()) || j < 0 || j >= static_cast<Index>(pk.size()))
    refuse("distance_map", "the pair must exist, query", i);
  for (const DistanceRegion& r : map)
    if (r.contains(pq[static_cast<std::size_t>(i)], pk[static_cast<std::size_t>(j)]))
      return position_at(r.query, 0, 0, i) - position_at(r.key, 0, 0, j);
  refuse("distance_map", "a region must hold every pair, none holds query", i);
}

DistanceMap self_extend(std::span<const Index> q, std::span<const Index> k, Index window,
                        Index group, SelfExtendRatio ratio) {
  needs_window(window, "self_extend");
  if (group < 1) refuse_field("self_extend", "group", "must be positive", group);
  const auto grouped = [&](Index n) { return floor_divide(n, group); };
  OwnedPositions far_query;
  if (ratio == SelfExtendRatio::floored || window % group == 0) {
    const Index shift = window - window / group;
    far_query =
        each<Index>(q, [&](Index m) { return add_exact(grouped(m), shift, "self_extend"); });
  } else {
    const double shift =
        static_cast<double>(window) - static_cast<double>(window) / static_cast<double>(group);
    far_query = each<double>(q, [&](Index m) { return static_cast<double>(grouped(m)) + shift; });
  }
  return {near(q, k, window), far(window, std::move(far_query), each<Index>(k, grouped))};
}

DistanceMap rerope(std::span<const Index> q, std::span<const Index> k, Index window) {
  needs_window(window, "rerope");
  return {near(q, k, window), far(window, each<Index>(q, [&](Index) { return window; }),
                                  each<Index>(k, [](Index) { return Index{0}; }))};
}

DistanceMap leaky_rerope(std::span<const Index> q, std::span<const Index> k, Index window,
                         double factor) {
  needs_window(window, "leaky_rerope");
  if (!std::isfinite(factor) || factor < 1)
    refuse_field("leaky_rerope", "factor", "must be finite and at least 1", factor);
  const double shift = static_cast<double>(window) * (1 - 1 / factor);
  return {
      near(q, k, window),
      far(window, each<double>(q, [&](Index m) { return static_cast<double>(m) / factor + shift; }),
          each<double>(k, [&](Index n) { return static_cast<double>(n) / factor; }))};
}

DualChunkPositions dual_chunk_positions(std::span<const Index> positions, const DualChunk& d) {
  if (d.local_size < 0)
    refuse_field("dual_chunk", "local_size", "must not be negative", d.local_size);
  if (d.chunk_size <= d.local_size)
    refuse_field("dual_chunk", "chunk_size", "must be above local_size", d.chunk_size);
  for (const Index p : positions)
    if (p < 0) refuse_field("dual_chunk", "positions", "must not be negative", p);
  const Index c = d.chunk_size - d.local_size;
  add_exact(c, d.chunk_size, "dual_chunk");
  DualChunkPositions r;
  r.key = each<Index>(positions, [&](Index p) { return p % c; });
  r.intra = r.key;
  r.successive = each<Index>(positions, [&](Index p) { return std::min(p % c + c, d.chunk_size); });
  r.inter = each<Index>(positions, [&](Index) { return std::min(2 * c - 1, d.chunk_size); });
  r.successive_critical = each<Index>(positions, [&](Index p) { return p % c + c; });
  r.inter_critical = each<Index>(positions, [&](Index p) { return p % c + d.chunk_size; });
  return r;
}

DistanceMap dual_chunk(std::span<const Index> q, std::span<const Index> k, const DualChunk& d) {
  const DualChunkPositions query = dual_chunk_positions(q, d), key = dual_chunk_positions(k, d);
  DistanceRegion r;
  r.chunk = d.chunk_size - d.local_size;
  r.key = key.key;
  DistanceMap map(3, r);
  // Keys of a later chunk are never visible under a causal mask; the first region takes them too.
  map[0].high = 0;
  map[0].query = query.intra;
  map[1].low = map[1].high = 1;
  map[1].query = query.successive;
  map[2].low = 2;
  map[2].query = query.inter;
  return map;
}

}  // namespace posenc::v0
