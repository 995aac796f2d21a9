// SPDX-License-Identifier: Apache-2.0
// Self-Extend with regions that rotate the call's own q and k, one thread, beside the same call with copies that a plan
// rotated before: in each call, as a caller without rotated regions must.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "limits.h"
#include "line.h"
#include "posenc/attention/attend.h"
#include "posenc/positions/distance_map.h"
#include "posenc/positions/sequence.h"
#include "posenc/rotary/plan.h"
#include "posenc/rotary/rope.h"

namespace posenc::bench {
namespace {

constexpr Index kHeads = 8, kDim = 128;

std::vector<Index> count_up(Index first, Index count) {
  std::vector<Index> x(static_cast<std::size_t>(count));
  std::iota(x.begin(), x.end(), first);
  return x;
}

struct RegionsOne {
  RegionsOne(Index queries, Index keys)
      : Tq(queries),
        Tk(keys),
        spec(resolve(Rope{.head_dim = kDim, .pairing = Pairing::half_split})),
        plan(spec, DType::f32),
        map(self_extend(count_up(keys - queries, queries), count_up(0, keys), 1024, 8,
                        SelfExtendRatio::floored)),
        at(arange(keys - queries, queries)),
        key_at(arange(0, keys)),
        stage{.kind = StageKind::rotate, .rotary = &spec} {
    for (std::size_t n = 0; n < 3; ++n) {
      x[n] = buffer(bytes(n));
      const auto count = static_cast<Index>(bytes(n) / sizeof(float));
      for (Index i = 0; i < count; ++i)
        x[n]->as<float>()[i] = static_cast<float>(
            std::sin(static_cast<double>(i) * (0.37 + 0.2 * static_cast<double>(n))));
    }
    for (std::size_t n = 0; n < 2 * (map.size() + 1); ++n) copies.push_back(buffer(bytes(n % 2)));
    for (SharedBuffer& o : out) o = buffer(bytes(0));
    args.q = view(*x[0], Tq), args.k = view(*x[1], Tk), args.v = view(*x[2], Tk);
    args.query_positions = at, args.key_positions = key_at;
    args.scale = 1 / std::sqrt(static_cast<double>(kDim));
    args.mask.causal = true, args.mask.query_offset = Tk - Tq;
    for (std::size_t n = 0; n < map.size(); ++n) {
      ScoreRegion r;
      r.chunk = map[n].chunk, r.low = map[n].low, r.high = map[n].high;
      given.push_back(r);
      given.back().qk = {view(*copies[2 * n + 2], Tq), view(*copies[2 * n + 3], Tk)};
      r.rotary = &spec, r.query_positions = map[n].query, r.key_positions = map[n].key;
      rotated.push_back(r);
    }
  }
  RegionsOne(const RegionsOne&) = delete;
  std::size_t bytes(std::size_t n) const {
    return static_cast<std::size_t>((n == 0 ? Tq : Tk) * kHeads * kDim) * sizeof(float);
  }
  Heads view(const Buffer& b, Index tokens) const {
    return heads(tensor(static_cast<void*>(b.data()), DType::f32, {1, tokens, kHeads, kDim}),
                 HeadsLayout::bthd);
  }
  void run() {
    AttentionArgs a = args;
    a.prepare = std::span(&stage, 1), a.regions = rotated;
    attend(a, {view(*out[0], Tq), {}}, inline_executor());
  }
  void rotate(std::size_t n, const Positions& q, const Positions& k) {
    plan.apply(ConstQK{args.q, {}}, QK{view(*copies[2 * n], Tq), {}}, q, RotateMode::forward,
               inline_executor());
    plan.apply(ConstQK{{}, args.k}, QK{{}, view(*copies[2 * n + 1], Tk)}, k, RotateMode::forward,
               inline_executor());
  }
  void run_with_copies() {
    rotate(0, at, key_at);
    for (std::size_t n = 0; n < map.size(); ++n) rotate(n + 1, map[n].query, map[n].key);
    AttentionArgs a = args;
    a.q = view(*copies[0], Tq), a.k = view(*copies[1], Tk), a.regions = given;
    attend(a, {view(*out[1], Tq), {}}, inline_executor());
  }
  double error() {
    run(), run_with_copies();
    double worst = 0;
    for (Index n = 0; n < Tq * kHeads * kDim; ++n)
      worst = std::max(worst, std::abs(static_cast<double>(out[0]->as<float>()[n]) -
                                       static_cast<double>(out[1]->as<float>()[n])));
    return worst;
  }

  Index Tq, Tk;
  RotarySpec spec;
  RotaryPlan plan;
  DistanceMap map;
  OwnedPositions at, key_at;
  Stage stage;
  SharedBuffer x[3], out[2];
  std::vector<SharedBuffer> copies;
  std::vector<ScoreRegion> given, rotated;
  AttentionArgs args;
};

Line region_line(Index queries, Index keys, double goal) {
  Line l;
  l.name = "attend/f32/self_extend/" + std::to_string(queries) + "x" + std::to_string(keys);
  l.bytes = static_cast<double>((2 * queries + 2 * keys) * kHeads * kDim) * 4;
  l.limit_name = "rotated_copies", l.goal = goal;
  l.prepare = [=] {
    const auto call = std::make_shared<RegionsOne>(queries, keys);
    Prepared r;
    r.max_error = call->error(), r.bound = 1e-5;
    r.run = [call] { call->run(); };
    r.limit = [call] { call->run_with_copies(); };
    return r;
  };
  return l;
}

}  // namespace

std::vector<Line> region_lines() {
  return {region_line(1, 16384, 1), region_line(2048, 2048, 1)};
}

}  // namespace posenc::bench
