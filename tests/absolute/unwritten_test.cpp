// SPDX-License-Identifier: Apache-2.0
// A refused call has written nothing: every check comes before the first write.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "posenc/absolute/aligned_rows.h"
#include "posenc/absolute/complex_order.h"
#include "posenc/absolute/convolutional.h"
#include "posenc/absolute/learned.h"
#include "posenc/positions.h"
#include "support/refusal.h"

namespace posenc {
namespace {

using test::refusal;
using ::testing::Each;
using ::testing::HasSubstr;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

TEST(Unwritten, AlignedRowsAndTheirGradient) {
  std::vector<double> d_y(8, 1.0), d_table(4), y(8), table(4, 1.0);
  const std::int64_t alignment[] = {0, 1, 2, 0};
  const ConstTensorView a = tensor(alignment, {4, 1});
  const std::string says = "[aligned_rows] an entry must have a row, got 2";
  EXPECT_EQ(refusal([&] {
              aligned_rows_gradient(tensor(d_y.data(), {4, 2}), a, tensor(d_table.data(), {2, 2}));
            }),
            says);
  EXPECT_THAT(d_table, Each(0));
  EXPECT_EQ(refusal([&] {
              aligned_rows(tensor(table.data(), {2, 2}), a, tensor(y.data(), {4, 2}));
            }),
            says);
  EXPECT_THAT(y, Each(0));
}

TEST(Unwritten, GradientsAtTheInput) {
  const Learned scheme{.width = 2, .rows = 2};
  std::vector<double> table(4, 1.0), d_y(6, 1.0), d_x(6), d_table(4);
  const ConstTensorView p = tensor(table.data(), {2, 2});
  LoweredInput low;
  scheme.lower(std::span(&p, 1), low);
  InputGradient g;
  g.table = tensor(d_table.data(), {2, 2});
  const std::vector<Index> at{0, 1, 2};
  for (const auto& wanted :
       {std::span<const InputGradient>(), std::span<const InputGradient>(&g, 1)})
    EXPECT_THAT(refusal([&] {
                  input_gradient({}, positions(std::span(at)), low, tensor(d_y.data(), {3, 2}),
                                 tensor(d_x.data(), {3, 2}), wanted);
                }),
                HasSubstr("position must have a row in the table of 2, got 2"));
  EXPECT_THAT(d_x, Each(0));
  EXPECT_THAT(d_table, Each(0));
}

// Words are gone through one by one: the fault is that of the last.
TEST(Unwritten, ComplexEmbeddings) {
  ComplexOrder s;
  s.width = 1, s.vocabulary = 2, s.frequency = WordSharing::per_word;
  std::vector<double> r{1, 1}, w{1, 1}, re(2), im(2), d_r(2), d_w(2), d_p(2), up(2, 1.0);
  const std::int64_t ids[] = {0, 1};
  const ConstTensorView at = tensor(ids, {2});
  const ConstTensorView p[] = {tensor(r.data(), {2, 1}), tensor(w.data(), {2, 1})};
  const ComplexParts y{tensor(re.data(), {2, 1}), tensor(im.data(), {2, 1})};
  const double nan[] = {1, kNan}, good[] = {1, 2};
  EXPECT_THAT(refusal([&] { complex_embedding(s, p, at, positions(std::span(nan)), y); }),
              HasSubstr("[complex_order] real positions must be finite"));
  w[1] = kNan;
  EXPECT_THAT(refusal([&] { complex_embedding(s, p, at, positions(std::span(good)), y); }),
              HasSubstr("[complex_order] frequencies must be finite, got nan"));
  w[1] = 1;
  EXPECT_THAT(re, Each(0));
  EXPECT_THAT(im, Each(0));
  const ComplexParts d_y{tensor(up.data(), {2, 1}), tensor(up.data(), {2, 1})};
  const TensorView wrong[] = {tensor(d_r.data(), {2, 1}), tensor(d_w.data(), {1, 2})};
  EXPECT_THAT(refusal([&] {
                complex_embedding_gradient(s, p, at, positions(std::span(good)), d_y, wrong,
                                           tensor(d_p.data(), {1, 2}));
              }),
              HasSubstr("parameter frequency must be [2, 1]"));
  EXPECT_THAT(d_r, Each(0));
  EXPECT_THAT(d_p, Each(0));
}

TEST(Unwritten, ConvolutionalGradients) {
  const Convolutional s{.width = 1, .kernel = 1, .groups = 1, .weight_norm = false};
  std::vector<double> weight{2}, bias{0}, x{1, 1}, d_x(2), d_bias(1), d_weight(1);
  const ConstTensorView p[] = {tensor(weight.data(), {1, 1, 1}), tensor(bias.data(), {1})};
  const TensorView in = tensor(x.data(), {2, 1}), out = tensor(d_x.data(), {2, 1});
  const TensorView wrong[] = {tensor(d_weight.data(), {1}), tensor(d_bias.data(), {1})};
  EXPECT_THAT(refusal([&] { convolutional_gradient(s, p, in, in, out, wrong); }),
              HasSubstr("parameter weight must be [1, 1, 1]"));
  const TensorView good[] = {tensor(d_weight.data(), {1, 1, 1}), tensor(d_bias.data(), {1})};
  EXPECT_THAT(refusal([&] {
                convolutional_gradient(s, p, in, in, tensor(d_x.data(), {1, 1}), good);
              }),
              HasSubstr("d_x must have the shape of x"));
  EXPECT_THAT(d_x, Each(0));
  EXPECT_THAT(d_bias, Each(0));
}

}  // namespace
}  // namespace posenc
