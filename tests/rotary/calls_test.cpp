// SPDX-License-Identifier: Apache-2.0
// Calls as programs write them: q and k, q alone, outputs of their own; what is not there; views of
// one token; tables that are too large or replaced by others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <set>
#include <vector>

#include "posenc/core/error.h"
#include "posenc/positions/sequence.h"
#include "posenc/registry.h"
#include "posenc/rotary/plan.h"
#include "posenc/rotary/table.h"
#include "support/random.h"
#include "support/refusal.h"

namespace posenc {
namespace {

using test::Random;
using test::refusal;
using ::testing::HasSubstr;

RotarySpec rope_of(Index dim) {
  return resolve(Rope{.head_dim = dim, .pairing = Pairing::half_split});
}
std::vector<float> noise(std::size_t n, std::uint64_t seed) {
  Random random(seed);
  std::vector<float> v(n);
  for (float& x : v) x = static_cast<float>(random.integer(-1000, 1000)) / 1000;
  return v;
}

// Members of one pair that differ in one number alone, at any place of a row: in a whole vector and
// in what is left of it.
TEST(Calls, MembersOfOnePairMayDifferInOneNumber) {
  constexpr Index kDim = 46, kPairs = kDim / 2;
  const RotaryPlan plan(rope_of(kDim), DType::f32);
  const std::vector<float> x = noise(kDim, 3);
  for (Index changed = 0; changed < 4 * kPairs; ++changed) {
    std::vector<float> rows(4 * kPairs);  // cos of both members, sin of both
    for (std::size_t i = 0; i < rows.size(); ++i)
      rows[i] = 0.25f + 0.03125f * static_cast<float>(i % kPairs);
    rows[static_cast<std::size_t>(changed)] += 1;
    const float *cos = rows.data(), *sin = cos + kDim;
    CallerRows own;
    own.cos = tensor(rows.data(), {1, kDim}), own.sin = tensor(rows.data() + kDim, {1, kDim});
    own.layout = TableLayout::duplicated;
    std::vector<float> y = x, back = x;
    plan.apply_rows(heads(y.data(), 1, 1, kDim), own);
    plan.apply_rows(heads(back.data(), 1, 1, kDim), own, RotateMode::gradient);
    for (Index a = 0; a < kPairs; ++a) {
      const auto i = static_cast<std::size_t>(a), j = static_cast<std::size_t>(a + kPairs);
      EXPECT_NEAR(y[i], x[i] * cos[a] - x[j] * sin[a], 1e-6) << changed;
      EXPECT_NEAR(y[j], x[j] * cos[a + kPairs] + x[i] * sin[a + kPairs], 1e-6) << changed;
      EXPECT_NEAR(back[i], x[i] * cos[a] + x[j] * sin[a + kPairs], 1e-6) << changed;
      EXPECT_NEAR(back[j], x[j] * cos[a + kPairs] - x[i] * sin[a], 1e-6) << changed;
    }
  }
}

TEST(Calls, EveryFormGivesWhatTheGeneralOneDoes) {
  const RotaryPlan plan(rope_of(8), DType::f32);
  const std::vector<float> q = noise(3 * 4 * 8, 1), k = noise(3 * 2 * 8, 2);
  std::vector<float> q1 = q, k1 = k, q2 = q, k2 = k;
  const auto heads_q = [](std::vector<float>& v) { return heads(v.data(), 3, 4, 8); };
  const auto heads_k = [](std::vector<float>& v) { return heads(v.data(), 3, 2, 8); };
  const OwnedPositions p = arange(5, 3);
  plan.apply(QK{heads_q(q1), heads_k(k1)}, p);
  plan.apply(heads_q(q2), heads_k(k2), p);
  EXPECT_EQ(q1, q2);
  EXPECT_EQ(k1, k2);
  q2 = q, k2 = k;
  plan.apply(heads_q(q2), p);
  plan.apply(heads_k(k2), p);
  EXPECT_EQ(q1, q2);
  EXPECT_EQ(k1, k2);
  std::vector<float> from_q = q, from_k = k, to_q(q.size()), to_k(k.size());
  plan.apply_into(heads_q(from_q), heads_k(from_k), heads_q(to_q), heads_k(to_k), p);
  EXPECT_EQ(q1, to_q);
  EXPECT_EQ(k1, to_k);
  EXPECT_EQ(from_q, q);
  std::fill(to_q.begin(), to_q.end(), 0.0f);
  plan.apply_into(heads_q(from_q), heads_q(to_q), p);
  EXPECT_EQ(q1, to_q);
  std::vector<float> rows(3 * 8);
  const TensorView row_view = tensor(rows.data(), {3, 8});
  plan.rows(p, row_view);
  q2 = q, k2 = k, to_q = q;
  plan.apply_rows(heads_q(q2), heads_k(k2), row_view);
  plan.apply_rows(heads_q(to_q), row_view);
  EXPECT_EQ(q2, to_q);
  CallerRows own;
  own.cos = tensor(rows.data(), DType::f32, std::vector<Index>{3, 4}, std::vector<Index>{8, 1});
  own.sin = tensor(rows.data() + 4, DType::f32, std::vector<Index>{3, 4}, std::vector<Index>{8, 1});
  to_q = q, to_k = k;
  plan.apply_rows(heads_q(to_q), heads_k(to_k), own);
  EXPECT_EQ(q2, to_q);
  EXPECT_EQ(k2, to_k);
  const RotaryTable table(rope_of(8), 8);
  to_q = q, to_k = k;
  apply(plan, heads_q(to_q), heads_k(to_k), table, p);
  EXPECT_EQ(q2, to_q);
  EXPECT_EQ(k2, to_k);
  to_k = k;
  apply(plan, heads_k(to_k), table, p);
  EXPECT_EQ(k2, to_k);
}

TEST(Calls, WithNeitherQueryNorKeyAreRefused) {
  const RotaryPlan plan(rope_of(8), DType::f32);
  const std::string says = "[rotary] q or k must be given";
  const OwnedPositions p = arange(0, 1);
  std::vector<float> rows(8);
  const RotaryTable table(rope_of(8), 8);
  double gain = 0;
  PhaseGradients want;
  want.gain = tensor(&gain, {1});
  EXPECT_EQ(refusal([&] { plan.apply(QK{}, p); }), says);
  EXPECT_EQ(refusal([&] { plan.apply(QK{}, QK{}, p); }), says);
  EXPECT_EQ(refusal([&] { plan.apply(Heads{}, p); }), says);
  EXPECT_EQ(refusal([&] { plan.apply_rows(QK{}, QK{}, tensor(rows.data(), {1, 8})); }), says);
  EXPECT_EQ(refusal([&] { apply(plan, QK{}, table, p); }), says);
  EXPECT_EQ(refusal([&] { plan.phase_gradients(QK{}, QK{}, p, want, {}); }), says);
  // No tokens are not nothing: their memory may be missing. Elements without memory are a mistake.
  float* none = nullptr;
  EXPECT_EQ(refusal([&] { plan.apply(heads(none, 0, 4, 8), arange(0, 0)); }), "accepted");
  Heads lost;
  lost.tokens = 1, lost.heads = 2, lost.dim = 8, lost.head_stride = 8;
  EXPECT_EQ(refusal([&] { plan.apply(lost, p); }),
            "[rotary] q must have memory for its elements, [1, 1, 2, 8]");
  std::vector<float> x(16, 1.0f);
  EXPECT_EQ(refusal([&] { plan.apply(heads(x.data(), 1, 2, 8), lost, p); }),
            "[rotary] k must have memory for its elements, [1, 1, 2, 8]");
}

// Phi-3: one projection makes [batch, 1, (32 + 2 x 8) x 96] of a decoding step, whose slices
// PyTorch views as [batch, 1, heads, 96] with the strides of the slice in the axis of one token.
TEST(Calls, OneTokenOfAFusedBuffer) {
  constexpr Index kBatch = 3, kQuery = 32, kKey = 8, kDim = 96;
  constexpr Index kAll = (kQuery + 2 * kKey) * kDim;
  const RotaryPlan plan(rope_of(kDim), DType::f32);
  std::vector<float> fused = noise(kBatch * kAll, 3);
  const std::vector<float> before = fused;
  const auto slice = [&](Index first, Index count) {
    Heads h = heads(fused.data() + first * kDim, 1, count, kDim);
    h.batch = kBatch, h.batch_stride = kAll, h.token_stride = count * kDim;
    return h;
  };
  plan.apply(slice(0, kQuery), slice(kQuery, kKey), arange(7, 1));
  for (Index b = 0; b < kBatch; ++b) {
    std::vector<float> row(before.begin() + b * kAll, before.begin() + (b + 1) * kAll);
    plan.apply(heads(row.data(), 1, kQuery + kKey, kDim), arange(7, 1));
    EXPECT_TRUE(std::equal(row.begin(), row.end(), fused.begin() + b * kAll)) << b;
  }
  EXPECT_THAT(refusal([&] { plan.apply(slice(0, kQuery), slice(kQuery - 1, kKey), arange(7, 1)); }),
              HasSubstr("q and k must not overlap"));
}

// Refused exactly where an element is shared, whatever the strides of axes of one element.
TEST(Calls, StridesOfOneElementMeanNothing) {
  const RotaryPlan plan(rope_of(4), DType::f32);
  Random random(5);
  std::vector<float> x(4000, 1.0f);
  int shared = 0;
  for (int n = 0; n < 4000; ++n) {
    const Index size[3] = {random.integer(1, 3), random.integer(1, 2), random.integer(1, 4)};
    const Index heads_k = random.integer(1, 4);
    const Index head = 4 + random.integer(0, 1) * 4, token = head * random.integer(4, 6);
    const Index batch = token * random.integer(2, 3);
    const auto view = [&](Index start, Index count) {
      Heads h = heads(x.data() + start, size[1], count, 4);
      h.batch = size[0];
      h.batch_stride = size[0] == 1 ? random.integer(-99, 99) : batch;
      h.token_stride = size[1] == 1 ? random.integer(-99, 99) : token;
      h.head_stride = count == 1 ? random.integer(-99, 99) : head;
      return h;
    };
    const Heads q = view(1000, size[2]), k = view(1000 + random.integer(-30, 90), heads_k);
    const auto elements = [&](const Heads& h) {
      std::set<Index> all;
      const Index first = static_cast<const float*>(h.data) - x.data();
      for (Index i = 0; i < h.batch; ++i)
        for (Index t = 0; t < h.tokens; ++t)
          for (Index g = 0; g < h.heads; ++g)
            for (Index d = 0; d < 4; ++d)
              all.insert(first + i * h.batch_stride + t * h.token_stride + g * h.head_stride + d);
      return all;
    };
    const std::set<Index> of_q = elements(q), of_k = elements(k);
    const bool share =
        std::any_of(of_k.begin(), of_k.end(), [&](Index e) { return of_q.count(e) != 0; });
    shared += share;
    const std::string said = refusal([&] { plan.apply(q, k, arange(0, size[1])); });
    ASSERT_EQ(said != "accepted", share) << said << " in round " << n;
  }
  EXPECT_GT(shared, 500);
  EXPECT_LT(shared, 3500);
}

TEST(Calls, ATableIsReplacedByOneOfItsKind) {
  RotaryTable table(rope_of(8), 16);
  EXPECT_EQ(refusal([&] { table.replace(rope_of(16)); }),
            "[rotary table] frequencies that replace the table's must have its heads, axes and "
            "pairs, [1, 1, 4], got [1, 1, 8]");
  RotarySpec axes = rope_of(8);
  axes.blocks[0].spectrum.axes = 2;
  axes.blocks[0].spectrum.frequency = {1, 1, 0, 0, 0, 0, 1, 1};
  EXPECT_THAT(refusal([&] { table.replace(axes); }), HasSubstr("[1, 1, 4], got [1, 2, 4]"));
  RotarySpec none;
  none.head_dim = 8;
  EXPECT_THAT(refusal([&] { table.replace(none); }), HasSubstr("got no block"));
  RotarySpec other = rope_of(8);
  for (double& f : other.blocks[0].spectrum.frequency) f /= 2;
  EXPECT_EQ(refusal([&] { table.replace(other); }), "accepted");
}

// Said before anything is filled, with the bytes that were asked for.
TEST(Calls, ATableBeyondTheMachineIsOutOfMemory) {
  const auto says = [](auto&& make) -> std::string {
    try {
      make();
    } catch (const OutOfMemory& e) {
      return std::to_string(e.bytes()) + " " + e.what();
    }
    return "accepted";
  };
  // 2^40 rows of 64 cosines and 64 sines of four bytes.
  EXPECT_THAT(says([] { RotaryTable(rope_of(128), Index{1} << 40); }),
              HasSubstr("562949953421312 [rotary table] a table of 1099511627776 positions needs "
                        "562949953421312 bytes, "));
  EXPECT_THAT(says([] { RotaryTable(rope_of(128), Index{1} << 62); }),
              HasSubstr("needs more than 2^64 bytes"));
  RotaryTable table(rope_of(128), 16);
  EXPECT_THAT(says([&] { table.grow(Index{1} << 40); }), HasSubstr("562949953421312 bytes"));
  EXPECT_EQ(table.size(), 16);
  EXPECT_THROW(RotaryTable(rope_of(128), Index{1} << 40), std::bad_alloc);
}

}  // namespace
}  // namespace posenc
