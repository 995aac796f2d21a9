// SPDX-License-Identifier: Apache-2.0
// Terms of the fast engine that read rows of a table, beside the plain reference in double.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "attention/rows_call.h"
#include "posenc/core/isa.h"

namespace posenc {
namespace {

// Terms of queries and of keys, on every instruction set; `wrong`: of the output, or of the gradients too.
void expect_right(std::span<const Index> lengths, std::string (FloatCall::*wrong)() const) {
  constexpr Index kDims[] = {1, 3, 8, 20};
  std::uint64_t seed = 0;
  for (const Isa isa : supported_isas()) {
    force_isa(isa);
    for (const Index queries : lengths)
      for (const Rows kind : {Rows::clipped, Rows::buckets, Rows::each}) {
        ++seed;
        const bool of_keys = seed % 2 == 0;
        const Index keys = lengths[(seed * 7 + 3) % lengths.size()];
        RowsCall call(seed % 5 == 0 ? 2 : 1, queries, keys, 2, kDims[seed % std::size(kDims)],
                      seed);
        call.add(call.rows(kind, of_keys, seed % 3 == 0 ? call.B : 1, seed % 4 == 0 ? 1 : 2));
        if (seed % 7 == 0) call.add(call.rows(Rows::buckets, true, 1, 2));
        call.args.mask.causal = seed % 3 == 1;
        if (seed % 6 == 1) call.args.mask.window_left = 70, call.args.mask.sink_tokens = 3;
        ASSERT_EQ((call.*wrong)(), "")
            << isa_name(isa) << " " << queries << " queries, " << keys << " keys, head of "
            << call.D << ", rows " << static_cast<int>(kind) << " of keys " << of_keys;
      }
  }
  reset_isa();
}

TEST(FastRows, LengthsAroundItsBlocks) {
  constexpr Index kLengths[] = {1, 8, 13, 64, 65, 129, 257};
  expect_right(kLengths, &FloatCall::wrong);
}

// Biases by the same distance begin the products of a table with a row for each distance; others are added to them.
TEST(FastRows, NumbersByDistanceBesideThem) {
  for (const double slope : {-0.1, -30.0})
    for (const Rows kind : {Rows::each, Rows::clipped})
      for (const bool causal : {false, true}) {
        RowsCall call(1, 50, 300, 2, 4, 5);
        call.add(call.rows(kind, false, 1, 2));
        const std::vector<double> slopes{slope, 0.1, slope / 2, -0.2};
        call.add(LinearTerm{.table = tensor(slopes.data(), {1, 2, 1, 2})});
        call.add(call.rows(Rows::each, false, 1, 1));
        call.args.mask.causal = causal;
        EXPECT_EQ(call.wrong(), "") << slope << " " << static_cast<int>(kind);
        const std::vector<std::uint8_t> visible = [] {
          std::vector<std::uint8_t> v(300, 1);
          std::fill(v.begin() + 130, v.begin() + 270, 0);
          return v;
        }();
        call.args.mask.key_visible = tensor(visible.data(), {1, 300});
        EXPECT_EQ(call.wrong(), "") << slope << " " << static_cast<int>(kind);
      }
}

// One number for all pairs of a head, alone and beside numbers by a distance of any axis: small, large and infinite.
TEST(FastRows, OneNumberForAllPairs) {
  for (const double scale : {1.0, 900.0, -HUGE_VAL})
    for (int way = 0; way < 8; ++way) {
      RowsCall call(2, 14, 140, 4, 4, 6);
      ProductTerm one;
      one.table = call.table(way % 2 == 0 ? 1 : 2, way < 4 ? 4 : 1, 1, 1);
      one.scale = std::isfinite(scale) ? scale : 1;
      if (!std::isfinite(scale)) call.tables.back()[0] = scale;
      call.add(one);
      if (way % 4 == 1) {
        const ConstTensorView slopes = call.table(1, 4, 1, 2);
        call.add(LinearTerm{.table = slopes});
      }
      if (way % 4 == 2) call.add(call.rows(Rows::each, false, 1, 1));
      if (way % 4 == 3) call.add(one);
      call.args.mask.causal = way > 5;
      EXPECT_EQ(call.wrong(), "") << scale << " way " << way;
      if (std::isfinite(scale)) {
        EXPECT_EQ(call.wrong_backward(), "") << scale << " way " << way;
      }
      call.args.query_positions = call.args.key_positions = {};
      if (way % 4 == 0) {
        EXPECT_EQ(call.wrong(), "") << scale << " without positions, way " << way;
      }
    }
}

TEST(FastRows, RowsPickedByPairs) {
  for (const bool of_keys : {false, true})
    for (int way = 0; way < 5; ++way)
      EXPECT_EQ(PairsCall(of_keys, way).wrong(), "") << "way " << way << " of keys " << of_keys;
}

// Vectors that come with the term, for all queries or keys, or one for all; those of hidden keys may hold anything.
TEST(FastRows, GivenVectors) {
  for (const bool one : {false, true}) {
    RowsCall call(2, 40, 150, 2, 8, 9);
    std::vector<double> x = call.random.normals(2 * 40 * 3), y = call.random.normals(150 * 2 * 5);
    ProductTerm queries = call.rows(Rows::clipped, false, 1, 1),
                keys = call.rows(Rows::buckets, true, 1, 2);
    queries.query = {
        false, heads(tensor(std::as_const(x).data(), {2, one ? 1 : 40, 1, 3}), HeadsLayout::bthd)};
    keys.key = {
        false, heads(tensor(std::as_const(y).data(), {1, one ? 1 : 150, 2, 5}), HeadsLayout::bthd)};
    queries.table = call.table(1, 1, 41, 3), keys.table = call.table(1, 2, 30, 5);
    call.add(queries), call.add(keys);
    EXPECT_EQ(call.wrong(), "") << one;
    std::vector<std::uint8_t> visible(300, 1);
    for (std::size_t j = 20; j < 50; ++j) visible[j] = visible[150 + j] = 0;
    call.args.mask.key_visible = tensor(std::as_const(visible).data(), {2, 150});
    const CallResult clean = of_attend(call.args);
    for (std::size_t n = 20 * 10; !one && n < 50 * 10; ++n) y[n] = std::nan("");
    EXPECT_EQ(of_attend(call.args).out, clean.out);
  }
}

// Values without channels, and a product that leaves out keys whose given vectors meet rows: they meet them still.
TEST(FastRows, GivenVectorsOfKeysThatAProductLeavesOut) {
  RowsCall call(1, 40, 150, 2, 8, 9);
  const std::vector<double> y = call.random.normals(150 * 2 * 5), u = call.random.normals(150 * 8);
  ProductTerm rows = call.rows(Rows::buckets, true, 1, 2), product;
  rows.key = {false, heads(tensor(y.data(), {1, 150, 2, 5}), HeadsLayout::bthd)};
  rows.table = call.table(1, 2, 30, 5);
  std::vector<std::int64_t> classes(150, 1);
  for (std::size_t j = 0; j < 150; j += 3) classes[j] = 0;
  const std::vector<std::int32_t> pairs{-1, -1, -1, 0};
  product.query.given = heads(tensor(u.data(), {1, 40, 1, 4}), HeadsLayout::bthd);
  product.key.given = heads(tensor(u.data(), {1, 150, 1, 4}), HeadsLayout::bthd);
  product.pair = {pairs.data(), 2, 2, tensor(std::as_const(classes).data(), {1, 40}),
                  tensor(std::as_const(classes).data(), {1, 150})};
  call.add(rows), call.add(product);
  EXPECT_EQ(call.wrong(), "");
  call.V = 0, call.args.v = call.view(call.narrow[2], 150, 2, 0);
  EXPECT_EQ(call.wrong(), "");
}

// Numbers that float cannot work with: the rows that may meet them are those of the exact engine.
TEST(FastRows, LeavesRowsToTheExactEngine) {
  for (const double bad : {HUGE_VAL, std::nan(""), 1e30})
    for (const bool of_keys : {false, true}) {
      RowsCall call(1, 100, 200, 2, 8, 3);
      call.args.mask.causal = true;
      call.add(call.rows(Rows::each, of_keys, 1, 2));
      AttentionArgs exact = call.args;
      exact.exact = true;
      const CallResult clean = of_attend(call.args);
      call.tables.back()[(601 + 330) * 8 + 3] = bad;  // of the second head: some pairs
      const CallResult got = of_attend(call.args), want = of_attend(exact);
      EXPECT_LE(difference(got.out, want.out), kFloatError) << bad << of_keys;
      for (std::size_t i = 0; i < 100; ++i)
        for (std::size_t c = 0; c < 8; ++c)
          ASSERT_EQ(got.out[i * 16 + c], clean.out[i * 16 + c]) << i;
    }
}

// The bound that docs/attention.md states, with the magnitudes of the products with rows in A.
TEST(FastRows, ErrorsAreWithinTheStatedBound) {
  for (const double scale : {0.03, 0.3, 3.0}) {
    RowsCall call(1, 40, 300, 1, 64, 11);
    for (const bool of_keys : {false, true}) {
      ProductTerm t = call.rows(Rows::each, of_keys, 1, 1);
      t.scale = scale / 8;
      call.add(t);
    }
    const CallResult got = of_attend(call.args), want = forward_of_reference(call.plain());
    double largest_value = 0;
    for (const double v : call.wide[2]) largest_value = std::max(largest_value, std::fabs(v));
    for (Index i = 0; i < 40; ++i) {
      double a = 0;
      for (Index j = 0; j < 300; ++j) {
        double sum = 0;
        const Index row = 260 + i - j + 340;
        for (Index c = 0; c < 64; ++c) {
          const double q = std::fabs(call.wide[0][static_cast<std::size_t>(i * 64 + c)]),
                       k = std::fabs(call.wide[1][static_cast<std::size_t>(j * 64 + c)]);
          const auto at = static_cast<std::size_t>(row * 64 + c);
          sum +=
              q * k / 8 +
              scale / 8 * (q * std::fabs(call.tables[0][at]) + k * std::fabs(call.tables[1][at]));
        }
        a = std::max(a, sum);
      }
      const double bound = 0x1p-22 * (8 + a);
      for (std::size_t c = 0; c < 64; ++c) {
        const std::size_t at = static_cast<std::size_t>(i) * 64 + c;
        EXPECT_LE(std::fabs(got.out[at] - want.out[at]), bound * largest_value) << scale;
      }
      const auto row = static_cast<std::size_t>(i);
      EXPECT_LE(std::fabs(got.log_sum_exp[row] - want.log_sum_exp[row]), bound) << scale;
    }
  }
}

TEST(FastRows, AnyNumberOfThreadsGivesTheSameBits) {
  RowsCall call(2, 500, 700, 4, 32, 4);
  for (const bool of_keys : {false, true}) call.add(call.rows(Rows::buckets, of_keys, 1, 4));
  call.args.mask.causal = true;
  expect_same_bits(call.args);
}

// Beside a cap: blocks whose pairs all read one row add a number to each row of queries, and nothing for each key.
TEST(FastRowsBackward, SoftCaps) {
  for (const Rows kind : {Rows::clipped, Rows::each})
    for (const bool of_keys : {false, true})
      for (const bool after : {false, true}) {
        RowsCall call(1, 30, 300, 2, 4, 3);
        call.add(call.rows(kind, of_keys, 1, 2));
        call.args.softcap = 1.5, call.args.softcap_after_terms = after;
        EXPECT_EQ(call.wrong_backward(), "") << static_cast<int>(kind) << of_keys << after;
      }
}

TEST(FastRowsBackward, LengthsAroundItsTiles) {
  constexpr Index kLengths[] = {1, 13, 47, 97, 129};
  expect_right(kLengths, &FloatCall::wrong_backward);
}

// Beside biases, with factors of queries, a stage before, and key heads that several query heads share.
TEST(FastRowsBackward, BesideOtherTermsAndFactors) {
  for (const Rows kind : {Rows::each, Rows::buckets}) {
    RowsCall call(2, 70, 150, 2, 8, 5);
    call.share_keys();
    call.add(call.rows(kind, false, 1, 2));
    call.add(call.rows(kind, true, 2, 1));
    const std::vector<double> slopes{-0.02, 0.01, -0.03, -0.02};
    call.add(LinearTerm{.table = tensor(slopes.data(), {1, 2, 1, 2})});
    ProductTerm vector;
    const std::vector<double> u = call.random.normals(2 * 8);
    vector.key = kContent, vector.scale = 0.3;
    vector.query.given = heads(tensor(u.data(), {1, 1, 2, 8}), HeadsLayout::bthd);
    call.add(vector);
    EXPECT_EQ(call.wrong_backward(), "");
    std::vector<double> factor, head{0.5, 1.5};
    for (int n = 0; n < 140; ++n) factor.push_back(0.5 + n % 7 * 0.1);
    call.args.query_factor = tensor(std::as_const(factor).data(), {2, 70});
    call.args.head_scale = tensor(std::as_const(head).data(), {1, 2});
    const std::vector<double> bias = call.random.normals(8);
    const Stage stages[] = {{.kind = StageKind::add, .q = tensor(bias.data(), {1, 8})}};
    call.args.prepare = stages;
    EXPECT_EQ(call.wrong_backward(), "");
  }
}

TEST(FastRowsBackward, RowsPickedByPairs) {
  for (const bool of_keys : {false, true})
    for (int way = 0; way < 5; ++way)
      EXPECT_EQ(PairsCall(of_keys, way).wrong_backward(), "") << way << " of keys " << of_keys;
}

TEST(FastRowsBackward, LeavesWhatFloatDoesNotHold) {
  for (const bool of_keys : {false, true}) {
    RowsCall call(1, 40, 60, 2, 8, 3);
    call.add(call.rows(Rows::clipped, of_keys, 1, 2));
    // It hides its pairs: every other number of the call is one that float holds.
    for (std::size_t n = 0; n < 2; ++n)
      for (float& x : call.narrow[n]) x = std::fabs(x);
    std::fill_n(call.tables.back().begin() + 20 * 8, 8, -1e30);
    AttentionArgs exact = call.args;
    exact.exact = true;
    EXPECT_EQ(gradients_of_fast(call.args).gradients, gradients_of_fast(exact).gradients);
  }
}

TEST(FastRowsBackward, AnyNumberOfThreadsGivesTheSameBits) {
  RowsCall call(3, 200, 300, 4, 16, 4);
  for (const bool of_keys : {false, true}) call.add(call.rows(Rows::buckets, of_keys, 1, 1));
  expect_same_gradient_bits(call.args);
}

}  // namespace
}  // namespace posenc
