// SPDX-License-Identifier: Apache-2.0
// Rows of consecutive positions are walked from exact ones: any range, split, batch and destination
// gives the same bits, and every row stays within its bound.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "absolute/token_memory.h"
#include "core/convert.h"
#include "posenc/absolute/learned.h"
#include "posenc/absolute/plan.h"
#include "posenc/absolute/sinusoidal.h"
#include "posenc/core/isa.h"
#include "posenc/positions/sequence.h"
#include "support/random.h"

namespace posenc {
namespace {

using test::Tokens;

constexpr DType kNarrow[] = {DType::f32, DType::f16, DType::bf16};
constexpr SineLayout kLayouts[] = {SineLayout::interleaved, SineLayout::halves,
                                   SineLayout::halves_cos_first};

LoweredInput sines(Index width, SineLayout layout, double input_gain = 1.25) {
  LoweredInput low;
  Sinusoidal{.width = width, .layout = layout, .odd = OddWidth::truncate, .input_gain = input_gain}
      .lower({}, low);
  return low;
}

// Rows alone against sines in double of exactly reduced angles.
TEST(InputPlan, WalksStayWithinTheirBounds) {
  const std::pair<Index, Index> ranges[] = {
      {0, 200}, {61, 70}, {-70, 90}, {(Index{1} << 40) + 5, 40}};
  for (const Isa isa : supported_isas()) {
    force_isa(isa);
    for (const DType type : kNarrow)
      for (const SineLayout layout : kLayouts)
        for (const auto& [first, count] : ranges) {
          const Index width = 2311;  // several blocks and a rest
          const LoweredInput low = sines(width, layout);
          const InputPlan plan(low, type);
          const OwnedPositions p = arange(first, count);
          Tokens y(type, 1, count, width);
          plan.apply({}, p, y.view());
          std::vector<double> want(static_cast<std::size_t>(count * width));
          apply_input({}, p, low, tensor(want.data(), {count, width}));
          const double phase = type == DType::f32 ? 0 : 7e-7;
          for (Index t = 0, i = 0; t < count; ++t)
            for (Index c = 0; c < width; ++c, ++i) {
              const double w = want[static_cast<std::size_t>(i)];
              ASSERT_NEAR(y.get(0, t, c), w,
                          phase + 1e-13 + std::abs(w) * test::ulp(type) +
                              (type == DType::f16 ? 0x1p-25 : 0))
                  << isa_name(isa) << ' ' << dtype_name(type) << ' ' << enum_text(layout) << ' '
                  << first + t << ' ' << c;
            }
        }
  }
  reset_isa();
}

// 16 bits: x takes the rounded row away, and what is left shows the row before it is rounded.
// Frequencies up to a quarter of a turn are walked; where one is beyond, each row is made alone.
TEST(InputPlan, RowsOf16BitsStandWithinTheirBoundBeforeTheyAreRounded) {
  test::Random random(21);
  std::vector<double> walked, alone{3.1415, 3.14159265, 3.15, 9.42, 1.58, 1.9};
  for (int k = 0; k < 300; ++k) walked.push_back(std::pow(1e-5, k / 299.));
  for (int k = 0; k < 300; ++k) {
    walked.push_back(random.uniform(0, 1.57));
    walked.push_back(random.uniform(4.72, 7.85));
    alone.push_back(random.uniform(0, 30));
  }
  for (const Isa isa : supported_isas()) {
    force_isa(isa);
    for (const std::vector<double>* frequency : {&walked, &alone})
      for (const Index first : {Index{0}, Index{-100}, Index{1} << 30}) {
        constexpr Index kTokens = 128;
        const auto width = static_cast<Index>(2 * frequency->size());
        LoweredInput low;
        InputTerm t;
        Spectrum spectrum;
        spectrum.frequency = *frequency;
        t.phase = low.spectrum(spectrum);
        t.width = width;
        low.terms.push_back(t);
        std::vector<double> row(static_cast<std::size_t>(kTokens * width));
        apply_input({}, arange(first, kTokens), low, tensor(row.data(), {kTokens, width}));
        Tokens x(DType::f16, 1, kTokens, width);
        for (Index n = 0, i = 0; n < kTokens; ++n)
          for (Index c = 0; c < width; ++c, ++i)
            test::narrow(-row[static_cast<std::size_t>(i)], DType::f16, x.pointer(0, n, c));
        Tokens y = x;
        InputPlan(low, DType::f16).apply(y.view(), arange(first, kTokens), y.view());
        double worst = 0;
        for (Index n = 0, i = 0; n < kTokens; ++n)
          for (Index c = 0; c < width; ++c, ++i) {
            const double left = x.get(0, n, c) + row[static_cast<std::size_t>(i)];
            worst = std::max(worst, std::abs(y.get(0, n, c) - left) - std::abs(left) * 0x1p-11);
          }
        EXPECT_LE(worst, 0x1p-25 + (frequency == &walked ? 9e-7 : 1.1e-7))
            << isa_name(isa) << " from " << first;
      }
  }
  reset_isa();
}

// One call, batch by batch, in pieces of 1, 7, 63 and 65 tokens, backwards, positions of each batch
// its own: always the same bits.
TEST(InputPlan, AnyPieceOfAWalkGivesTheSameBits) {
  constexpr Index kBatch = 3, kTokens = 150, kWidth = 1130;
  for (const Isa isa : supported_isas()) {
    force_isa(isa);
    for (const DType type : kNarrow)
      for (const SineLayout layout : {SineLayout::interleaved, SineLayout::halves}) {
        const InputPlan plan(sines(kWidth, layout), type);
        test::Random random(3);
        Tokens x(type, kBatch, kTokens, kWidth);
        x.fill(random);
        Tokens one = x;
        const Index first = 37;
        plan.apply(one.view(), arange(first, kTokens), one.view());
        Tokens own = x;
        std::vector<Index> at;
        for (Index b = 0; b < kBatch; ++b)
          for (Index t = 0; t < kTokens; ++t) at.push_back(first + t);
        plan.apply(own.view(), explicit_positions(std::move(at), kBatch), own.view());
        EXPECT_EQ(own.memory, one.memory) << isa_name(isa) << ' ' << dtype_name(type);
        for (const Index piece : {1, 7, 63, 65}) {
          Tokens parts = x;
          const TensorView v = parts.view();
          for (Index b = 0; b < kBatch; ++b)
            for (Index t = 0; t < kTokens; t += piece) {
              const Index n = std::min(piece, kTokens - t);
              auto* from = static_cast<std::byte*>(v.data) +
                           (b * v.stride[0] + t * v.stride[1]) * size_of(type);
              const Index shape[] = {n, kWidth};
              const TensorView part = tensor(from, type, shape);
              plan.apply(part, arange(first + t, n), part);
            }
          ASSERT_EQ(parts.memory, one.memory)
              << isa_name(isa) << ' ' << dtype_name(type) << " pieces of " << piece;
        }
      }
  }
  reset_isa();
}

// Large outputs elsewhere are written around the cache where vectors are whole, else through it.
TEST(InputPlan, LargeOutputsElsewhereHaveTheSameBits) {
  constexpr Index kTokens = 2200;
  for (const Isa isa : supported_isas()) {
    force_isa(isa);
    for (const DType type : kNarrow)
      for (const Index width : {4096, 4099}) {
        std::vector<double> values(static_cast<std::size_t>(16 * width));
        for (std::size_t i = 0; i < values.size(); ++i)
          values[i] = static_cast<double>(i % 97) / 97;
        const Learned learned{.width = width, .rows = 16, .beyond = Beyond::clamp};
        const ConstTensorView table = tensor(values.data(), {16, width});
        LoweredInput rows;
        learned.lower(std::span(&table, 1), rows);
        const LoweredInput walked = sines(width, SineLayout::halves);
        for (const LoweredInput* low : std::initializer_list<const LoweredInput*>{&rows, &walked}) {
          const InputPlan plan(*low, type);
          Tokens x(type, 1, kTokens, width), y = x;
          auto* words = reinterpret_cast<std::uint16_t*>(x.memory.data());
          for (std::size_t i = 0; i < x.memory.size() / 2; ++i)
            words[i] =
                static_cast<std::uint16_t>(i % 2 != 0 || type != DType::f32 ? 0x3c00 + i % 512 : i);
          plan.apply(x.view(), arange(0, kTokens), y.view());
          plan.apply(x.view(), arange(0, kTokens), x.view());
          const TensorView a = x.view(), b = y.view();
          ASSERT_EQ(0, std::memcmp(a.data, b.data,
                                   static_cast<std::size_t>(kTokens * width * size_of(type))))
              << isa_name(isa) << ' ' << dtype_name(type) << ' ' << width
              << (low == &rows ? " rows" : " sines");
        }
      }
  }
  reset_isa();
}

// Position 0 adds 0 to sines and 1 to cosines: every bf16 number, NaN and infinities among them, is rounded once.
TEST(InputPlan, EveryBFloat16IsRoundedOnce) {
  constexpr Index kWidth = 512;
  for (const Isa isa : supported_isas()) {
    force_isa(isa);
    enable_native_features(false);  // its conversion makes small numbers 0
    for (const SineLayout layout : kLayouts) {
      const InputPlan plan(sines(kWidth, layout, 1), DType::bf16);
      const bool interleaved = layout == SineLayout::interleaved;
      for (std::uint32_t first = 0; first < 65536; first += kWidth) {
        Tokens x(DType::bf16, 1, 2, kWidth);
        auto* words = static_cast<std::uint16_t*>(x.view().data);
        for (std::uint32_t i = 0; i < kWidth; ++i)
          words[i] = static_cast<std::uint16_t>((first + i) * 40503);  // odd: each comes once
        plan.apply(x.view(), arange(0, 2), x.view());
        for (std::uint32_t i = 0; i < kWidth; ++i) {
          const auto given = static_cast<std::uint16_t>((first + i) * 40503);
          const bool cosine = interleaved
                                  ? i % 2 != 0
                                  : (i >= kWidth / 2) != (layout == SineLayout::halves_cos_first);
          const float sum = f32_from_bf16(given) + (cosine ? 1.0f : 0.0f);
          ASSERT_EQ(words[i], bf16_from(sum)) << isa_name(isa) << ' ' << given << ' ' << cosine;
        }
      }
    }
  }
  enable_native_features(true);
  reset_isa();
}

}  // namespace
}  // namespace posenc
