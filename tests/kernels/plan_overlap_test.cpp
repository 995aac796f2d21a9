// SPDX-License-Identifier: Apache-2.0
// Plans: which views may be turned together, and the short way of a single token.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "posenc/positions/sequence.h"
#include "posenc/rotary/plan.h"
#include "posenc/rotary/pope.h"
#include "posenc/rotary/rope.h"
#include "support/random.h"
#include "support/refusal.h"

namespace posenc {
namespace {

using test::Random;
using test::refusal;
using ::testing::HasSubstr;

template <class F>
void refuses(F&& f, const std::string& says) {
  EXPECT_THAT(refusal(f), HasSubstr(says));
}
RotarySpec half(Index dim) {
  return resolve(Rope{.head_dim = dim, .pairing = Pairing::half_split});
}

// Heads [0, q) and [q, q + k) of one packed tensor, whatever their numbers and whichever comes
// first.
TEST(Plan, SlicesOfAPackedTensorDoNotOverlap) {
  const RotaryPlan plan(half(8), DType::f32);
  for (const auto& [q, k] : {std::pair{32, 8},
                             {28, 4},
                             {64, 8},
                             {12, 2},
                             {8, 1},
                             {71, 1},
                             {16, 8},
                             {32, 32},
                             {2, 1},
                             {8, 32},
                             {1, 8}})
    for (const HeadsLayout layout : {HeadsLayout::bthd, HeadsLayout::bhtd, HeadsLayout::tbhd}) {
      const Index all = q + 2 * k, batch = 2, tokens = 7;
      std::vector<float> x(static_cast<std::size_t>(batch * tokens * all * 8));
      const Index shape[4] = {layout == HeadsLayout::tbhd ? tokens : batch,
                              layout == HeadsLayout::bthd   ? tokens
                              : layout == HeadsLayout::bhtd ? all
                                                            : batch,
                              layout == HeadsLayout::bhtd ? tokens : all, 8};
      const Heads packed = heads(tensor(static_cast<void*>(x.data()), DType::f32, shape), layout);
      const OwnedPositions p = arange(0, tokens);
      EXPECT_NO_THROW(plan.apply({slice_heads(packed, 0, q), slice_heads(packed, q, k)}, p));
      EXPECT_NO_THROW(plan.apply({slice_heads(packed, k, q), slice_heads(packed, 0, k)}, p));
      refuses(
          [&, q = q, k = k] {
            plan.apply({slice_heads(packed, 0, q), slice_heads(packed, q - 1, k)}, p);
          },
          "overlap");
    }
}

// Refused exactly when an element of one view is one of the other.
TEST(Plan, ViewsOverlapWhereTheyShareAnElement) {
  const RotaryPlan plan(half(4), DType::f32);
  Random random(4);
  std::vector<float> x(6000);
  int shared = 0;
  for (int n = 0; n < 3000; ++n) {
    // Both with the strides of one dense tensor, its axes in any order, some of them backwards.
    Index size[4] = {random.integer(1, 3), random.integer(1, 3), random.integer(1, 5), 4};
    Index stride[4], order[4] = {0, 1, 2, 3}, at = 1;
    for (int i = 3; i > 0; --i) std::swap(order[i], order[random.integer(0, i)]);
    for (const Index axis : order) stride[axis] = at, at *= size[axis] + random.integer(0, 1);
    for (Index& s : stride) s = random.integer(0, 3) == 0 ? -s : s;
    const auto view = [&](Index start, Index count) {
      Heads h;
      h.data = x.data() + start, h.dtype = DType::f32;
      h.batch = size[0], h.tokens = size[1], h.heads = count, h.dim = 4;
      h.batch_stride = stride[0], h.token_stride = stride[1];
      h.head_stride = stride[2], h.dim_stride = stride[3];
      return h;
    };
    const Heads a = view(3000, size[2]);
    const Heads b = view(3000 + random.integer(-300, 300), random.integer(1, size[2]));
    const auto elements = [&](const Heads& h) {
      std::set<Index> all;
      const auto* first = static_cast<const float*>(h.data);
      for (Index i = 0; i < h.batch; ++i)
        for (Index t = 0; t < h.tokens; ++t)
          for (Index g = 0; g < h.heads; ++g)
            for (Index d = 0; d < h.dim; ++d)
              all.insert(first - x.data() + i * h.batch_stride + t * h.token_stride +
                         g * h.head_stride + d * h.dim_stride);
      return all;
    };
    const std::set<Index> of_a = elements(a), of_b = elements(b);
    const bool share =
        std::any_of(of_b.begin(), of_b.end(), [&](Index e) { return of_a.count(e) != 0; });
    shared += share;
    const OwnedPositions p = arange(0, size[1]);
    if (share)
      refuses([&] { plan.apply({a, b}, p); }, "overlap");
    else
      EXPECT_NO_THROW(plan.apply({a, b}, p));
  }
  EXPECT_GT(shared, 500);
  EXPECT_LT(shared, 2500);
}

// Keys that are read where queries are turned in place would be turned twice.
TEST(Plan, OneInPlaceOverTheInputOfTheOther) {
  const RotaryPlan plan(half(8), DType::f32);
  std::vector<float> x(48, 1), y(48);
  const Heads in = heads(x.data(), 3, 2, 8), out = heads(y.data(), 3, 2, 8);
  const OwnedPositions p = arange(0, 3);
  refuses([&] { plan.apply({in, in}, {in, out}, p); }, "the output of q must not overlap k");
  refuses([&] { plan.apply({in, in}, {out, in}, p); }, "the output of k must not overlap q");
}

// q and k of one token in place are checked by a short way. It lets through what the long way does,
// which a call with an output of its own takes: here another object that says the same.
TEST(Plan, ATokenInPlaceIsHeldToTheSameRules) {
  const RotaryPlan plan(half(8), DType::f32);
  RotarySpec each = half(8);
  each.blocks[0].spectrum.heads = 2;
  each.blocks[0].spectrum.frequency = {1, 2, 3, 4, 5, 6, 7, 8};
  const RotaryPlan per_head(each, DType::f32);
  Random random(9);
  std::vector<float> x(4000, 1.0f);
  std::set<std::string> said;
  int passed = 0;
  const auto rarely = [&](Index often, Index seldom) {
    return random.integer(0, 9) == 0 ? seldom : often;
  };
  for (int n = 0; n < 40000; ++n) {
    const auto view = [&] {
      Heads h;
      h.data = random.integer(0, 30) == 0 ? nullptr : x.data() + 2000 + random.integer(-40, 40);
      h.dtype = random.integer(0, 30) == 0 ? DType::f16 : DType::f32;
      h.batch = rarely(1, random.integer(-1, 2)), h.tokens = rarely(1, random.integer(-1, 2));
      h.heads = rarely(random.integer(1, 3), random.integer(-1, 0)), h.dim = rarely(8, 6);
      h.batch_stride = random.integer(-50, 50), h.token_stride = random.integer(-50, 50);
      h.head_stride = rarely(8, random.integer(-20, 20));
      h.dim_stride = rarely(1, random.integer(-3, 3));
      return h;
    };
    const QK in{view(), view()}, same = in;
    const Index tokens = in.q.data != nullptr ? in.q.tokens : in.k.tokens;
    const OwnedPositions p = arange(0, std::max<Index>(tokens, 0));
    const RotaryPlan& used = n % 8 == 0 ? per_head : plan;
    const std::string short_way = refusal([&] { used.apply(in, p); });
    ASSERT_EQ(short_way, refusal([&] { used.apply(in, same, p); })) << n;
    said.insert(short_way.substr(0, short_way.find(", got")));
    passed += short_way == "accepted";
  }
  EXPECT_GT(passed, 5000);
  EXPECT_GT(said.size(), 8u);
}

// cos and sin are read for every head and token, gradients are added to beside what they are of.
TEST(Plan, WhatIsReadBesideTheTensorsIsNoOutput) {
  const RotaryPlan plan(half(4), DType::f64);
  std::vector<double> m(200, 1.0), before = m;
  const auto at = [&](Index first) { return heads(m.data() + first, 3, 2, 4); };  // 24 elements
  const auto table = [&](Index first, Index rows, Index columns) {
    return tensor(m.data() + first, {rows, columns});
  };
  const QK q{at(0), {}}, both{at(0), at(24)};
  for (const Index first : {0, 23, 35, 47}) {
    const std::string which = first < 24 ? "the output of q" : "the output of k";
    refuses([&] { plan.apply_rows(both, both, table(first, 3, 4)); },
            which + " must not overlap rows");
    refuses(
        [&] {
          plan.apply_rows(
              both, both,
              CallerRows{.cos = table(first, 3, 2), .sin = table(60, 3, 2), .index = {}});
        },
        which + " must not overlap cos");
    refuses(
        [&] {
          plan.apply_rows(
              both, both,
              CallerRows{.cos = table(60, 3, 2), .sin = table(first, 3, 2), .index = {}});
        },
        which + " must not overlap sin");
  }
  TensorView backwards = table(56, 3, 4);  // rows at 48, 52 and 56
  backwards.stride[0] = -4;
  EXPECT_EQ(refusal([&] {
              plan.apply_rows({at(100), at(76)}, {at(124), at(24)}, backwards);
            }),
            "accepted");
  backwards.data = m.data() + 55;
  m = before;
  refuses([&] { plan.apply_rows(both, both, backwards); }, "k must not overlap rows");
  EXPECT_EQ(m, before);
  const OwnedPositions p = arange(0, 3);
  std::vector<std::byte> workspace(plan.phase_gradients_workspace(q));
  const auto gradients = [&](Index frequency, Index gain) {
    PhaseGradients want;
    want.frequency = tensor(m.data() + frequency, {1, 1, 2});
    want.gain = tensor(m.data() + gain, {1});
    plan.phase_gradients(q, {at(24), {}}, p, want, workspace);
  };
  refuses([&] { gradients(3, 100); }, "the frequency gradient must not overlap q");
  refuses([&] { gradients(100, 30); }, "the gain gradient must not overlap d_out of q");
  refuses([&] { gradients(100, 101); },
          "the gain gradient must not overlap the frequency gradient");
  const CallerRows rows{.cos = table(60, 3, 2), .sin = table(70, 3, 2), .index = {}};
  const auto row_gradients = [&](Index cos, Index sin) {
    plan.row_gradients(q, {at(24), {}}, rows, {table(cos, 3, 2), table(sin, 3, 2)});
  };
  refuses([&] { row_gradients(20, 100); }, "the gradient of cos must not overlap q");
  refuses([&] { row_gradients(100, 74); }, "the gradient of sin must not overlap sin");
  refuses([&] { row_gradients(100, 101); },
          "the gradient of sin must not overlap the gradient of cos");
  EXPECT_EQ(m, before);
  EXPECT_EQ(refusal([&] { gradients(100, 110); }), "accepted");
  EXPECT_EQ(refusal([&] { row_gradients(120, 130); }), "accepted");
}

TEST(Plan, PolarKeysAreWrittenBesideTheirBias) {
  const PopePlan plan(Pope{.head_dim = 4}, DType::f32);
  std::vector<float> x(24, 1.0f), y(48);
  refuses(
      [&] {
        plan.apply(heads(x.data(), 3, 2, 4), heads(y.data(), 3, 2, 8), arange(0, 3),
                   tensor(y.data() + 40, {2, 4}));
      },
      "[pope] out must not overlap bias");
}

// A k that is to be written and has nothing to be read from stayed as it was.
TEST(Plan, AnOutputHasAnInput) {
  const RotaryPlan plan(half(4), DType::f32);
  std::vector<float> x(64, 1.0f);
  const Heads a = heads(x.data(), 3, 1, 4), b = heads(x.data() + 20, 3, 1, 4);
  const OwnedPositions p = arange(0, 3);
  refuses(
      [&] {
        plan.apply({a, {}}, {a, b}, p);
      },
      "an output must have an input; its memory is null, got \"k\"");
  refuses([&] { plan.apply({{}, a}, {b, a}, p); }, "its memory is null, got \"q\"");
  Heads none = b;
  none.heads = 0;
  EXPECT_EQ(refusal([&] { plan.apply({a, {}}, {a, none}, p); }), "accepted");
}

// One head: its stride leads nowhere, however many bytes it would be.
TEST(Plan, TheStrideOfASingleHeadHidesNoOverlap) {
  const RotaryPlan plan(half(8), DType::f32);
  std::vector<float> x(32, 1.0f);
  QK qk{heads(x.data(), 1, 1, 8), heads(x.data() + 4, 1, 1, 8)};
  const OwnedPositions p = arange(5, 1);
  for (const Index stride : {Index{8}, Index{1} << 60, Index{1} << 62}) {
    qk.q.head_stride = qk.k.head_stride = stride;
    qk.k.data = x.data() + 4;
    refuses([&] { plan.apply(qk, p); }, "q and k must not overlap");
    qk.k.data = x.data() + 8;
    EXPECT_NO_THROW(plan.apply(qk, p));
  }
}

}  // namespace
}  // namespace posenc
