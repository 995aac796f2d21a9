// SPDX-License-Identifier: Apache-2.0
// Few queries whose terms read rows of a table: against the reference in double, around the blocks and slices of keys.
#include <gtest/gtest.h>

#include "attention/rows_call.h"
#include "posenc/core/isa.h"
#include "posenc/positions/sequence.h"

namespace posenc {
namespace {

// Heads share keys, tables, or nothing; beside them biases by the same distance, a vector that is added to q, a cap.
TEST(FastDecodeRows, LengthsHeadsAndOtherTerms) {
  constexpr Index kLengths[] = {1, 31, 33, 100, 300}, kDims[] = {3, 8, 20};
  std::uint64_t seed = 0;
  for (const Isa isa : supported_isas()) {
    force_isa(isa);
    for (const Index queries : {1, 2, 3, 4})
      for (const Rows kind : {Rows::clipped, Rows::buckets, Rows::each})
        for (const bool shared : {false, true}) {
          ++seed;
          const Index keys = std::max(queries, kLengths[seed % std::size(kLengths)]);
          RowsCall call(seed % 5 == 0 ? 2 : 1, queries, keys, 2, kDims[seed % std::size(kDims)],
                        seed);
          if (shared) call.share_keys();
          call.add(call.rows(kind, false, seed % 3 == 0 ? call.B : 1, seed % 4 == 0 ? 1 : 2));
          const std::vector<double> slopes{-0.1, 0.1, -0.05, -0.2}, u = call.random.normals(2 * 20);
          if (seed % 2 == 0) call.add(LinearTerm{.table = tensor(slopes.data(), {1, 2, 1, 2})});
          ProductTerm vector;
          vector.key = kContent, vector.scale = 0.3;
          vector.query.given = heads(tensor(u.data(), {1, 1, 2, call.D}), HeadsLayout::bthd);
          if (seed % 3 == 1) call.add(vector);
          if (seed % 7 == 0) call.add(call.rows(Rows::each, false, 1, 1));
          if (seed % 4 == 1)
            call.args.softcap = 1.5, call.args.softcap_after_terms = seed % 8 == 1 || seed % 3 == 1;
          call.args.mask.causal = seed % 3 == 1;
          if (seed % 6 == 1) call.args.mask.window_left = 70, call.args.mask.sink_tokens = 3;
          ASSERT_EQ(call.wrong(), "")
              << isa_name(isa) << " " << queries << " queries, " << keys << " keys, head of "
              << call.D << ", rows " << static_cast<int>(kind) << ", seed " << seed;
        }
  }
  reset_isa();
}

// Eight query heads of one table are multiplied together, of several not; groups of 1 to 8.
TEST(FastDecodeRows, HeadsThatShareKeys) {
  std::uint64_t seed = 0;
  for (const Isa isa : supported_isas()) {
    force_isa(isa);
    for (const Index share : {1, 3, 5, 8})
      for (const Index tables : {Index{1}, 2 * share}) {
        RowsCall call(1, 1, 200, 2 * share, 8, ++seed);
        call.G = 2;
        call.args.k = call.view(call.narrow[1], 200, 2, 8);
        call.args.v = call.view(call.narrow[2], 200, 2, 8);
        call.add(call.rows(seed % 3 == 0 ? Rows::each : Rows::clipped, false, 1, tables));
        ASSERT_EQ(call.wrong(), "") << isa_name(isa) << " " << share << " of " << tables;
      }
  }
  reset_isa();
}

// Tables of many rows in double are not copied: each row is converted where it is read. One that float does not hold
// leaves those that read it to the exact engine.
TEST(FastDecodeRows, LongTablesAreReadInPlace) {
  std::uint64_t seed = 0;
  for (const Isa isa : supported_isas()) {
    force_isa(isa);
    for (const Index queries : {1, 2, 3, 8}) {
      constexpr Index kDims[] = {3, 20, 64};
      ++seed;
      RowsCall call(1, queries, 700, 2, kDims[seed % std::size(kDims)], seed);
      call.add(call.rows(Rows::each, false, 1, 2));
      if (seed % 5 == 0) {
        for (auto q = call.narrow[0].begin(); q < call.narrow[0].end(); q += call.D) *q = 0x1p-50f;
        call.wide[0].assign(call.narrow[0].begin(), call.narrow[0].end());
        call.tables.back()[static_cast<std::size_t>(800 * call.D)] = 0x1p51;
      }
      const std::vector<double> slopes{-0.1, 0.1, -0.05, -0.2};
      if (seed % 2 == 0) call.add(LinearTerm{.table = tensor(slopes.data(), {1, 2, 1, 2})});
      call.args.mask.causal = seed % 3 == 1;
      ASSERT_EQ(call.wrong(), "") << isa_name(isa) << " " << queries << ", seed " << seed;
    }
  }
  reset_isa();
}

TEST(FastDecodeRows, RowsPickedByPairs) {
  for (int way = 0; way < 5; ++way) EXPECT_EQ(PairsCall(false, way, 3).wrong(), "") << way;
}

// Steps of the last slice are others than those of the first; hidden ones are not read. Biases by the same distance are
// part of the products.
TEST(FastDecodeRows, SlicesOfTheKeys) {
  for (const Rows kind : {Rows::clipped, Rows::each}) {
    RowsCall call(1, 3, 4200, 1, 8, 9);
    call.add(call.rows(kind, false, 1, 1));
    const std::vector<double> slopes{-0.001, 0.001};
    call.add(LinearTerm{.table = tensor(slopes.data(), {1, 1, 1, 2})});
    EXPECT_EQ(call.wrong(), "") << static_cast<int>(kind);
    expect_same_bits(call.args);
    call.args.mask.causal = true, call.args.mask.window_left = 700;
    EXPECT_EQ(call.wrong(), "") << static_cast<int>(kind);
  }
}

// Numbers that float cannot work with: rows of one head go to the exact engine, those of the other do not notice.
TEST(FastDecodeRows, LeavesRowsToTheExactEngine) {
  for (const double bad : {HUGE_VAL, std::nan(""), 1e30}) {
    RowsCall call(1, 2, 200, 2, 8, 3);
    call.add(call.rows(Rows::each, false, 1, 2));
    AttentionArgs exact = call.args;
    exact.exact = true;
    const CallResult clean = of_attend(call.args);
    call.tables.back()[(405 + 220) * 8 + 3] = bad;  // of the second head
    const CallResult got = of_attend(call.args), want = of_attend(exact);
    EXPECT_LE(difference(got.out, want.out), kFloatError) << bad;
    for (std::size_t c = 0; c < 8; ++c) EXPECT_EQ(got.out[c], clean.out[c]) << bad;
  }
}

}  // namespace
}  // namespace posenc
