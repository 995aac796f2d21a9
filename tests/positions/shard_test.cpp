// SPDX-License-Identifier: Apache-2.0
#include "posenc/positions/shard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "posenc/positions/mrope.h"
#include "posenc/positions/sequence.h"
#include "support/refusal.h"
#include "support/suite.h"

namespace posenc {
namespace {

using test::refusal;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Integers = std::vector<Index>;

const support::Suite& attention() {
  static const support::Suite suite("attention");
  return suite;
}
Integers list(const OwnedPositions& p) {
  return std::get<Integers>(p.value);
}

TEST(Shard, RingsAsRingFlashAttention) {
  const std::pair<const char*, ShardLayout> cases[] = {{"ring_plain", ShardLayout::contiguous},
                                                       {"ring_zigzag", ShardLayout::zigzag}};
  for (const auto& [name, layout] : cases)
    for (Index r = 0; r < 4; ++r)
      EXPECT_EQ(shard_tokens(16, 4, r, layout),
                attention()(name, "rank" + std::to_string(r) + "_positions").integers());
}

TEST(Shard, PackedDocumentsAreSplitOneByOne) {
  const Integers cu = attention()("ring_zigzag_varlen_two", "cu_seqlens").integers();
  for (Index r = 0; r < 2; ++r) {
    const std::string rank = "rank" + std::to_string(r);
    EXPECT_EQ(shard_tokens(cu, 2, r, ShardLayout::zigzag),
              attention()("ring_zigzag_varlen_two", rank + "_tokens").integers());
    EXPECT_EQ(list(shard_positions(cu, 2, r, ShardLayout::zigzag)),
              attention()("ring_zigzag_varlen_two", rank + "_positions").integers());
  }
}

TEST(Shard, EqualRunsOfPackedDocuments) {
  const std::string name = "ring_llama3_split_causal";
  const Integers cu = attention()(name, "cu_seqlens").integers();
  for (Index r = 0; r < 4; ++r) {
    const auto want = [&](const char* what) {
      return attention()(name, "rank" + std::to_string(r) + "_" + what).integers();
    };
    const PackedRun run = packed_run(cu, 4, r, true);
    EXPECT_EQ(run.query_cu_seqlens, want("cu_seqlens_q"));
    EXPECT_EQ(run.key_cu_seqlens, want("cu_seqlens_k"));
    EXPECT_EQ((Integers{run.longest_query, run.longest_key}), want("max_seqlen"));
    EXPECT_EQ((Integers{run.first_key, run.last_key}), want("local_k_slice"));
  }
}

TEST(Shard, StripedAndFarPositions) {
  EXPECT_THAT(shard_tokens(8, 4, 1, ShardLayout::striped), ElementsAre(1, 5));
  EXPECT_THAT(list(shard_positions(8, 4, 1, ShardLayout::zigzag, Index{1} << 37)),
              ElementsAre((Index{1} << 37) + 1, (Index{1} << 37) + 6));
}

TEST(Shard, PermutationsAreUndone) {
  const Integers cu{0, 8, 24, 24, 32};
  for (const ShardLayout layout :
       {ShardLayout::contiguous, ShardLayout::zigzag, ShardLayout::striped})
    for (const Index ranks : {1, 2, 4}) {
      const Integers orders[] = {shard_permutation(32, ranks, layout),
                                 shard_permutation(cu, ranks, layout)};
      for (const Integers& order : orders) {
        ASSERT_EQ(order.size(), 32U);
        const Integers inverse = inverse_permutation(order);
        for (std::size_t t = 0; t < 32; ++t)
          EXPECT_EQ(order[static_cast<std::size_t>(inverse[t])], static_cast<Index>(t));
      }
    }
}

TEST(Shard, PickedTakesWhatARankHoldsOfAnyPositions) {
  const OwnedPositions p = repeated_axes(arange(10, 8), 3);
  EXPECT_THAT(list(picked(p, shard_tokens(8, 4, 0, ShardLayout::zigzag))),
              ElementsAre(10, 17, 10, 17, 10, 17));
}

TEST(Shard, WhatDoesNotDivideIsRefused) {
  const auto zigzag = ShardLayout::zigzag;
  EXPECT_EQ(refusal([&] { shard_tokens(12, 4, 0, zigzag); }),
            "[shard] tokens must be a multiple of 2 x ranks, got 12");
  EXPECT_THAT(refusal([&] { shard_tokens(6, 4, 0, ShardLayout::striped); }), HasSubstr("[shard]"));
  EXPECT_THAT(refusal([&] { shard_tokens(8, 0, 0, zigzag); }), HasSubstr("ranks must be positive"));
  EXPECT_THAT(refusal([&] { shard_tokens(8, 4, 4, zigzag); }), HasSubstr("rank must lie below"));
  EXPECT_THAT(refusal([&] { shard_tokens(-8, 4, 0, zigzag); }), HasSubstr("not be negative"));
  EXPECT_THAT(refusal([&] { shard_tokens(8, kUnbounded, 0, zigzag); }), HasSubstr("64 bits"));
  EXPECT_THAT(refusal([&] { shard_tokens(Integers{0, 3}, 2, 0, zigzag); }), HasSubstr("[shard]"));
  EXPECT_THAT(refusal([] { inverse_permutation(Integers{0, 0}); }), HasSubstr("once"));
  EXPECT_THAT(refusal([] { inverse_permutation(Integers{0, 2}); }), HasSubstr("below"));
  EXPECT_THAT(refusal([] { packed_run(Integers{0, 7}, 2, 0, true); }), HasSubstr("[shard]"));
  EXPECT_THAT(refusal([] { picked(arange(0, 2), Integers{2}); }), HasSubstr("[picked]"));
  EXPECT_TRUE(shard_tokens(0, 4, 1, zigzag).empty());
}

}  // namespace
}  // namespace posenc
