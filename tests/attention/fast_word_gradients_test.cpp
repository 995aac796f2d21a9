// SPDX-License-Identifier: Apache-2.0
// Gradients of calls of bfloat16 by products of pairs against the plain reference in double: by plain kernels, which stand
// for those of machines with AVX512_BF16, and by those of the machine.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <functional>
#include <memory>
#include <utility>

#include "attention/random_call.h"
#include "attention/word_call.h"

namespace posenc {
namespace {

// Counts the rows of queries that these kernels take.
std::atomic<int> rows_of_words{0};
const detail::WordSlopeKernels* counting_slopes(const detail::WordSlopeKernels* k) {
  static detail::WordSlopeKernels counted;
  static bool (*take_row)(std::uint32_t*, const void*, Index, Index) noexcept;
  counted = *k, take_row = k->take_row;
  counted.take_row =
      +[](std::uint32_t* to, const void* from, Index channels, Index words) noexcept {
        ++rows_of_words;
        return take_row(to, from, channels, words);
      };
  return &counted;
}
void with_all_slopes(const std::function<void()>& check) {
  const Isa plain = test::isa_of_plain_words(), best = supported_isas().back();
  const std::pair<const detail::WordSlopeKernels*, Isa> all[] = {
      {test::plain_word_slopes(), plain}, {detail::usable_word_slopes(best), best}};
  for (const auto& [k, isa] : all)
    if (k != nullptr) {
      SCOPED_TRACE(k->products);
      const test::WordsInUse words(nullptr, isa, counting_slopes(k));
      rows_of_words = 0;
      check();
      EXPECT_GT(rows_of_words, 0);
    }
}

// The gradient of the output in bf16, and what its numbers are in double.
struct WordUpstream : EngineUpstream {
  explicit WordUpstream(const AttentionArgs& a) : EngineUpstream(a) {
    for (double& x : out) {
      words.push_back(bf16_from(x));
      x = static_cast<double>(f32_from_bf16(words.back()));
    }
    in_double = d_out;
    d_out.data = words.data(), d_out.dtype = DType::bf16;
  }
  std::vector<std::uint16_t> words;
  ConstHeads in_double;
};
// `exact_out`: what the output is before it is rounded.
CallResult gradients_of_words(const AttentionArgs& a, const std::vector<double>& exact_out,
                              const Executor& e = default_executor()) {
  WordUpstream up(a);
  ResultArrays to(a, DType::bf16);
  GradientArrays g(a);
  attend(a, to.r, e);
  undo_rounding(a, widened(to.r.out), exact_out, up);
  attend_backward(a, to.r, {up.d_out, up.d_lse}, g.g, e);
  return {widened(to.r.out), to.lse, std::move(g.value), std::move(g.name)};
}
CallResult reference_of_words(const AttentionArgs& plain, const AttentionArgs& of) {
  const WordUpstream up(plain);
  ResultArrays to(plain, DType::f64);
  GradientArrays g(of);
  support::attention_forward(plain, to.r);
  support::attention_backward(plain, up.in_double, up.d_lse, g.g);
  return {widened(to.r.out), to.lse, std::move(g.value), std::move(g.name)};
}

// Gradients of what is added to the scores are sums of numbers that are not rounded.
std::string wrong_of_words(const AttentionArgs& args, const AttentionArgs& plain,
                           double most = 0.02) {
  const CallResult want = reference_of_words(plain, args);
  const CallResult got = gradients_of_words(args, want.out);
  std::string text;
  for (std::size_t n = 0; n < want.gradients.size(); ++n) {
    const std::string& name = got.names[n];
    const double d = difference(got.gradients[n], want.gradients[n]);
    const bool of_factors = name == "query_factor" || name == "head_scale";  // sums of d q
    const double allowed = name.size() == 1 ? most
                           : of_factors     ? 5 * most
                                            : gradient_tolerance(DType::f32);
    if (!(d <= allowed)) text += "d " + got.names[n] + " " + std::to_string(d) + "; ";
  }
  return text;
}
std::string wrong(const WordCall& call) {
  EXPECT_EQ(explain_plan(call.args).backward_engine, "fast");
  return wrong_of_words(call.args, call.plain());
}

TEST(FastWordGradients, LengthsAndHeadSizesAroundTiles) {
  constexpr Index kQueries[] = {1, 3, 4, 5, 6, 7, 11, 12, 13, 47, 48, 49, 97, 111};
  constexpr Index kKeys[] = {1, 2, 7, 8, 9, 15, 16, 17, 33, 127, 128, 129, 191, 192, 193, 385};
  constexpr Index kDims[] = {1, 3, 8, 16, 20, 33, 64, 80};
  with_all_slopes([&] {
    std::uint64_t seed = 0;
    for (const Index keys : kKeys)
      for (const bool causal : {false, true}) {
        const Index queries = kQueries[seed * 5 % std::size(kQueries)];
        WordCall call(1, queries, keys, 2, seed % 3 == 0 ? 1 : 2, kDims[seed % std::size(kDims)],
                      kDims[seed * 5 % std::size(kDims)], seed);
        ++seed;
        call.args.mask.causal = causal;
        if (causal && seed % 2 == 0)
          call.args.mask.window_left = 70, call.args.mask.sink_tokens = 3;
        ASSERT_EQ(wrong(call), "") << queries << " queries, " << keys << " keys, head of " << call.D
                                   << ", " << call.V << " causal " << causal;
      }
  });
}

TEST(FastWordGradients, RandomCallsAreThoseOfTheReference) {
  with_all_slopes([] {
    int ran = 0;
    for (std::uint64_t seed = 0; seed < 40000 && ran < 150; ++seed) {
      const RandomCall call(seed);
      const AttentionArgs& a = call.args;
      if (a.q.dtype != DType::bf16 || a.k.dtype != DType::bf16 || a.v.dtype != DType::bf16 ||
          explain_plan(a).backward_engine != "fast")
        continue;
      const int before = rows_of_words;
      const std::string wrong = wrong_of_words(a, call.plain, 0.05);
      if (rows_of_words == before) continue;  // in float
      ASSERT_EQ(wrong, "") << "seed " << seed;
      ++ran;
    }
    EXPECT_GT(ran, 50);
  });
}

// By distance, near and far; scores of hundreds, of both signs, whose sums are far from 1.
TEST(FastWordGradients, BiasesAndLargeScores) {
  with_all_slopes([] {
    for (const double slope : {-0.1, -3.0, -200.0, 40.0})
      for (const bool causal : {false, true}) {
        WordCall call(1, 150, 301, 2, 2, 16, 16, 5);
        const std::vector<double> table{slope, -1.0, slope / 2, slope};
        const Term linear[] = {LinearTerm{.table = tensor(table.data(), {1, 2, 1, 2})}};
        call.args.terms = linear;
        call.args.mask.causal = causal;
        EXPECT_EQ(wrong(call), "") << slope;
      }
    // 128 / log2(e): a float of rows and keys behind the last is infinite first.
    for (const double by : {-300.0, -88.72, 88.72, 300.0}) {
      WordCall call(1, 41, 301, 2, 1, 16, 16, 9);
      const std::vector<double> number{by};
      ProductTerm all;
      all.table = tensor(number.data(), {1, 1, 1, 1});
      const Term terms[] = {all};
      call.args.terms = terms;
      EXPECT_EQ(wrong(call), "") << by;
    }
  });
}

// A key behind the last would score 0, where all others score -128 / log2(e).
TEST(FastWordGradients, ScoresFarBelowThoseOfKeysBehindTheLast) {
  with_all_slopes([] {
    WordCall call(1, 3, 1, 1, 1, 1, 1, 5);
    std::fill(call.narrow[0].begin(), call.narrow[0].end(), 1.0f);
    std::fill(call.narrow[1].begin(), call.narrow[1].end(), -1.0f);
    call.round_to_words();
    call.args.scale = 88.72;
    EXPECT_EQ(wrong(call), "");
  });
}

// A head's factor and a query's are those of its own rows, in the sums over rows too.
TEST(FastWordGradients, FactorsOfHeadsAndQueries) {
  with_all_slopes([] {
    WordCall call(1, 50, 70, 4, 2, 16, 24, 5);
    std::vector<double> head{0.5, 2.0, -1.0, 1.5}, query(50);
    for (std::size_t i = 0; i < 50; ++i) query[i] = 0.1 + 0.05 * static_cast<double>(i);
    call.args.head_scale = tensor(head.data(), {1, 4});
    call.args.query_factor = tensor(query.data(), {1, 50});
    EXPECT_EQ(wrong(call), "");
  });
}

// fast_word_slopes.h: 2^-8 of the sum of magnitudes beside what float gives.
TEST(FastWordGradients, ErrorsAreWithinTheStatedBound) {
  with_all_slopes([] {
    for (const double scale : {0.05, 0.3, 1.0, 3.0}) {
      WordCall call(1, 60, 201, 1, 1, 24, 8, 11);
      call.args.scale = scale / std::sqrt(24.0);
      const CallResult want = reference_of_words(call.plain(), call.args),
                       got = gradients_of_words(call.args, want.out);
      const GradientMagnitudes m =
          gradient_magnitudes(call, WordUpstream(call.args), want.log_sum_exp, true);
      for (std::size_t n = 0; n < 3; ++n)
        for (std::size_t at = 0; at < m.of[n].size(); ++at)
          ASSERT_LE(std::fabs(got.gradients[n][at] - want.gradients[n][at]),
                    0x1p-8 * m.of[n][at] + 1e-4)
              << got.names[n] << " " << scale;
    }
  });
}

// A gradient of the output in f32 is not rounded.
TEST(FastWordGradients, OtherTypesAreComputedInFloat) {
  with_all_slopes([] {
    WordCall call(1, 50, 70, 2, 1, 16, 24, 5);
    const CallResult want = of_reference(call.plain(), call.args);
    const int before = rows_of_words;
    EngineUpstream up(call.args);
    ResultArrays to(call.args, DType::bf16);
    GradientArrays g(call.args);
    attend(call.args, to.r);
    undo_rounding(call.args, widened(to.r.out), want.out, up);
    std::vector<float> d_out(up.out.begin(), up.out.end());
    up.d_out.data = d_out.data(), up.d_out.dtype = DType::f32;
    attend_backward(call.args, to.r, {up.d_out, up.d_lse}, g.g);
    EXPECT_EQ(rows_of_words, before);
    for (std::size_t n = 0; n < g.value.size(); ++n)
      EXPECT_LE(difference(g.value[n], want.gradients[n]), gradient_tolerance(DType::f32))
          << g.name[n];
    EXPECT_EQ(wrong(call), "");
  });
}

// All gradients are then those of the exact engine.
TEST(FastWordGradients, NumbersThatAreNotFinite) {
  with_all_slopes([] {
    for (const float bad : {HUGE_VALF, std::nanf(""), 0x1p127f})
      for (const std::size_t array : {0u, 1u, 2u}) {
        WordCall call(1, 100, 100, 1, 1, 8, 8, 3);
        call.args.mask.causal = true;
        call.args.scale = array == 0 ? 0x1p-124 : 1.0;
        call.narrow[array][50 * 8 + 2] = bad;
        call.round_to_words();
        AttentionArgs exact = call.args;
        exact.exact = true;
        const std::vector<double> out = of_attend(exact).out;
        const CallResult got = gradients_of_words(call.args, out),
                         want = gradients_of_words(exact, out);
        for (std::size_t n = 0; n < want.gradients.size(); ++n)
          EXPECT_LE(difference(got.gradients[n], want.gradients[n]), 0x1p-6)
              << bad << array << got.names[n];
      }
    WordCall call(1, 9, 9, 1, 1, 8, 8, 3);  // so that some rows are words
    EXPECT_EQ(wrong(call), "");
  });
}

// What no query sees may hold anything, and so may queries that see no key.
TEST(FastWordGradients, HiddenTokensMayHoldAnything) {
  std::vector<std::uint8_t> visible(60, 1);
  std::fill(visible.begin() + 50, visible.end(), std::uint8_t{0});
  with_all_slopes([&] {
    const auto call_of = [&](float hidden) {
      auto call = std::make_unique<WordCall>(1, 81, 60, 1, 1, 8, 8, 5);
      call->args.mask.causal = true, call->args.mask.query_offset = -21;
      call->args.mask.key_visible = tensor(std::as_const(visible).data(), {1, 60});
      for (std::size_t n = 0; n < 21 * 8; ++n) call->narrow[0][n] = hidden;
      for (std::size_t n = 50 * 8; n < 60 * 8; ++n)
        call->narrow[1][n] = call->narrow[2][n] = hidden;
      call->round_to_words();
      return call;
    };
    const auto clean = call_of(0.5f), bad = call_of(std::nanf(""));
    const CallResult want = gradients_of_words(clean->args, of_attend(clean->args).out),
                     got = gradients_of_words(bad->args, of_attend(bad->args).out);
    for (std::size_t n = 0; n < got.gradients.size(); ++n)
      EXPECT_EQ(got.gradients[n], want.gradients[n]) << got.names[n];
  });
}

TEST(FastWordGradients, ThreadsAndRepeatsGiveTheSameBits) {
  with_all_slopes([] {
    WordCall call(2, 300, 700, 4, 2, 24, 40, 5);
    call.args.mask.causal = true;
    const std::vector<double> out = of_attend(call.args).out;
    const CallResult one = gradients_of_words(call.args, out, inline_executor());
    for (int n = 0; n < 3; ++n)
      EXPECT_EQ(gradients_of_words(call.args, out).gradients, one.gradients);
  });
}

}  // namespace
}  // namespace posenc
