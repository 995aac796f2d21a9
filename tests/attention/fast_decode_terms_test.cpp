// SPDX-License-Identifier: Apache-2.0
// Few queries, whose keys the fast engine reads as they lie, with terms that read more than keys and values: rows that are
// multiplied with keys, rows that are added to values, products of other vectors. Against the reference in double.
#include <gtest/gtest.h>

#include "attention/rows_call.h"
#include "posenc/core/isa.h"

namespace posenc {
namespace {

// Key heads of two heads, so that queries x heads of them are few.
struct FewCall : RowsCall {
  FewCall(Index queries, Index keys, Index dim, std::uint64_t seed)
      : RowsCall(seed % 5 == 0 ? 2 : 1, queries, keys, 2, dim, seed) {
    if (seed % 2 == 0) share_keys();  // of five queries: too many rows, they are packed
    args.mask.causal = seed % 3 == 1;
    if (seed % 6 == 1) args.mask.window_left = 70, args.mask.sink_tokens = 3;
  }
  ConstHeads vectors(Index tokens, Index count, Index channels) {
    tables.push_back(random.normals(static_cast<std::size_t>(B * tokens * count * channels)));
    return heads(tensor(std::as_const(tables.back()).data(), {B, tokens, count, channels}),
                 HeadsLayout::bthd);
  }
};

// fn(call, kind of rows, seed) adds the terms.
template <class F>
void each_few_call(const F& fn) {
  constexpr Index kLengths[] = {8, 31, 33, 100, 300}, kDims[] = {1, 3, 8, 20, 33};
  std::uint64_t seed = 0;
  for (const Isa isa : supported_isas()) {
    force_isa(isa);
    for (const Index queries : {1, 2, 3, 5, 8})
      for (const Rows kind : {Rows::clipped, Rows::buckets, Rows::each}) {
        ++seed;
        FewCall call(queries, kLengths[seed % 5], kDims[seed * 7 % 5], seed);
        fn(call, kind, seed);
        ASSERT_EQ(call.wrong(), "") << isa_name(isa) << " " << queries << " queries, " << call.Tk
                                    << " keys, head of " << call.D << ", seed " << seed;
      }
  }
  reset_isa();
}

TEST(FastDecodeTerms, RowsOfKeys) {
  each_few_call([](FewCall& call, Rows kind, std::uint64_t seed) {
    ProductTerm t = call.rows(kind, true, seed % 3 == 0 ? call.B : 1, seed % 4 == 0 ? 1 : 2);
    if (seed % 4 == 2) {
      t.key = {.given = call.vectors(seed % 8 == 2 ? 1 : call.Tk, 2, 5)};
      t.table = call.table(1, 2, t.table.shape[2], 5);
    }
    call.add(t);
    if (seed % 7 < 2) call.add(call.rows(Rows::buckets, false, 1, 2));
    if (seed % 4 == 1) call.args.softcap = 1.5, call.args.softcap_after_terms = seed % 8 == 1;
  });
}

TEST(FastDecodeTerms, RowsOfValues) {
  each_few_call([](FewCall& call, Rows kind, std::uint64_t seed) {
    call.add(call.value_rows(kind, seed % 3 == 0 ? call.B : 1, seed % 4 == 0 ? 1 : 2));
    if (seed % 3 == 0) call.add(call.rows(Rows::buckets, seed % 2 == 0, 1, 2));
    if (seed % 5 == 1) call.add(call.value_rows(Rows::buckets, 1, 1));
  });
}

TEST(FastDecodeTerms, ProductsOfVectors) {
  each_few_call([](FewCall& call, Rows, std::uint64_t seed) {
    for (Index n = 0; n < 1 + static_cast<Index>(seed % 2); ++n) {
      ProductTerm t;
      t.scale = 0.4;
      const Index channels = seed % 3 == 0 ? call.D : 5 + 12 * n;
      t.query = {.given =
                     call.vectors(seed % 4 == 0 ? 1 : call.Tq, seed % 5 == 0 ? 1 : 2, channels)};
      if (seed % 3 == 0 && n == 0) t.query = kContent;
      t.key = {.given = call.vectors(seed % 4 == 1 ? 1 : call.Tk, seed % 7 < 3 ? 1 : 2, channels)};
      call.add(t);
    }
    if (seed % 4 == 1) call.args.softcap = 1.5, call.args.softcap_after_terms = true;
  });
}

TEST(FastDecodeTerms, RowsPickedByPairs) {
  for (int way = 0; way < 5; ++way) {
    EXPECT_EQ(PairsCall(true, way, 3).wrong(), "") << way;
    PairsCall values(true, way, 3);
    const ValueRowsTerm rows{{std::get<ProductTerm>(values.terms[0])}, 0.3};
    values.terms.clear();
    values.add(rows);
    EXPECT_EQ(values.wrong(), "") << way;
  }
}

// Scores that are all low: references follow the largest one from unit to unit, and sums of weights with them.
TEST(FastDecodeTerms, ReferencesThatMove) {
  FewCall call(1, 500, 8, 4);
  const std::vector<double> slopes{-0.05, 0.0}, low{-1000};
  ProductTerm number;
  number.table = tensor(low.data(), {1, 1, 1, 1});
  call.add(LinearTerm{.table = tensor(slopes.data(), {1, 1, 1, 2})});
  call.add(number);
  call.add(call.value_rows(Rows::buckets, 1, 2));
  EXPECT_EQ(call.wrong(), "");
}

// Slices that read other steps, references that move, and any number of threads.
TEST(FastDecodeTerms, SlicesOfTheKeys) {
  for (const Rows kind : {Rows::clipped, Rows::each})
    for (const double slope : {0.01, -1.0, 1.0}) {
      if (kind == Rows::each && slope != 1.0) continue;
      FewCall call(1, 4200, 4, 4);
      const std::vector<double> slopes{slope, slope};
      call.add(LinearTerm{.table = tensor(slopes.data(), {1, 1, 1, 2})});
      call.add(call.rows(kind, true, 1, 1));
      call.add(call.value_rows(kind, 1, 2));
      EXPECT_EQ(call.wrong(), "") << static_cast<int>(kind) << slope;
      expect_same_bits(call.args);
    }
}

// What is not finite is met by the queries that read it alone; of hidden keys anything may be.
TEST(FastDecodeTerms, NumbersThatAreNotFinite) {
  for (const int way : {0, 1, 2})
    for (const float bad : {HUGE_VALF, std::nanf(""), 1e30f}) {
      FewCall call(2, 100, 8, 3);
      if (way == 0) call.add(call.rows(Rows::each, true, 1, 2));
      if (way == 1) call.add(call.value_rows(Rows::each, 1, 2));
      if (way == 2) {
        ProductTerm t;
        t.query = {.given = call.vectors(2, 2, 5)}, t.key = {.given = call.vectors(100, 2, 5)};
        call.add(t);
      }
      std::vector<std::uint8_t> visible(200, 1);
      visible[20] = visible[21] = visible[121] = 0;
      call.args.mask.visible = tensor(std::as_const(visible).data(), {2, 100});
      const CallResult clean = of_attend(call.args);
      AttentionArgs exact = call.args;
      exact.exact = true;
      // Key 20 is hidden from the first query, key 21 from both.
      for (std::size_t n = 1; n < 3; ++n) call.narrow[n][21 * 16] = bad;
      EXPECT_LE(difference(of_attend(call.args).out, clean.out), kFloatError) << way << bad;
      call.narrow[1][20 * 16] = bad;
      EXPECT_LE(difference(of_attend(call.args).out, of_attend(exact).out), kFloatError) << way;
      call.narrow[1][20 * 16] = 1;
      for (double& x : call.tables.back()) x = static_cast<double>(bad);
      EXPECT_LE(difference(of_attend(call.args).out, of_attend(exact).out), kFloatError) << way;
    }
}

}  // namespace
}  // namespace posenc
