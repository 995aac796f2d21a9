// SPDX-License-Identifier: Apache-2.0
// Products of query and key in the fast engine: channels of a wider q.k.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>

#include "attention/float_call.h"
#include "posenc/core/isa.h"

namespace posenc {
namespace {

// A call with products of vectors of normal numbers.
struct ProductsCall : FloatCall {
  ProductsCall(Index b, Index queries, Index keys, Index h, Index g, Index d, std::uint64_t seed)
      : FloatCall(b, queries, keys, h, g, d, 8, seed), random(seed + 1) {}

  ConstHeads vectors(Index batch, Index tokens, Index count, Index channels) {
    numbers.push_back(random.normals(static_cast<std::size_t>(batch * tokens * count * channels)));
    return heads(tensor(std::as_const(numbers.back()).data(), {batch, tokens, count, channels}),
                 HeadsLayout::bthd);
  }
  // The same numbers in float, rounded.
  ConstHeads narrowed(const ConstHeads& x) {
    std::vector<double>& wide_numbers = numbers.back();
    narrow_numbers.emplace_back(wide_numbers.begin(), wide_numbers.end());
    for (std::size_t n = 0; n < wide_numbers.size(); ++n)
      wide_numbers[n] = static_cast<double>(narrow_numbers.back()[n]);
    return heads(
        tensor(std::as_const(narrow_numbers.back()).data(), {x.batch, x.tokens, x.heads, x.dim}),
        HeadsLayout::bthd);
  }
  void add(const Factor& x, const Factor& y, double scale = 0.3) {
    ProductTerm t;
    t.query = x, t.key = y, t.scale = scale;
    terms.push_back(t);
    args.terms = terms;
  }
  void add_slopes() {
    numbers.push_back(std::vector<double>(static_cast<std::size_t>(2 * H), -0.05));
    terms.push_back(
        LinearTerm{.table = tensor(std::as_const(numbers.back()).data(), {1, H, 1, 2})});
    args.terms = terms;
  }
  static Factor given(const ConstHeads& x) { return {.given = x}; }

