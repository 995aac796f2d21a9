// SPDX-License-Identifier: Apache-2.0
// Calls of bfloat16 by products of pairs against the plain reference in double: by plain kernels, which stand for those of
// machines with AVX512_BF16 and AMX, and by those of the machine.
#include <gtest/gtest.h>

#include <atomic>
#include <utility>

#include "attention/random_call.h"
#include "attention/word_call.h"

namespace posenc {
namespace {

// Counts the blocks of rows that these kernels compute.
std::atomic<int> blocks_of_words{0};
const detail::WordKernels* counting(const detail::WordKernels* k) {
  if (k == nullptr) return nullptr;
  static detail::WordKernels counted;
  static void (*begin)() noexcept;
  counted = *k, begin = k->begin;
  counted.begin = +[]() noexcept {
    ++blocks_of_words;
    begin();
  };
  return &counted;
}
template <class Check>
void with_all_words(const Check& check) {
  const Isa plain = test::isa_of_plain_words(), best = supported_isas().back();
  const std::pair<const detail::WordKernels*, Isa> all[] = {
      {test::plain_words_of_vectors(), plain},
      {test::plain_words_of_tiles(), plain},
      {detail::usable_words(best, false), best},
      {detail::usable_words(best, true), best}};
  for (const auto& [k, isa] : all)
    if (k != nullptr) {
      SCOPED_TRACE(k->products);
      const test::WordsInUse words(counting(k), isa);
      blocks_of_words = 0;
      check();
      EXPECT_GT(blocks_of_words, 0);
    }
}

TEST(FastWords, LengthsAndHeadSizesAroundBlocks) {
  constexpr Index kLengths[] = {9,  12, 13, 16,  17,  31,  32,  33,  63,
                                64, 65, 96, 127, 129, 255, 256, 257, 385};
  constexpr Index kDims[] = {1, 3, 8, 16, 20, 33, 64, 80};
  with_all_words([&] {
    std::uint64_t seed = 0;
    for (const Index queries : kLengths)
      for (const bool causal : {false, true}) {
        const Index keys = kLengths[(seed * 7 + 3) % std::size(kLengths)];
        WordCall call(1, queries, keys, 2, seed % 3 == 0 ? 1 : 2, kDims[seed % std::size(kDims)],
                      kDims[seed * 5 % std::size(kDims)], seed);
        ++seed;
        call.args.mask.causal = causal;
        if (causal && seed % 2 == 0)
          call.args.mask.window_left = 70, call.args.mask.sink_tokens = 3;
        ASSERT_EQ(call.wrong_words(), "") << queries << " queries, " << keys << " keys, head of "
                                          << call.D << ", " << call.V << " causal " << causal;
      }
  });
}

TEST(FastWords, RandomCallsAreThoseOfTheReference) {
  with_all_words([] {
    int ran = 0;
    for (std::uint64_t seed = 0; seed < 30000; ++seed) {
      constexpr Index kQueries[] = {9, 13, 20, 40}, kKeys[] = {1, 6, 18, 33, 70};
      const RandomCall call(seed, {false, kQueries[seed % 4], kKeys[seed / 4 % 5]});
      const AttentionArgs& a = call.args;
      if (a.q.dtype != DType::bf16 || a.k.dtype != DType::bf16 || a.v.dtype != DType::bf16 ||
          !is_fast(a))
        continue;
      const int before = blocks_of_words;
      const CallResult got = of_attend(a);
      if (blocks_of_words == before) continue;  // in float
      ASSERT_EQ(wrong_of_fast(got, call.plain, DType::bf16), "") << "seed " << seed;
      ++ran;
    }
    EXPECT_GT(ran, 100);
  });
}

// Numbers by distance, near and far, and scores of hundreds.
TEST(FastWords, BiasesAndLargeScores) {
  with_all_words([] {
    for (const double slope : {-0.1, -3.0, -200.0, 40.0}) {
      WordCall call(1, 300, 500, 2, 2, 16, 16, 5);
      const std::vector<double> table{slope, -1.0, slope / 2, slope};
      const Term linear[] = {LinearTerm{.table = tensor(table.data(), {1, 2, 1, 2})}};
      call.args.terms = linear;
      EXPECT_EQ(call.wrong_words(), "") << slope;
      call.args.mask.causal = true;
      EXPECT_EQ(call.wrong_words(), "") << slope;
    }
    for (const double scale : {25.0, -25.0}) {
      WordCall call(1, 70, 600, 1, 1, 16, 16, 9);
      call.args.scale = scale;
      const CallResult got = of_attend(call.args), want = forward_of_reference(call.plain());
      EXPECT_LE(difference(got.out, want.out), 0x1p-7);
      EXPECT_LE(difference(got.log_sum_exp, want.log_sum_exp), 1e-6);
    }
  });
}

// Its weight is rounded, and divided by itself.
TEST(FastWords, ARowThatSeesOneKeyReturnsItsValue) {
  with_all_words([] {
    WordCall call(1, 40, 40, 2, 2, 16, 24, 5);
    call.args.mask.window_left = 0, call.args.mask.window_right = 0;
    call.wide[2].pop_back();  // a number behind the last
    EXPECT_EQ(of_attend(call.args).out, call.wide[2]);
  });
}

// Rows that meet numbers which are not finite are those of the exact engine; the others do not notice.
TEST(FastWords, NumbersThatAreNotFinite) {
  with_all_words([] {
    for (const float bad : {HUGE_VALF, std::nanf(""), 1e30f})
      for (const std::size_t array : {0u, 1u, 2u}) {
        WordCall call(1, 200, 200, 1, 1, 8, 8, 3), whole(1, 200, 200, 1, 1, 8, 8, 3);
        call.args.mask.causal = whole.args.mask.causal = true;
        call.narrow[array][150 * 8 + 2] = bad;
        call.round_to_words();
        AttentionArgs exact = call.args;
        exact.exact = true;
        const CallResult got = of_attend(call.args), want = of_attend(exact),
                         good = forward_of_reference(whole.plain());
        EXPECT_LE(difference(got.out, want.out), fast_tolerance(DType::bf16)) << array;
        for (std::size_t n = 0; n < 150 * 8; ++n)
          ASSERT_NEAR(got.out[n], good.out[n], fast_tolerance(DType::bf16)) << array << " " << n;
      }
  });
}

TEST(FastWords, ThreadsAndRepeatsGiveTheSameBits) {
  with_all_words([] {
    WordCall call(2, 300, 300, 4, 2, 24, 40, 5);
    call.args.mask.causal = true;
    expect_same_bits(call.args);
  });
}

}  // namespace
}  // namespace posenc
