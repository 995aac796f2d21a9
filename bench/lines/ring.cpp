// SPDX-License-Identifier: Apache-2.0
// Attention of one sequence over two ranks, each a thread of its own, beside one thread: 4096 tokens, 8 heads of 64, RoPE,
// causal, zigzag. Two idle cores are needed.
#include <algorithm>
#include <cmath>
#include <thread>

#include "limits.h"
#include "line.h"
#include "posenc/parallel/ring.h"
#include "posenc/parallel/threads.h"
#include "posenc/positions.h"
#include "posenc/rotary/rope.h"

namespace posenc::bench {
namespace {

constexpr Index kRingTokens = 4096, kRingHeads = 8, kRingDim = 64, kRingRanks = 2;

// The tokens of a rank, or of all.
struct RingShare {
  explicit RingShare(std::vector<Index> of) : tokens(std::move(of)) {
    for (const Index t : tokens)
      for (Index c = 0; c < kRingHeads * kRingDim; ++c) {
        const auto x = static_cast<double>(t * kRingHeads * kRingDim + c);
        q.push_back(static_cast<float>(std::sin(0.7 * x)));
        k.push_back(static_cast<float>(std::cos(1.3 * x)));
        v.push_back(static_cast<float>(std::sin(2.1 * x + 1)));
      }
    out = d_q = d_k = d_v = q;
    sums.resize(tokens.size() * kRingHeads);
  }
  Index count() const { return static_cast<Index>(tokens.size()); }
  Heads view(std::vector<float>& x) const { return heads(x.data(), count(), kRingHeads, kRingDim); }
  AttentionArgs call(bool orders) {
    AttentionArgs a;
    a.q = view(q), a.k = view(k), a.v = view(v);
    a.query_positions = a.key_positions = positions(std::span<const Index>(tokens));
    a.scale = 0.125;
    a.mask.causal = true;
    a.prepare = std::span(&stage, 1);
    if (orders)
      a.mask.query_order = a.mask.key_order = tensor(std::as_const(tokens).data(), {1, count()});
    return a;
  }
  AttentionResult result() { return {view(out), tensor(sums.data(), {1, kRingHeads, count()})}; }
  AttentionGradients gradients() {
    AttentionGradients g;
    g.q = view(d_q), g.k = view(d_k), g.v = view(d_v);
    g.overwrite = true;
    return g;
  }

  std::vector<Index> tokens;
  std::vector<float> q, k, v, out, d_q, d_k, d_v;
  std::vector<double> sums;
  RotarySpec spec =
      resolve(Rope{.head_dim = kRingDim, .base = 10000, .pairing = Pairing::half_split});
  Stage stage{.kind = StageKind::rotate, .rotary = &spec};
};

struct RingCase {
  explicit RingCase(bool gradients)
      : backward(gradients), whole(shard_tokens(kRingTokens, 1, 0, ShardLayout::contiguous)) {
    for (Index r = 0; r < kRingRanks; ++r)
      ranks.push_back(std::make_unique<RingShare>(
          shard_tokens(kRingTokens, kRingRanks, r, ShardLayout::zigzag)));
  }
  void one() {
    const AttentionArgs a = whole.call(false);
    attend(a, whole.result(), inline_executor());
    if (backward)
      attend_backward(a, whole.result(), {whole.view(whole.v), {}}, whole.gradients(),
                      inline_executor());
  }
  void ring() {
    const ThreadGroup group(kRingRanks);
    const auto rank = [&](Index r) {
      RingShare& s = *ranks[static_cast<std::size_t>(r)];
      const AttentionArgs a = s.call(true);
      ring_attend(a, s.result(), group.communicator(r), {}, inline_executor());
      if (backward)
        ring_attend_backward(a, s.result(), {s.view(s.v), {}}, s.gradients(), group.communicator(r),
                             {}, inline_executor());
    };
    std::thread other(rank, 1);
    rank(0);
    other.join();
  }
  double error() {
    one(), ring();
    double most = 0;
    for (const auto& s : ranks)
      for (std::size_t t = 0; t < s->tokens.size(); ++t)
        for (std::size_t c = 0; c < kRingHeads * kRingDim; ++c) {
          const std::size_t own = t * kRingHeads * kRingDim + c;
          const std::size_t at = static_cast<std::size_t>(s->tokens[t]) * kRingHeads * kRingDim + c;
          most = std::max(most, static_cast<double>(std::fabs(s->out[own] - whole.out[at])));
          if (backward)
            most = std::max(most, static_cast<double>(std::fabs(s->d_k[own] - whole.d_k[at])));
        }
    return most;
  }
  bool backward;
  RingShare whole;
  std::vector<std::unique_ptr<RingShare>> ranks;
};

Line ring_line(bool backward) {
  Line l;
  l.name = std::string("ring/f32/") + (backward ? "gradients" : "forward") + "/4096/ranks:2";
  l.bytes = (backward ? 8.0 : 4.0) * kRingTokens * kRingHeads * kRingDim * 4;
  l.flops = (backward ? 7.0 : 2.0) * kRingTokens * kRingTokens * kRingHeads * kRingDim;
  l.limit_name = "one thread";
  l.goal = 1 / 1.8;
  l.prepare = [backward] {
    const auto c = std::make_shared<RingCase>(backward);
    Prepared p;
    p.max_error = c->error();
    p.bound = 5e-5;  // gradients of keys reach 40
    p.run = [c] { c->ring(); };
    p.limit = [c] { c->one(); };
    return p;
  };
  return l;
}

}  // namespace

std::vector<Line> ring_lines() {
  return {ring_line(false), ring_line(true)};
}

}  // namespace posenc::bench
