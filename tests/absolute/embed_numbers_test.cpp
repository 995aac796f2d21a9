// SPDX-License-Identifier: Apache-2.0
// Looked-up rows and their norm: large outputs, and where a type ends.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "posenc/absolute/embed.h"
#include "posenc/core/isa.h"
#include "posenc/core/philox.h"

namespace posenc {
namespace {

// Written around the cache or not, batch rows side by side or alone: the same bits.
TEST(Embed, LargeOutputsAreTheSameNumbers) {
  constexpr Index batch = 3, tokens = 1100, width = 768;  // 10 MB
  std::vector<float> words(50 * width), places(tokens * width), y(batch * tokens * width);
  const Draws draws(8);
  for (std::size_t i = 0; i < words.size(); ++i) words[i] = static_cast<float>(draws.normal(i));
  for (std::size_t i = 0; i < places.size(); ++i)
    places[i] = static_cast<float>(draws.normal(i + words.size()));
  std::vector<Index> ids, place;
  for (Index i = 0; i < batch * tokens; ++i) ids.push_back(i * i % 50);
  for (Index i = 0; i < tokens; ++i) place.push_back(i);
  EmbedPart w, p;
  w.table = tensor(words.data(), {50, width}), w.ids = tensor(ids.data(), {batch, tokens});
  p.table = tensor(places.data(), {tokens, width}), p.ids = tensor(place.data(), {tokens});
  for (const std::optional<EmbedNorm>& norm : {std::optional<EmbedNorm>{}, {EmbedNorm{}}}) {
    const EmbedPart parts[] = {w, p};
    std::fill(y.begin(), y.end(), 7.0f);
    embed(parts, norm, tensor(y.data(), {batch, tokens, width}));
    for (const Index i : {Index{0}, tokens - 1, tokens, 2 * tokens + 77, batch * tokens - 1}) {
      EmbedPart one = w, at = p;
      one.ids = tensor(ids.data() + i, {1}), at.ids = tensor(place.data() + i % tokens, {1});
      const EmbedPart alone[] = {one, at};
      std::vector<float> row(width);
      embed(alone, norm, tensor(row.data(), {1, width}));
      EXPECT_EQ(row, std::vector<float>(y.begin() + i * width, y.begin() + (i + 1) * width)) << i;
    }
  }
}

// NaN stays NaN and infinity infinity in 16 bits, on every instruction set; a norm of a row with
// either is NaN.
TEST(Embed, NothingBecomesANumberInSixteenBits) {
  constexpr Index kWide = 40;
  for (const Isa isa : supported_isas()) {
    force_isa(isa);
    for (const DType type : {DType::f16, DType::bf16}) {
      const std::uint16_t infinity = type == DType::f16 ? 0x7c00 : 0x7f80;
      for (const int payload : {0, 1, 0x3f, 0x7f}) {
        std::vector<std::uint16_t> table(kWide, static_cast<std::uint16_t>(infinity | payload)),
            out(kWide);
        const std::vector<Index> zero{0};
        EmbedPart word;
        word.table = tensor(static_cast<void*>(table.data()), type, {1, kWide});
        word.ids = tensor(zero.data(), {1});
        const TensorView y = tensor(static_cast<void*>(out.data()), type, {1, kWide});
        embed(std::span(&word, 1), {}, y);
        for (const std::uint16_t v : out)
          EXPECT_EQ((v & 0x7fff) > infinity, payload > 0) << isa_name(isa);
        if (payload == 0) {
          EXPECT_EQ(out[0], infinity);
        }
        embed(std::span(&word, 1), EmbedNorm{}, y);
        for (const std::uint16_t v : out) EXPECT_GT(v & 0x7fff, infinity) << isa_name(isa);
      }
    }
  }
  reset_isa();
}

// Where float itself has fewer bits: not rounded there and again.
TEST(Embed, SubnormalBFloat16RoundsOnce) {
  constexpr Index kWide = 19;
  std::vector<double> scales;
  for (int e = -137; e <= -124; ++e)
    for (const double m : {1.0, 1.5, 1 + 0x1p-30, 1.5 + 0x1p-40, 1.75 - 0x1p-40, 1 + 0x1p-8})
      scales.push_back(std::ldexp(m, e)), scales.push_back(-std::ldexp(m, e));
  for (const Isa isa : supported_isas()) {
    force_isa(isa);
    for (const double scale : scales) {
      std::vector<std::uint16_t> table(kWide, 0x3f80), out(kWide);
      const std::vector<Index> zero{0};
      EmbedPart word;
      word.table = tensor(static_cast<void*>(table.data()), DType::bf16, {1, kWide});
      word.ids = tensor(zero.data(), {1});
      word.scale = scale;
      embed(std::span(&word, 1), {},
            tensor(static_cast<void*>(out.data()), DType::bf16, {1, kWide}));
      // no 16-bit number lies nearer, nor as near and even
      const auto distance = [&](int bits) {
        return std::abs(std::ldexp(bits, -133) - std::abs(scale));  // up to 2^-125 the spacing
      };
      const int got = out[0] & 0x7fff;
      if (std::abs(scale) < 0x1p-125) {
        for (const int other : {got - 1, got + 1}) {
          EXPECT_LE(distance(got), distance(other)) << scale << " " << isa_name(isa);
          if (distance(got) == distance(other)) {
            EXPECT_EQ(got % 2, 0) << scale << " " << isa_name(isa);
          }
        }
      }
      EXPECT_EQ(out[0] >> 15, scale < 0);
      for (const std::uint16_t v : out) EXPECT_EQ(v, out[0]);
    }
  }
  reset_isa();
}

TEST(Embed, InfinityStaysInfinity) {
  constexpr Index kWide = 37;
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const Isa isa : supported_isas()) {
    force_isa(isa);
    for (const float value : {kInfinity, -kInfinity, 3e38f}) {  // the last twice is beyond float
      std::vector<float> table(kWide, value), out(kWide);
      const std::vector<Index> zero{0};
      EmbedPart word;
      word.table = tensor(table.data(), {1, kWide});
      word.ids = tensor(zero.data(), {1});
      const EmbedPart twice[] = {word, word};
      embed(twice, {}, tensor(out.data(), {1, kWide}));
      for (const float v : out) EXPECT_EQ(v, value < 0 ? -kInfinity : kInfinity) << isa_name(isa);
    }
  }
  reset_isa();
}

}  // namespace
}  // namespace posenc
