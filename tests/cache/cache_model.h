// SPDX-License-Identifier: Apache-2.0
// A cache beside its plain model: tokens with their true keys, and attention in double over what is stored.
// Cosines and sines come from long double, stored numbers are read one at a time.
#pragma once
#include <cmath>
#include <deque>
#include <map>
#include <vector>

#include "cache/cache_state.h"
#include "core/convert.h"
#include "posenc/cache/key_cache.h"
#include "posenc/posenc.h"
#include "rotary/rerotation_support.h"
#include "support/random.h"

namespace posenc::test {

using Doubles = std::vector<double>;

// Angles of pairs at whole positions, each computed once.
class ModelRotation {
 public:
  explicit ModelRotation(RotarySpec s) : spec(std::move(s)) {}
  RotarySpec spec;

  // R(p) x with the gain, or its inverse.
  void rotate(double* x, Index p, bool inverse) const {
    if (spec.blocks.empty()) return;
    const RotaryBlock& b = spec.blocks[0];
    const std::vector<std::pair<double, double>>& row = at(p);
    for (Index i = 0; i < b.pairs(); ++i) {
      const double g = inverse ? 1 / b.spectrum.gain : b.spectrum.gain;
      const double c = g * row[static_cast<std::size_t>(i)].first,
                   s = (inverse ? -g : g) * row[static_cast<std::size_t>(i)].second;
      const PairAt pair = pair_at(b, i);
      const double u = x[pair.a], v = x[pair.b];
      x[pair.a] = u * c - v * s, x[pair.b] = u * s + v * c;
    }
  }

 private:
  mutable std::map<Index, std::vector<std::pair<double, double>>> rows_;
  const std::vector<std::pair<double, double>>& at(Index p) const {
    const auto found = rows_.find(p);
    if (found != rows_.end()) return found->second;
    std::vector<std::pair<double, double>> row;
    for (const double f : spec.blocks[0].spectrum.frequency) {
      const long double a = static_cast<long double>(f) * p;
      row.emplace_back(static_cast<double>(std::cos(a)), static_cast<double>(std::sin(a)));
    }
    return rows_.emplace(p, std::move(row)).first->second;
  }
};

// One head of stored numbers.
inline Doubles stored_head(const ConstHeads& pages, KeyType type, Index dim, Index page, Index slot,
                           Index head) {
  StoredKeys one(type, 1, 1, 1, dim);
  const auto* from =
      static_cast<const std::byte*>(pages.data) +
      (page * pages.batch_stride + slot * pages.token_stride + head * pages.head_stride) *
          size_of(pages.dtype);
  std::memcpy(one.bytes.data(), from, one.bytes.size());
  return one.get(0, 0, 0);
}

struct ModelToken {
  Index order, position, document;
  Doubles key, value, sum;  // [G D], [G Dv], [H]
};

struct ModelCall {
  std::vector<Index> order, position;
  Doubles q;  // [Tq H D]
  double scale = 1, slope = 0, softcap = 0;
  bool causal = true;
  Index window = kUnbounded, sinks = 0, document = -1;
  Doubles sink, query_sum;  // [H], [Tq H]
};

struct CacheModel {
  std::vector<ModelToken> tokens;
  Index next_order = 0;

