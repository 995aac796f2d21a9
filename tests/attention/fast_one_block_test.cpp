// SPDX-License-Identifier: Apache-2.0
// Calls whose keys are one block: groups of rows follow each other in one place, and each is written before the next
// one begins. What one of them leaves there must not reach the next, whatever becomes of it.
#include <gtest/gtest.h>

#include <algorithm>

#include "attention/float_call.h"

namespace posenc {
namespace {

constexpr Index kRowsOfOne = 40, kDimOfOne = 16;

// Keys of one block on every machine, and such that begin a second one.
constexpr Index kKeysOfOne[] = {1, 7, 8, 33, 63, 64, 65, 128, 129};

struct OneBlockCall : FloatCall {
  explicit OneBlockCall(Index keys)
      : FloatCall(1, kRowsOfOne, keys, 2, 1, kDimOfOne, kDimOfOne, 21) {}
  float& query(Index i, Index h, Index c) {
    return narrow[0][static_cast<std::size_t>((i * 2 + h) * kDimOfOne + c)];
  }
  // Against the engine in double, which reads the same floats.
  std::string wrong_of_exact() const {
    AttentionArgs exact = args;
    exact.exact = true;
    return differences(of_attend(args), of_attend(exact), kFloatError, kFloatError);
  }
};

// Rows whose weights are below or above what float holds are done again, between rows that are not.
TEST(FastOneBlock, RowsThatAreDoneAgain) {
  for (const Isa isa : supported_isas()) {
    force_isa(isa);
    for (const Index keys : kKeysOfOne)
      for (const float score : {-80.0f, 80.0f}) {
        OneBlockCall call(keys);
        call.args.scale = 1;
        for (Index j = 0; j < keys; ++j)
          call.narrow[1][static_cast<std::size_t>(j * kDimOfOne)] = 4;  // one head of keys
        for (const Index i : {0, 13, 14, 39})
          for (Index h = 0; h < 2; ++h) call.query(i, h, 0) = score / 4;
        EXPECT_EQ(call.wrong_of_exact(), "") << isa_name(isa) << keys << " keys, " << score;
      }
  }
  reset_isa();
}

// Rows that see nothing have zeros, not what another group left.
TEST(FastOneBlock, RowsThatSeeNothing) {
  for (const Isa isa : supported_isas()) {
    force_isa(isa);
    for (const Index keys : kKeysOfOne)
      for (const Index offset : {-70, -25, -1, 0, 30}) {
        OneBlockCall call(keys);
        call.args.mask.causal = true, call.args.mask.query_offset = offset;
        call.args.mask.window_left = 9;  // late rows see nothing either
        EXPECT_EQ(call.wrong_of_exact(), "") << isa_name(isa) << keys << " keys from " << offset;
      }
  }
  reset_isa();
}

// Queries that float cannot work with are left, and the rows beside them have the bits that they would have.
TEST(FastOneBlock, QueriesThatAreLeft) {
  for (const Index keys : kKeysOfOne) {
    OneBlockCall call(keys), clean(keys);
    for (const Index i : {5, 12, 31}) call.query(i, 0, 3) = 1e30f;
    EXPECT_EQ(call.wrong_of_exact(), "") << keys;
    const CallResult got = of_attend(call.args), want = of_attend(clean.args);
    for (Index i = 0; i < kRowsOfOne; ++i)
      for (Index h = 0; h < 2; ++h) {
        if (h == 0 && (i == 5 || i == 12 || i == 31)) continue;
        const auto at = static_cast<std::ptrdiff_t>((i * 2 + h) * kDimOfOne);
        ASSERT_TRUE(std::equal(got.out.begin() + at, got.out.begin() + at + kDimOfOne,
                               want.out.begin() + at))
            << keys << " keys, query " << i;
      }
  }
}

// Channels of queries and keys that are not adjacent are copied, each to memory of its own.
TEST(FastOneBlock, StridedChannels) {
  for (const Index keys : kKeysOfOne) {
    OneBlockCall call(keys);
    const CallResult want = of_attend(call.args);
    std::vector<float> wide[3];
    ConstHeads* views[] = {&call.args.q, &call.args.k, &call.args.v};
    for (std::size_t n = 0; n < 3; ++n) {
      for (const float x : call.narrow[n]) wide[n].insert(wide[n].end(), {x, 1e30f});
      ConstHeads& x = *views[n];
      x.data = wide[n].data();
      x.batch_stride *= 2, x.token_stride *= 2, x.head_stride *= 2, x.dim_stride = 2;
    }
    EXPECT_EQ(of_attend(call.args).out, want.out) << keys;
  }
}

// Calls that are larger than the caches request what they read next from memory: the end of arrays is not passed.
TEST(FastOneBlock, ManyHeadsAndSequences) {
  FloatCall call(33, 70, 64, 16, 16, 64, 8, 5);
  ASSERT_GT(call.narrow[0].size() + call.narrow[1].size(), std::size_t{1} << 20);
  AttentionArgs exact = call.args;
  exact.exact = true;
  EXPECT_EQ(differences(of_attend(call.args), of_attend(exact), kFloatError, kFloatError), "");
  expect_same_bits(call.args);
}

}  // namespace
}  // namespace posenc
