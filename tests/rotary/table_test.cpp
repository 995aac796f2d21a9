// SPDX-License-Identifier: Apache-2.0
#include "posenc/rotary/table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <thread>

#include "rotary/table_support.h"
#include "support/random.h"
#include "support/refusal.h"

namespace posenc {
namespace {

using namespace test;

TEST(RotaryTable, HoldsTheRowsOfEachPosition) {
  for (const Index n : {Index{0}, Index{1}, Index{255}, Index{5000}}) {
    const RotaryTable t(plain(), n);
    EXPECT_EQ(t.size(), n);
    EXPECT_EQ(t.bytes(), static_cast<std::size_t>(n * 16 * 4));
    expect_rows(t, plain(), 3.0e-8);
  }
  expect_rows(RotaryTable(plain(), 3000, DType::f16), plain(), 0x1p-12 + 1e-12);
  expect_rows(RotaryTable(plain(), 3000, DType::bf16), plain(), 0x1p-9 + 1e-12);
  expect_rows(RotaryTable(scaled(4, 1.1386), 3000), scaled(4, 1.1386), 6.0e-8);
  expect_rows(RotaryTable(two_axes(), 3000), two_axes(), 3.0e-8);
}

TEST(RotaryTable, MovedFromIsEmpty) {
  RotaryTable from(plain(), 10);
  const RotaryTable to = std::move(from);
  EXPECT_EQ(to.size(), 10);
  EXPECT_EQ(from.size(), 0);    // NOLINT(bugprone-use-after-move): what is stated of it
  EXPECT_EQ(from.bytes(), 0u);  // NOLINT(bugprone-use-after-move)
  from = RotaryTable(plain(), 3);
  EXPECT_EQ(from.size(), 3);
}

TEST(RotaryTable, TurnsAsThePlanDoes) {
  const std::vector<Index> p{0, 1, 5, 4999, 3, 3, 1024, 77};
  const std::vector<std::int32_t> p32(p.begin(), p.end());
  for (const Pairing pairing : {Pairing::half_split, Pairing::interleaved}) {
    const RotarySpec spec = plain(16, 5e5, pairing);
    const RotaryTable table(spec, 5000);
    EXPECT_LE(worst_difference(spec, table, positions(p)), 1.2e-6);
    EXPECT_LE(worst_difference(spec, table, positions(p32)), 1.2e-6);
  }
  const RotarySpec gained = scaled(2, 1.19);
  const RotaryTable table(gained, 5000);
  for (const RotateMode sense :
       {RotateMode::forward, RotateMode::gradient, RotateMode::inverse, RotateMode::shift})
    EXPECT_LE(worst_difference(gained, table, positions(p), sense), 2e-6) << enum_text(sense);
}

TEST(RotaryTable, EachPairReadsItsOwnStream) {
  const std::vector<Index> p{0, 7, 4000, 12, 9, 9, 3, 4999};  // [2 axes, 4 tokens]
  Positions view = positions(p);
  view.axes = 2, view.count = 4, view.axis_stride = 4;
  EXPECT_LE(worst_difference(two_axes(), RotaryTable(two_axes(), 5000), view), 1.2e-6);
}

TEST(RotaryTable, BeyondIsRefusedOrGrows) {
  const RotarySpec spec = plain();
  const RotaryPlan plan(spec, DType::f32);
  const auto turn = [&](const RotaryTable& table, Index position) -> std::string {
    Tensors t = tensors(1);
    const std::vector<float> before = t.q;
    const std::vector<Index> p{position};
    try {
      apply(plan, t.qk, t.qk, table, positions(p));
      return "";
    } catch (const std::invalid_argument& e) {
      EXPECT_EQ(t.q, before);
      return e.what();
    }
  };
  const RotaryTable fixed(spec, 10);
  EXPECT_EQ(turn(fixed, 9), "");
  EXPECT_EQ(turn(fixed, 10),
            "[rotary table] position must lie in the table of 10 positions where beyond is refuse, "
            "got 10");
  EXPECT_EQ(turn(fixed, -1), "[rotary table] position must not be negative, got -1");
  const RotaryTable grows(spec, 10, DType::f32, BeyondTable::grow);
  EXPECT_EQ(turn(grows, 1000), "");
  EXPECT_GE(grows.size(), 1001);
  expect_rows(grows, spec, 3.0e-8);
  EXPECT_NE(turn(grows, Index{1} << 37), "");
  EXPECT_NE(turn(grows, Index{1} << 31), "");
  EXPECT_NE(turn(grows, -5), "");
}

TEST(RotaryTable, GrowthMovesNothing) {
  RotaryTable t(plain(), 100);
  const auto before = t.snapshot();
  const auto kept = values(before);
  t.grow(50000);
  t.grow(10);  // never shrinks
  EXPECT_EQ(t.size(), 50000);
  EXPECT_EQ(before.size, 100);
  EXPECT_EQ(before.cos_sin.data, t.snapshot().cos_sin.data);
  EXPECT_EQ(values(before), kept);
  expect_rows(t, plain(), 3.0e-8);
  // Beyond the reserved addresses the rows are copied to a larger place.
  RotaryTable small(plain(2), 10);
  const auto old = small.snapshot();
  small.grow((Index{1} << 20) + 1);
  EXPECT_NE(old.cos_sin.data, small.snapshot().cos_sin.data);
  EXPECT_EQ(values(old).size(), 20u);
  const auto v = small.snapshot();
  const auto* rows = static_cast<const float*>(v.cos_sin.data);
  EXPECT_NEAR(rows[2 * (1 << 20)], std::cos(1048576.0), 3e-8);
}

TEST(RotaryTable, IsReplacedInOneStep) {
  const RotarySpec first = plain(), second = scaled(4, 1.25);
  RotaryTable t(first, 300);
  const RotaryTable other = t.share();
  const auto old = t.snapshot();
  t.replace(second);
  EXPECT_EQ(other.size(), 300);
  expect_rows(other, second, 8.0e-8);
  const auto kept = values(old);
  EXPECT_EQ(kept[8], 0.0);
  EXPECT_NEAR(kept[16], std::cos(1.0), 3e-8);
  const std::vector<Index> p{3, 299};
  EXPECT_LE(worst_difference(second, t, positions(p)), 2e-6);
  // A plan of the old spec turns by the new rows, until it is made anew.
  const RotaryPlan plan(first, DType::f32), fresh(second, DType::f32);
  Tensors a = tensors(2), b = tensors(2);
  apply(plan, a.qk, a.qk, t, positions(p));
  apply(fresh, b.qk, b.qk, t, positions(p));
  EXPECT_EQ(a.q, b.q);
  EXPECT_THROW(apply(plan, a.qk, a.qk, t, positions(p), RotateMode::inverse),
               std::invalid_argument);
  const RotaryPlan stranger(scaled(3, 1), DType::f32);
  EXPECT_THROW(apply(stranger, a.qk, a.qk, t, positions(p)), std::invalid_argument);
}

TEST(RotaryTable, ManyVersionsKeepOneAlive) {
  RotaryTable t(plain(), 64);
  RotaryTable::Snapshot held = t.snapshot();
  for (int i = 0; i < 200; ++i) t.replace(scaled(1 + i, 1));
  EXPECT_NEAR(values(held)[16], std::cos(1.0), 3e-8);
  held = {};
  t.replace(plain());
  expect_rows(t, plain(), 3.0e-8);
  {
    const RotaryTable dying(plain(), 64);
    held = dying.snapshot();
  }
  EXPECT_NEAR(values(held)[16], std::cos(1.0), 3e-8);  // outlives its table
}

TEST(RotaryTable, Refusals) {
  const auto says = [](auto&& make) -> std::string {
    try {
      make();
      return "";
    } catch (const std::invalid_argument& e) {
      return std::string(e.what()).substr(0, 15);
    }
  };
  const std::string who = "[rotary table] ";
  EXPECT_EQ(says([] { RotaryTable(plain(), -1); }), who);
  EXPECT_EQ(says([] { RotaryTable(plain(), 10).grow(-1); }), who);
  EXPECT_EQ(says([] { RotaryTable(plain(), 10, DType::f64); }), who);
  EXPECT_EQ(says([] { RotaryTable(plain(), 10, DType::i32); }), who);
  EXPECT_THROW(RotaryTable(plain(), Index{1} << 60), std::bad_alloc);
  const auto unknown = static_cast<BeyondTable>(7);
  const std::string one_of = "[rotary table] beyond must be one of refuse, grow, got 7";
  EXPECT_EQ(test::refusal([&] { RotaryTable(plain(), 10, DType::f32, unknown); }), one_of);
  EXPECT_EQ(test::refusal([&] { RotaryTable::map("nowhere.npy", plain(), unknown); }), one_of);
  EXPECT_EQ(enum_text(BeyondTable::grow), "grow");
  EXPECT_EQ(enum_text(unknown), "?");
  RotarySpec xpos = plain();
  xpos.blocks[0].log2_decay.assign(8, -0.1);
  EXPECT_EQ(says([&] { RotaryTable(xpos, 10); }), who);
  RotarySpec mixed = two_axes();
  std::fill(mixed.blocks[0].spectrum.frequency.begin(), mixed.blocks[0].spectrum.frequency.end(),
            0.5);
  EXPECT_EQ(says([&] { RotaryTable(mixed, 10); }), who);
  // Two heads, a pair of which follows another stream in each: no row serves both.
  RotarySpec crossed = two_axes();
  Spectrum& p = crossed.blocks[0].spectrum;
  std::vector<double> other = p.frequency;
  std::swap_ranges(other.begin(), other.begin() + p.pairs(), other.begin() + p.pairs());
  p.frequency.insert(p.frequency.end(), other.begin(), other.end());
  p.heads = 2;
  EXPECT_THAT(
      test::refusal([&] { RotaryTable(crossed, 10); }),
      testing::AllOf(testing::HasSubstr("all heads must rotate a pair by the same position stream"),
                     testing::HasSubstr("head 1 takes stream 1")));
  const RotaryTable t(plain(), 10);
  const std::vector<double> real{0.5};
  Tensors x = tensors(1);
  const RotaryPlan plan(plain(), DType::f32);
  EXPECT_EQ(says([&] { apply(plan, x.qk, x.qk, t, positions(real)); }), who);
  EXPECT_EQ(says([&] { t.save("/tmp/table.csv"); }), who);
  RotaryTable moved(plain(), 10);
  EXPECT_EQ(says([&] { moved.replace(xpos); }), who);
  expect_rows(moved, plain(), 3.0e-8);
}

TEST(RotaryTableSet, SharesWhatIsEqual) {
  const std::vector<RotarySpec> layers{plain(), scaled(8, 1), plain(),
                                       plain(16, 1e4, Pairing::interleaved), scaled(8, 1)};
  const RotaryTableSet set(layers, 100);
  EXPECT_EQ(set.layers(), 5);
  EXPECT_EQ(set.distinct(), 2);
  EXPECT_EQ(&set[0], &set[3]);
  EXPECT_NE(&set[0], &set[1]);
  EXPECT_EQ(set.bytes(), 2 * set[0].bytes());
  EXPECT_THROW(set[5], std::invalid_argument);
  expect_rows(set[4], layers[4], 3.0e-8);
}

// Readers see whole rows of one version while it grows and is replaced; TSan watches.
TEST(RotaryTableThreads, ReadersGoOnWhileItGrowsAndIsReplaced) {
  const RotarySpec one = plain(8), two = scaled(16, 2, 8);
  RotaryTable table(one, 256);
  std::atomic<bool> stop{false};
  std::atomic<Index> reads{0};
  std::atomic<int> wrong{0};
  const auto reader = [&](unsigned seed) {
    const RotaryPlan plan(one, DType::f32);
    test::Random random(seed);
    const RotaryTable handle = table.share();
    while (!stop.load()) {
      const Index size = handle.size();
      const std::vector<Index> p{random.integer(0, size - 1), 0};
      std::vector<float> x{1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0};
      QK qk;
      qk.q = heads(x.data(), 2, 1, 8);
      apply(plan, qk, qk, handle, positions(p), RotateMode::forward, inline_executor());
      const double at = static_cast<double>(p[0]);
      const double gain = x[8] > 1.5f ? 2 : 1, angle = gain > 1.5 ? at / 16 : at;
      wrong += std::fabs(x[0] - gain * std::cos(angle)) > 1e-6 || x[8] != gain;
      const auto s = handle.snapshot();
      const float* rows = static_cast<const float*>(s.cos_sin.data);
      const auto last = static_cast<double>(s.size - 1);
      const float* row = rows + 8 * (s.size - 1);
      const double g = rows[0];
      wrong += std::fabs(row[0] - g * std::cos(g > 1.5 ? last / 16 : last)) > 1e-6;
      ++reads;
    }
  };
  std::vector<std::thread> readers;
  for (unsigned i = 0; i < 3; ++i) readers.emplace_back(reader, i);
  while (reads.load() < 10) std::this_thread::yield();
  for (int i = 0; i < 60; ++i) {
    table.grow(256 + 200 * i);
    table.replace(i % 2 == 0 ? two : one);
  }
  const Index enough = reads.load() + 50;
  while (reads.load() < enough) std::this_thread::yield();
  stop = true;
  for (std::thread& t : readers) t.join();
  EXPECT_EQ(wrong.load(), 0);
}

}  // namespace
}  // namespace posenc
