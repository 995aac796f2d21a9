// SPDX-License-Identifier: Apache-2.0
// A plan holds for some lengths: a call whose largest position + 1 is another one is refused.
// Where the numbers come from: Phi-4-mini-instruct's config.json (original_max_position_embeddings
// 4096) and transformers' rule, long factors iff max(position_ids) + 1 > 4096.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "posenc/model/read.h"
#include "posenc/positions/sequence.h"
#include "posenc/registry.h"
#include "posenc/rotary/by_position.h"
#include "posenc/rotary/plan.h"
#include "posenc/rotary/pope.h"
#include "posenc/rotary/table.h"
#include "support/random.h"
#include "support/refusal.h"

namespace posenc {
namespace {

using test::Random;
using test::refusal;
using ::testing::HasSubstr;

const std::string kPhi = POSENC_SOURCE_DIR "/conformance/rotary_hugging_face/configs/phi_4_mini";

RotarySpec phi(Index context) {
  ReadOptions options;
  if (context > 0) options.context = context;
  return read_model(kPhi, options).rotary(0);
}
std::string call(const RotaryPlan& plan, const Positions& p,
                 RotateMode mode = RotateMode::forward) {
  std::vector<float> x(static_cast<std::size_t>(p.batch * p.count * plan.spec().head_dim), 1.0f);
  Heads h = heads(x.data(), p.batch * p.count, 1, plan.spec().head_dim);
  h.batch = p.batch, h.tokens = p.count, h.batch_stride = p.count * h.token_stride;
  return refusal([&] { plan.apply(h, p, mode); });
}
RotarySpec bounded(Index from, Index to, Index axes = 1) {
  RotarySpec spec = resolve(Rope{.head_dim = 8, .pairing = Pairing::half_split});
  Spectrum& s = spec.blocks[0].spectrum;
  s.axes = axes;
  s.frequency.resize(static_cast<std::size_t>(4 * axes), 0.5);
  s.valid_from = from, s.valid_to = to;
  return spec;
}

TEST(Lengths, OfAModelWithTwoLists) {
  const RotarySpec as_is = phi(0), short_list = phi(2048);
  EXPECT_EQ(as_is.valid_from(), 4097);
  EXPECT_EQ(as_is.valid_to(), kUnbounded);
  EXPECT_EQ(short_list.valid_to(), 4096);
  const RotaryPlan large(as_is, DType::f32), small(short_list, DType::f32);
  EXPECT_EQ(call(large, arange(100, 1)),
            "[rotary] length of the call (its largest position + 1) must be at least 4097, where "
            "the frequencies hold, unless the plan has outside = allow, got 101");
  EXPECT_EQ(
      call(small, arange(100000, 1)),
      "[rotary] length of the call (its largest position + 1) must be at most 4096, where the "
      "frequencies hold, unless the plan has outside = allow, got 100001");
  EXPECT_THAT(call(large, arange(4095, 1)), HasSubstr("got 4096"));
  EXPECT_EQ(call(large, arange(4096, 1)), "accepted");
  EXPECT_EQ(call(large, arange(0, 4097)), "accepted");  // position 100 too, in a long sequence
  EXPECT_EQ(call(small, arange(4095, 1)), "accepted");
  EXPECT_THAT(call(small, arange(4096, 1)), HasSubstr("got 4097"));
  const RotaryPlan any(as_is, DType::f32, {.outside = OutsideRange::allow});
  EXPECT_EQ(call(any, arange(100, 1)), "accepted");
  EXPECT_EQ(
      call(RotaryPlan(short_list, DType::f32, {.outside = OutsideRange::allow}), arange(100000, 1)),
      "accepted");
  // A shift is a distance, not a position.
  EXPECT_EQ(call(large, arange(100, 1), RotateMode::shift), "accepted");
  for (const RotateMode mode : {RotateMode::gradient, RotateMode::inverse})
    EXPECT_THAT(call(large, arange(100, 1), mode), HasSubstr("length"));
  EXPECT_THAT(refusal([&] { RotaryPlan(as_is, DType::f32, {static_cast<OutsideRange>(9)}); }),
              HasSubstr("outside must be one of refuse, allow, got 9"));
}

// Against the plainest reading of the rule: every element, every type, any strides.
TEST(Lengths, OfAnyListOfPositions) {
  Random random(7);
  int refused = 0;
  for (int n = 0; n < 3000; ++n) {
    const Index axes = random.integer(1, 3), batch = random.integer(1, 3);
    const Index count = random.integer(1, 40), stride = random.integer(1, 3);
    std::vector<Index> wide(static_cast<std::size_t>(axes * batch * count * stride), 1 << 20);
    std::vector<std::int32_t> narrow(wide.size());
    std::vector<double> real(wide.size(), 1e9);
    const bool shared = random.integer(0, 3) == 0;
    Positions p;
    p.axes = static_cast<std::int32_t>(axes), p.batch = batch, p.count = count;
    p.token_stride = stride, p.batch_stride = shared ? 0 : count * stride;
    p.axis_stride = batch * count * stride;
    const int type = static_cast<int>(random.integer(0, 2));
    Index most = -1000;
    for (Index a = 0; a < axes; ++a)
      for (Index b = 0; b < batch; ++b)
        for (Index t = 0; t < count; ++t) {
          const auto at =
              static_cast<std::size_t>(a * p.axis_stride + b * p.batch_stride + t * p.token_stride);
          wide[at] = random.integer(-5, 30);
          narrow[at] = static_cast<std::int32_t>(wide[at]);
          // Between two whole positions: the sequence must hold the upper one.
          real[at] = static_cast<double>(wide[at]) - (type == 2 && wide[at] % 2 == 0 ? 0.25 : 0);
        }
    for (Index a = 0; a < axes; ++a)
      for (Index b = 0; b < batch; ++b)
        for (Index t = 0; t < count; ++t)
          most = std::max(most, wide[static_cast<std::size_t>(
                                    a * p.axis_stride + b * p.batch_stride + t * p.token_stride)]);
    p.data = type == 0   ? static_cast<const void*>(wide.data())
             : type == 1 ? static_cast<const void*>(narrow.data())
                         : static_cast<const void*>(real.data());
    p.type = type == 0 ? DType::i64 : type == 1 ? DType::i32 : DType::f64;
    const Index length = std::max<Index>(most + 1, 0);
    ASSERT_EQ(length_of(p), length) << n;
    const Index from = random.integer(0, 30), to = std::max(from, random.integer(20, 45));
    const bool fits = (from <= 1 || length >= from) && length <= to;
    refused += !fits;
    const std::string said = call(RotaryPlan(bounded(from, to, axes), DType::f32), p);
    ASSERT_EQ(said == "accepted", fits) << said << " " << from << " " << to << " " << length;
  }
  EXPECT_GT(refused, 500);
  EXPECT_LT(refused, 2500);
  EXPECT_EQ(length_of(Positions{}), 0);
  const std::vector<Index> last{kUnbounded};
  EXPECT_EQ(length_of(positions(std::span<const Index>(last))), kUnbounded);
}

TEST(Lengths, OfPositionsThatTellNoneOrNoEnd) {
  const auto length = [](double p) { return length_of(positions(std::span<const double>(&p, 1))); };
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(length(infinity), kUnbounded);
  EXPECT_EQ(length(0x1p63), kUnbounded);
  EXPECT_EQ(length(-0x1p63), 0);
  EXPECT_EQ(length(-infinity), 0);
  EXPECT_EQ(length(std::numeric_limits<double>::quiet_NaN()), 0);
  // Keys before the first token, as a relative shift has them: lengths from 1 on hold for them.
  const std::vector<Index> negative{-3, -1};
  const Positions before = positions(std::span<const Index>(negative));
  EXPECT_EQ(length_of(before), 0);
  EXPECT_EQ(call(RotaryPlan(bounded(1, 20), DType::f32), before), "accepted");
  EXPECT_NE(call(RotaryPlan(bounded(2, 20), DType::f32), before), "accepted");
}

TEST(Lengths, OfRowsGradientsAndTwoPlans) {
  const RotaryPlan plan(bounded(10, 20), DType::f32);
  std::vector<float> x(8, 1.0f), row(8);
  const Heads h = heads(x.data(), 1, 1, 8);
  const auto rows = [&](Index p) {
    return refusal([&] { plan.rows(arange(p, 1), tensor(row.data(), {1, 8})); });
  };
  EXPECT_THAT(rows(8), HasSubstr("must be 10 to 20, where the frequencies hold"));
  EXPECT_EQ(rows(9), "accepted");
  EXPECT_EQ(rows(19), "accepted");
  EXPECT_THAT(rows(20), HasSubstr("got 21"));
  double gain = 0;
  PhaseGradients want;
  want.gain = tensor(&gain, {1});
  const QK qk{h, {}};
  std::vector<std::byte> memory(plan.phase_gradients_workspace(qk) + 64);
  const auto gradient = [&](Index p) {
    return refusal([&] { plan.phase_gradients(qk, qk, arange(p, 1), want, memory); });
  };
  EXPECT_THAT(gradient(20), HasSubstr("length of the call"));
  EXPECT_EQ(gradient(19), "accepted");
  const RotaryPlan plain(bounded(0, kUnbounded), DType::f32);
  std::vector<float> tokens(24, 1.0f);
  const QK all{heads(tokens.data(), 3, 1, 8), {}};
  const auto both = [&](Index first) {
    return refusal([&] { apply(plain, plan, 4, all, all, arange(first, 3)); });
  };
  EXPECT_THAT(both(2), HasSubstr("length of the call"));
  EXPECT_EQ(both(8), "accepted");
  // Runs below the bound are short, the sequence is not.
  const std::vector<Index> mixed{1, 15, 2};
  EXPECT_EQ(
      refusal([&] { apply(plain, plan, 4, all, all, positions(std::span<const Index>(mixed))); }),
      "accepted");
  Spectrum s = geometric_spectrum(10000, 16);
  s.valid_from = 10, s.valid_to = 20;
  const PopePlan pope(s, DType::f32), anywhere(s, DType::f32, {.outside = OutsideRange::allow});
  std::vector<float> y(16);
  const Heads out = heads(y.data(), 1, 1, 16);
  EXPECT_EQ(refusal([&] { pope.apply(h, out, arange(9, 1)); }), "accepted");
  EXPECT_THAT(refusal([&] { pope.apply(h, out, arange(20, 1)); }), HasSubstr("[pope] length"));
  EXPECT_EQ(refusal([&] { anywhere.apply(h, out, arange(20, 1)); }), "accepted");
}

// The lengths that count are those of the rows that the table has.
TEST(Lengths, OfTables) {
  const RotarySpec low = bounded(0, 16), high = bounded(17, kUnbounded);
  EXPECT_EQ(refusal([&] { RotaryTable(low, 17); }),
            "[rotary table] positions must be at most 16, the length up to which the frequencies "
            "hold, got 17");
  RotaryTable table(low, 16, DType::f32, BeyondTable::grow);
  EXPECT_THAT(refusal([&] { table.grow(17); }), HasSubstr("at most 16"));
  const RotaryPlan plan(low, DType::f32);
  std::vector<float> x(8, 1.0f);
  const Heads h = heads(x.data(), 1, 1, 8);
  const auto at = [&](const RotaryPlan& by, Index p) {
    return refusal([&] { apply(by, h, table, arange(p, 1)); });
  };
  EXPECT_EQ(at(plan, 15), "accepted");
  EXPECT_THAT(at(plan, 16), HasSubstr("[rotary table] length of the call"));
  // An exception to the plan's length does not make rows that the table cannot have.
  EXPECT_THAT(at(RotaryPlan(low, DType::f32, {.outside = OutsideRange::allow}), 16),
              HasSubstr("at most 16"));
  table.replace(high);
  EXPECT_THAT(at(plan, 15), HasSubstr("at least 17"));
  EXPECT_EQ(at(RotaryPlan(low, DType::f32, {.outside = OutsideRange::allow}), 15), "accepted");
  EXPECT_EQ(at(plan, 16), "accepted");
  EXPECT_GE(table.size(), 17);
  EXPECT_THAT(refusal([&] { table.replace(low); }), HasSubstr("at most 16"));
}

}  // namespace
}  // namespace posenc
