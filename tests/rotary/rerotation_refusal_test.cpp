// SPDX-License-Identifier: Apache-2.0
// What a RerotationPlan rejects, before it writes anything; and views that it accepts.
#include <gtest/gtest.h>

#include <numeric>

#include "posenc/posenc.h"
#include "posenc/scaling/linear.h"
#include "rerotation_support.h"
#include "support/random.h"
#include "support/refusal.h"

// Of its own: other files of this folder have functions of the same names.
namespace posenc::moved_keys {
namespace {

using test::StoredKeys;

RotarySpec move_rope(Index dim, Index rotary = 0) {
  return resolve(Rope{.head_dim = dim,
                      .rotary_dim = rotary == 0 ? dim : rotary,
                      .base = 10000,
                      .pairing = Pairing::half_split});
}

struct PoolOfFour {
  StoredKeys keys{KeyType::f32, 4, 2, 1, 64};
  RerotationPlan plan{move_rope(64), move_rope(64), KeyType::f32};
  std::vector<Index> first{0, 2}, moved{5, 7};
  Positions rows(const std::vector<Index>& p) const {
    Positions r = positions(p);
    r.batch = static_cast<Index>(p.size()), r.count = 1, r.batch_stride = 1;
    return r;
  }
  std::string says(const std::vector<Index>& pages, const std::vector<Index>& out = {},
                   const std::vector<Index>& tokens = {}) {
    const auto before = keys.bytes;
    const std::string text = test::refusal([&] {
      plan.move_pages(keys.view(), {pages, out, tokens}, rows(first), rows(moved));
    });
    EXPECT_EQ(keys.bytes, before) << "a refused call writes nothing";
    return text;
  }
};

TEST(RerotationRefusals, PageLists) {
  PoolOfFour p;
  for (Index i = 0; i < 4; ++i) p.keys.put(i, 0, 0, test::Random(1).normals(64));
  EXPECT_EQ(p.says({1, 4}),
            "[rerotate] page numbers must be within the 4 pages of the pool, got 4");
  EXPECT_EQ(p.says({-1, 2}),
            "[rerotate] page numbers must be within the 4 pages of the pool, got -1");
  EXPECT_EQ(p.says({3, 3}), "[rerotate] a page must not be written twice in one move, got 3");
  EXPECT_EQ(p.says({1, 2}, {0, 0}),
            "[rerotate] a page must not be written twice in one move, got 0");
  EXPECT_EQ(
      p.says({1, 2}, {2, 3}),
      "[rerotate] a page that an entry of the list writes must not be read by another, got 2");
  EXPECT_EQ(
      p.says({1, 2}, {3}),
      "[rerotate] the list of output pages must have a page for each of the 2 listed pages, got 1");
  EXPECT_EQ(p.says({1, 2}, {}, {2, 3}),
            "[rerotate] tokens of pages must be from 0 to the page size of 2, got 3");
  EXPECT_EQ(p.says({1, 2}, {}, {2}),
            "[rerotate] tokens of pages must have a number for each of the 2 listed pages, got 1");
  EXPECT_EQ(
      p.says({1, 2, 3}),
      "[rerotate] old positions must have one row, or one for each of the listed pages: 3, got 2");
  // A page may be read twice and written to other places.
  EXPECT_EQ(p.says({1, 1}, {2, 3}, {0, 0}), "accepted");
}

// Numbers beyond one window of the check.
TEST(RerotationRefusals, PagesOfLargePools) {
  StoredKeys keys(KeyType::f16, 200000, 1, 1, 2);
  const RerotationPlan plan(move_rope(2), move_rope(2), KeyType::f16);
  const auto says = [&](const std::vector<Index>& pages) {
    return test::refusal(
        [&] { plan.move_pages(keys.view(), {.pages = pages}, arange(0, 1), arange(3, 1)); });
  };
  EXPECT_EQ(says({199999, 65536, 70000, 65536}),
            "[rerotate] a page must not be written twice in one move, got 65536");
  EXPECT_EQ(says({199999, 65536, 70000, 0}), "accepted");
}

TEST(RerotationRefusals, Positions) {
  StoredKeys keys(KeyType::f32, 1, 2, 1, 64);
  const RerotationPlan plan(move_rope(64), move_rope(64), KeyType::f32);
  const auto says = [&](const std::vector<Index>& p, const std::vector<Index>& q) {
    return test::refusal([&] { plan.move(keys.view(), positions(p), positions(q)); });
  };
  constexpr Index kMost = Index{1} << 37;
  EXPECT_EQ(says({0, kMost}, {0, -kMost}), "accepted");
  EXPECT_EQ(says({0, kMost + 1}, {0, 1}),
            "[rerotate] old positions must be at most 2^37, got 137438953473");
  EXPECT_EQ(says({0, 1}, {-kMost - 1, 1}),
            "[rerotate] new positions must be at least -2^37, got -137438953473");
  EXPECT_EQ(says({0, 1, 2}, {0, 1}), "[rerotate] old positions must be 2, got 3");
  const std::vector<double> bad{0, static_cast<double>(NAN)};
  EXPECT_EQ(
      test::refusal([&] { plan.move(keys.view(), positions(bad), positions(bad)); }).substr(0, 10),
      "[rerotate]");
  // The last slot of a page counts, not only its first.
  EXPECT_EQ(test::refusal([&] {
              plan.move_pages(keys.view(), {.pages = std::vector<Index>{0}}, arange(kMost, 1),
                              arange(0, 1));
            }),
            "[rerotate] old positions must be at most 2^37, got 137438953473");
  RotarySpec limited = move_rope(64);
  limited.blocks[0].spectrum.valid_to = 2;
  EXPECT_EQ(test::refusal([&] {
              RerotationPlan(move_rope(64), limited, KeyType::f32)
                  .move(keys.view(), arange(0, 2), arange(1, 2));
            }),
            "[rerotate] new positions must be below 2, the length up to which these frequencies "
            "hold, got 2");
}

TEST(RerotationRefusals, Tensors) {
  StoredKeys keys(KeyType::f32, 1, 4, 1, 64), other(KeyType::f32, 1, 4, 2, 64),
      half(KeyType::f16, 1, 4, 1, 64);
  const RerotationPlan plan(move_rope(64), move_rope(64), KeyType::f32);
  const auto into = [&](const Heads& in, const Heads& out) {
    return test::refusal(
        [&] { plan.move_into(in, out, arange(0, in.tokens), arange(1, in.tokens)); });
  };
  EXPECT_EQ(into(half.view(), keys.view()),
            "[rerotate] keys must be of the plan's type f32, got \"f16\"");
  EXPECT_EQ(into(keys.view(), half.view()),
            "[rerotate] the output must be of the plan's type f32, got \"f16\"");
  EXPECT_EQ(into(keys.view(), other.view()),
            "[rerotate] the output must have as many heads as its input, 1, got 2");
  Heads low = keys.view(), high = keys.view();
  low.tokens = high.tokens = 3;
  high.data = static_cast<float*>(high.data) + 64;
  EXPECT_NE(into(low, high).find("keys"), std::string::npos) << "they overlap";
  EXPECT_EQ(into(high, high), "accepted");
  Heads twice = keys.view();
  twice.token_stride = 32;
  EXPECT_EQ(into(twice, twice).substr(0, 10), "[rerotate]");
  EXPECT_EQ(test::refusal([&] {
              RerotationPlan(
                  move_rope(64),
                  resolve(Rope{.head_dim = 64, .base = 10000, .pairing = Pairing::interleaved}),
                  KeyType::f32);
            }).substr(0, 19),
            "[rerotate] block 0:");
}

TEST(RerotationRefusals, BlocksOfQ8) {
  const auto says = [](Index dim, Index rotary, RerotationOptions o = {}) {
    return test::refusal(
        [&] { RerotationPlan(move_rope(dim, rotary), move_rope(dim, rotary), KeyType::q8_0, o); });
  };
  EXPECT_EQ(says(96, 64), "accepted");
  EXPECT_EQ(says(80, 80), "[rerotate] head size of q8_0 keys must be a multiple of 32, got 80");
  EXPECT_EQ(says(128, 80),
            "[rerotate] channels 64 to 95 share a q8_0 block, and a move rounds all of them: set "
            "cut_blocks to allow it where only some rotate, rotated channels of the block, got 16");
  EXPECT_EQ(says(128, 80, {.cut_blocks = true}), "accepted");
  RotarySpec decays = move_rope(64);
  decays.blocks[0].log2_decay.assign(32, -0.1);
  EXPECT_EQ(
      test::refusal([&] { RerotationPlan(decays, decays, KeyType::q8_0); }),
      "[rerotate] keys of xPos decay pair by pair, and numbers of a q8_0 block share a scale: "
      "move them in another type, type, got \"q8_0\"");
  // Channels of a cut block that do not rotate are rounded again, by half a scale at most.
  StoredKeys keys(KeyType::q8_0, 1, 1, 1, 128);
  keys.put(0, 0, 0, test::Random(8).normals(128));
  const auto before = keys.get(0, 0, 0);
  RerotationPlan(move_rope(128, 80), move_rope(128, 80), KeyType::q8_0, {.cut_blocks = true})
      .move(keys.view(), arange(0, 1), arange(7, 1));
  const auto after = keys.get(0, 0, 0);
  double most = 0, error = 0;
  for (std::size_t i = 64; i < 96; ++i) most = std::max(most, std::fabs(before[i]));
  for (std::size_t i = 80; i < 96; ++i) error = std::max(error, std::fabs(after[i] - before[i]));
  EXPECT_GT(error, 0);
  EXPECT_LT(error, most * std::sqrt(2.0) / 253);
  EXPECT_TRUE(std::equal(before.begin() + 96, before.end(), after.begin() + 96))
      << "other blocks stay";
}

// 2^-14 is f16's smallest normal number, 65504 its largest: keys of xPos that leave them are refused, and
// those of f32 where its range ends.
TEST(RerotationRefusals, KeysOfXposStayInTheRange) {
  RotarySpec s = move_rope(64);
  s.blocks[0].log2_decay.assign(32, -1);  // a factor of 2 every 512 positions
  for (const KeyType type : {KeyType::f16, KeyType::f32}) {
    StoredKeys keys(type, 1, 1, 1, 64);
    keys.put(0, 0, 0, std::vector<double>(64, 1.0));
    const RerotationPlan plan(s, s, type);
    const auto before = keys.bytes;
    const auto says = [&](Index from, Index to) {
      return test::refusal([&] { plan.move(keys.view(), arange(from, 1), arange(to, 1)); });
    };
    const Index bits = type == KeyType::f16 ? 15 : 127;
    EXPECT_EQ(
        says(0, 512 * (bits + 2)).substr(0, 52),
        "[rerotate] keys of xPos must stay in the range of f" + std::string(1, enum_text(type)[1]));
    EXPECT_EQ(says(0, -512 * (bits + 2)).substr(0, 20), "[rerotate] keys of x");
    EXPECT_EQ(keys.bytes, before);
    EXPECT_EQ(says(0, 512 * 8), "accepted");
    EXPECT_NEAR(test::worst_pair(
                    s, type, test::moved_key(s, s, 0, {0}, {4096}, std::vector<double>(64, 1.0)),
                    keys.get(0, 0, 0)),
                0, plan.bound());
  }
}

// Views of an engine: keys and values of a token side by side, and a window of wider rows.
TEST(RerotationPlan, PackedKeysAndValues) {
  constexpr Index kTokens = 5, kHeads = 2, kDim = 64;
  std::vector<float> packed(kTokens * 2 * kHeads * kDim), alone(kTokens * kHeads * kDim);
  test::Random random(2);
  for (float& x : packed) x = static_cast<float>(random.normal());
  const std::vector<float> before = packed;
  const Heads all = heads(packed.data(), kTokens, 2 * kHeads, kDim);
  const RerotationPlan plan(move_rope(kDim), move_rope(kDim), DType::f32);
  for (Index t = 0; t < kTokens; ++t)
    std::copy_n(&packed[static_cast<std::size_t>(t * 2 * kHeads * kDim)], kHeads * kDim,
                &alone[static_cast<std::size_t>(t * kHeads * kDim)]);
  plan.move(slice_heads(all, 0, kHeads), arange(9, kTokens), arange(2, kTokens));
  plan.move(heads(alone.data(), kTokens, kHeads, kDim), arange(9, kTokens), arange(2, kTokens));
  for (Index t = 0; t < kTokens; ++t)
    for (Index i = 0; i < 2 * kHeads * kDim; ++i) {
      const float x = packed[static_cast<std::size_t>(t * 2 * kHeads * kDim + i)];
      EXPECT_EQ(x, i < kHeads * kDim ? alone[static_cast<std::size_t>(t * kHeads * kDim + i)]
                                     : before[static_cast<std::size_t>(t * 2 * kHeads * kDim + i)]);
    }
  // MLA: latent of 512 | rotated part of 64, as one head of 576 or as the window alone.
  std::vector<float> latent(kTokens * 576), window;
  for (float& x : latent) x = static_cast<float>(random.normal());
  window = latent;
  RotarySpec whole = move_rope(64);
  whole.head_dim = 576, whole.blocks[0].offset = 512;
  RerotationPlan(whole, whole, DType::f32)
      .move(heads(latent.data(), kTokens, 1, 576), arange(9, kTokens), arange(2, kTokens));
  Heads part = heads(window.data() + 512, kTokens, 1, 64);
  part.token_stride = 576;
  plan.move(part, arange(9, kTokens), arange(2, kTokens));
  EXPECT_EQ(latent, window);
}

}  // namespace
}  // namespace posenc::moved_keys
