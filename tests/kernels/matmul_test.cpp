// SPDX-License-Identifier: Apache-2.0
#include "kernels/matmul.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "posenc/core/isa.h"
#include "posenc/core/philox.h"

namespace posenc::inline v0::detail {
namespace {

// [rows, columns] inside a larger array, by rows or by columns.
struct Numbers {
  std::vector<double> value;
  ConstMatrix view;
  Numbers(Index rows, Index columns, bool by_columns, Index gap, std::uint64_t seed) {
    const Index lines = by_columns ? columns : rows, pitch = (by_columns ? rows : columns) + gap;
    const Draws draws(seed, 0);
    for (Index i = 0; i < lines * pitch; ++i)
      value.push_back(draws.normal(static_cast<std::uint64_t>(i)));
    view = {value.data(), rows, columns, by_columns ? 1 : pitch, by_columns ? pitch : 1};
  }
  MatrixOut out() { return {value.data(), view.row_stride, view.column_stride}; }
};

void plain_product(const ConstMatrix& a, const ConstMatrix& b, const MatrixOut& c) {
  const bool fused = products_are_fused();
  for (Index i = 0; i < a.rows; ++i)
    for (Index j = 0; j < b.columns; ++j)
      for (Index k = 0; k < a.columns; ++k) {
        const double x = a.data[i * a.row_stride + k * a.column_stride],
                     y = b.data[k * b.row_stride + j * b.column_stride];
        double& sum = c.data[i * c.row_stride + j * c.column_stride];
        const double product = x * y;
        sum = fused ? std::fma(x, y, sum) : sum + product;
      }
}

// Gaps of c are in the comparison: nothing is written beside it.
void expect_plain(Index m, Index k, Index n, int layout) {
  const Numbers a(m, k, layout & 1, 3, 1), b(k, n, layout & 2, 0, 2);
  Numbers c(m, n, layout & 4, 2, 3), want(m, n, layout & 4, 2, 3);
  add_product(a.view, b.view, c.out());
  plain_product(a.view, b.view, want.out());
  EXPECT_EQ(c.value, want.value) << m << " x " << k << " x " << n << ", layout " << layout;
}

// With every instruction set of this machine, each with tiles of its own.
template <class Work>
void with_every_isa(const Work& work) {
  for (const Isa isa : supported_isas()) {
    force_isa(isa);
    SCOPED_TRACE(isa_name(isa));
    work();
  }
  reset_isa();
}

TEST(Matmul, BitsAreThoseOfPlainLoops) {
  with_every_isa([] {
    for (const Index m : {1, 3, 9, 17})
      for (const Index k : {0, 1, 2, 511, 515})
        for (const Index n : {1, 2, 7, 16, 191, 193}) expect_plain(m, k, n, 0);
  });
}

TEST(Matmul, AnyStrides) {
  with_every_isa([] {
    for (int layout = 0; layout < 8; ++layout) {
      expect_plain(13, 70, 11, layout);
      expect_plain(17, 300, 1, layout);
      expect_plain(1, 300, 17, layout);
      expect_plain(6, 1, 9, layout);
      expect_plain(40, 30, 50, layout);
    }
  });
}

TEST(Matmul, NothingByNothing) {
  add_product({}, {}, {});
  std::vector<double> c{1, 2};
  add_product({nullptr, 2, 0, 0, 1}, {nullptr, 0, 1, 1, 0}, {c.data(), 1, 0});
  EXPECT_EQ(c, (std::vector<double>{1, 2}));
}

}  // namespace
}  // namespace posenc::v0::detail
