// SPDX-License-Identifier: Apache-2.0
// Regions of the score in the fast engine: maps of distances around its blocks and tiles, few queries, regions that
// overlap, and positions that are not sorted, not whole or too far apart for doubles.
#include <gtest/gtest.h>

#include <numeric>

#include "attention/random_call.h"
#include "attention/region_call.h"
#include "posenc/core/isa.h"
#include "support/suite.h"

namespace posenc {
namespace {

std::vector<Index> to_vector(Index begin, Index count) {
  std::vector<Index> p(static_cast<std::size_t>(count));
  std::iota(p.begin(), p.end(), begin);
  return p;
}

DistanceMap map_of(std::size_t kind, Index queries, Index keys) {
  const std::vector<Index> q = to_vector(keys - std::min(keys, queries), queries),
                           k = to_vector(0, keys);
  if (kind == 0) return self_extend(q, k, 37, 4, SelfExtendRatio::floored);
  if (kind == 1) return rerope(q, k, 90);
  if (kind == 2) return leaky_rerope(q, k, 5, 3);
  return dual_chunk(q, k, {50, 9});
}

void place(RegionCall& call) {
  call.query_at = arange(call.Tk - std::min(call.Tk, call.Tq), call.Tq);
  call.args.query_positions = call.query_at;
  call.args.mask.query_offset = call.Tk - std::min(call.Tk, call.Tq);
}

TEST(FastRegions, MapsAroundBlocksAndTiles) {
  constexpr Index kLengths[] = {1, 13, 64, 130, 200};
  constexpr Index kDims[] = {2, 8, 16, 20, 34};
  std::size_t seed = 0;
  for (const Isa isa : supported_isas()) {
    force_isa(isa);
    for (const Index queries : kLengths) {
      const Index keys = kLengths[(seed * 7 + 3) % std::size(kLengths)],
                  heads = queries < 50 ? 4 : 2;
      const std::size_t kind = seed % 4;
      RegionCall call(1, queries, keys, heads, heads / 2, kDims[seed % std::size(kDims)], 8, seed);
      place(call);
      const Index heads_of_k[] = {1, heads / 2, heads};
      call.add(map_of(kind, queries, keys), heads_of_k[seed / 4 % 3]);
      call.args.mask.causal = ++seed % 3 != 0;
      ASSERT_EQ(call.wrong_backward(), "")
          << isa_name(isa) << " " << queries << " queries, " << keys << " keys, head of " << call.D
          << " kind " << kind;
    }
  }
  reset_isa();
}

TEST(FastRegions, FewQueries) {
  std::size_t seed = 0;
  for (const Isa isa : supported_isas()) {
    force_isa(isa);
    for (const Index keys : {1, 31, 33, 100, 260, 4500})
      for (const Index queries : {1, 3, 8}) {
        if (keys > 4096 && queries == 8) continue;  // slices of 4096 keys
        const std::size_t kind = seed % 4;
        RegionCall call(1, queries, keys, 2, 2, seed % 3 == 0 ? 16 : 10, 8, seed);
        place(call);
        call.add(map_of(kind, queries, keys), 1 + static_cast<Index>(seed / 4 % 2));
        call.args.mask.causal = ++seed % 2 == 0;
        ASSERT_EQ(call.wrong(), "") << isa_name(isa) << queries << " " << keys << " " << kind;
      }
  }
  reset_isa();
}

// Several regions contain a pair, and some pairs are in none.
TEST(FastRegions, TheFirstThatContainsAPairApplies) {
  for (const Index queries : {4, 150}) {
    RegionCall call(2, queries, 260, 2, 1, 8, 8, 3);
    DistanceRegion r;
    r.query = arange(7, queries), r.key = arange(0, 260);
    r.chunk = 3, r.low = 5, r.high = 20;
    call.add(r, 1);
    r.query = arange(-9, queries);
    r.chunk = 2, r.low = 2, r.high = 60;
    call.add(r, 2);
    r.query = arange(1, queries);
    r.chunk = 1, r.low = 150, r.high = kUnbounded;
    call.add(r, 1);
    EXPECT_EQ(call.wrong_backward(), "");
    const std::vector<double> slopes{-0.1, 0.2};
    const Term terms[] = {LinearTerm{.table = tensor(slopes.data(), {1, 1, 1, 2})}};
    call.args.terms = terms;
    call.args.softcap = 3;
    EXPECT_EQ(call.wrong_backward(), "");
  }
}

// A number of the query for all keys, which is no start value of a key.
TEST(FastRegions, OneRowOfATableForAllPairs) {
  const std::vector<double> row{0.3, -1.2, 0.7, 0.4, -0.6, 1.1, -0.2, 0.9};
  const std::int32_t first = 0;
  for (const Index queries : {4, 150}) {
    RegionCall call(1, queries, 128, 2, 1, 8, 8, 3);
    place(call);
    call.add(map_of(0, queries, 128), 1);
    ProductTerm t;
    t.query.content = true, t.table = tensor(row.data(), {1, 1, 1, 8});
    t.lines[0] = {&first, 1, 0};
    const Term terms[] = {t};
    call.args.terms = terms;
    EXPECT_EQ(call.wrong_backward(), "") << queries;
  }
}

TEST(FastRegions, RandomCalls) {
  int ran = 0;
  for (std::uint64_t seed = 0; seed < 3000; ++seed) {
    constexpr Index kQueries[] = {3, 8, 16, 20, 33, 70}, kKeys[] = {16, 18, 33, 64, 70};
    const RandomCall call(seed, {.queries = kQueries[seed % 6],
                                 .keys = kKeys[seed / 6 % 5],
                                 .in_float = true,
                                 .regions = true});
    if (!is_fast(call.args)) continue;
    ASSERT_EQ(wrong_of_fast(of_attend(call.args), call.plain, call.args.q.dtype), "")
        << "seed " << seed;
    ++ran;
  }
  EXPECT_GT(ran, 600);
}

TEST(FastRegions, PositionsThatAreNotSortedOrNotWholeOrFarApart) {
  for (const Index queries : {5, 140})
    for (const int kind : {0, 1, 2, 3}) {
      RegionCall call(1, queries, 200, 2, 1, 8, 8, 4);
      DistanceRegion r;
      r.query = arange(3, queries), r.key = arange(0, 200);
      r.chunk = kind == 3 ? 1 : 4, r.low = 3, r.high = 30;
      call.add(r, 1);
      // Doubles do not tell neighbours at 2^60 apart; differences of the last kind overflow 64 bits.
      constexpr Index kFar[] = {0, 0, Index{1} << 60, Index{1} << 62};
      const Index far = kFar[static_cast<std::size_t>(kind)];
      std::vector<double> real;
      std::vector<Index> whole;
      for (Index j = 0; j < 200; ++j) {
        real.push_back(static_cast<double>(j * 37 % 200) * 0.75);
        whole.push_back((kind == 1 ? j * 37 % 200 : j - 100) + far);
      }
      call.args.key_positions = kind == 0 ? Positions{real.data(), DType::f64, 1, 200}
                                          : Positions{whole.data(), DType::i64, 1, 200};
      if (kind > 1) call.query_at = arange(kind == 2 ? far : -far, queries);
      call.args.query_positions = call.query_at;
      // The reference has positions in double.
      AttentionArgs exact = call.args;
      exact.exact = true;
      EXPECT_EQ(explain_plan(call.args).backward_engine, "fast");
      EXPECT_EQ(wrong_gradients(gradients_of_fast(call.args), gradients_of_fast(exact), DType::f32,
                                gradient_tolerance(DType::f32)),
                "")
          << queries << " " << kind;
    }
}

// Outputs from the scores that the authors' programs computed: softmax of them times the values.
TEST(FastRegions, ScoresOfPublishedPrograms) {
  const support::Suite suite("rotary_engines");
  const auto expect = [&](const std::string& name, const DistanceMap& map) {
    SCOPED_TRACE(name);
    const auto q = suite(name, "q"), k = suite(name, "k"), scores = suite(name, "scores");
    const Index h = q.dim(1), t = q.dim(2), d = q.dim(3);
    RegionCall call(1, t, t, h, h, d, d, 5);
    const auto by_token = [&](const std::vector<double>& x, std::vector<float>& to) {
      for (Index n = 0; n < h * t * d; ++n)
        to[static_cast<std::size_t>((n / d % t * h + n / d / t) * d + n % d)] =
            static_cast<float>(x[static_cast<std::size_t>(n)]);
    };
    by_token(q.value, call.narrow[0]), by_token(k.value, call.narrow[1]);
    call.base = 10000;
    call.add(map, h);
    call.args.mask.causal = true;
    ASSERT_TRUE(is_fast(call.args));
    const CallResult got = of_attend(call.args);
    for (Index i = 0; i < t; ++i)
      for (Index n = 0; n < h; ++n) {
        double sum = 0;
        std::vector<double> out(static_cast<std::size_t>(d));
        for (Index j = 0; j <= i; ++j) {
          const double p = std::exp(scores.value[static_cast<std::size_t>((n * t + i) * t + j)]);
          sum += p;
          for (Index c = 0; c < d; ++c)
            out[static_cast<std::size_t>(c)] +=
                p * call.wide[2][static_cast<std::size_t>((j * h + n) * d + c)];
        }
        for (Index c = 0; c < d; ++c)
          ASSERT_NEAR(got.out[static_cast<std::size_t>((i * h + n) * d + c)],
                      out[static_cast<std::size_t>(c)] / sum, 5e-6)
              << i << " " << n;
      }
  };
  const std::vector<Index> p30 = to_vector(0, 30), p33 = to_vector(0, 33);
  expect("paper_self_extend", self_extend(p30, p30, 8, 4, SelfExtendRatio::real));
  expect("paper_dual_chunk", dual_chunk(p33, p33, {12, 2}));
}

TEST(FastRegions, HiddenKeysMayHoldAnythingAndBadOnesGoToTheExactEngine) {
  for (const Index queries : {3, 90}) {
    RegionCall call(1, queries, 200, 2, 1, 8, 8, 6);
    place(call);
    call.add(map_of(0, queries, 200), 1);
    const std::vector<std::int64_t> length{144};
    call.args.mask.key_length = tensor(length.data(), {1});
    const CallResult clean = gradients_of_fast(call.args);
    for (std::size_t n = 0; n < 2; ++n)
      std::fill(call.copies[2 * n + 1].begin() + 144 * 8, call.copies[2 * n + 1].end(),
                std::nanf(""));
    const CallResult got = gradients_of_fast(call.args);
    EXPECT_EQ(got.out, clean.out);
    EXPECT_EQ(got.gradients, clean.gradients);
    call.copies[3][40 * 8 + 1] = 1e30f;
    AttentionArgs exact = call.args;
    exact.exact = true;
    EXPECT_LE(difference(of_attend(call.args).out, of_attend(exact).out), kFloatError);
    const CallResult bad = gradients_of_fast(call.args), want = gradients_of_fast(exact);
    for (std::size_t n = 0; n < want.gradients.size(); ++n)
      EXPECT_LE(difference(bad.gradients[n], want.gradients[n]), gradient_tolerance(DType::f32));
  }
}

TEST(FastRegions, AnyNumberOfThreadsGivesTheSameBits) {
  RegionCall call(2, 200, 300, 4, 2, 16, 16, 4);
  call.add(map_of(0, 200, 300), 1);
  expect_same_bits(call.args);
  expect_same_gradient_bits(call.args);
}

}  // namespace
}  // namespace posenc
