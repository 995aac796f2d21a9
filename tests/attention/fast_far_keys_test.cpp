// SPDX-License-Identifier: Apache-2.0
// Numbers by distance that differ by more than weights can: rows that begin from the number of their nearest key, and
// keys that weigh nothing and are left out.
#include <gtest/gtest.h>

#include <cmath>

#include "attention/float_call.h"
#include "posenc/core/isa.h"

namespace posenc {
namespace {

// Two heads of numbers by distance; `number` of (head, distance).
struct SteepCall : FloatCall {
  template <class F>
  SteepCall(Index queries, Index keys, const F& number, std::uint64_t seed = 5)
      : FloatCall(1, queries, keys, 2, 1, 8, 4, seed) {
    for (Index d = -keys; d <= keys; ++d) rows.push_back(static_cast<std::int32_t>(d + keys));
    for (Index h = 0; h < 2; ++h)
      for (Index d = -keys; d <= keys; ++d) numbers.push_back(number(h, static_cast<double>(d)));
    line.lines[0] = {rows.data(), 2 * keys + 1, -keys};
    line.table = tensor(std::as_const(numbers).data(), {1, 2, 2 * keys + 1, 1});
    terms = {line};
    args.terms = terms;
  }
  SteepCall(const SteepCall&) = delete;
  // Hides a key, whose numbers are not finite: then nothing is left out.
  void keep_all(bool all) {
    visible.assign(static_cast<std::size_t>(Tk), 1);
    visible[7] = 0;
    args.mask.key_visible = tensor(std::as_const(visible).data(), {1, Tk});
    if (all) narrow[1][7 * 8] = std::nanf("");
  }
  std::vector<std::int32_t> rows;
  std::vector<double> numbers;
  std::vector<std::uint8_t> visible;
  ProductTerm line;
  std::vector<Term> terms;
};

double slope_of(Index h, double distance) {
  return (h == 0 ? -0.5 : -7.0) * std::fabs(distance);
}
double log_of(Index h, double distance) {
  return (h == 0 ? -30.0 : -9.0) * std::log1p(2 * std::fabs(distance));
}
// A far peak, and one where nobody may see.
double peaks(Index h, double distance) {
  return (std::fabs(distance - 200) < 3 ? 90.0 : -100.0) + 40.0 * std::sin(distance) +
         (distance < -5 ? 300.0 * static_cast<double>(h) : 0.0);
}
using Number = double (*)(Index, double);
constexpr Number kNumbers[] = {slope_of, log_of, peaks};

TEST(FastFarKeys, RowsAreThoseOfTheReference) {
  for (const Number number : kNumbers)
    for (const Index queries : {1, 5, 70, 150})
      for (const Index mask : {0, 1, 2}) {
        SteepCall call(queries, 330, number);
        call.args.mask.causal = mask > 0;
        if (mask == 2) call.args.mask.window_left = 90, call.args.mask.sink_tokens = 2;
        ASSERT_TRUE(is_fast(call.args));
        const CallResult want = forward_of_reference(call.plain());
        for (const Isa isa : supported_isas()) {
          force_isa(isa);
          ASSERT_EQ(differences(of_attend(call.args), want, kFloatError, kFloatError), "")
              << isa_name(isa) << queries << mask;
        }
        reset_isa();
      }
}

// All keys lie far behind the queries, or the nearest are hidden.
TEST(FastFarKeys, FarBehindAllKeys) {
  for (const Number number : {slope_of, log_of})
    for (const Index queries : {2, 140})
      for (const Index by : {1, 300}) {
        SteepCall call(queries, 600, number);
        call.query_at = arange(599 + by, queries);
        call.args.query_positions = call.query_at;
        ASSERT_EQ(call.wrong(), "") << queries << by;
        std::vector<std::int64_t> length{400};
        call.args.mask.key_length = tensor(std::as_const(length).data(), {1});
        ASSERT_EQ(call.wrong(), "") << queries << by;
      }
}

// Numbers of near keys beside which floats do not hold the others.
double far_above(Index h, double distance) {
  return distance < 290 ? 1e7 : (h == 0 ? 3.0 : 20.0) * std::sin(distance);
}

// The same where flags, pairs or sequences hide the nearest keys.
TEST(FastFarKeys, NearestKeysThatAreHidden) {
  for (const Number number : {slope_of, far_above})
    for (const Index queries : {2, 70})
      for (const Index mask : {0, 1, 2}) {
        SteepCall call(queries, 600, number);
        std::vector<std::uint8_t> flags(static_cast<std::size_t>((mask == 0 ? 1 : queries) * 600));
        for (std::size_t n = 0; n < flags.size(); ++n) flags[n] = n % 600 < 300 ? 1 : 0;
        const std::vector<std::int64_t> of_query(static_cast<std::size_t>(queries), 0);
        std::vector<std::int64_t> of_key(600, 0);
        for (std::size_t j = 300; j < 600; ++j) of_key[j] = 1;
        if (mask == 0) {
          call.args.mask.key_visible = tensor(std::as_const(flags).data(), {1, 600});
        } else if (mask == 1) {
          call.args.mask.visible = tensor(std::as_const(flags).data(), {queries, 600});
        } else {
          call.args.mask.query_document = tensor(of_query.data(), {1, queries});
          call.args.mask.key_document = tensor(std::as_const(of_key).data(), {1, 600});
        }
        EXPECT_EQ(call.wrong(), "") << queries << ' ' << mask;
        if (queries > 2) {
          EXPECT_EQ(call.wrong_backward(), "") << mask;
        }
      }
}

TEST(FastFarKeys, GradientsAreThoseOfTheReference) {
  for (const Number number : kNumbers)
    for (const bool causal : {false, true}) {
      SteepCall call(130, 300, number);
      call.args.mask.causal = causal;
      ASSERT_EQ(call.wrong_backward_of_all_isas(), "") << causal;
    }
}

// What is left out has the weight 0: the same bits, forward and in gradients of q, k and v.
TEST(FastFarKeys, KeysThatAreLeftOutChangeNoBit) {
  for (const Isa isa : supported_isas()) {
    force_isa(isa);
    for (const Number number : kNumbers)
      for (const bool causal : {false, true})
        for (const double scale : {0.25, 4.0}) {
          SteepCall some(140, 600, number), all(140, 600, number);
          some.keep_all(false), all.keep_all(true);
          some.args.mask.causal = all.args.mask.causal = causal;
          some.args.scale = all.args.scale = scale;
          const CallResult x = gradients_of_fast(some.args), y = gradients_of_fast(all.args);
          ASSERT_EQ(x.out, y.out) << isa_name(isa) << causal << scale;
          ASSERT_EQ(x.log_sum_exp, y.log_sum_exp);
          for (std::size_t n = 1; n < x.gradients.size(); ++n)
            ASSERT_EQ(x.gradients[n], y.gradients[n]) << x.names[n];
          // Sums along diagonals begin at the first row that counts.
          ASSERT_LE(difference(x.gradients[0], y.gradients[0]), 1e-5);
        }
  }
  reset_isa();
}

// A far key may be so long that it counts all the same.
TEST(FastFarKeys, LongKeysCount) {
  SteepCall call(130, 400, slope_of);
  for (std::size_t d = 0; d < 8; ++d)
    for (const std::size_t key : {3u, 250u})
      call.narrow[1][key * 8 + d] *= 400,
          call.wide[1][key * 8 + d] = static_cast<double>(call.narrow[1][key * 8 + d]);
  const CallResult got = of_attend(call.args), want = forward_of_reference(call.plain());
  EXPECT_LE(difference(got.out, want.out), 2e-3);  // rounding of scores of 1000
}

// A value that is not finite reaches all rows that see it, however far.
TEST(FastFarKeys, FarValuesThatAreNotFiniteCount) {
  for (const float bad : {HUGE_VALF, std::nanf("")})
    for (const std::size_t array : {1u, 2u}) {
      SteepCall call(130, 600, slope_of);
      call.narrow[array][array == 1 ? 8 * 5 : 4 * 5] = bad;
      AttentionArgs exact = call.args;
      exact.exact = true;
      const CallResult got = of_attend(call.args), want = of_attend(exact);
      EXPECT_LE(difference(got.out, want.out), kFloatError) << bad << array;
    }
}

TEST(FastFarKeys, AnyNumberOfThreadsGivesTheSameBits) {
  SteepCall call(300, 900, slope_of);
  expect_same_bits(call.args);
  expect_same_gradient_bits(call.args);
}

}  // namespace
}  // namespace posenc
