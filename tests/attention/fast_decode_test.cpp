// SPDX-License-Identifier: Apache-2.0
// Few queries for each key head, whose keys the fast engine reads as they lie: against the reference in double, at
// sizes around its blocks and slices, on every instruction set.
#include <gtest/gtest.h>

#include "attention/float_call.h"
#include "attention/random_call.h"
#include "posenc/core/isa.h"

namespace posenc {
namespace {

TEST(FastDecodeCalls, RandomCallsOfSeveralBlocks) {
  int ran = 0;
  for (std::uint64_t seed = 0; seed < 4000; ++seed) {
    constexpr Index kQueries[] = {1, 2, 3, 5, 8}, kKeys[] = {30, 32, 33, 64, 70};
    const RandomCall call(
        seed, {.queries = kQueries[seed % 5], .keys = kKeys[seed / 5 % 5], .in_float = true});
    if (!is_fast(call.args)) continue;
    ASSERT_EQ(wrong_of_fast(of_attend(call.args), call.plain, call.args.q.dtype), "")
        << "seed " << seed;
    ++ran;
  }
  EXPECT_GT(ran, 1500);
}

TEST(FastDecodeCalls, HeadsLengthsAndQueries) {
  constexpr Index kDims[] = {1, 3, 4, 7, 8, 15, 16, 17, 20, 64, 72, 128, 576};
  constexpr Index kLengths[] = {1, 2, 31, 32, 33, 63, 65, 100};
  std::uint64_t seed = 0;
  for (const Isa isa : supported_isas()) {
    force_isa(isa);
    for (const Index dim : kDims)
      for (const Index share : {1, 2, 3, 4, 5, 7, 8}) {
        const Index queries = share <= 2 ? 1 + static_cast<Index>(seed % 4) : 1;
        FloatCall call(1, queries, kLengths[seed % std::size(kLengths)], 2 * share, 2, dim,
                       kDims[seed * 5 % std::size(kDims)], seed);
        ++seed;
        call.args.mask.causal = seed % 2 == 0;
        if (seed % 3 == 0) call.args.mask.window_left = 20, call.args.mask.sink_tokens = 3;
        ASSERT_EQ(call.wrong(), "")
            << isa_name(isa) << " " << queries << " queries, " << call.Tk << " keys, " << share
            << " heads of a key head of " << dim << ", " << call.V;
      }
  }
  reset_isa();
}

// Keys and values head by head, one channel after the other, and in pages.
TEST(FastDecodeCalls, Layouts) {
  FloatCall call(1, 2, 70, 4, 2, 24, 20, 3);
  const CallResult want = forward_of_reference(call.plain());
  std::vector<float> by_head[2], by_channel[2], pages[2];
  for (std::size_t n = 0; n < 2; ++n) {
    const Index dim = n == 0 ? 24 : 20;
    by_head[n].resize(static_cast<std::size_t>(70 * 2 * dim));
    by_channel[n] = by_head[n];
    pages[n].assign(static_cast<std::size_t>(8 * 10 * 2 * dim), std::nanf(""));
    for (Index j = 0; j < 70; ++j)
      for (Index g = 0; g < 2; ++g)
        for (Index c = 0; c < dim; ++c) {
          const float x = call.narrow[n + 1][static_cast<std::size_t>((j * 2 + g) * dim + c)];
          by_head[n][static_cast<std::size_t>((g * 70 + j) * dim + c)] = x;
          by_channel[n][static_cast<std::size_t>((c * 2 + g) * 70 + j)] = x;
          const Index page = 7 - j / 10;
          pages[n][static_cast<std::size_t>(((page * 10 + j % 10) * 2 + g) * dim + c)] = x;
        }
  }
  const auto check = [&](const AttentionArgs& a, const char* name) {
    EXPECT_EQ(differences(of_attend(a), want, kFloatError, kFloatError), "") << name;
  };
  AttentionArgs a = call.args;
  a.k = heads(tensor(std::as_const(by_head[0]).data(), {1, 2, 70, 24}), HeadsLayout::bhtd);
  a.v = heads(tensor(std::as_const(by_head[1]).data(), {1, 2, 70, 20}), HeadsLayout::bhtd);
  check(a, "by head");
  const auto strided = [](const std::vector<float>& x, Index dim) {
    const std::vector<Index> shape{1, 70, 2, dim}, stride{0, 1, 70, 140};
    return heads(tensor(static_cast<const void*>(x.data()), DType::f32, shape, stride),
                 HeadsLayout::bthd);
  };
  a.k = strided(by_channel[0], 24), a.v = strided(by_channel[1], 20);
  check(a, "by channel");
  std::vector<std::int32_t> table{7, 6, 5, 4, 3, 2, 1};
  const std::vector<std::int64_t> length{70};
  a.k = heads(tensor(std::as_const(pages[0]).data(), {8, 10, 2, 24}), HeadsLayout::bthd);
  a.v = heads(tensor(std::as_const(pages[1]).data(), {8, 10, 2, 20}), HeadsLayout::bthd);
  a.block_table = tensor(std::as_const(table).data(), {1, 7});
  a.mask.key_length = tensor(length.data(), {1});
  check(a, "pages");
}

// Terms by distance, from lines in float and in double, for heads that share keys.
TEST(FastDecodeCalls, TermsByDistance) {
  for (const double slope : {-0.05, -3.0})
    for (const Index queries : {1, 2}) {
      FloatCall call(1, queries, 500, 8, 2, 16, 16, 5);
      std::vector<double> slopes;
      for (int h = 0; h < 8; ++h) slopes.insert(slopes.end(), {slope / (h + 1), slope});
      const Term linear[] = {
          LinearTerm{.table = tensor(std::as_const(slopes).data(), {1, 8, 1, 2})}};
      call.args.terms = linear;
      EXPECT_EQ(call.wrong(), "") << slope;
      call.args.mask.causal = true, call.args.mask.window_left = 300;
      EXPECT_EQ(call.wrong(), "") << slope;
    }
}

// Caps of scores, before terms and after them, for every number of rows that kernels compute at once.
TEST(FastDecodeCalls, SoftCaps) {
  std::uint64_t seed = 0;
  for (const Isa isa : supported_isas()) {
    force_isa(isa);
    for (const Index share : {1, 2, 3, 5, 8})
      for (const Index keys : {1, 31, 33, 100})
        for (const double slope : {0.0, -0.05, -5.0}) {
          FloatCall call(1, 1, keys, 2 * share, 2, 20, 12, ++seed);
          const std::vector<double> slopes(4, slope);
          const Term linear[] = {LinearTerm{.table = tensor(slopes.data(), {1, 2, 1, 2})}};
          if (slope != 0) call.args.terms = linear;
          call.args.softcap = seed % 4 == 0 ? 0.3 : 1.5;
          call.args.softcap_after_terms = seed % 2 == 0;
          if (seed % 3 == 0) call.args.mask.window_left = 20, call.args.mask.sink_tokens = 3;
          ASSERT_EQ(call.wrong(), "") << isa_name(isa) << " " << share << " " << keys << " "
                                      << slope << (seed % 2 == 0 ? " after" : " before");
        }
  }
  reset_isa();
  FloatCall call(1, 1, 9000, 4, 2, 16, 16, 4);
  call.args.softcap = 20, call.args.scale = 30;  // scores of hundreds: the cap bounds them
  EXPECT_EQ(call.wrong(), "");
  expect_same_bits(call.args);
}

// A cap hides what a product is: one that is infinite is the exact engine's.
TEST(FastDecodeCalls, CapsOfNumbersThatAreNotFinite) {
  for (const float bad : {HUGE_VALF, std::nanf(""), 3e38f}) {
    FloatCall call(1, 1, 100, 2, 2, 8, 8, 3);
    call.args.softcap = 2;
    for (std::size_t c = 0; c < 8; ++c) call.narrow[1][50 * 16 + 8 + c] = bad;  // of head 1
    AttentionArgs exact = call.args;
    exact.exact = true;
    const CallResult got = of_attend(call.args), want = of_attend(exact);
    EXPECT_LE(difference(got.out, want.out), kFloatError) << bad;
  }
}

// Slices that are joined: weights that lie far apart from slice to slice, so that references move in some, and rows
// whose weights are all small.
TEST(FastDecodeCalls, SlicesOfTheKeys) {
  for (const Index keys : {4095, 4096, 4097, 9000})
    for (const double slope : {0.0, 0.01, -0.02, 1.0, -1.0}) {
      FloatCall call(1, 1, keys, 2, 1, 16, 24, 7);
      const std::vector<double> slopes{slope, slope};
      const Term linear[] = {LinearTerm{.table = tensor(slopes.data(), {1, 1, 1, 2})}};
      call.args.terms = linear;
      EXPECT_EQ(call.wrong(), "") << keys << " " << slope;
    }
  for (const double by : {-500.0, 500.0}) {
    FloatCall call(1, 1, 5000, 2, 1, 16, 16, 9);
    const std::vector<double> number{by};
    ProductTerm all;
    all.table = tensor(number.data(), {1, 1, 1, 1});
    const Term terms[] = {all};
    call.args.terms = terms;
    const CallResult got = of_attend(call.args), want = forward_of_reference(call.plain());
    EXPECT_LE(difference(got.out, want.out), kFloatError) << by;
    EXPECT_LE(difference(got.log_sum_exp, want.log_sum_exp), 1e-6) << by;
  }
}

TEST(FastDecodeCalls, LargeScores) {
  for (const double scale : {25.0, -25.0}) {
    FloatCall call(1, 1, 5000, 4, 2, 16, 16, 9);
    call.args.scale = scale;
    const CallResult got = of_attend(call.args), want = forward_of_reference(call.plain());
    EXPECT_LE(difference(got.out, want.out), 1e-3);  // rounding of scores of 1000
  }
}

// Numbers that float cannot work with: the row is that of the exact engine, bit by bit, and other heads do not notice.
TEST(FastDecodeCalls, LeavesRowsToTheExactEngine) {
  for (const float bad : {HUGE_VALF, -HUGE_VALF, std::nanf(""), 1e30f})
    for (const std::size_t array : {0u, 1u, 2u}) {
      FloatCall call(1, 1, 4300, 2, 2, 8, 8, 3), whole(1, 1, 4300, 2, 2, 8, 8, 3);
      call.narrow[array][(array == 0 ? 0 : 150 * 16) + 8 + 2] = bad;  // of head 1
      AttentionArgs exact = call.args;
      exact.exact = true;
      const CallResult got = of_attend(call.args), want = of_attend(exact),
                       clean = of_attend(whole.args);
      for (std::size_t c = 0; c < 8; ++c) {
        EXPECT_EQ(got.out[c], clean.out[c]);
        if (bad == 1e30f && array == 2) continue;  // float holds values of 1e30
        EXPECT_EQ(difference({got.out[8 + c]}, {want.out[8 + c]}), 0) << bad << " array " << array;
      }
      EXPECT_LE(difference(got.out, want.out), kFloatError) << bad << " array " << array;
    }
}

// Keys that lengths, flags, or masks by pair hide may hold anything.
TEST(FastDecodeCalls, HiddenKeysMayHoldAnything) {
  std::vector<std::uint8_t> shown(100, 1), pairs(100, 1);
  for (std::size_t j = 40; j < 60; ++j) shown[j] = 0;
  for (std::size_t j = 70; j < 75; ++j) pairs[j] = 0;
  const std::vector<std::int64_t> length{90};
  FloatCall call(1, 1, 100, 4, 1, 16, 16, 3);
  call.args.mask.key_length = tensor(length.data(), {1});
  call.args.mask.key_visible = tensor(std::as_const(shown).data(), {1, 100});
  call.args.mask.visible = tensor(std::as_const(pairs).data(), {1, 100});
  const CallResult clean = of_attend(call.args);
  EXPECT_EQ(call.wrong(), "");
  for (std::size_t j = 0; j < 100; ++j)
    if (j >= 90 || shown[j] == 0 || pairs[j] == 0)
      for (std::size_t c = 0; c < 16; ++c)
        call.narrow[1][j * 16 + c] = call.narrow[2][j * 16 + c] = std::nanf("");
  const CallResult got = of_attend(call.args);
  EXPECT_EQ(got.out, clean.out);
  EXPECT_EQ(got.log_sum_exp, clean.log_sum_exp);
}

// One query for each of many sequences in pages: more than a block of rows holds for one head.
TEST(FastDecodeCalls, ManySequencesInPages) {
  constexpr Index kSequences = 400, kPage = 4, kHeads = 8;
  std::vector<std::int64_t> begins, lengths;
  std::vector<std::int32_t> pages;
  for (Index n = 0; n < kSequences; ++n) {
    begins.push_back(n), lengths.push_back(1 + n % (2 * kPage));
    for (const Index page : {3 * n, n + 7})
      pages.push_back(static_cast<std::int32_t>(page % kSequences));
  }
  begins.push_back(kSequences);
  FloatCall call(1, kSequences, kSequences * kPage, kHeads, 1, 8, 8, 3);
  AttentionArgs a = call.args, plain = call.plain();
  for (AttentionArgs* args : {&a, &plain}) {
    const auto in_pages = [&](ConstHeads x) {
      x.batch = kSequences, x.tokens = kPage, x.batch_stride = kPage * x.token_stride;
      return x;
    };
    args->k = in_pages(args->k), args->v = in_pages(args->v);
    args->query_positions = args->key_positions = {};
    args->mask.query_offset = 0;
    args->block_table = tensor(std::as_const(pages).data(), {kSequences, 2});
    args->mask.key_length = tensor(std::as_const(lengths).data(), {kSequences});
    args->mask.query_cu_seqlens = tensor(std::as_const(begins).data(), {kSequences + 1});
  }
  ASSERT_TRUE(is_fast(a));
  EXPECT_EQ(wrong_of_fast(of_attend(a), plain, DType::f32), "");
}

TEST(FastDecodeCalls, ManyKeysAndAnyNumberOfThreads) {
  FloatCall call(1, 1, 131072, 2, 1, 8, 8, 4);
  call.args.mask.causal = true;
  expect_same_bits(call.args);
  EXPECT_EQ(call.wrong(), "");
  // Layouts differ in how threads share the work.
  FloatCall several(2, 2, 9000, 4, 2, 16, 16, 4);
  expect_same_bits(several.args);
}

}  // namespace
}  // namespace posenc
