// SPDX-License-Identifier: Apache-2.0
// Soft caps of the fast attention engine beside std::tanh in double, on every instruction set.
#include "kernels/attention/fast_capped.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace posenc::inline v0::detail {
namespace {

// One channel, q of row r times a key of each size: from sums that the cap leaves as they are to those that reach it.
struct CapWorld {
  CapWorld(const FastTileKernels& t, const FastKernels& k, std::size_t kind)
      : tiles(t), rows(kind == 0 ? t.rows : t.few_rows), keys(std::max<Index>(9, 2 * t.lanes + 1)) {
    const auto n = static_cast<std::size_t>(rows * t.tile_stride);
    p.assign(n, 9.0f), s = slope = p;
    start.resize(static_cast<std::size_t>(rows * t.tile_keys));
    std::vector<const void*> from;
    for (Index j = 0; j < keys; ++j)
      key.push_back(std::ldexp(j % 2 == 0 ? 1.1f : -1.3f, static_cast<int>(j) - 12));
    for (const float& x : key) from.push_back(&x);
    for (Index r = 0; r < rows; ++r) {
      q.push_back(0.3f + 0.7f * static_cast<float>(r)), g.push_back(1.0f), less.push_back(0.25f);
      base.push_back(static_cast<double>(r)), reference.push_back(-2.0);
      shift.push_back(static_cast<float>(base.back() - reference.back()));
      for (Index j = 0; j < t.tile_keys; ++j)
        start[static_cast<std::size_t>(r * t.tile_keys + j)] =
            j == 3 ? -HUGE_VALF : 0.1f * static_cast<float>(j - r);
      at.push_back(start.data() + r * t.tile_keys);
    }
    packed.resize(static_cast<std::size_t>(t.tile_keys));
    k.pack_keys[0](packed.data(), from.data(), keys, 1, 1);
  }
  FastTileKeys tile() const { return {packed.data(), packed.data(), 1, 1, 1, 1}; }
  FastCapRows all(bool given) {
    return {{q.data(), g.data(), given ? at.data() : nullptr, shift.data(), less.data(), p.data(),
             s.data(), keys},
            base.data(),
            reference.data(),
            slope.data()};
  }
  const FastTileKernels& tiles;
  Index rows, keys;
  std::vector<float> key, q, g, less, shift, packed, p, s, slope, start;
  std::vector<double> base, reference;
  std::vector<const float*> at;
};

TEST(FastCapped, WeightsAndSlopes) {
  for (const Isa isa : supported_isas())
    for (const std::size_t kind : {0u, 1u})
      for (const bool given : {false, true})
        for (const bool under : {false, true})
          for (const float cap : {0.01f, 3.0f, 70.0f}) {
            SCOPED_TRACE(isa_name(isa));
            const FastTileKernels& tiles = fast_tile_kernels(isa);
            CapWorld w(tiles, fast_kernels(isa), kind);
            fast_cap_kernels(isa).slopes[kind](w.tile(), w.all(given), {cap, under},
                                               tiles.tile_stride);
            for (Index r = 0; r < w.rows; ++r)
              for (Index j = 0; j < w.keys; ++j) {
                const auto row = static_cast<std::size_t>(r), key = static_cast<std::size_t>(j),
                           n = static_cast<std::size_t>(r * tiles.tile_stride + j);
                const double c = static_cast<double>(cap),
                             start = given ? static_cast<double>(w.at[row][j]) : 0.0;
                const double product =
                    static_cast<double>(w.q[row]) * static_cast<double>(w.key[key]);
                const double sum = product + (under ? start + w.base[row] : 0.0);
                const double t = std::tanh(sum / c), capped = start == -HUGE_VAL ? start : c * t;
                const double score =
                    capped - w.reference[row] + (under ? 0.0 : start + w.base[row]);
                const double want = std::exp2(score);
                // The score is off by a few of its own last digits.
                const double size = want == 0 ? 0 : std::fabs(sum);
                const double near = 4e-7 * (4 + size + std::fabs(w.base[row])) * want;
                ASSERT_NEAR(static_cast<double>(w.p[n]), want, near) << cap << r << " " << j;
                ASSERT_NEAR(static_cast<double>(w.s[n]),
                            want * (static_cast<double>(w.key[key]) - 0.25),
                            near * (1 + std::fabs(static_cast<double>(w.key[key]))));
                // 1 - tanh^2 without its cancellation.
                const double slope = 1 / (std::cosh(sum / c) * std::cosh(sum / c));
                if (std::isfinite(sum) && std::fabs(sum / c) < 8) {
                  ASSERT_NEAR(static_cast<double>(w.slope[n]), slope,
                              (2e-6 + 4e-7 * std::fabs(sum / c)) * slope)
                      << cap << r << " " << j;
                }
              }
          }
}

// Small scores keep all of their digits: tanh is no difference of exponentials.
TEST(FastCapped, SmallScoresAreNotRounded) {
  for (const Isa isa : supported_isas()) {
    const FastTileKernels& tiles = fast_tile_kernels(isa);
    CapWorld w(tiles, fast_kernels(isa), 1);
    for (float& x : w.q) x = 1.0f;
    for (double& x : w.base) x = 0;
    const std::vector<float> zeros(static_cast<std::size_t>(w.rows), 0.0f);
    FastCapRows all = w.all(false);
    all.rows.shift = zeros.data();
    fast_cap_kernels(isa).slopes[1](w.tile(), all, {70.0f, false}, tiles.tile_stride);
    for (std::size_t j = 0; j < 8; ++j) {
      const double x = static_cast<double>(w.key[j]);
      EXPECT_NEAR(static_cast<double>(w.p[j]), std::exp2(70 * std::tanh(x / 70)), 3e-7) << j;
    }
  }
}

// One row of few queries: products that the cap leaves as they are and those that reach it, among hidden ones.
TEST(FastCapped, RowsOfFewQueries) {
  for (const Isa isa : supported_isas())
    for (const bool given : {false, true})
      for (const bool under : {false, true})
        for (const float cap : {0.01f, 3.0f, 70.0f}) {
          SCOPED_TRACE(isa_name(isa));
          float x[kDecodeKeys], start[kDecodeKeys], hidden[kDecodeKeys];
          std::vector<double> want;
          for (Index j = 0; j < kDecodeKeys; ++j) {
            x[j] = std::ldexp(j % 2 == 0 ? 1.1f : -1.3f, static_cast<int>(j) - 12);
            start[j] = j % 5 == 3 ? -HUGE_VALF : 0.1f * static_cast<float>(j);
            const double sum = static_cast<double>(x[j]) +
                               (under ? 1.5 + (given ? static_cast<double>(start[j]) : 0) : 0);
            want.push_back(static_cast<double>(cap) * std::tanh(sum / static_cast<double>(cap)));
            if (given && j % 5 == 3) x[j] = std::nanf("");
          }
          FastDecodeRow row;
          row.x = x, row.start = given ? start : nullptr, row.base = 1.5, row.keys = kDecodeKeys;
          ASSERT_TRUE(fast_cap_kernels(isa).decoded(row, hidden, {cap, under}));
          EXPECT_EQ(row.base, under ? 0 : 1.5);
          for (Index j = 0; j < kDecodeKeys; ++j) {
            const bool shown = !given || j % 5 != 3;
            if (given) {
              const float left = under && shown ? 0 : start[j];
              EXPECT_EQ(row.start[j], left) << j;
            }
            ASSERT_TRUE(std::isfinite(x[j])) << j;
            if (shown) {
              ASSERT_NEAR(static_cast<double>(x[j]), want[static_cast<std::size_t>(j)],
                          1e-6 * std::fabs(want[static_cast<std::size_t>(j)]) + (under ? 1e-6 : 0))
                  << j << " cap " << cap;
            }
          }
        }
}

TEST(FastCapped, ProductsOfFewQueriesThatAreNotFinite) {
  for (const Isa isa : supported_isas())
    for (const float bad : {std::nanf(""), HUGE_VALF, -HUGE_VALF})
      for (const Index at : {0, 7, 19, 20}) {
        float x[kDecodeKeys] = {}, start[kDecodeKeys] = {}, hidden[kDecodeKeys];
        std::fill(start + 20, start + kDecodeKeys, -HUGE_VALF);
        x[at] = bad;
        FastDecodeRow row;
        row.x = x, row.start = start, row.keys = 21;
        EXPECT_EQ(fast_cap_kernels(isa).decoded(row, hidden, {3.0f, false}), at == 20)
            << isa_name(isa) << bad << at;
      }
}

TEST(FastCapped, Multiply) {
  for (const Isa isa : supported_isas()) {
    const FastTileKernels& tiles = fast_tile_kernels(isa);
    const Index keys = tiles.lanes + 1, stride = tiles.tile_stride;
    std::vector<float> s(static_cast<std::size_t>(3 * stride), 2.0f), slope(s.size(), 0.25f);
    fast_cap_kernels(isa).multiply(s.data(), slope.data(), 2, keys, stride);
    EXPECT_EQ(s[0], 0.5f);
    EXPECT_EQ(s[static_cast<std::size_t>(stride + keys - 1)], 0.5f);
    EXPECT_EQ(s[static_cast<std::size_t>(2 * stride)], 2.0f);
  }
}

}  // namespace
}  // namespace posenc::v0::detail
