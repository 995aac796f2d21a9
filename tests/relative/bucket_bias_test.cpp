// SPDX-License-Identifier: Apache-2.0
// Biases made of T5's buckets, and of a perceptron of the distance: the law of gradients, values by
// hand, refusals. Whole passes of their programs are in the suite relative_bias.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <utility>

#include "posenc/relative/cpmant.h"
#include "posenc/relative/dynamic_position_bias.h"
#include "posenc/relative/layoutlm.h"
#include "posenc/relative/t5.h"
#include "posenc/relative/udop.h"
#include "posenc/relative/wavlm.h"
#include "support/refusal.h"
#include "support/scheme_laws.h"

namespace posenc {
namespace {

using test::check_scheme_laws;
using test::LawCall;
using test::refusal;
using ::testing::HasSubstr;

const ScoreShape kBucketShape{.heads = 2, .head_dim = 4, .distance = {{-9, 9}, {-9, 9}, {-9, 9}}};

T5 small_t5() {
  return {.num_buckets = 8, .max_distance = 6};
}

TEST(BucketBias, LawsOfT5) {
  T5 other = small_t5();
  other.axis = 1;
  other.heads_first = true;
  check_scheme_laws(other);
  other.per_unit = 1.7;
  check_scheme_laws(other);
  other.bidirectional = false;
  check_scheme_laws(other);
}

TEST(BucketBias, LawsOfDocuments) {
  const LayoutLm layout{
      .num_buckets = 8, .max_distance = 6, .num_buckets_2d = 4, .max_distance_2d = 3};
  check_scheme_laws(layout);
  LayoutLm second = layout;
  second.scaled = false;
  second.heads_first = true;
  check_scheme_laws(second);
  LawCall call;
  call.scale.reset();
  check_scheme_laws(Udop{.num_buckets = 8,
                         .max_distance = 6,
                         .horizontal_buckets = 8,
                         .horizontal_max_distance = 9,
                         .vertical_buckets = 4,
                         .vertical_max_distance = 3,
                         .per_unit = 1.5},
                    call);
}

TEST(BucketBias, LawsOfWhatACallBrings) {
  LawCall call;
  call.classes = {{"query_segment", 3}, {"key_segment", 3}};
  check_scheme_laws(CpmAnt{.num_buckets = 8, .max_distance = 6, .segments = 3}, call);
  check_scheme_laws(WavLm{.num_buckets = 8, .max_distance = 6});
}

TEST(BucketBias, LawsOfThePerceptron) {
  for (const bool norm : {false, true})
    for (const Index depth : {1, 3})
      check_scheme_laws(DynamicPositionBias{
          .width = 3, .depth = depth, .log_distance = depth == 1, .norm = norm, .axis = depth - 1});
}

// Distances so far apart that a line of all of them would be long: the rows change at the thresholds.
TEST(BucketBias, FarWholeDistancesHaveALineOfThresholds) {
  for (const bool both : {true, false}) {
    const T5 rule{.bidirectional = both, .num_buckets = 32, .max_distance = 1000000000};
    TermStore store;
    const ScoreShape shape{.heads = 1, .head_dim = 1, .distance = {{-2000000000, 2000000000}}};
    const IndexLine line = rule.line(shape, store);
    EXPECT_LE(line.count, 32);
    std::vector<Index> distances;
    for (Index size = 0; size < 40; ++size) distances.push_back(size);
    for (Index size = 40; size < 3000000000; size += size / 7) distances.push_back(size);
    for (const Index size : distances)
      for (const Index delta : {size, -size}) {
        const double at = static_cast<double>(delta);
        EXPECT_EQ(row_of(line, at), rule.bucket(delta)) << delta;
        EXPECT_EQ(row_of(line, at + 0.5), rule.bucket(delta)) << delta << " and a half";
      }
  }
}

// Row of a real distance: trunc(unit |delta|) is bucketed, on both sides of every edge.
TEST(BucketBias, RealDistancesAreTruncated) {
  for (const bool both : {true, false}) {
    T5 rule = small_t5();
    rule.bidirectional = both;
    rule.per_unit = 4;  // exact in binary
    TermStore store;
    const IndexLine line = rule.line(kBucketShape, store);
    for (Index n = -80; n <= 80; ++n) {  // steps of an eighth of a token
      const double delta = static_cast<double>(n) / 32;
      EXPECT_EQ(row_of(line, delta), rule.bucket(n / 8)) << both << " " << n;
      if (n % 8 == 0 && n != 0) {
        EXPECT_EQ(row_of(line, std::nextafter(delta, 0)), rule.bucket((n - (n > 0 ? 1 : -1)) / 8))
            << both << " just before " << n;
      }
    }
  }
}

TEST(BucketBias, LayoutLmScalesItsTablesInTheThirdVersion) {
  for (const bool scaled : {true, false}) {
    LayoutLm x;
    x.scaled = scaled;
    const std::vector<double> order(64, 1), box(128, 1);
    const ConstTensorView p[] = {tensor(order.data(), {32, 2}), tensor(box.data(), {64, 2}),
                                 tensor(box.data(), {64, 2})};
    LoweredTerms low;
    x.lower(kBucketShape, p, low);
    ASSERT_EQ(low.terms.size(), 3u);
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(std::get<ProductTerm>(low.terms[i]).scale, scaled ? 0.5 : 1);
      EXPECT_EQ(std::get<ProductTerm>(low.terms[i]).lines[0].axis, static_cast<std::int32_t>(i));
    }
    EXPECT_FALSE(low.requests.scale);
  }
}

// Boxes from 0 to 1: a hundredth counts as a token, on the two axes after the order.
TEST(BucketBias, UdopCountsHundredths) {
  const Udop x;
  const std::vector<double> table(64, 1);
  const ConstTensorView one = tensor(table.data(), {32, 2});
  const ConstTensorView p[] = {one, one, one};
  LoweredTerms low;
  x.lower(kBucketShape, p, low);
  ASSERT_EQ(low.terms.size(), 3u);
  EXPECT_EQ(low.requests.scale, 1);
  const T5 rule{.num_buckets = 32, .max_distance = 100};
  for (std::size_t i = 1; i < 3; ++i) {
    const IndexLine& line = std::get<ProductTerm>(low.terms[i]).lines[0];
    EXPECT_EQ(line.axis, static_cast<std::int32_t>(i));
    for (Index n = -99; n < 100; ++n) {
      const double between = (static_cast<double>(n) + (n < 0 ? -0.5 : 0.5)) / 100;
      EXPECT_EQ(row_of(line, between), rule.bucket(n)) << n;
    }
  }
}

// A pair of segments: the two terms never serve together, and always one of them does.
TEST(BucketBias, CpmAntHasOneRowForEveryPair) {
  const CpmAnt x{.num_buckets = 8, .max_distance = 6, .segments = 3};
  const std::vector<double> table(17 * 2, 1);
  const ConstTensorView p[] = {tensor(table.data(), {17, 2})};
  LoweredTerms low;
  x.lower(kBucketShape, p, low);
  ASSERT_EQ(low.terms.size(), 2u);
  for (Index i = 0; i < 3; ++i)
    for (Index j = 0; j < 3; ++j) {
      EXPECT_EQ(std::get<ProductTerm>(low.terms[0]).pair.row[i * 3 + j], i == j ? 0 : -1);
      EXPECT_EQ(std::get<ProductTerm>(low.terms[1]).pair.row[i * 3 + j],
                i == j ? -1 : 8 + i * 3 + j);
    }
}

TEST(BucketBias, Refusals) {
  const ScoreShape s = kBucketShape;
  T5 wrong = small_t5();
  wrong.axis = 8;
  EXPECT_THAT(refusal([&] { wrong.parameters(s); }), HasSubstr("axis"));
  wrong.axis = 0;
  wrong.per_unit = -1;
  EXPECT_THAT(refusal([&] { wrong.parameters(s); }), HasSubstr("per_unit"));
  EXPECT_THAT(refusal([&] { (LayoutLm{.num_buckets = 7}.parameters(s)); }), HasSubstr("even"));
  EXPECT_THAT(refusal([&] { (LayoutLm{.max_distance_2d = 5}.parameters(s)); }),
              HasSubstr("max_distance"));
  EXPECT_THAT(refusal([&] { (Udop{.per_unit = 0}.parameters(s)); }), HasSubstr("[udop]"));
  EXPECT_THAT(refusal([&] { (CpmAnt{.segments = 0}.parameters(s)); }), HasSubstr("segments"));
  EXPECT_THAT(refusal([&] { (CpmAnt{.num_buckets = 5}.parameters(s)); }), HasSubstr("even"));
  EXPECT_THAT(refusal([&] { (WavLm{.max_distance = 2}.parameters(s)); }),
              HasSubstr("max_distance"));
  EXPECT_THAT(refusal([&] { DynamicPositionBias{}.parameters(s); }), HasSubstr("width"));
  EXPECT_THAT(refusal([&] { (DynamicPositionBias{.width = 2, .depth = 0}.parameters(s)); }),
              HasSubstr("depth"));
  LoweredTerms low;
  EXPECT_THAT(refusal([&] { LayoutLm{}.lower(s, {}, low); }), HasSubstr("[layoutlm]"));
  EXPECT_TRUE(low.terms.empty());
}

}  // namespace
}  // namespace posenc
