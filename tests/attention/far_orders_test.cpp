// SPDX-License-Identifier: Apache-2.0
// Orders, positions and mask numbers at the ends of 64 bits: sums of them are not taken in 64; scores
// and distances that overflow where they are taken as they are.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "attention/engine_compare.h"
#include "support/refusal.h"

namespace posenc {
namespace {

constexpr Index kLeast = std::numeric_limits<Index>::min(), kMost = kUnbounded;

// One head of one channel, every array of four tokens.
struct FarCall {
  static constexpr Index tokens = 4;
  std::vector<double> q{0.3, -0.2, 0.5, 0.1}, k{0.2, 0.4, -0.6, 0.9}, v{1, 10, 100, 1000};
  AttentionArgs a;
  FarCall() {
    a.q = heads(std::as_const(q).data(), tokens, 1, 1);
    a.k = heads(std::as_const(k).data(), tokens, 1, 1);
    a.v = heads(std::as_const(v).data(), tokens, 1, 1);
    a.scale = 1;
  }
  FarCall(const FarCall&) = delete;
};

class FarNumbers {
 public:
  explicit FarNumbers(std::uint64_t seed) : r_(seed) {}
  bool coin() { return r_.coin(); }
  Index order() {
    const Index near[] = {kLeast, kMost - 7, -3, kLeast / 2, kMost / 2};
    return near[r_.integer(0, 4)] + r_.integer(0, 7);
  }
  Index length() {
    const Index some[] = {0, 1, 2, 5, kMost / 2, kMost - 1, kMost - 2};
    return some[r_.integer(0, 6)];
  }
  std::vector<Index> orders(std::size_t n) {
    std::vector<Index> x(n);
    for (Index& o : x) o = order();
    return x;
  }