  void erase(const std::vector<Index>& orders) {
    std::erase_if(tokens, [&](const ModelToken& t) {
      return std::find(orders.begin(), orders.end(), t.order) != orders.end();
    });
  }
  void erase(Index first, Index end) {
    std::erase_if(tokens, [&](const ModelToken& t) { return t.order >= first && t.order < end; });
  }
};

// Where each token of a cache is, in order.
struct StoredToken {
  Index page, slot, anchor;
};
inline std::vector<StoredToken> stored_tokens(const KeyCache& cache) {
  const detail::CacheState& s = detail::StateAccess::of(cache);
  std::vector<StoredToken> all;
  for (const detail::PageUse& u : s.sequence.uses)
    for (Index slot = 0; slot < s.page_size(); ++slot)
      if (u.there.has(slot)) all.push_back({u.page, slot, s.pool->anchors(u.page, 0)[slot]});
  return all;
}

// The stored keys as they should be without any rounding, and their largest error by the rule of
// RerotationPlan::bound, over the bound of so many moves.
inline double worst_key(const KeyCache& cache, const CacheModel& model, const ModelRotation& r) {
  const PoolSizes& sizes = cache.pool().sizes();
  const std::vector<StoredToken> stored = stored_tokens(cache);
  const bool rotated = cache.keeping() == KeyKeeping::anchored;
  const RotarySpec& spec = r.spec;
  const double bound =
      spec.blocks.empty() ? 1 : RerotationPlan(spec, spec, sizes.key_type).bound(cache.moves() + 1);
  double worst = 0;
  for (std::size_t n = 0; n < stored.size(); ++n)
    for (Index g = 0; g < sizes.heads; ++g) {
      const Doubles got = stored_head(cache.pool().keys(), sizes.key_type, sizes.head_dim,
                                      stored[n].page, stored[n].slot, g);
      const auto first = model.tokens[n].key.begin() + g * sizes.head_dim;
      Doubles want(first, first + sizes.head_dim);
      if (rotated) r.rotate(want.data(), stored[n].anchor, false);
      worst = std::max(worst, worst_pair(spec, sizes.key_type, want, got) / bound);
    }
  return worst;
}

// What is stored as numbers: keys at the positions of their tokens, [tokens, G][D], and values.
struct StoredNumbers {
  std::vector<Doubles> keys, values;
};
inline StoredNumbers stored_numbers(const KeyCache& cache, const CacheModel& model,
                                    const ModelRotation& r) {
  const PoolSizes& sizes = cache.pool().sizes();
  const std::vector<StoredToken> stored = stored_tokens(cache);
  StoredNumbers all;
  for (std::size_t n = 0; n < stored.size(); ++n)
    for (Index g = 0; g < sizes.heads; ++g) {
      const StoredToken& t = stored[n];
      all.keys.push_back(
          stored_head(cache.pool().keys(), sizes.key_type, sizes.head_dim, t.page, t.slot, g));
      if (cache.keeping() == KeyKeeping::anchored) r.rotate(all.keys.back().data(), t.anchor, true);
      r.rotate(all.keys.back().data(), model.tokens[n].position, false);
      all.values.push_back(stored_head(cache.pool().values(),
                                       sizes.values_in_keys ? sizes.key_type : sizes.value_type,
                                       sizes.value_dim, t.page, t.slot, g));
    }
  return all;
}

// Attention over what is stored, [Tq H Dv].
inline Doubles plain_attention(const PoolSizes& sizes, const CacheModel& model,
                               const StoredNumbers& stored, const ModelRotation& r,
                               const ModelCall& c, Index H) {
  const Index G = sizes.heads, D = sizes.head_dim, V = sizes.value_dim;
  const auto Tq = static_cast<Index>(c.order.size());
  const std::vector<Doubles>&keys = stored.keys, &values = stored.values;
  Doubles out(static_cast<std::size_t>(Tq * H * V));
  for (Index i = 0; i < Tq; ++i)
    for (Index h = 0; h < H; ++h) {
      Doubles q(c.q.begin() + (i * H + h) * D, c.q.begin() + (i * H + h + 1) * D);
      const auto at = static_cast<std::size_t>(i);
      r.rotate(q.data(), c.position[at], false);
      double top = c.sink.empty() ? -HUGE_VAL : c.sink[static_cast<std::size_t>(h)];
      Doubles scores;
      for (std::size_t n = 0; n < model.tokens.size(); ++n) {
        const ModelToken& t = model.tokens[n];
        const Doubles& k =
            keys[n * static_cast<std::size_t>(G) + static_cast<std::size_t>(h / (H / G))];
        double s = 0;
        for (Index d = 0; d < D; ++d)
          s += q[static_cast<std::size_t>(d)] * k[static_cast<std::size_t>(d)];
        s *= c.scale;
        if (c.softcap > 0) s = c.softcap * std::tanh(s / c.softcap);
        s -= c.slope * std::exp2(-double(h)) * std::fabs(double(c.position[at] - t.position));
        if (!c.query_sum.empty())
          s +=
              c.query_sum[static_cast<std::size_t>(i * H + h)] - t.sum[static_cast<std::size_t>(h)];
        const bool hidden =
            (c.causal && t.order > c.order[at]) ||
            (c.window != kUnbounded && c.order[at] - t.order > c.window && t.order >= c.sinks) ||
            (c.document >= 0 && t.document != c.document);
        scores.push_back(hidden ? -HUGE_VAL : s);
        top = std::max(top, scores.back());
      }
      double sum = c.sink.empty() ? 0 : std::exp(c.sink[static_cast<std::size_t>(h)] - top);
      double* const o = &out[static_cast<std::size_t>((i * H + h) * V)];
      for (std::size_t n = 0; n < model.tokens.size(); ++n) {
        if (scores[n] == -HUGE_VAL) continue;
        const double w = std::exp(scores[n] - top);
        sum += w;
        const Doubles& v =
            values[n * static_cast<std::size_t>(G) + static_cast<std::size_t>(h / (H / G))];
        for (Index d = 0; d < V; ++d) o[d] += w * v[static_cast<std::size_t>(d)];
      }
      for (Index d = 0; d < V; ++d) o[d] = sum > 0 ? o[d] / sum : 0;
    }
  return out;
}

}  // namespace posenc::test
