// SPDX-License-Identifier: Apache-2.0
// Gradients of gates (CoPE) in the fast engine: through the levels, through the counts, and of the table.
#include <gtest/gtest.h>

#include <numeric>

#include "attention/gated_call.h"
#include "posenc/core/isa.h"

namespace posenc {
namespace {

TEST(FastGatesBackward, LengthsAndRowsOfTheTable) {
  constexpr Index kLengths[] = {1, 7, 13, 47, 97, 129, 200},
                  kRows[] = {1, 2, 5, 17, 40, 64, 90, 400};
  std::size_t seed = 0;
  for (const Isa isa : supported_isas()) {
    force_isa(isa);
    for (const Index queries : kLengths) {
      const Index keys = kLengths[(seed * 5 + 1) % std::size(kLengths)];
      GatedCall call(queries, keys, kRows[seed * 3 % std::size(kRows)], seed);
      call.args.mask.causal = seed % 4 != 0;
      if (seed % 3 == 0) call.args.mask.window_left = 70, call.args.mask.sink_tokens = 3;
      ++seed;
      ASSERT_EQ(call.wrong_gradients_of(), "")
          << isa_name(isa) << " " << queries << " queries, " << keys << " keys, "
          << call.term.table.shape[2] << " rows";
    }
  }
  reset_isa();
}

TEST(FastGatesBackward, KeysThatABiasHides) {
  for (const int way : {0, 1, 2}) {
    GatedCall call(40, 150, 20, 5);
    if (way > 0) call.without_table(way == 1 ? Gate::sigmoid : Gate::log_sigmoid);
    call.bias_hides_keys();
    EXPECT_EQ(call.wrong_gradients_of(), "") << way;
  }
}

// How near a count comes to a whole number, where it has two slopes: one of each side.
double nearest_to_a_row(const GatedCall& call, double scale) {
  double nearest = 1;
  const auto dim = static_cast<std::size_t>(call.D);
  for (Index i = 0; i < call.Tq; ++i) {
    double count = 0;
    for (Index j = call.Tk - call.Tq + i; j >= 0 && count < 60; --j) {
      const double *q = call.wide[0].data() + i * call.D, *k = call.wide[1].data() + j * call.D;
      count += 1 / (1 + std::exp(-scale * std::inner_product(q, q + dim, k, 0.0)));
      nearest = std::min(nearest, std::fabs(count - std::round(count)));
    }
  }
  return nearest;
}

// Tiles of which some rows count and others do not, and keys far before all that count.
TEST(FastGatesBackward, SeveralTiles) {
  for (const double scale : {0.4, 3.0, -3.0}) {
    GatedCall call(110, 420, 60, 24, scale, 1);
    // Of large products the gates near a whole number are shut, and their slopes 0.
    if (scale == 0.4) {
      ASSERT_GT(nearest_to_a_row(call, scale), 1e-5);
    }
    EXPECT_EQ(call.wrong_gradients_of(), "") << scale;
  }
}

TEST(FastGatesBackward, WithoutATable) {
  constexpr Index kLengths[] = {1, 13, 97, 129, 200};
  std::size_t seed = 0;
  for (const Isa isa : supported_isas()) {
    force_isa(isa);
    for (const Index queries : kLengths)
      for (const Gate gate : {Gate::sigmoid, Gate::log_sigmoid}) {
        const Index keys = kLengths[(seed * 3 + 1) % std::size(kLengths)];
        GatedCall call(queries, keys, 1, ++seed);
        call.without_table(gate);
        call.args.mask.causal = seed % 4 != 0;
        call.term.gate_own = seed % 3 != 0;
        if (seed % 2 == 0) {
          call.term.query = {.given = call.vectors(queries, 2, 3)};
          call.term.key = {.given = call.vectors(keys, 2, 3)};
        }
        ASSERT_EQ(call.wrong_gradients_of(), "") << isa_name(isa) << ' ' << queries << ' ' << keys;
        expect_same_gradient_bits(call.args);
      }
  }
  reset_isa();
}

TEST(FastGatesBackward, KeysThatDoNotCount) {
  GatedCall call(60, 140, 20, 3);
  call.term.gate_own = false;
  EXPECT_EQ(call.wrong_gradients_of(), "");
  call.args.mask.query_offset = -20, call.args.mask.causal = false;
  EXPECT_EQ(call.wrong_gradients_of(), "");
  std::vector<std::uint8_t> visible(140, 1), pairs(60 * 140, 1);
  for (std::size_t j = 0; j < 140; j += 7) visible[j] = 0;
  for (std::size_t j = 0; j < pairs.size(); j += 5) pairs[j] = 0;
  call.args.mask.key_visible = tensor(std::as_const(visible).data(), {1, 140});
  EXPECT_EQ(call.wrong_gradients_of(), "");
  call.args.mask.visible = tensor(std::as_const(pairs).data(), {60, 140});
  EXPECT_EQ(call.wrong_gradients_of(), "");
  const std::vector<std::int64_t> cu{0, 30, 31, 100};
  GatedCall packed(100, 100, 20, 3);
  packed.term.gate_own = false, packed.args.mask.query_offset = 0;
  packed.args.mask.query_cu_seqlens = packed.args.mask.key_cu_seqlens = tensor(cu.data(), {4});
  EXPECT_EQ(packed.wrong_gradients_of(), "");
}

// A table that heads and batch entries share, and one for each; factors of queries, biases, sinks and other terms.
TEST(FastGatesBackward, BesideOtherArrays) {
  test::Random r(3);
  const std::vector<double> slopes{-0.05, 0.1, -3, 0.2},
      bias = r.normals(60 * 90), sink{0.5, -1, 0, 1}, factors = r.normals(60),
      table = r.normals(4 * 5 * 8);
  for (const bool shared : {false, true}) {
    GatedCall call(60, 90, 5, 4, 0.4, 4, 2);
    if (!shared) call.term.table = tensor(table.data(), {1, 4, 5, 8});
    EXPECT_EQ(call.wrong_gradients_of(), "");
    call.args.query_factor = tensor(factors.data(), {1, 60});
    call.args.sink = tensor(sink.data(), {4});
    EXPECT_EQ(call.wrong_gradients_of(), "");
    call.args.terms =
        call.terms = {LinearTerm{.table = tensor(slopes.data(), {1, 2, 1, 2})}, call.term};
    call.args.mask.bias = tensor(bias.data(), {60, 90});
    EXPECT_EQ(call.wrong_backward(), "");
  }
}

// Other keys, other queries, one vector for all of them, heads of their own and shared ones; a scale of 0 and of each head.
TEST(FastGatesBackward, ProductsOfTheirOwn) {
  std::size_t seed = 4;
  for (const Isa isa : supported_isas()) {
    force_isa(isa);
    for (const Index count : {1, 2, 4}) {
      GatedCall call(14, 230, 20, seed += 2, 0.4, 4, 2);
      call.term.key = {.given = call.vectors(230, count, call.D)};
      EXPECT_EQ(call.wrong_gradients_of(), "") << isa_name(isa) << count;
      if (count == 4) call.term.gate_scale = 0.1;  // one key for all gets the sum of all gradients
      call.term.query = {.given = call.vectors(count == 2 ? 1 : 14, count, 3)};
      call.term.key = {.given = call.vectors(count == 4 ? 1 : 230, count == 2 ? 1 : 4, 3)};
      EXPECT_EQ(call.wrong_gradients_of(), "") << isa_name(isa) << count;
      call.term.query = {.given = call.vectors(14, count, call.D)}, call.term.key = kContent;
      EXPECT_EQ(call.wrong_gradients_of(), "") << isa_name(isa) << count;
    }
  }
  reset_isa();
  const std::vector<double> scales{0.7, 2}, factors(50, 0.8);
  GatedCall call(50, 90, 20, 6);  // no count near a whole number, where it has two slopes
  call.args.query_factor = tensor(factors.data(), {1, 50});
  call.args.head_scale = tensor(scales.data(), {1, 2});
  EXPECT_EQ(call.wrong_gradients_of(), "");
  call.args.head_scale = {}, call.args.scale = 0;
  EXPECT_EQ(call.wrong_gradients_of(), "");
}

// Keys of gates that no query sees may hold anything; one number of the others leaves all to the exact engine.
TEST(FastGatesBackward, OwnKeysThatAreNotFinite) {
  GatedCall call(40, 100, 10, 4);
  call.term.key = {.given = call.vectors(100, 1, 3)};
  call.term.query = {.given = call.vectors(40, 1, 3)};
  std::vector<std::uint8_t> visible(100, 1);
  visible[20] = 0;
  call.args.mask.key_visible = tensor(std::as_const(visible).data(), {1, 100});
  call.of_term();
  const CallResult clean = gradients_of_fast(call.args);
  std::vector<double>& keys = call.given[0];
  std::fill_n(keys.begin() + 60, 3, std::nan(""));
  EXPECT_EQ(gradients_of_fast(call.args).gradients, clean.gradients);
  keys[63] = 1e30;
  AttentionArgs exact = call.args;
  exact.exact = true;
  EXPECT_EQ(gradients_of_fast(call.args).gradients, gradients_of_fast(exact).gradients);
}

TEST(FastGatesBackward, NumbersThatAreNotFinite) {
  for (const float bad : {HUGE_VALF, std::nanf("")})
    for (const bool in_table : {false, true}) {
      GatedCall call(40, 60, 10, 4);
      call.of_term();
      if (in_table)
        call.table[20] = static_cast<double>(bad);
      else
        call.narrow[1][30 * 8 + 2] = bad;
      AttentionArgs exact = call.args;
      exact.exact = true;
      const CallResult got = gradients_of_fast(call.args), want = gradients_of_fast(exact);
      for (std::size_t n = 0; n < want.gradients.size(); ++n)
        EXPECT_LE(difference(got.gradients[n], want.gradients[n]), kFloatError) << got.names[n];
    }
}

TEST(FastGatesBackward, AnyNumberOfThreadsGivesTheSameBits) {
  GatedCall call(300, 300, 64, 4, 0.4, 4, 2);
  call.of_term();
  expect_same_gradient_bits(call.args);
}

}  // namespace
}  // namespace posenc
