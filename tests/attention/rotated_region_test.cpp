// SPDX-License-Identifier: Apache-2.0
// Regions whose q and k are those of the call, rotated by the positions of the region: the same as copies that this
// test turns by hand, forward and backward, in both engines.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <numeric>

#include "attention/q8_call.h"
#include "posenc/attention/plan.h"
#include "posenc/core/isa.h"
#include "posenc/positions.h"
#include "posenc/rotary/rope.h"
#include "support/refusal.h"

namespace posenc {
namespace {

using ::testing::HasSubstr;

// Rope by hand: pairs (c, c + D / 2), base 100.
struct RotatedCall : Q8Call {
  RotatedCall(Index b, Index queries, Index keys, Index h, Index g, Index d, Index dv,
              std::uint64_t seed)
      : Q8Call(b, queries, keys, h, g, d, dv, seed),
        spec(resolve(Rope{.head_dim = d, .base = 100, .pairing = Pairing::half_split})),
        stage{.kind = StageKind::rotate, .rotary = &spec} {
    std::vector<Index> q(static_cast<std::size_t>(queries)), k(static_cast<std::size_t>(keys));
    std::iota(q.begin(), q.end(), keys - std::min(queries, keys)), std::iota(k.begin(), k.end(), 0);
    query_at = arange(q.empty() ? 0 : q.front(), queries);
    args.query_positions = query_at;
    args.mask.query_offset = keys - std::min(queries, keys);
    positions_of_q = q, positions_of_k = k;
  }
  void use(const DistanceMap& m) {
    map = m;
    for (const DistanceRegion& r : map) {
      ScoreRegion s;
      s.chunk = r.chunk, s.low = r.low, s.high = r.high, s.rotary = &spec;
      s.query_positions = r.query, s.key_positions = r.key;
      regions.push_back(s);
    }
    args.regions = regions;
  }
  void rotate() { args.prepare = std::span(&stage, 1); }

  std::vector<double> turned(const std::vector<double>& x, Index tokens, Index heads_of,
                             const OwnedPositions& p, double sign) const {
    std::vector<double> y = x;
    const Index half = D / 2;
    for (Index n = 0; n < B * tokens * heads_of; ++n)
      for (Index c = 0; c < half; ++c) {
        const double angle = sign * position_at(p, 0, 0, n / heads_of % tokens) *
                             std::pow(100.0, -static_cast<double>(c) / static_cast<double>(half));
        const auto a = static_cast<std::size_t>(n * D + c), b = a + static_cast<std::size_t>(half);
        y[a] = x[a] * std::cos(angle) - x[b] * std::sin(angle);
        y[b] = x[a] * std::sin(angle) + x[b] * std::cos(angle);
      }
    return y;
  }
  // Every rotation by hand: q and k as prepared, regions with copies.
  AttentionArgs plain() const override {
    AttentionArgs a = FloatCall::plain();
    copies.clear(), plain_regions.clear();
    const auto copy = [&](std::size_t n, const OwnedPositions& p) {
      copies.push_back(turned(wide[n], n == 0 ? Tq : Tk, n == 0 ? H : G, p, 1));
      return n == 0 ? view(copies.back(), Tq, H, D) : view(copies.back(), Tk, G, D);
    };
    if (!args.prepare.empty()) a.q = copy(0, query_at), a.k = copy(1, key_at);
    a.prepare = {};
    for (std::size_t n = 0; n < map.size(); ++n) {
      ScoreRegion r = regions[n];
      r.rotary = nullptr, r.query_positions = r.key_positions = {};
      r.qk = {copy(0, map[n].query), copy(1, map[n].key)};
      plain_regions.push_back(r);
    }
    a.regions = plain_regions;
    return a;
  }
  // Gradients of the reference, turned back and summed.
  CallResult wanted() const {
    const AttentionArgs a = plain();
    CallResult r = of_reference(a);
    CallResult want{r.out, r.log_sum_exp, {}, {}};
    const auto fresh = [](std::vector<double> x) {
      for (double& y : x) y -= 0.5;
      return x;
    };
    const std::size_t count = map.size();
    for (std::size_t side = 0; side < 2; ++side) {
      const Index tokens = side == 0 ? Tq : Tk, n = side == 0 ? H : G;
      std::vector<double> sum = fresh(r.gradients[2 * count + side]);
      if (!args.prepare.empty()) sum = turned(sum, tokens, n, side == 0 ? query_at : key_at, -1);
      for (std::size_t m = 0; m < count; ++m) {
        const OwnedPositions& p = side == 0 ? map[m].query : map[m].key;
        const std::vector<double> more = turned(fresh(r.gradients[2 * m + side]), tokens, n, p, -1);
        for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += more[i];
      }
      for (double& y : sum) y += 0.5;
      want.gradients.push_back(sum);
      want.names.push_back(side == 0 ? "q" : "k");
    }
    for (std::size_t n = 2 * count + 2; n < r.gradients.size(); ++n)
      want.gradients.push_back(r.gradients[n]), want.names.push_back(r.names[n]);
    return want;
  }
  std::string wrong_in_both(bool backward = true) const {
    EXPECT_EQ(explain_plan(args).backward_engine, args.block_table.empty() ? "fast" : "exact");
    EXPECT_TRUE(is_fast(args));
    AttentionArgs exact = args;
    exact.exact = true;
    if (!backward)
      return wrong_of_fast(of_attend(args), plain(), DType::f32) +
             " exact: " + wrong_of_fast(of_attend(exact), plain(), DType::f32);
    const CallResult want = wanted();
    return wrong_gradients(gradients_of_fast(args), want, DType::f32,
                           gradient_tolerance(DType::f32)) +
           differences(gradients_of_fast(exact), want, 0x1p-22, 1e-6);
  }

