// SPDX-License-Identifier: Apache-2.0
// Positions far from each other: a plan lowers the distances that occur, not all between them, and what
// comes out and goes back is what the whole range gives.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "posenc/absolute/initial.h"
#include "posenc/attention/plan.h"
#include "posenc/positions.h"
#include "posenc/registry.h"
#include "relative/lowering.h"
#include "support/refusal.h"

namespace posenc {
namespace {

using test::refusal;
using ::testing::HasSubstr;

constexpr Index kFarHeads = 2, kFarDim = 6;

std::vector<double> far_waves(Index n, double phase) {
  std::vector<double> x;
  for (Index i = 0; i < n; ++i) x.push_back(std::sin(1.9 * static_cast<double>(i) + phase));
  return x;
}

// Output, log-sum-exp and gradients of a scheme at positions, lowered for given distances.
struct FarRun {
  std::vector<std::vector<double>> numbers;

  FarRun(const std::string& scheme, const Positions& query, const Positions& key,
         const std::vector<DistanceRange>& distance) {
    const Index Tq = query.count, Tk = key.count, wide = kFarHeads * kFarDim;
    const AttentionPlan plan(scheme, {.heads = kFarHeads, .head_dim = kFarDim});
    std::deque<std::vector<double>> learned, of_learned;
    std::vector<NamedArray> parameters;
    std::vector<NamedGradient> named;
    const std::vector<Parameter> wanted = plan.parameters();
    for (const Parameter& p : wanted) {
      learned.push_back(initial_values(p, Draws(7, 0, learned.size())));
      of_learned.emplace_back(learned.back().size(), 0.0);
      parameters.push_back(
          {p.name, tensor(std::as_const(learned.back()).data(), DType::f64, p.shape)});
      named.push_back({p.name, tensor(of_learned.back().data(), DType::f64, p.shape)});
    }
    const LoweredAttention lowered = plan.lower(parameters, distance);
    const std::vector<double> q = far_waves(Tq * wide, 1), k = far_waves(Tk * wide, 2),
                              v = far_waves(Tk * wide, 3), d = far_waves(Tq * wide, 4),
                              dl = far_waves(kFarHeads * Tq, 5);
    std::vector<double> out(q.size()), lse(dl.size()), dq(q.size()), dk(k.size()), dv(v.size());
    AttentionArgs a;
    a.q = heads(q.data(), Tq, kFarHeads, kFarDim), a.k = heads(k.data(), Tk, kFarHeads, kFarDim);
    a.v = heads(v.data(), Tk, kFarHeads, kFarDim);
    a.query_positions = query, a.key_positions = key;
    const AttentionResult r{heads(out.data(), Tq, kFarHeads, kFarDim),
                            tensor(lse.data(), {1, kFarHeads, Tq})};
    lowered.forward(a, {}, r);
    AttentionGradients g;
    g.q = heads(dq.data(), Tq, kFarHeads, kFarDim), g.k = heads(dk.data(), Tk, kFarHeads, kFarDim);
    g.v = heads(dv.data(), Tk, kFarHeads, kFarDim);
    lowered.backward(
        a, {}, r, {heads(d.data(), Tq, kFarHeads, kFarDim), tensor(dl.data(), {1, kFarHeads, Tq})},
        g, named);
    numbers = {out, lse, dq, dk, dv};
    numbers.insert(numbers.end(), of_learned.begin(), of_learned.end());
  }
};

class SparseDistances : public ::testing::TestWithParam<const char*> {};

TEST_P(SparseDistances, GiveWhatTheWholeRangeGives) {
  std::vector<Index> q{70000, 3, 1}, k{0, 3, 2};
  for (int axis = 1; axis < 3; ++axis) q.insert(q.end(), {1, 2, 0}), k.insert(k.end(), {0, 1, 2});
  const bool three = std::string(GetParam()).starts_with("segatron");
  Positions query = positions(std::span<const Index>(q).first(three ? 9 : 3)),
            key = positions(std::span<const Index>(k).first(three ? 9 : 3));
  if (three)
    for (Positions* p : {&query, &key}) p->count = 3, p->axes = 3, p->axis_stride = 3;
  const std::vector<DistanceRange> few = distance_ranges(query, key);
  ASSERT_FALSE(few[0].runs.empty());
  std::vector<DistanceRange> all = few;
  for (DistanceRange& r : all) r.runs.clear();
  const FarRun sparse(GetParam(), query, key, few), whole(GetParam(), query, key, all);
  ASSERT_EQ(sparse.numbers.size(), whole.numbers.size());
  for (std::size_t n = 0; n < sparse.numbers.size(); ++n)
    for (std::size_t i = 0; i < sparse.numbers[n].size(); ++i)
      ASSERT_NEAR(sparse.numbers[n][i], whole.numbers[n][i],
                  1e-13 * (1 + std::abs(whole.numbers[n][i])))
          << n << " " << i;
}

INSTANTIATE_TEST_SUITE_P(
    Schemes, SparseDistances,
    ::testing::Values("kerple", "kerple weighted=true", "kerple kernel=power", "kerple kernel=nemo",
                      "sandwich width=8", "enformer length=100000 features=6", "tener",
                      "tener sign=query_minus_key key_term=false", "conformer d_model=8",
                      "conformer d_model=8 even=true biases=false", "marian_alibi",
                      "transformer_xl d_model=8", "transformer_xl d_model=8 clamp_len=69999",
                      "xlnet d_model=8", "xlnet d_model=8 clamp_len=69000",
                      "segatron_xl d_model=12", "dynamic_position_bias width=4",
                      "clipped clip=80000",
                      "deberta max_relative_positions=70001 position_buckets=0"));

// One query and one key 2 * 10^8 apart took 3.1 GB and 12.6 s: a table of all sizes of distances. It has
// two rows, of 0 and of the distance, and a line of one.
TEST(FarPositions, TakeTheMemoryOfTheTokens) {
  const std::vector<Index> near{0, 1}, far{200000000, 200000001};
  const std::vector<DistanceRange> d = distance_ranges(positions(std::span<const Index>(far)),
                                                       positions(std::span<const Index>(near)));
  EXPECT_TRUE(d[0].runs.empty());  // three distances without a gap
  EXPECT_EQ(d[0].min, 199999999);
  const std::vector<double> p{1, 0.5}, w{0.5, 0.25};
  const ConstTensorView parameters[] = {tensor(p.data(), {2}), tensor(w.data(), {2})};
  LoweredTerms low;
  Kerple{}.lower({.heads = 2, .head_dim = 4, .distance = d}, parameters, low);
  EXPECT_LE(term_arrays(low.terms.at(0)).table.shape[2], 4);
  EXPECT_LE(std::get<ProductTerm>(low.terms[0]).lines[0].count, 3);
  // p ln(1 + a n)
  const double want = -1 * std::log1p(0.5 * 200000000.0);
  const std::int32_t row = row_of(std::get<ProductTerm>(low.terms[0]).lines[0], 200000000);
  EXPECT_NEAR(data_of<double>(std::get<ProductTerm>(low.terms[0]).table)[row], want,
              1e-14 * std::abs(want));
}

TEST(FarPositions, AreToldAsRuns) {
  const std::vector<Index> q{0, 1, 2, 1000000, 1000001}, k{0, 1, 5000000};
  const DistanceRange r = distance_ranges(positions(std::span<const Index>(q)),
                                          positions(std::span<const Index>(k)))[0];
  // Queries 0 .. 2 and 10^6 .. 10^6 + 1 to keys 0 .. 1 and 5 * 10^6, from the last to the first.
  const Index want[][2] = {{-5000000, -4999998}, {-4000000, -3999999}, {-1, 2}, {999999, 1000001}};
  ASSERT_EQ(r.runs.size(), 4u);
  for (std::size_t n = 0; n < 4; ++n)
    EXPECT_TRUE(r.runs[n].first == want[n][0] && r.runs[n].last == want[n][1]) << n;
  EXPECT_EQ(r.min, -5000000);
  EXPECT_EQ(r.max, 1000001);
  const std::vector<double> real{0.5, 3000000.25}, zero{0};
  const DistanceRange of_real = distance_ranges(positions(std::span<const double>(real)),
                                                positions(std::span<const double>(zero)))[0];
  ASSERT_EQ(of_real.runs.size(), 2u);
  EXPECT_EQ(of_real.runs[0].first, 0);
  EXPECT_EQ(of_real.runs[0].last, 1);
  EXPECT_EQ(of_real.runs[1].last, 3000001);
}

TEST(FarPositions, OthersThanThoseLoweredAreRefused) {
  const std::vector<Index> q{0, 1000000}, k{0}, other{0, 500000};
  const Positions at = positions(std::span<const Index>(q)),
                  keys = positions(std::span<const Index>(k)),
                  between = positions(std::span<const Index>(other));
  EXPECT_NO_THROW(FarRun("kerple", at, keys, distance_ranges(at, keys)));
  EXPECT_THAT(refusal([&] { FarRun("kerple", between, keys, distance_ranges(at, keys)); }),
              HasSubstr("the distances of a call must lie in those that were lowered, 0 to "
                        "1000000, of which not all were, got 500000"));
  EXPECT_NO_THROW(FarRun("alibi", between, keys, distance_ranges(at, keys)));  // by no line
  LoweredTerms low;
  const std::vector<double> p{1, 0.5};
  const ConstTensorView parameters[] = {tensor(p.data(), {2}), tensor(p.data(), {2})};
  const auto with = [&](DistanceRange r) {
    return refusal([&] {
      Kerple{}.lower({.heads = 2, .head_dim = 4, .distance = {std::move(r)}}, parameters, low);
    });
  };
  EXPECT_THAT(with({0, 9, {{0, 3}, {3, 9}}}),
              HasSubstr("runs of distances must ascend from min to max"));
  EXPECT_THAT(with({0, 9, {{1, 9}}}), HasSubstr("runs of distances must ascend"));
}

TEST(FarPositions, RangesOfRuns) {
  const DistanceRange r{-100000, 200000, {{-100000, -99999}, {-1, 2}, {199999, 200000}}};
  const DistanceRange cut = detail::clipped(r, -70000, 70000);
  ASSERT_EQ(cut.runs.size(), 3u);
  EXPECT_EQ(cut.min, -70000);
  EXPECT_EQ(cut.runs[1].first, -1);
  EXPECT_EQ(cut.max, 70000);
  EXPECT_TRUE(detail::clipped(r, -8, 8).runs.empty());  // few enough for a line of all
  const DistanceRange sizes = detail::magnitudes(r);
  ASSERT_EQ(sizes.runs.size(), 3u);
  EXPECT_EQ(sizes.runs[0].first, 0);
  EXPECT_EQ(sizes.runs[0].last, 2);
  EXPECT_EQ(sizes.runs[1].first, 99999);
  const DistanceRange both = detail::mirrored(r);
  EXPECT_EQ(both.min, -200000);
  EXPECT_EQ(both.runs.size(), 5u);
  const detail::Distances d("test", r, 1);
  EXPECT_EQ(d.count(), 8);
  const std::vector<Index> list = d.list();
  for (std::size_t n = 0; n < list.size(); ++n) EXPECT_EQ(d.row(list[n]), static_cast<Index>(n));
}

}  // namespace
}  // namespace posenc
