// SPDX-License-Identifier: Apache-2.0
// The loops of the fast attention engine beside plain ones in double, on every instruction set.
#include "kernels/attention/fast_strips.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "core/convert.h"
#include "posenc/core/isa.h"
#include "support/random.h"

namespace posenc::inline v0::detail {
namespace {

using Floats = std::vector<float>;

template <class Check>
void on_every_isa_fast(const Check& check) {
  for (const Isa isa : supported_isas()) {
    SCOPED_TRACE(isa_name(isa));
    check(fast_kernels(isa));
  }
}
Floats normal_floats(test::Random& random, Index n) {
  Floats x;
  for (Index i = 0; i < n; ++i) x.push_back(static_cast<float>(random.normal()));
  return x;
}

TEST(FastStrips, Exponentials) {
  on_every_isa_fast([](const FastKernels& k) {
    Floats x;
    for (double y = -130; y <= 40; y += 0.001171875) x.push_back(static_cast<float>(y));
    while (x.size() % 64 != 0) x.push_back(-HUGE_VALF);
    Floats got = x;
    k.exponentials(got.data(), static_cast<Index>(got.size()));
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double want = std::exp2(static_cast<double>(x[i]));
      if (x[i] < kSmallestExponent) {
        ASSERT_EQ(got[i], 0) << x[i];
      } else {
        ASSERT_NEAR(static_cast<double>(got[i]) / want, 1, 3e-7) << x[i];
      }
    }
  });
}

// Every type, through the panels and back.
TEST(FastStrips, PacksWhatItReads) {
  test::Random random(3);
  on_every_isa_fast([&](const FastKernels& k) {
    const Index panel = 2 * k.lanes;
    for (std::size_t type = 0; type < 3; ++type)
      for (const Index channels : {1, 3, 4, 7, 16, 33, 40})
        for (const Index keys : {Index{1}, Index{3}, k.lanes, k.block_keys - 1, k.block_keys}) {
          const Index size = keys * channels;
          const Floats x = normal_floats(random, size);
          std::vector<std::uint16_t> half;
          Floats want;
          for (const float y : x) {
            half.push_back(type == 1 ? f16_from(y) : bf16_from(y));
            want.push_back(type == 0   ? y
                           : type == 1 ? f32_from_f16(half.back())
                                       : f32_from_bf16(half.back()));
          }
          const auto* data = type == 0 ? reinterpret_cast<const std::byte*>(x.data())
                                       : reinterpret_cast<const std::byte*>(half.data());
          const Index bytes = type == 0 ? 4 : 2;
          std::vector<const void*> rows;
          for (Index j = 0; j < keys; ++j) rows.push_back(data + j * channels * bytes);
          rows[0] = nullptr;  // a hidden key is 0
          const Index panels = (channels + panel - 1) / panel;
          Floats packed_keys(static_cast<std::size_t>(k.block_keys * channels), -7.0f),
              packed_values(static_cast<std::size_t>(panels * panel * k.block_keys), -7.0f);
          ASSERT_TRUE(k.pack_keys[type](packed_keys.data(), rows.data(), keys, channels, channels));
          ASSERT_TRUE(k.pack_values[type](packed_values.data(), rows.data(), keys, channels));
          const auto at = [&](Index j, Index c) {
            return j == 0 || j >= keys ? 0 : want[static_cast<std::size_t>(j * channels + c)];
          };
          const Index whole = (keys + panel - 1) / panel * panel;
          for (Index j = 0; j < whole; ++j)
            for (Index c = 0; c < channels; ++c)
              ASSERT_EQ(packed_keys[static_cast<std::size_t>((j / panel * channels + c) * panel +
                                                             j % panel)],
                        at(j, c));
          for (Index j = 0; j < keys; ++j)
            for (Index c = 0; c < (channels + k.lanes - 1) / k.lanes * k.lanes; ++c)
              ASSERT_EQ(packed_values[static_cast<std::size_t>(
                            (c / panel * k.block_keys + j) * panel + c % panel)],
                        c < channels ? at(j, c) : 0);
          Floats taken(static_cast<std::size_t>(channels)), back(taken);
          ASSERT_TRUE(k.take_row[type](taken.data(), data, channels, 0.5f));
          for (Index c = 0; c < channels; ++c)
            ASSERT_EQ(taken[static_cast<std::size_t>(c)], 0.5f * want[static_cast<std::size_t>(c)]);
          Floats dots(static_cast<std::size_t>(keys));
          ASSERT_TRUE(
              k.dot_rows[type](data, channels, data, channels, keys, channels, dots.data()));
          for (Index j = 0; j < keys; ++j) {
            float want_dot = 0;
            for (Index c = 0; c < channels; ++c)
              want_dot += want[static_cast<std::size_t>(j * channels + c)] *
                          want[static_cast<std::size_t>(j * channels + c)];
            ASSERT_NEAR(dots[static_cast<std::size_t>(j)], want_dot, 1e-5f * want_dot);
          }
          ASSERT_TRUE(k.are_bounded[type](data, channels, keys, channels, 3));
          ASSERT_TRUE(k.are_bounded[type](data, channels, keys, channels / 2, 3));
          const Floats factors(static_cast<std::size_t>(keys), -2.0f);
          for (const Index width : {channels, channels + 3})
            for (const bool given : {true, false}) {
              Floats all(static_cast<std::size_t>(keys * width), 7.0f);
              ASSERT_TRUE(k.take_rows[type](all.data(), width, rows.data(), keys, channels,
                                            given ? factors.data() : nullptr));
              for (Index j = 0; j < keys; ++j)
                for (Index c = 0; c < width; ++c)
                  ASSERT_EQ(all[static_cast<std::size_t>(j * width + c)],
                            c < channels ? (given ? -2.0f : 1.0f) * at(j, c) : 7.0f);
            }
        }
  });
}

TEST(FastStrips, NumbersThatFloatCannotWorkWithAreNamed) {
  on_every_isa_fast([&](const FastKernels& k) {
    for (const float bad : {HUGE_VALF, -HUGE_VALF, std::nanf(""), 0x1p59f, -0x1p60f})
      for (std::size_t at = 0; at < 37; ++at) {
        Floats x(37, 1.0f);
        x[at] = bad;
        Floats to(static_cast<std::size_t>(k.block_keys) * 64 + 64);
        const void* row[] = {x.data()};
        EXPECT_FALSE(k.pack_keys[0](to.data(), row, 1, 37, 37));
        EXPECT_FALSE(k.pack_values[0](to.data(), row, 1, 37));
        EXPECT_FALSE(k.take_row[0](to.data(), x.data(), 37, 1.0f));
        const Floats ones(37, 1.0f), factors(2, 1.0f);
        const void* two[] = {x.data(), ones.data()};
        EXPECT_FALSE(k.take_rows[0](to.data(), 37, two, 2, 37, factors.data()));
        // The number stands in the first or in the second of two rows 37 apart.
        for (const bool second : {true, false}) {
          Floats rows(74, 1.0f);
          const Floats good(74, 1.0f);
          rows[at + (second ? 37 : 0)] = bad;
          float dots[2];
          EXPECT_FALSE(k.dot_rows[0](rows.data(), 37, good.data(), 37, 2, 37, dots));
          EXPECT_FALSE(k.dot_rows[0](good.data(), 37, rows.data(), 37, 2, 37, dots));
          EXPECT_FALSE(k.are_bounded[0](rows.data(), 37, 2, 37, 1));
          EXPECT_FALSE(k.are_bounded[0](good.data(), 37, 2, 37, bad));
          // Between rows anything may stand.
          EXPECT_EQ(k.are_bounded[0](rows.data(), 37, 2, 30, 1), at >= 30);
          EXPECT_EQ(k.dot_rows[0](rows.data(), 37, good.data(), 37, 2, 30, dots), at >= 30);
        }
      }
  });
}

TEST(FastStrips, SumsOfLanes) {
  on_every_isa_fast([](const FastKernels& k) {
    Floats sums, got(5);
    for (Index n = 0; n < 5 * k.lanes; ++n) sums.push_back(static_cast<float>(n * n));
    k.add_lanes(got.data(), sums.data(), 5);
    for (Index r = 0; r < 5; ++r) {
      float want = 0;
      for (Index n = r * k.lanes; n < (r + 1) * k.lanes; ++n) want += static_cast<float>(n * n);
      EXPECT_EQ(got[static_cast<std::size_t>(r)], want);
    }
  });
}

TEST(FastStrips, AddsRows) {
  on_every_isa_fast([](const FastKernels& k) {
    Floats x, y(100, 2.0f);
    for (int n = 0; n < 80; ++n) x.push_back(static_cast<float>(n));
    k.add_rows(y.data(), 45, x.data(), 40, 2, 37, 0.5f);
    for (std::size_t n = 0; n < y.size(); ++n) {
      const std::size_t row = n / 45, c = n % 45;
      const bool added = row < 2 && c < 37;
      EXPECT_EQ(y[n], added ? 2 + 0.5f * static_cast<float>(row * 40 + c) : 2) << n;
    }
    Floats written(100, std::nanf(""));
    k.write_rows(written.data(), 45, x.data(), 40, 2, 37, 0.5f);
    for (std::size_t row = 0; row < 2; ++row)
      for (std::size_t c = 0; c < 45; ++c) {
        const float z = written[row * 45 + c];
        EXPECT_TRUE(c < 37 ? z == 0.5f * static_cast<float>(row * 40 + c) : std::isnan(z)) << c;
      }
  });
}

// Against std::exp2, in double.
TEST(FastStrips, SplitsSums) {
  on_every_isa_fast([](const FastKernels& k) {
    std::vector<double> sums{HUGE_VAL, 0, 0.5, -0.5, 1.25, -0x1p22, 0x1p22, 3e6 + 0.499};
    for (int n = 0; n < 300; ++n) sums.push_back(n * 0.0371 - 4.9);
    const std::vector<double> less(sums.size(), -3.7);
    std::vector<double> reference(sums.size());
    Floats rest(sums.size()), less_rest(rest);
    k.split_sums(sums.data(), less.data(), static_cast<Index>(sums.size()), reference.data(),
                 rest.data(), less_rest.data());
    for (std::size_t n = 0; n < sums.size(); ++n) {
      const bool some = sums[n] < HUGE_VAL;
      ASSERT_EQ(reference[n], some ? std::nearbyint(sums[n]) : 0);
      const double want = some ? std::exp2(reference[n] - sums[n]) : 0;
      ASSERT_NEAR(static_cast<double>(rest[n]), want, 0x1p-24 * want * 1.001) << sums[n];
      ASSERT_NEAR(static_cast<double>(less_rest[n]), -3.7 * want, 0x1p-24 * 3.7 * want * 1.001);
    }
  });
}

// Against the functions of the standard library, in double.
TEST(FastStrips, FinishesSums) {
  on_every_isa_fast([](const FastKernels& k) {
    Floats sums{0, 1, 2, 0x1p-87f, 0x1p87f, 0x1p-126f, std::sqrt(0.5f), std::sqrt(2.0f), 3e38f};
    for (int n = 1; n < 300; ++n) sums.push_back(static_cast<float>(n) * 0.0073f);
    std::vector<double> reference(sums.size()), logarithms(sums.size());
    for (std::size_t n = 0; n < sums.size(); ++n)
      reference[n] = static_cast<double>(n % 7) * 1e5 - 3e5;
    k.finish_sums(sums.data(), reference.data(), static_cast<Index>(sums.size()),
                  logarithms.data());
    EXPECT_EQ(logarithms[0], -HUGE_VAL);
    for (std::size_t n = 1; n < sums.size(); ++n) {
      const double want =
          std::log(static_cast<double>(sums[n])) + reference[n] * 0.69314718055994530942;
      ASSERT_NEAR(logarithms[n], want, 1e-11 + 1e-15 * std::fabs(want)) << sums[n];
    }
  });
}

// One strip of all its kinds: fast, moved references, a row that sees nothing.
struct StripWorld {
  StripWorld(const FastKernels& kernels, Index rows_, Index keys_, Index channels_,
             std::uint64_t seed)
      : k(kernels), rows(rows_), keys(keys_), channels(channels_), random(seed) {
    const Index panel = 2 * k.lanes, panels = (channels + panel - 1) / panel;
    q = normal_floats(random, rows * channels), key = normal_floats(random, keys * channels),
    value = normal_floats(random, keys * channels),
    start = normal_floats(random, rows * k.block_keys);
    std::vector<const void*> from;
    packed_keys.resize(static_cast<std::size_t>(k.block_keys * channels));
    packed_values.resize(static_cast<std::size_t>(panels * panel * k.block_keys));
    for (Index j = 0; j < keys; ++j) from.push_back(key.data() + j * channels);
    k.pack_keys[0](packed_keys.data(), from.data(), keys, channels, channels);
    for (Index j = 0; j < keys; ++j)
      from[static_cast<std::size_t>(j)] = value.data() + j * channels;
    k.pack_values[0](packed_values.data(), from.data(), keys, channels);
    out.assign(static_cast<std::size_t>(panels * panel * rows), 0.0f);
    sums.assign(static_cast<std::size_t>(rows * k.lanes), 0.0f);
    weights.resize(static_cast<std::size_t>(rows * k.block_keys));
    reference.assign(static_cast<std::size_t>(rows), 0.0), base = reference;
    block = {packed_keys.data(), packed_values.data(), channels,
             (channels + k.lanes - 1) / k.lanes};
    for (Index r = 0; r < rows; ++r) {
      for (Index j = keys; j < k.block_keys; ++j)
        start[static_cast<std::size_t>(r * k.block_keys + j)] = -HUGE_VALF;
      at.push_back(start.data() + r * k.block_keys);
    }
  }
  FastStrip strip() {
    shift.clear();
    for (std::size_t r = 0; r < base.size(); ++r)
      shift.push_back(static_cast<float>(base[r] - reference[r]));
    FastStrip s;
    s.q = q.data(), s.out = out.data(), s.sums = sums.data(), s.reference = reference.data();
    s.start = at.data(), s.base = base.data(), s.shift = shift.data(), s.weights = weights.data(),
    s.keys = keys;
    return s;
  }
  // Against the sums in double, relative to the row's own reference.
  void check(double tolerance) const {
    const Index panel = 2 * k.lanes;
    for (Index r = 0; r < rows; ++r) {
      double total = 0, sum = 0;
      std::vector<double> want(static_cast<std::size_t>(channels));
      for (Index j = 0; j < keys; ++j) {
        double x = static_cast<double>(start[static_cast<std::size_t>(r * k.block_keys + j)]) +
                   base[static_cast<std::size_t>(r)] - reference[static_cast<std::size_t>(r)];
        for (Index c = 0; c < channels; ++c)
          x += static_cast<double>(q[static_cast<std::size_t>(r * channels + c)]) *
               static_cast<double>(key[static_cast<std::size_t>(j * channels + c)]);
        const double p = std::exp2(x);
        total += p;
        for (Index c = 0; c < channels; ++c)
          want[static_cast<std::size_t>(c)] +=
              p * static_cast<double>(value[static_cast<std::size_t>(j * channels + c)]);
      }
      for (Index n = 0; n < k.lanes; ++n)
        sum += static_cast<double>(sums[static_cast<std::size_t>(r * k.lanes + n)]);
      ASSERT_NEAR(sum, total, tolerance * total) << r;
      for (Index c = 0; c < channels; ++c)
        ASSERT_NEAR(static_cast<double>(
                        out[static_cast<std::size_t>((c / panel * rows + r) * panel + c % panel)]),
                    want[static_cast<std::size_t>(c)], tolerance * total * 4)
            << r << " " << c;
    }
  }
  const FastKernels& k;
  Index rows, keys, channels;
  test::Random random;
  Floats q, key, value, start, packed_keys, packed_values, out, sums, weights, shift;
  std::vector<double> reference, base;
  std::vector<const float*> at;
  FastBlock block;
};

TEST(FastStrips, OneStrip) {
  on_every_isa_fast([](const FastKernels& k) {
    for (const std::size_t kind : {0u, 1u})
      for (const Index keys : {Index{1}, k.lanes, k.lanes + 1, k.block_keys - 3, k.block_keys})
        for (const Index channels : {1, 5, 16, 40}) {
          StripWorld w(k, kind == 0 ? k.rows : k.few_rows, keys, channels,
                       static_cast<std::uint64_t>(channels));
          ASSERT_TRUE(k.strip[kind][1](w.block, w.strip()));
          w.check(3e-6);
          // The same again, relative to references that move.
          StripWorld moved(k, kind == 0 ? k.rows : k.few_rows, keys, channels,
                           static_cast<std::uint64_t>(channels));
          ASSERT_TRUE(k.rescale[kind][1](moved.block, moved.strip()));
          moved.check(3e-6);
          for (const double m : moved.reference) ASSERT_EQ(m, std::floor(m));
        }
  });
}

TEST(FastStrips, TooLargeAnExponentChangesNothing) {
  on_every_isa_fast([](const FastKernels& k) {
    StripWorld w(k, k.rows, k.block_keys, 16, 1);
    ASSERT_TRUE(k.strip[0][1](w.block, w.strip()));
    const Floats out = w.out, sums = w.sums;
    w.base[3] = 200;
    ASSERT_FALSE(k.strip[0][1](w.block, w.strip()));
    EXPECT_EQ(w.out, out);
    EXPECT_EQ(w.sums, sums);
    ASSERT_TRUE(k.rescale[0][1](w.block, w.strip()));
    EXPECT_GT(w.reference[3], 190);
    w.base[3] = 1e9;  // exact in double
    ASSERT_TRUE(k.rescale[0][1](w.block, w.strip()));
    EXPECT_GT(w.reference[3], 9e8);
  });
}

}  // namespace
}  // namespace posenc::v0::detail