 private:
  test::Random r_;
};

TEST(AttentionFarOrders, MasksAreThoseOfTheReference) {
  for (std::uint64_t seed = 0; seed < 4000; ++seed) {
    FarNumbers n(seed);
    FarCall call;
    const std::vector<Index> query = n.orders(4), key = n.orders(4), one = n.orders(2);
    const std::uint8_t side[] = {static_cast<std::uint8_t>(seed % 3)};
    Mask& m = call.a.mask;
    m.query_order = tensor(query.data(), {1, 4});
    m.key_order = tensor(key.data(), {1, 4});
    m.causal = n.coin();
    if (m.causal && n.coin()) m.prefix = tensor(one.data(), {1});
    if (n.coin()) m.window_left = n.length();
    if (n.coin()) m.window_right = n.length() - 1;
    if (n.coin()) m.sink_tokens = n.length();
    if (n.coin()) m.chunk = 1 + n.length();
    if (m.chunk > 0 && n.coin()) m.chunk_origin = tensor(one.data() + 1, {1, 1});
    if (n.coin()) m.head_side = tensor(side, {1});
    EXPECT_EQ(differences(of_engine(call.a), of_reference(call.a), 1e-13, 1e-13), "")
        << "seed " << seed;
  }
}

TEST(AttentionFarOrders, TheLastOrderSeesItself) {
  FarCall call;
  const Index orders[] = {kMost, kMost - 1, kLeast, kLeast + 1};
  call.a.mask.query_order = call.a.mask.key_order = tensor(orders, {1, 4});
  call.a.mask.causal = true;
  call.a.mask.window_left = 0;
  std::vector<double> out(4);
  attend(call.a, {heads(out.data(), 4, 1, 1), {}});
  EXPECT_EQ(out, call.v);
}

TEST(AttentionFarOrders, OffsetsHaveRoomForTheTokens) {
  for (const Index offset : {kMost, kLeast, (Index{1} << 62) + 1}) {
    FarCall call;
    call.a.mask.query_offset = offset;
    std::vector<double> out(4);
    const std::string says = test::refusal([&] {
      attend(call.a, {heads(out.data(), 4, 1, 1), {}});
    });
    EXPECT_EQ(says, "[attention] query_offset must lie between -2^62 and 2^62, got " +
                        std::to_string(offset));
  }
  FarCall call;
  call.a.mask.query_offset = Index{1} << 62;
  call.a.mask.causal = true;
  call.a.mask.window_left = kMost - 1;
  EXPECT_EQ(differences(of_engine(call.a), of_reference(call.a), 1e-13, 1e-13), "");
}

// Rows by distance over keys that count up, from either end of the positions.
TEST(AttentionFarOrders, RowsByDistanceAtTheEndsOfThePositions) {
  const std::int32_t row[] = {0, 1, 2, 3, 4};
  const std::vector<double> table{0.1, -0.4, 0.7, 0.2, -0.9};
  ProductTerm t;
  t.lines[0] = {row, 5, -2};
  t.table = tensor(table.data(), {1, 1, 5, 1});
  FarCall near;
  const Index small[] = {0, 1, 2, 3};
  near.a.query_positions = near.a.key_positions = positions(std::span(small));
  const Term terms[] = {t};
  near.a.terms = terms;
  const CallResult want = of_engine(near.a);
  for (const Index first : {kLeast, kMost - 3}) {
    FarCall far;
    const Index at[] = {first, first + 1, first + 2, first + 3};
    far.a.query_positions = far.a.key_positions = positions(std::span(at));
    far.a.terms = terms;
    EXPECT_EQ(of_engine(far.a).out, want.out) << first;
    EXPECT_EQ(of_engine(far.a).gradients, want.gradients) << first;
  }
}

// exp of a score alone would be infinite, or 0 for all keys.
TEST(AttentionFarScores, AreNormalisedByTheLargest) {
  for (const double middle : {3000.0, -3000.0, 1e8})
    for (const double apart : {0.0, 0.5, 800.0}) {
      const std::vector<double> one{1}, k{middle, middle - apart}, v{2, 5};
      AttentionArgs a;
      a.q = heads(one.data(), 1, 1, 1), a.k = heads(k.data(), 2, 1, 1);
      a.v = heads(v.data(), 2, 1, 1);
      a.scale = 1;
      const double p = 1 / (1 + std::exp(-apart));
      const CallResult got = of_engine(a), want = of_reference(a);
      EXPECT_NEAR(got.out[0], 2 * p + 5 * (1 - p), 1e-14);
      EXPECT_DOUBLE_EQ(got.log_sum_exp[0], middle + std::log1p(std::exp(-apart)));
      EXPECT_EQ(differences(got, want, 1e-13, 1e-13), "");
    }
}

// ALiBi over distances around 2^31: past and future, exactly proportional.
TEST(AttentionFarScores, DistancesAroundTheEndOf32Bits) {
  const std::vector<double> slopes{-0x1p-28, -0x1p-27}, none(4), v{1, 10, 100, 1000};
  LinearTerm t;
  t.table = tensor(slopes.data(), {1, 1, 1, 2});
  const Index far = Index{1} << 31, query[] = {0}, key[] = {-far - 1, 1 - far, far - 1, far + 1};
  AttentionArgs a;
  a.q = heads(none.data(), 1, 1, 1), a.k = heads(none.data(), 4, 1, 1);
  a.v = heads(v.data(), 4, 1, 1);
  a.query_positions = positions(std::span(query)), a.key_positions = positions(std::span(key));
  const Term terms[] = {t};
  a.scale = 1, a.terms = terms;
  double sum = 0, out = 0;
  for (std::size_t j = 0; j < 4; ++j) {
    const auto distance = static_cast<double>(key[j] < 0 ? -key[j] : key[j]);
    const double w = std::exp(slopes[j < 2 ? 0 : 1] * distance);
    sum += w, out += w * v[j];
  }
  EXPECT_NEAR(of_engine(a).out[0], out / sum, 1e-12);
}

}  // namespace
}  // namespace posenc
