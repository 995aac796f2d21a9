// SPDX-License-Identifier: Apache-2.0
// A call of many tokens in float, and the same in double: rotation, slopes, buckets of distances, grouped keys, a sink.
#pragma once
#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "parallel/shard_call.h"
#include "posenc/core/key_blocks.h"
#include "posenc/positions/shard.h"
#include "posenc/relative/t5.h"
#include "posenc/rotary/rope.h"

namespace posenc {

struct RingWorld {
  static constexpr Index kHeads = 4, kKeyHeads = 2, kDim = 16;

  // cu_seqlens: of packed documents; empty: one sequence.
  explicit RingWorld(Index tokens, std::vector<Index> cu_seqlens = {}, bool apart = false)
      : cu(std::move(cu_seqlens)) {
    test::Random r(7);
    for (const auto& [n, floats, doubles] :
         {std::tuple{kHeads, &q, &wide_q}, std::tuple{kKeyHeads, &k, &wide_k},
          std::tuple{kKeyHeads, &v, &wide_v}}) {
      *floats = r.normals<float>(static_cast<std::size_t>(tokens * n * kDim));
      doubles->assign(floats->begin(), floats->end());
    }
    slopes = r.normals(2 * kHeads), table = r.normals(32 * kHeads), sink = r.normals(kHeads);
    for (double& x : slopes) x *= 0.05;
    orders.resize(static_cast<std::size_t>(tokens));
    std::iota(orders.begin(), orders.end(), Index{0});
    for (std::size_t s = 0; s + 1 < cu.size(); ++s)
      for (Index t = cu[s]; t < cu[s + 1]; ++t) {
        document.push_back(static_cast<Index>(s));
        if (!apart) orders[static_cast<std::size_t>(t)] = t - cu[s];
      }
    for (Index d = 0; d < tokens; ++d)
      rows.push_back(static_cast<std::int32_t>(std::min<Index>(d / 3, 31)));
    LinearTerm linear;
    linear.table = tensor(std::as_const(slopes).data(), {1, kHeads, 1, 2});
    ProductTerm buckets;
    buckets.table = tensor(std::as_const(table).data(), {1, kHeads, 32, 1});
    buckets.lines[0] = {rows.data(), tokens, 0};
    terms = {linear, buckets};
    set(narrow, q, k, v), set(plain, wide_q, wide_k, wide_v);
    for (AttentionArgs* a : {&narrow, &plain}) {
      a->query_positions = a->key_positions = positions(std::span<const Index>(orders));
      a->scale = 0.25;
      a->mask.causal = true;
      a->mask.query_order = a->mask.key_order = tensor(std::as_const(orders).data(), {1, tokens});
      a->sink = tensor(std::as_const(sink).data(), {kHeads});
      a->terms = terms;
      a->prepare = std::span(&stage, 1);
      if (cu.empty()) continue;
      if (apart)
        a->mask.query_document = a->mask.key_document =
            tensor(std::as_const(document).data(), {1, tokens});
      else
        a->mask.query_cu_seqlens = a->mask.key_cu_seqlens =
            tensor(std::as_const(cu).data(), {static_cast<Index>(cu.size())});
    }
  }
  RingWorld(const RingWorld&) = delete;

  AttentionArgs narrow, plain;
  std::vector<Index> cu, orders, document;
  std::vector<float> q, k, v;
  std::vector<double> wide_q, wide_k, wide_v, slopes, table, sink;
  std::vector<std::int32_t> rows;
  std::vector<Term> terms;
  RotarySpec spec = resolve(Rope{.head_dim = kDim, .base = 10000, .pairing = Pairing::half_split});
  Stage stage{.kind = StageKind::rotate, .rotary = &spec};

 private:
  template <class T>
  static void set(AttentionArgs& a, const std::vector<T>& q, const std::vector<T>& k,
                  const std::vector<T>& v) {
    const Index tokens = static_cast<Index>(q.size()) / (kHeads * kDim);
    a.q = heads(q.data(), tokens, kHeads, kDim), a.k = heads(k.data(), tokens, kKeyHeads, kDim),
    a.v = heads(v.data(), tokens, kKeyHeads, kDim);
  }
};

// Forward and backward of a rank's tokens.
inline CallResult run_shard(const AttentionArgs& whole, const TokenList& tokens,
                            const Communicator& c, const RingOptions& options = {.seconds = 60},
                            const Executor& executor = inline_executor()) {
  const ShardCall shard(whole, tokens, tokens);
  const ShardUpstream up(whole, tokens);
  ResultArrays to(shard.args, shard.args.q.dtype);
  GradientArrays g(shard.args);
  ring_attend(shard.args, to.r, c, options, executor);
  ring_attend_backward(shard.args, to.r, {up.d_out, up.d_lse}, g.g, c, options, executor);
  return {widened(to.r.out), to.lse, std::move(g.value), std::move(g.name)};
}

// Keys in q8_0 blocks, all zeros, that attend computes.
struct BlockKeys {
  static constexpr Index kBlockDim = 32, kBytes = 34;
  explicit BlockKeys(Index tokens)
      : count(tokens),
        numbers(static_cast<std::size_t>(tokens * RingWorld::kHeads * kBlockDim)),
        bytes(static_cast<std::size_t>(tokens * RingWorld::kKeyHeads * kBytes)) {}
  // Blocks for k or for v, numbers for the others.
  void put(AttentionArgs& a, bool k, bool v) const {
    const ConstHeads wide = heads(numbers.data(), count, RingWorld::kKeyHeads, kBlockDim),
                     blocks =
                         key_blocks(tensor(bytes.data(), {1, count, RingWorld::kKeyHeads, kBytes}),
                                    HeadsLayout::bthd);
    a.q = heads(numbers.data(), count, RingWorld::kHeads, kBlockDim);
    a.k = k ? blocks : wide, a.v = v ? blocks : wide;
    a.prepare = {};
  }
  Index count;
  std::vector<float> numbers;
  std::vector<std::uint8_t> bytes;
};

// The largest error, relative to the largest number of each array.
inline double error_of(const CallResult& got, const CallResult& want) {
  double worst = 0;
  const auto check = [&](const std::vector<double>& x, const std::vector<double>& y) {
    double most = 1;
    for (const double n : y) most = std::max(most, std::fabs(n));
    for (std::size_t n = 0; n < y.size(); ++n)
      worst = std::max(worst, std::fabs(x[n] - y[n]) / most);
  };
  check(got.out, want.out);
  check(got.log_sum_exp, want.log_sum_exp);
  for (std::size_t n = 0; n < want.gradients.size(); ++n)
    check(got.gradients[n], want.gradients[n]);
  return worst;
}

}  // namespace posenc
