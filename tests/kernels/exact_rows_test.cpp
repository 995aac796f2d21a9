// SPDX-License-Identifier: Apache-2.0
// The loops of the exact attention engine beside plain ones: the same bits on every instruction set.
#include "kernels/attention/exact_rows.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <vector>

#include "posenc/core/isa.h"
#include "support/random.h"

namespace posenc::inline v0::detail {
namespace {

using Values = std::vector<double>;

Values normal_values(test::Random& random, Index n) {
  Values x;
  for (Index i = 0; i < n; ++i) x.push_back(random.normal());
  return x;
}

template <class Check>
void on_every_isa(const Check& check) {
  for (const Isa isa : supported_isas()) {
    SCOPED_TRACE(isa_name(isa));
    check(exact_row_kernels(isa));
  }
}

// `rows` vectors of n numbers, and pointers to them as the kernels read them.
struct RowValues {
  RowValues(test::Random& random, Index rows, Index n) {
    for (Index r = 0; r < rows; ++r) x.push_back(normal_values(random, n));
  }
  std::vector<const double*> read() const {
    std::vector<const double*> p;
    for (const Values& row : x) p.push_back(row.data());
    return p;
  }
  std::vector<double*> written() {
    std::vector<double*> p;
    for (Values& row : x) p.push_back(row.data());
    return p;
  }
  std::vector<Values> x;
};

constexpr Index kKeys = 150;
constexpr Run kRun{19, 141};  // longer than a chunk, no multiple of a vector

struct ProductsOfRows : ::testing::TestWithParam<std::array<Index, 2>> {  // rows, channels
  test::Random random{7};
  Index rows = GetParam()[0], channels = GetParam()[1];
};

TEST_P(ProductsOfRows, Dots) {
  const RowValues x(random, rows, channels);
  const Values keys = normal_values(random, kKeys * channels);
  Values tiles(static_cast<std::size_t>(tiles_size(kKeys, channels)));
  for (Index j = 0; j < kKeys; ++j)
    for (Index c = 0; c < channels; ++c)
      tiles[static_cast<std::size_t>((j / kTile * channels + c) * kTile + j % kTile)] =
          keys[static_cast<std::size_t>(j * channels + c)];
  on_every_isa([&](const ExactRowKernels& k) {
    RowValues y(random, rows, whole_tiles(kKeys));
    k.dots(y.written().data(), x.read().data(), rows, tiles.data(), channels, kRun);
    for (std::size_t r = 0; r < x.x.size(); ++r)
      for (Index j = kRun.begin; j < kRun.end; ++j) {
        double sum = 0;
        for (Index c = 0; c < channels; ++c) {
          const double product = x.x[r][static_cast<std::size_t>(c)] *
                                 keys[static_cast<std::size_t>(j * channels + c)];
          sum += product;
        }
        EXPECT_EQ(y.x[r][static_cast<std::size_t>(j)], sum) << r << ", " << j;
      }
  });
}

TEST_P(ProductsOfRows, SumsOverKeys) {
  const RowValues weight(random, rows, kKeys), start(random, rows, channels);
  const Values keys = normal_values(random, kKeys * channels);
  on_every_isa([&](const ExactRowKernels& k) {
    RowValues y = start, want = start;
    k.add_weighted(y.written().data(), weight.read().data(), rows, keys.data(), channels, kRun);
    for (std::size_t r = 0; r < want.x.size(); ++r)
      for (Index j = kRun.begin; j < kRun.end; ++j)
        for (Index c = 0; c < channels; ++c) {
          const double product = weight.x[r][static_cast<std::size_t>(j)] *
                                 keys[static_cast<std::size_t>(j * channels + c)];
          want.x[r][static_cast<std::size_t>(c)] += product;
        }
    EXPECT_EQ(y.x, want.x);
  });
}

TEST_P(ProductsOfRows, SumsOverRows) {
  const RowValues weight(random, rows, kKeys), x(random, rows, channels);
  const Values start = normal_values(random, kKeys * channels);
  on_every_isa([&](const ExactRowKernels& k) {
    Values y = start, want = start;
    k.add_outer(y.data(), weight.read().data(), x.read().data(), rows, channels, kRun);
    for (std::size_t r = 0; r < x.x.size(); ++r)
      for (Index j = kRun.begin; j < kRun.end; ++j)
        for (Index c = 0; c < channels; ++c) {
          const double product =
              weight.x[r][static_cast<std::size_t>(j)] * x.x[r][static_cast<std::size_t>(c)];
          want[static_cast<std::size_t>(j * channels + c)] += product;
        }
    EXPECT_EQ(y, want);
  });
}

INSTANTIATE_TEST_SUITE_P(Shapes, ProductsOfRows,
                         ::testing::Values(std::array<Index, 2>{1, 64}, std::array<Index, 2>{3, 5},
                                           std::array<Index, 2>{7, 21},
                                           std::array<Index, 2>{16, 130}));

constexpr std::array<Run, 3> kRuns{Run{1, 4}, Run{9, 50}, Run{57, 130}};

TEST(ExactRows, LoopsWithoutSums) {
  test::Random random(8);
  const Values x = normal_values(random, kKeys), z = normal_values(random, kKeys);
  const Values start = normal_values(random, kKeys);
  on_every_isa([&](const ExactRowKernels& k) {
    std::array<Values, 4> y{start, start, start, start}, want = y;
    k.scale(y[0].data(), 1.7, x.data(), kRuns);
    k.scale_add(y[1].data(), 1.7, x.data(), z.data(), kRuns);
    k.add(y[2].data(), x.data(), kRuns);
    k.softmax_backward(y[3].data(), x.data(), z.data(), 0.3, kRuns);
    each_key(kRuns, [&](Index key) {
      const auto j = static_cast<std::size_t>(key);
      const double product = 1.7 * x[j];
      want[0][j] = product;
      want[1][j] = product + z[j];
      want[2][j] += x[j];
      want[3][j] = x[j] * (z[j] + 0.3);
    });
    EXPECT_EQ(y, want);
  });
}

// Sums in eight parts: part n has the keys n, n + 8, ... of each run, the rest of a run by itself.
TEST(ExactRows, DotAndLargest) {
  test::Random random(9);
  const Values x = normal_values(random, kKeys), y = normal_values(random, kKeys);
  std::array<double, 8> part{}, rest{};
  double largest = -3;
  for (const detail::Run& run : kRuns)
    for (Index j = run.begin; j < run.end; ++j) {
      const auto at = static_cast<std::size_t>(j), n = static_cast<std::size_t>(j - run.begin) % 8;
      const double product = x[at] * y[at];
      (j - run.begin < (run.end - run.begin) / 8 * 8 ? part : rest)[n] += product;
      largest = std::max(largest, x[at]);
    }
  for (std::size_t n = 0; n < 8; ++n) part[n] += rest[n];
  const double want =
      ((part[0] + part[1]) + (part[2] + part[3])) + ((part[4] + part[5]) + (part[6] + part[7]));
  on_every_isa([&](const ExactRowKernels& k) {
    EXPECT_EQ(k.dot(x.data(), y.data(), kRuns), want);
    EXPECT_EQ(k.largest(x.data(), -3, kRuns), largest);
    EXPECT_EQ(k.largest(x.data(), 9, kRuns), 9);
  });
}

// e^x for x at most 0 within its stated bound, and the same bits on every instruction set.
TEST(ExactRows, Exponentials) {
  Values x, first;
  for (int n = 0; n < 40000; ++n) x.push_back(n < 37000 ? -0.019 * n : -0.0001 * (n - 37000));
  const detail::Run all{0, 40000};
  on_every_isa([&](const ExactRowKernels& k) {
    Values y(x.size());
    const double sum = k.exponentials(y.data(), x.data(), 0, {&all, 1});
    long double want_sum = 0, worst = 0;
    for (std::size_t n = 0; n < x.size(); ++n) {
      const long double want = std::exp(static_cast<long double>(x[n]));
      const double to = static_cast<double>(want);
      const double unit = std::nextafter(to, 2.0) - to;
      worst = std::max(worst, std::fabs(y[n] - want) / unit);
      want_sum += y[n];
    }
    EXPECT_LE(worst, 1.5L);
    EXPECT_NEAR(sum, static_cast<double>(want_sum), 1e-13 * sum);
    if (first.empty()) first = y;
    EXPECT_EQ(y, first);
  });
}
TEST(ExactRows, ExponentialsOfWhatIsNoNumber) {
  const double nan = std::nan("");
  const double x[11] = {0, -HUGE_VAL, -800, -745.2, -744, nan, -1e300, -709, 0, nan, -HUGE_VAL};
  const detail::Run all{0, 11};
  on_every_isa([&](const ExactRowKernels& k) {
    double y[11];
    EXPECT_TRUE(std::isnan(k.exponentials(y, x, 0, {&all, 1})));
    for (int n = 0; n < 11; ++n) {
      EXPECT_EQ(std::isnan(y[n]), std::isnan(x[n]));
      if (!std::isnan(x[n])) {
        EXPECT_NEAR(y[n], std::exp(x[n]), 5e-324) << x[n];
      }
    }
    EXPECT_EQ(k.largest(x, -HUGE_VAL, {&all, 1}), 0);
  });
}

}  // namespace
}  // namespace posenc::v0::detail
