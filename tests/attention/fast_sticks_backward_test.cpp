// SPDX-License-Identifier: Apache-2.0
// Gradients of stick-breaking in the fast engine: through what keys leave, of the rest, and of own values.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "attention/stick_call.h"
#include "posenc/core/isa.h"

namespace posenc {
namespace {

TEST(FastSticksBackward, LengthsAndScores) {
  constexpr Index kLengths[] = {1, 7, 13, 47, 97, 129, 200};
  constexpr double kNumbers[] = {-5, -1, 0, -8, 3, -20};
  std::size_t seed = 0;
  for (const Isa isa : supported_isas()) {
    force_isa(isa);
    for (const Index queries : kLengths) {
      const Index keys = kLengths[(seed * 5 + 1) % std::size(kLengths)];
      StickCall call(queries, keys, seed, kNumbers[seed % std::size(kNumbers)]);
      call.args.mask.causal = seed % 4 != 0;
      if (seed % 3 == 0) call.args.mask.window_left = 70, call.args.mask.sink_tokens = 3;
      ++seed;
      ASSERT_EQ(call.wrong_backward(), "") << isa_name(isa) << " " << queries << " queries, "
                                           << keys << " keys, " << call.numbers[0];
    }
  }
  reset_isa();
}

// Sticks that last for several tiles, and those that are broken before the first one.
TEST(FastSticksBackward, SeveralTiles) {
  for (const std::uint64_t seed : {4u, 5u})
    for (const double number : {-7.0, -2.0, 1.0}) {
      StickCall call(110, 520, seed, number, 1);
      EXPECT_EQ(call.wrong_backward(), "") << number;
    }
}

TEST(FastSticksBackward, OwnKeys) {
  const std::vector<std::int64_t> cu{0, 30, 31, 100};
  for (const std::uint64_t seed : {4u, 5u})
    for (const double number : {-6.0, 0.0}) {
      StickCall call(60, 140, seed, number);
      call.args.mask.window_right = -1;
      EXPECT_EQ(call.wrong_backward(), "");
      call.args.mask.query_offset = -20;
      EXPECT_EQ(call.wrong_backward(), "");
      StickCall packed(100, 100, seed, number);
      packed.args.mask.window_right = -1, packed.args.mask.query_offset = 0;
      packed.args.mask.query_cu_seqlens = packed.args.mask.key_cu_seqlens = tensor(cu.data(), {4});
      EXPECT_EQ(packed.wrong_backward(), "");
    }
}

TEST(FastSticksBackward, MasksTermsAndFactors) {
  test::Random r(3);
  std::vector<std::uint8_t> visible(140, 1), pairs(60 * 140, 1);
  for (std::size_t j = 0; j < 140; j += 7) visible[j] = 0;
  for (std::size_t j = 0; j < pairs.size(); j += 5) pairs[j] = 0;
  const std::vector<double> slopes{-0.05, 0.1, -3, 0.2, -0.1, 0.1, 0, 0},
      bias = r.normals(60 * 140), factors = r.normals(60), scales = r.normals(4);
  for (const std::uint64_t seed : {2u, 3u}) {
    StickCall call(60, 140, seed, -3, 4, 2);
    call.args.mask.key_visible = tensor(std::as_const(visible).data(), {1, 140});
    EXPECT_EQ(call.wrong_backward(), "");
    call.args.mask.visible = tensor(std::as_const(pairs).data(), {60, 140});
    EXPECT_EQ(call.wrong_backward(), "");
    call.args.mask.bias = tensor(bias.data(), {60, 140});
    call.terms.emplace_back(LinearTerm{.table = tensor(slopes.data(), {1, 4, 1, 2})});
    call.args.terms = call.terms;
    call.args.query_factor = tensor(factors.data(), {1, 60});
    call.args.head_scale = tensor(scales.data(), {1, 4});
    EXPECT_EQ(call.wrong_backward(), "");
  }
}

// The logarithm of the rest is not read again: it may be missing.
TEST(FastSticksBackward, RestsThatAreMissing) {
  StickCall call(60, 140, 5);
  EXPECT_EQ(wrong_gradients(gradients_of_fast(call.args, default_executor(), false),
                            of_reference(call.plain()), DType::f32, gradient_tolerance(DType::f32)),
            "");
}

TEST(FastSticksBackward, NumbersThatAreNotFinite) {
  for (const float bad : {HUGE_VALF, std::nanf(""), 1e30f, 1e9f})
    for (const bool with_sums : {false, true})
      for (const std::size_t array : {0u, 1u, 2u}) {
        if (bad == 1e9f && array == 2) continue;  // float holds it
        StickCall call(40, 60, 9);
        call.narrow[array][static_cast<std::size_t>(30 * (array == 2 ? call.V : call.D) + 2)] = bad;
        AttentionArgs exact = call.args;
        exact.exact = true;
        const CallResult got = gradients_of_fast(call.args, default_executor(), with_sums),
                         want = gradients_of_fast(exact, default_executor(), with_sums);
        for (std::size_t n = 0; n < want.gradients.size(); ++n)
          EXPECT_LE(difference(got.gradients[n], want.gradients[n]), 5 * kFloatError)
              << bad << array << got.names[n];
      }
}

// The last key is the own key of the last query alone, and no query sees it: what float cannot work with is found there.
TEST(FastSticksBackward, OwnValuesThatAreTooLarge) {
  StickCall call(97, 97, 5, 0.5, 1);  // little is left: the output is small
  call.args.mask.window_right = -1;
  for (Index d = 0; d < call.V; ++d)
    call.narrow[2][static_cast<std::size_t>(96 * call.V + d)] = 3e38f;
  AttentionArgs exact = call.args;
  exact.exact = true;
  EXPECT_EQ(gradients_of_fast(call.args).gradients, gradients_of_fast(exact).gradients);
}

TEST(FastSticksBackward, AnyNumberOfThreadsGivesTheSameBits) {
  StickCall call(300, 300, 5, -5, 4, 2);
  expect_same_gradient_bits(call.args);
}

}  // namespace
}  // namespace posenc
