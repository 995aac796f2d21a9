// SPDX-License-Identifier: Apache-2.0
// Linear layers of schemes against plain loops, over more rows than a block has.
#include "relative/layers/linear.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "posenc/core/philox.h"
#include "relative/layers/row_norm.h"

namespace posenc::inline v0::detail {
namespace {

using List = std::vector<double>;

constexpr Index kRows = 1100, kIn = 7, kHeads = 3, kDim = 5, kOut = kHeads * kDim;

List drawn(Index n, std::uint64_t seed) {
  List v;
  for (Index i = 0; i < n; ++i) v.push_back(Draws(seed, 0).normal(static_cast<std::uint64_t>(i)));
  return v;
}
double& at(List& v, Index i) {
  return v[static_cast<std::size_t>(i)];
}
double at(const List& v, Index i) {
  return v[static_cast<std::size_t>(i)];
}
// Sums of up to 1100 products of normal numbers.
void expect_near(const List& got, const List& want, const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (std::size_t i = 0; i < got.size(); ++i)
    EXPECT_NEAR(got[i], want[i], 2e-12) << what << " " << i;
}

TEST(Linear, LayerAndGradientAreThoseOfPlainLoops) {
  const List x = drawn(kRows * kIn, 1), w = drawn(kOut * kIn, 2), b = drawn(kOut, 3);
  const List d = drawn(kRows * kOut, 4);
  List y(d.size()), dx(x.size()), dw(w.size()), db(b.size());
  for (Index r = 0; r < kRows; ++r)
    for (Index o = 0; o < kOut; ++o) {
      at(y, r * kOut + o) = at(b, o);
      at(db, o) += at(d, r * kOut + o);
      for (Index c = 0; c < kIn; ++c) {
        at(y, r * kOut + o) += at(x, r * kIn + c) * at(w, o * kIn + c);
        at(dx, r * kIn + c) += at(d, r * kOut + o) * at(w, o * kIn + c);
        at(dw, o * kIn + c) += at(d, r * kOut + o) * at(x, r * kIn + c);
      }
    }
  expect_near(linear(x, w, b, kIn), y, "y");
  const LinearGradient g = linear_gradient(d, x, w, kIn);
  expect_near(g.x, dx, "dx");
  expect_near(g.w, dw, "dw");
  expect_near(g.b, db, "db");
  for (Index o = 0; o < kOut; ++o)
    for (Index r = 0; r < kRows; ++r) at(y, r * kOut + o) -= at(b, o);
  expect_near(linear(x, w, {}, kIn), y, "without a bias");
}

// Head h, channel c of column i of W, in both orders.
Index weight(bool in_out, Index h, Index c, Index i) {
  return in_out ? (i * kHeads + h) * kDim + c : (h * kDim + c) * kIn + i;
}

TEST(Linear, ProjectionsOfHeadsAreThoseOfPlainLoops) {
  const List r = drawn(kRows * kIn, 5), w = drawn(kOut * kIn, 6), b = drawn(kOut, 7);
  const List d = drawn(kRows * kOut, 8), v = drawn(kOut, 9), e = drawn(kHeads * kRows, 10);
  for (const bool in_out : {false, true}) {
    const HeadProjection p{kHeads, kDim, kIn, in_out};
    List table(d.size()), dw(w.size()), db(b.size()), dr(r.size());
    List dots_dw(w.size()), dots_dr(r.size()), dv(v.size());
    for (Index h = 0; h < kHeads; ++h)
      for (Index n = 0; n < kRows; ++n)
        for (Index c = 0; c < kDim; ++c) {
          const Index place = (h * kRows + n) * kDim + c;
          const double number = at(e, h * kRows + n);
          at(table, place) = at(b, h * kDim + c);
          at(db, h * kDim + c) += at(d, place);
          for (Index i = 0; i < kIn; ++i) {
            const Index k = weight(in_out, h, c, i);
            const double product = at(r, n * kIn + i) * at(w, k);
            at(table, place) += product;
            at(dw, k) += at(d, place) * at(r, n * kIn + i);
            at(dr, n * kIn + i) += at(d, place) * at(w, k);
            at(dv, h * kDim + c) += number * product;
            at(dots_dw, k) += number * at(v, h * kDim + c) * at(r, n * kIn + i);
            at(dots_dr, n * kIn + i) += number * at(v, h * kDim + c) * at(w, k);
          }
        }
    const RowBlock rows = rows_of(r, kIn);
    expect_near(p.table(rows, kRows, w, b), table, "table");
    expect_near(p.weight_gradient(rows, kRows, d.data()), dw, "dw");
    expect_near(p.bias_gradient(kRows, d.data()), db, "db");
    List of_rows(r.size()), of_weights(w.size()), of_rows_by_dots(r.size());
    p.add_row_gradient(w, kRows, d.data(), of_rows);
    expect_near(of_rows, dr, "dr");
    expect_near(p.dots_gradient(rows, kRows, w, v, e.data(), of_weights, &of_rows_by_dots), dv,
                "dv");
    expect_near(of_weights, dots_dw, "dw of the numbers");
    expect_near(of_rows_by_dots, dots_dr, "dr of the numbers");
  }
}

TEST(Linear, NormedRowsAreThoseOfTheWholeNorm) {
  const List x = drawn(kRows * kIn, 11), w = drawn(kIn, 12), b = drawn(kIn, 13);
  const RowBlock blocks = normed_rows(x, kIn, 1e-5, w, b);
  for (const Index first : {Index{0}, Index{512}, kRows - 1}) {
    const double* row = blocks(first, 1);
    double mean = 0, square = 0;
    for (Index c = 0; c < kIn; ++c) mean += at(x, first * kIn + c) / kIn;
    for (Index c = 0; c < kIn; ++c) square += std::pow(at(x, first * kIn + c) - mean, 2) / kIn;
    for (Index c = 0; c < kIn; ++c)
      EXPECT_NEAR(row[c],
                  (at(x, first * kIn + c) - mean) / std::sqrt(square + 1e-5) * at(w, c) + at(b, c),
                  1e-14);
  }
}

}  // namespace
}  // namespace posenc::v0::detail
