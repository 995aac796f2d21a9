// SPDX-License-Identifier: Apache-2.0
// Products with a panel and what is read of them, beside plain loops, on every instruction set.
#include "kernels/attention/fast_reads.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "kernels/attention/fast_strips.h"
#include "posenc/core/isa.h"
#include "support/random.h"

namespace posenc::inline v0::detail {
namespace {

std::vector<float> floats(test::Random& random, Index n) {
  std::vector<float> x;
  for (Index i = 0; i < n; ++i) x.push_back(static_cast<float>(random.normal()));
  return x;
}
double at(const std::vector<float>& x, Index n) {
  return static_cast<double>(x[static_cast<std::size_t>(n)]);
}

TEST(FastReads, ProductsBeginWithTheStart) {
  test::Random random(1);
  for (const Isa isa : supported_isas()) {
    const FastReadKernels& reads = fast_read_kernels(isa);
    const FastKernels& k = fast_kernels(isa);
    const Index panel = 2 * k.lanes, panels = 3, numbers = panels * panel, row = numbers + 3;
    for (const Index channels : {1, 5, 64})
      for (const std::size_t kind : {0u, 1u})
        for (const bool starts : {false, true}) {
          const Index rows = kind == 0 ? k.rows : k.few_rows, b_panel = (channels + 1) * panel;
          const auto a = floats(random, rows * (channels + 2)),
                     b = floats(random, panels * b_panel), start = floats(random, numbers);
          std::vector<float> to(static_cast<std::size_t>(rows * row), 7.0f);
          reads.products[kind](to.data(), row, a.data(), channels + 2, b.data(), b_panel, panels,
                               channels, starts ? start.data() : nullptr);
          for (Index r = 0; r < rows; ++r)
            for (Index n = 0; n < row; ++n) {
              double want = n < numbers ? (starts ? at(start, n) : 0.0) : 7.0;
              for (Index c = 0; n < numbers && c < channels; ++c)
                want += at(a, r * (channels + 2) + c) *
                        at(b, n / panel * b_panel + c * panel + n % panel);
              ASSERT_NEAR(at(to, r * row + n), want, 2e-5) << isa_name(isa);
            }
        }
  }
}

TEST(FastReads, ValuesAreAddedToPanels) {
  test::Random random(3);
  for (const Isa isa : supported_isas()) {
    const FastReadKernels& reads = fast_read_kernels(isa);
    const FastKernels& k = fast_kernels(isa);
    const Index panel = 2 * k.lanes, count = 7, a_row = 9, b_panel = (count + 2) * panel;
    for (const std::size_t kind : {0u, 1u})
      for (const Index vectors : {1, 2, 3}) {
        const Index rows = kind == 0 ? k.rows : k.few_rows, panels = (vectors + 1) / 2;
        const auto a = floats(random, rows * a_row), b = floats(random, panels * b_panel),
                   first = floats(random, panels * rows * panel);
        std::vector<float> out = first;
        reads.add_values[kind](out.data(), a.data(), a_row, b.data(), b_panel, vectors, count);
        for (Index r = 0; r < rows; ++r)
          for (Index c = 0; c < panels * panel; ++c) {
            const Index place = (c / panel * rows + r) * panel + c % panel;
            double want = at(first, place);
            for (Index n = 0; c < vectors * k.lanes && n < count; ++n)
              want += at(a, r * a_row + n) * at(b, c / panel * b_panel + n * panel + c % panel);
            ASSERT_NEAR(at(out, place), want, 1e-5) << isa_name(isa);
          }
      }
  }
}

TEST(FastReads, SlicesIndexesAndColumns) {
  test::Random random(2);
  for (const Isa isa : supported_isas()) {
    const FastReadKernels& reads = fast_read_kernels(isa);
    const Index count = 6 * fast_kernels(isa).lanes, rows = 5, steps = 40, from_row = count + 4;
    const auto from = floats(random, steps * from_row), first = floats(random, rows * from_row);
    std::vector<std::int32_t> index(static_cast<std::size_t>(rows + count));
    for (std::int32_t& n : index) n = static_cast<std::int32_t>(random.integer(0, steps - 1));
    const std::int32_t* middle = index.data() + rows;
    std::vector<float> sliced = first, indexed = first, columns = first, added(first.size());
    reads.add_slice(sliced.data(), from.data(), count);
    reads.add_slices(added.data(), first.data(), from.data(), count);
    reads.add_indexed(indexed.data(), from.data(), middle, count);
    reads.add_columns(columns.data(), from_row, rows, from.data(), from_row, middle, count);
    double all = 0;
    for (Index j = 0; j < count; ++j) all += at(from, j);
    ASSERT_NEAR(static_cast<double>(reads.sum(from.data(), count)), all, 1e-4) << isa_name(isa);
    const auto sum = [&](Index to, Index n) {
      return static_cast<float>(at(first, to)) + static_cast<float>(at(from, n));
    };
    for (Index j = 0; j < count; ++j) {
      ASSERT_EQ(sliced[static_cast<std::size_t>(j)], sum(j, j)) << isa_name(isa);
      ASSERT_EQ(added[static_cast<std::size_t>(j)], sum(j, j)) << isa_name(isa);
      ASSERT_EQ(indexed[static_cast<std::size_t>(j)], sum(j, middle[j])) << isa_name(isa);
      for (Index r = 0; r < rows; ++r)
        ASSERT_EQ(columns[static_cast<std::size_t>(r * from_row + j)],
                  sum(r * from_row + j, middle[j - r] * from_row + j))
            << isa_name(isa);
    }
    ASSERT_EQ(columns[static_cast<std::size_t>(count)], first[static_cast<std::size_t>(count)]);
  }
}

TEST(FastReads, RunsReadOneNumberOrSeveral) {
  test::Random random(5);
  for (const Isa isa : supported_isas()) {
    const FastReadKernels& reads = fast_read_kernels(isa);
    constexpr Index rows = 3, row = 150, width = 70;
    for (const Index size : {1, 3, 14, 16, 33}) {
      std::vector<FastRun> runs;
      for (Index j = 0; j + size <= 128; j += size)
        runs.push_back({j, size, random.integer(0, 30), random.integer(0, 1) == 1});
      const auto numbers = floats(random, rows * width), x = floats(random, rows * row);
      std::vector<float> to = x, sums = numbers;
      const auto count = static_cast<Index>(runs.size());
      reads.add_runs(to.data(), row, rows, numbers.data(), width, runs.data(), count);
      reads.sum_runs(sums.data(), width, rows, x.data(), row, runs.data(), count);
      for (Index r = 0; r < rows; ++r) {
        std::vector<double> want(128), sum(width);
        for (Index j = 0; j < 128; ++j) want[static_cast<std::size_t>(j)] = at(x, r * row + j);
        for (Index k = 0; k < width; ++k)
          sum[static_cast<std::size_t>(k)] = at(numbers, r * width + k);
        for (const FastRun& run : runs)
          for (Index j = 0; j < run.count; ++j) {
            const Index k = run.first + (run.steps ? j : 0);
            want[static_cast<std::size_t>(run.at + j)] += at(numbers, r * width + k);
            sum[static_cast<std::size_t>(k)] += at(x, r * row + run.at + j);
          }
        for (Index j = 0; j < 128; ++j)
          ASSERT_NEAR(at(to, r * row + j), want[static_cast<std::size_t>(j)], 1e-5)
              << isa_name(isa) << " " << size;
        for (Index k = 0; k < width; ++k)
          ASSERT_NEAR(at(sums, r * width + k), sum[static_cast<std::size_t>(k)], 1e-4)
              << isa_name(isa) << " " << size;
      }
    }
  }
}

TEST(FastReads, WeightsAreSummedByStep) {
  test::Random random(4);
  for (const Isa isa : supported_isas()) {
    const FastReadKernels& reads = fast_read_kernels(isa);
    const Index lanes = fast_kernels(isa).lanes;
    // Runs of one step: short ones, one of several vectors, and none for several vectors.
    for (Index count = 0; count < 9 * lanes; count += 3) {
      std::vector<std::int32_t> step;
      for (Index j = 0; j < count; ++j) {
        const bool same = j < 3 * lanes   ? j != 0
                          : j < 6 * lanes ? false
                                          : random.integer(0, 1) == 0;
        step.push_back(j == 0 ? 5 : step.back() + (same ? 0 : 1));
      }
      const auto x = floats(random, count), first = floats(random, 5 + count + 1);
      std::vector<float> to = first;
      reads.sum_steps(to.data(), step.data(), x.data(), count);
      for (Index n = 0; n < 5 + count + 1; ++n) {
        double want = at(first, n);
        for (Index j = 0; j < count; ++j)
          if (step[static_cast<std::size_t>(j)] == n) want += at(x, j);
        ASSERT_NEAR(at(to, n), want, 2e-5) << isa_name(isa) << ' ' << count;
      }
    }
  }
}

template <class T, class Narrow>
void expect_bounded_floats(Narrow narrow, std::string_view isa) {
  test::Random random(5);
  for (Index count = 1; count < 40; count += 3) {
    std::vector<T> from;
    for (Index n = 0; n < count; ++n) from.push_back(static_cast<T>(random.normal()));
    std::vector<float> to(from.size() + 1, 7.0f);
    ASSERT_TRUE(narrow(to.data(), from.data(), count, 0.3, 0x1p50f)) << isa;
    for (std::size_t n = 0; n < from.size(); ++n)
      ASSERT_EQ(to[n], static_cast<float>(0.3 * static_cast<double>(from[n]))) << isa;
    ASSERT_EQ(to.back(), 7.0f) << isa;
    for (const double wrong : {std::nan(""), -HUGE_VAL, 0x1p52, 1e38})
      for (const Index n : {Index{0}, count / 2, count - 1}) {
        std::vector<T> with = from;
        with[static_cast<std::size_t>(n)] = static_cast<T>(wrong);
        ASSERT_FALSE(narrow(to.data(), with.data(), count, 0.3, 0x1p50f))
            << isa << ' ' << wrong << ' ' << n;
      }
  }
}

TEST(FastReads, NumbersBecomeBoundedFloats) {
  for (const Isa isa : supported_isas()) {
    expect_bounded_floats<double>(fast_read_kernels(isa).narrow, isa_name(isa));
    expect_bounded_floats<float>(fast_read_kernels(isa).scale, isa_name(isa));
  }
}

TEST(FastReads, RowsAreCopied) {
  test::Random random(6);
  for (const Isa isa : supported_isas()) {
    const Index count = 3 * fast_kernels(isa).lanes, rows = 5;
    const auto from = floats(random, rows * (count + 2));
    std::vector<float> to(static_cast<std::size_t>(rows * (count + 1)), 7.0f);
    fast_read_kernels(isa).copy(to.data(), count + 1, from.data(), count + 2, rows, count);
    for (Index r = 0; r < rows; ++r)
      for (Index j = 0; j <= count; ++j)
        ASSERT_EQ(at(to, r * (count + 1) + j), j < count ? at(from, r * (count + 2) + j) : 7.0)
            << isa_name(isa);
  }
}

}  // namespace
}  // namespace posenc::v0::detail