  test::Random random;
  std::deque<std::vector<double>> numbers;
  std::deque<std::vector<float>> narrow_numbers;
  std::vector<Term> terms;
};
constexpr auto given = ProductsCall::given;

TEST(FastProducts, AreChannelsOfAWiderProduct) {
  constexpr Index kLengths[] = {1, 5, 13, 64, 65, 129, 200};
  std::size_t seed = 0;
  for (const Isa isa : supported_isas()) {
    force_isa(isa);
    for (const Index queries : kLengths)
      for (const bool causal : {false, true}) {
        const Index keys = kLengths[(seed * 3 + 2) % std::size(kLengths)];
        ProductsCall call(1, queries, keys, 2, seed % 2 == 0 ? 1 : 2, seed % 3 == 0 ? 8 : 5, seed);
        ++seed;
        call.args.mask.causal = causal;
        call.add(given(call.vectors(1, queries, 2, 6)), given(call.vectors(1, keys, 2, 6)));
        if (seed % 3 == 0) call.add_slopes();
        ASSERT_EQ(call.wrong_backward(), "")
            << isa_name(isa) << " " << queries << " " << keys << causal;
      }
  }
  reset_isa();
}

// x and y given, of the call, of one token, in float, and shared by heads and batch entries.
TEST(FastProducts, EveryKindOfFactor) {
  for (const Index key_heads : {1, 2, 4})
    for (int kind = 0; kind < 8; ++kind) {
      ProductsCall call(2, 40, 70, 4, key_heads, 8, 9);
      const std::vector<double> factors = call.random.normals(80), scales = call.random.normals(8);
      call.args.query_factor = tensor(factors.data(), {2, 40});
      call.args.head_scale = tensor(scales.data(), {2, 4});
      const auto x = [&](Index tokens, Index count, Index channels) {
        return given(call.vectors(2, tokens, count, channels));
      };
      if (kind == 0) call.add(x(1, 4, 8), kContent);  // Transformer-XL's u.k
      if (kind == 1) call.add(x(40, 2, 8), kContent);
      if (kind == 2) call.add(kContent, x(70, 1, 8));
      if (kind == 3) call.add(kContent, x(1, 4, 8));
      if (kind == 4) call.add(kContent, kContent);
      if (kind == 5) call.add(x(1, 4, 3), x(70, 2, 3));
      if (kind == 6) call.add(x(40, 1, 1), x(1, 1, 1));
      if (kind == 7) {
        const ConstHeads y = call.vectors(1, 70, 2, 5);
        const Factor narrow_y = given(call.narrowed(y));
        call.add(x(40, 4, 5), narrow_y), call.add(x(1, 2, 8), kContent),
            call.add(kContent, x(70, 4, 8));
      }
      EXPECT_EQ(call.wrong_backward(), "") << key_heads << " key heads, kind " << kind;
    }
}

// Classes that disable all pairs of a query or of a key (TUPE's class token); others are not for it.
TEST(FastProducts, ClassesLeaveQueriesAndKeysOut) {
  for (const bool by_side : {true, false}) {
    ProductsCall call(1, 40, 70, 2, 2, 8, 4);
    std::vector<std::int64_t> query_class(40, 1), key_class(70, 1);
    query_class[0] = query_class[20] = key_class[0] = key_class[69] = 0;
    const std::vector<std::int32_t> rows =
        by_side ? std::vector<std::int32_t>{-1, -1, -1, 0} : std::vector<std::int32_t>{-1, 0, 0, 0};
    ProductTerm t;
    t.query = given(call.vectors(1, 40, 2, 8)), t.key = given(call.vectors(1, 70, 2, 8));
    t.pair = {rows.data(), 2, 2, tensor(std::as_const(query_class).data(), {1, 40}),
              tensor(std::as_const(key_class).data(), {1, 70})};
    call.terms.push_back(t);
    call.args.terms = call.terms;
    EXPECT_EQ(is_fast(call.args), by_side);
    // Vectors of tokens that are left out may hold anything.
    if (!by_side) continue;
    call.numbers[0][3] = call.numbers[1][5] = std::nan("");
    AttentionArgs exact = call.args;
    exact.exact = true;
    EXPECT_LE(difference(of_attend(call.args).out, of_attend(exact).out), kFloatError);
    call.numbers[0][3] = call.numbers[1][5] = 7;
    EXPECT_EQ(call.wrong_backward(), "");
  }
}

// One head whose keys are cut into slices.
TEST(FastProducts, SlicesOfTheKeysAddUp) {
  ProductsCall call(1, 30, 2500, 1, 1, 4, 12);
  call.add(given(call.vectors(1, 30, 1, 3)), given(call.vectors(1, 2500, 1, 3)));
  call.add(given(call.vectors(1, 1, 1, 4)), kContent);
  call.add(kContent, given(call.vectors(1, 1, 1, 4)));
  EXPECT_EQ(call.wrong_backward(), "");
}

// Vectors that float cannot work with, at a key or at a query, leave rows to the exact engine; hidden keys may hold
// anything.
TEST(FastProducts, NumbersThatAreNotFinite) {
  for (const double bad : {HUGE_VAL, std::nan(""), 1e30})
    for (const bool at_key : {false, true}) {
      ProductsCall call(1, 100, 100, 1, 1, 8, 3);
      call.args.mask.causal = true;
      const Factor x = given(call.vectors(1, 100, 1, 4)), y = given(call.vectors(1, 100, 1, 4));
      call.add(x, y);
      const CallResult clean = of_attend(call.args);
      call.numbers[at_key ? 1 : 0][60 * 4 + 1] = bad;
      AttentionArgs exact = call.args;
      exact.exact = true;
      const CallResult got = of_attend(call.args), want = of_attend(exact);
      EXPECT_LE(difference(got.out, want.out), kFloatError) << bad << at_key;
      for (std::size_t at = 0; at < 59 * 8; ++at)
        ASSERT_NEAR(got.out[at], clean.out[at], kFloatError) << at;
      if (!at_key) continue;
      std::vector<std::uint8_t> visible(100, 1);
      visible[60] = 0;
      call.args.mask.key_visible = tensor(std::as_const(visible).data(), {1, 100});
      const CallResult hidden = of_attend(call.args);
      call.numbers[1][60 * 4 + 1] = 0.5;
      EXPECT_EQ(hidden.out, of_attend(call.args).out) << bad;
    }
}

// The bound that docs/attention.md states, with the products of terms counted channel by channel.
TEST(FastProducts, ErrorsAreWithinTheStatedBound) {
  for (const double scale : {0.03, 1.0, 10.0}) {
    ProductsCall call(1, 40, 300, 1, 1, 16, 11);
    call.args.scale = scale / 4;
    const Factor x = given(call.vectors(1, 40, 1, 24)), y = given(call.vectors(1, 300, 1, 24));
    call.add(x, y, scale / 5);
    call.add(given(call.vectors(1, 1, 1, 16)), kContent, scale / 4);
    const CallResult got = of_attend(call.args), want = forward_of_reference(call.plain());
    double largest_value = 0;
    for (const double v : call.wide[2]) largest_value = std::max(largest_value, std::fabs(v));
    for (std::size_t i = 0; i < 40; ++i) {
      double a = 0;
      for (std::size_t j = 0; j < 300; ++j) {
        double sum = 0;
        for (std::size_t c = 0; c < 16; ++c)
          sum += scale / 4 * std::fabs(call.wide[1][j * 16 + c]) *
                 (std::fabs(call.wide[0][i * 16 + c]) + std::fabs(call.numbers[2][c]));
        for (std::size_t c = 0; c < 24; ++c)
          sum += scale / 5 * std::fabs(call.numbers[0][i * 24 + c] * call.numbers[1][j * 24 + c]);
        a = std::max(a, sum);
      }
      const double bound = 0x1p-22 * (8 + a);
      for (std::size_t c = 0; c < 8; ++c)
        EXPECT_LE(std::fabs(got.out[i * 8 + c] - want.out[i * 8 + c]), bound * largest_value)
            << scale;
      EXPECT_LE(std::fabs(got.log_sum_exp[i] - want.log_sum_exp[i]), bound) << scale;
    }
  }
}

TEST(FastProducts, AnyNumberOfThreadsGivesTheSameBits) {
  ProductsCall call(2, 500, 400, 4, 2, 16, 4);
  call.add(given(call.vectors(1, 500, 4, 8)), given(call.vectors(1, 400, 4, 8)));
  expect_same_bits(call.args);
  expect_same_gradient_bits(call.args);
}

}  // namespace
}  // namespace posenc
