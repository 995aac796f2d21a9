// SPDX-License-Identifier: Apache-2.0
// Short calls of a cache whose tokens are random.
#pragma once
#include <vector>

#include "posenc/attention/attend.h"
#include "posenc/cache/key_cache.h"
#include "posenc/posenc.h"
#include "support/random.h"

namespace posenc::test {

inline RotarySpec cache_rope(Index dim = 32, Index rotary = 0) {
  return resolve(Rope{.head_dim = dim,
                      .rotary_dim = rotary == 0 ? dim : rotary,
                      .base = 10000,
                      .pairing = Pairing::half_split});
}
inline PoolSizes cache_sizes(Index pages = 8) {
  return {.pages = pages, .page_size = 16, .heads = 2, .head_dim = 32, .value_dim = 32};
}

// Keys and values of tokens by seed, as float.
struct RandomTokens {
  RandomTokens(const PoolSizes& s, Index n, std::uint64_t seed)
      : sizes(s),
        count(n),
        k(Random(seed).normals<float>(static_cast<std::size_t>(n * s.heads * s.head_dim))),
        v(Random(seed + 1000).normals<float>(static_cast<std::size_t>(n * s.heads * s.value_dim))) {
  }
  PoolSizes sizes;
  Index count;
  std::vector<float> k, v;

  NewTokens at(const Positions& p) const {
    NewTokens t;
    t.k = heads(k.data(), count, sizes.heads, sizes.head_dim);
    if (sizes.value_dim > 0 && !sizes.values_in_keys)
      t.v = heads(v.data(), count, sizes.heads, sizes.value_dim);
    t.positions = p;
    return t;
  }
};
inline void append_random(KeyCache& cache, Index first, Index n, std::uint64_t seed = 1) {
  cache.append(RandomTokens(cache.pool().sizes(), n, seed).at(arange(first, n)));
}

// One query of ones in double at a position, after all tokens.
inline std::vector<double> attend_ones(const KeyCache& cache, Index position, Index H = 2,
                                       const AttentionArgs& with = {}) {
  const PoolSizes& s = cache.pool().sizes();
  const std::vector<double> q(static_cast<std::size_t>(H * s.head_dim), 1);
  std::vector<double> out(static_cast<std::size_t>(H * s.value_dim));
  const Index order[] = {cache.next_order()};
  const std::vector<Index> at(static_cast<std::size_t>(s.axes), position);
  AttentionArgs a = with;
  a.q = heads(q.data(), 1, H, s.head_dim);
  a.mask.causal = true, a.mask.query_order = tensor(order, {1, 1});
  Positions p = positions(std::span<const Index>(at));
  p.axes = static_cast<std::int32_t>(s.axes), p.count = 1, p.axis_stride = 1;
  a.query_positions = p;
  if (!a.scale) a.scale = 0.2;
  cache.attend(a, {heads(out.data(), 1, H, s.value_dim), {}});
  return out;
}

inline double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  double worst = a.size() == b.size() ? 0 : HUGE_VAL;
  for (std::size_t i = 0; i < a.size() && i < b.size(); ++i)
    worst = std::max(worst, std::fabs(a[i] - b[i]));
  return worst;
}

}  // namespace posenc::test