  RotarySpec spec;
  Stage stage;
  DistanceMap map;
  std::vector<Index> positions_of_q, positions_of_k;
  std::vector<ScoreRegion> regions;
  mutable std::deque<std::vector<double>> copies;
  mutable std::vector<ScoreRegion> plain_regions;
};

DistanceMap map_for(const RotatedCall& c, std::size_t kind) {
  const std::vector<Index>&q = c.positions_of_q, &k = c.positions_of_k;
  if (kind == 0) return self_extend(q, k, 37, 4, SelfExtendRatio::floored);
  if (kind == 1) return rerope(q, k, 40);
  if (kind == 2) return leaky_rerope(q, k, 5, 3);
  return dual_chunk(q, k, {50, 9});
}

TEST(RotatedRegions, MapsAreCopiesTurnedByHand) {
  for (std::size_t kind = 0; kind < 4; ++kind)
    for (const bool rotates : {false, true}) {
      RotatedCall call(2, 90, 160, 4, 2, 16, 8, kind);
      call.use(map_for(call, kind));
      if (rotates) call.rotate();
      call.args.mask.causal = true;
      EXPECT_EQ(call.wrong_in_both(), "") << kind << rotates;
    }
}

// The region in front holds a part of all pairs: the others have the call's own rotation.
TEST(RotatedRegions, PairsOfNoRegionHaveTheCallsRotation) {
  for (const Isa isa : supported_isas()) {
    force_isa(isa);
    for (const Index queries : {1, 3, 70}) {
      RotatedCall call(1, queries, 130, 2, 1, 32, 32, 7);
      DistanceMap map = map_for(call, 0);
      map.erase(std::remove_if(map.begin(), map.end(),
                               [](const DistanceRegion& r) { return r.low <= 0; }),
                map.end());
      ASSERT_EQ(map.size(), 1u);
      call.use(map);
      call.rotate();
      EXPECT_EQ(call.wrong_in_both(), "") << isa_name(isa) << " " << queries;
    }
  }
  reset_isa();
}

TEST(RotatedRegions, FactorsOfHeadsAndQueries) {
  RotatedCall call(1, 40, 60, 2, 2, 8, 8, 8);
  call.use(map_for(call, 2));
  call.rotate();
  const std::vector<double> of_head{0.7, -1.2};
  std::vector<double> of_query;
  for (Index i = 0; i < 40; ++i) of_query.push_back(1 + 0.01 * static_cast<double>(i));
  call.args.head_scale = tensor(of_head.data(), {1, 2});
  call.args.query_factor = tensor(of_query.data(), {1, 40});
  EXPECT_EQ(call.wrong_in_both(), "");
}

// Keys in pages, and in q8_0 blocks.
TEST(RotatedRegions, PagesAndBlocks) {
  for (const bool blocks : {false, true})
    for (const Index queries : {1, 50}) {
      RotatedCall call(1, queries, 120, 4, 2, 32, 32, 9);
      if (blocks) call.use_blocks();
      call.use(map_for(call, 0));
      call.rotate();
      EXPECT_EQ(call.wrong_in_both(false), " exact: ");
      const std::vector<Index> length{115};
      std::vector<Index> table;
      for (Index n = 0; n < 30; ++n) table.push_back(29 - n);
      table.back() = 1000;  // beyond the length: never read
      table[28] = 1;
      std::deque<std::vector<std::byte>> pools;
      const auto paged = [&](const ConstHeads& x) {
        const Index bytes = x.dim * size_of(x.dtype) * 2;  // of a token
        std::vector<std::byte>& pool = pools.emplace_back();
        for (Index n = 0; n < 30; ++n) {
          const auto* from = static_cast<const std::byte*>(x.data) + (29 - n) * 4 * bytes;
          pool.insert(pool.end(), from, from + 4 * bytes);
        }
        ConstHeads y = x;
        y.data = pool.data(), y.batch = 30, y.tokens = 4, y.batch_stride = 4 * y.token_stride;
        return y;
      };
      AttentionArgs a = call.args, plain = call.plain();
      plain.mask.key_length = a.mask.key_length = tensor(length.data(), {1});
      a.k = paged(a.k), a.v = paged(a.v);
      a.block_table = tensor(std::as_const(table).data(), {1, 30});
      EXPECT_TRUE(is_fast(a));
      EXPECT_EQ(wrong_of_fast(of_attend(a), plain, DType::f32), "") << blocks << queries;
      a.exact = true;
      EXPECT_EQ(wrong_of_fast(of_attend(a), plain, DType::f32), "") << blocks << queries;
    }
}

// Of q8_0 keys only q has a gradient.
TEST(RotatedRegions, GradientsOfQBesideBlocks) {
  RotatedCall call(1, 30, 80, 2, 1, 32, 32, 10);
  call.use_blocks();
  call.use(map_for(call, 3));
  call.rotate();
  CallResult want = call.wanted();
  want.gradients.resize(1), want.names.resize(1);
  EXPECT_EQ(wrong_gradients(gradients_of_fast(call.args), want, DType::f32,
                            gradient_tolerance(DType::f32)),
            "");
  call.args.exact = true;
  EXPECT_EQ(differences(gradients_of_fast(call.args), want, 0x1p-22, 1e-6), "");
}

// A norm with a weight before the rotation: gradients of the exact engine are slopes of the output, those of the fast one
// are its own.
TEST(RotatedRegions, StagesBeforeTheRotation) {
  RotatedCall call(1, 20, 30, 2, 1, 8, 8, 11);
  call.use(map_for(call, 1));
  std::vector<double> weight, bias;
  for (Index c = 0; c < 8; ++c)
    weight.push_back(1 + 0.1 * static_cast<double>(c)),
        bias.push_back(0.1 * static_cast<double>(c));
  const ConstTensorView w = tensor(std::as_const(weight).data(), {1, 8}),
                        b = tensor(std::as_const(bias).data(), {1, 8});
  const Stage stages[] = {{.kind = StageKind::add, .q = b, .k = b},
                          {.kind = StageKind::rms, .q = w, .k = w, .epsilon = 0.1},
                          call.stage};
  call.args.prepare = stages;
  AttentionArgs exact = call.args;
  exact.exact = true;
  exact.q = call.view(call.wide[0], 20, 2, 8), exact.k = call.view(call.wide[1], 30, 1, 8);
  exact.v = call.view(call.wide[2], 30, 1, 8);
  const CallResult got = gradients_of_fast(exact);
  const EngineUpstream up(exact);
  const auto loss = [&] {
    const CallResult r = of_attend(exact);
    double sum = 0;
    for (std::size_t n = 0; n < r.out.size(); ++n) sum += r.out[n] * up.out[n];
    for (std::size_t n = 0; n < 40; ++n) sum += r.log_sum_exp[n] * up.lse[n];
    return sum;
  };
  const auto slope = [&](double& x) {
    const double before = x;
    x = before + 1e-5;
    const double more = loss();
    x = before - 1e-5;
    const double less = loss();
    x = before;
    return (more - less) / 2e-5;
  };
  // By name: two stages with arrays, then q and k.
  std::vector<std::vector<double>*> inputs{&bias,   &bias,         &weight,
                                           &weight, &call.wide[0], &call.wide[1]};
  ASSERT_GE(got.gradients.size(), inputs.size());
  for (std::size_t n = 4; n < inputs.size(); ++n)
    for (const std::size_t at : {0u, 13u, 77u})
      EXPECT_NEAR(got.gradients[n][at] - 0.5, slope((*inputs[n])[at]), 1e-7) << got.names[n] << at;
  for (std::size_t n = 0; n < 4; n += 2)  // q and k share these arrays
    for (std::size_t at = 0; at < 8; at += 3)
      EXPECT_NEAR(got.gradients[n][at] + got.gradients[n + 1][at] - 1, slope((*inputs[n])[at]),
                  1e-7)
          << got.names[n] << at;
  EXPECT_EQ(explain_plan(call.args).backward_engine, "fast");
  EXPECT_EQ(wrong_gradients(gradients_of_fast(call.args), got, DType::f32,
                            gradient_tolerance(DType::f32)),
            "");
}

// A plan's rotation serves regions without one of their own.
TEST(RotatedRegions, RegionsOfAPlan) {
  RotatedCall call(1, 20, 30, 2, 1, 8, 8, 12);
  call.use(map_for(call, 0));
  for (ScoreRegion& r : call.regions) r.rotary = nullptr;
  AttentionArgs of_plan = call.args;
  of_plan.scale.reset(), of_plan.regions = call.regions;
  const AttentionPlan plan("rope head_dim=8 base=100 pairing=half_split",
                           {.heads = 2, .head_dim = 8, .key_heads = 1});
  ResultArrays to(call.args, DType::f32);
  plan.lower({}).forward(of_plan, {}, to.r);
  call.rotate();
  EXPECT_EQ(wrong_of_fast({widened(to.r.out), to.lse, {}, {}}, call.plain(), DType::f32), "");
  const AttentionPlan alibi("alibi", {.heads = 2, .head_dim = 8, .key_heads = 1});
  EXPECT_THAT(
      test::refusal([&] {
        alibi.lower({}, distance_ranges(call.query_at, call.key_at)).forward(of_plan, {}, to.r);
      }),
      HasSubstr("[attention_plan] regions without qk rotate q and k and need a rotary "
                "encoding"));
}

TEST(RotatedRegions, AnyNumberOfThreadsGivesTheSameBits) {
  RotatedCall call(2, 150, 300, 4, 2, 16, 16, 13);
  call.use(map_for(call, 0));
  call.rotate();
  expect_same_bits(call.args);
  expect_same_gradient_bits(call.args);
}

TEST(RotatedRegions, WithoutTokens) {
  for (const auto& [queries, keys] : {std::pair<Index, Index>{0, 0}, {0, 5}, {5, 0}})
    for (const bool rotates : {false, true}) {
      RotatedCall call(1, queries, keys, 2, 1, 8, 8, 15);
      ScoreRegion all{.rotary = &call.spec};
      all.query_positions = call.query_at, all.key_positions = call.key_at;
      call.args.regions = std::span(&all, 1);
      if (rotates) call.rotate();
      AttentionArgs exact = call.args;
      exact.exact = true;
      EXPECT_EQ(differences(gradients_of_fast(call.args), gradients_of_fast(exact), 0, 0), "");
    }
}

std::string says_of_regions(const std::function<void(RotatedCall&, ScoreRegion&)>& change) {
  RotatedCall call(1, 4, 6, 2, 1, 8, 8, 14);
  call.use(map_for(call, 0));
  change(call, call.regions[0]);
  ResultArrays to(call.args, DType::f32);
  const std::vector<std::byte> before = to.out;
  const std::string text = test::refusal([&] { attend(call.args, to.r); });
  EXPECT_EQ(to.out, before);
  return text;
}

TEST(RotatedRegions, Refusals) {
  using C = RotatedCall;
  EXPECT_THAT(says_of_regions([](C& c, ScoreRegion& r) {
                r.qk = {c.args.q, c.args.k};
              }),
              HasSubstr("[attention] a region must not have both qk and rotary"));
  EXPECT_THAT(says_of_regions([](C&, ScoreRegion& r) { r.key_positions = {}; }),
              HasSubstr("key_positions of a region must be given with its rotary"));
  EXPECT_THAT(says_of_regions([](C&, ScoreRegion& r) { r.query_positions.count = 3; }),
              HasSubstr("query_positions of a region must be one for each of the 4 tokens, got 3"));
  EXPECT_THAT(says_of_regions([](C& c, ScoreRegion& r) {
                r.rotary = nullptr;
                r.qk = {c.args.q, c.args.k};
              }),
              HasSubstr("positions of a region need its rotary"));
  const RotarySpec wide = resolve(Rope{.head_dim = 16, .pairing = Pairing::half_split});
  EXPECT_THAT(says_of_regions([&](C&, ScoreRegion& r) { r.rotary = &wide; }),
              HasSubstr("rotary of a region must have the head size of q, 8, got 16"));
  std::vector<Stage> stages;
  EXPECT_THAT(says_of_regions([&](C& c, ScoreRegion&) {
                stages = {c.stage, {.kind = StageKind::l2}};
                c.args.prepare = stages;
              }),
              HasSubstr("the rotation must be the last stage where a region has rotary"));
  // Gradients of copies that there are not.
  RotatedCall call(1, 4, 6, 2, 1, 8, 8, 14);
  call.use(map_for(call, 0));
  std::vector<float> d(4 * 2 * 8, 3);
  std::vector<QK> of_regions(call.regions.size());
  of_regions[0].q = heads(d.data(), 4, 2, 8);
  AttentionGradients g;
  g.regions = of_regions;
  ResultArrays to(call.args, DType::f32);
  EXPECT_THAT(test::refusal([&] { attend_backward(call.args, to.r, to.r, g); }),
              HasSubstr("gradient of q of a region is given, but the call has no such tensor"));
}

}  // namespace
}  // namespace posenc
