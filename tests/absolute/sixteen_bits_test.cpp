// SPDX-License-Identifier: Apache-2.0
// Schemes with arithmetic of their own take tokens of 16 bits (what they compute of the widened
// numbers, rounded once) and ids of one byte.
#include <gtest/gtest.h>

#include <functional>

#include "absolute/token_memory.h"
#include "posenc/absolute/aligned_rows.h"
#include "posenc/absolute/complex_order.h"
#include "posenc/absolute/convolutional.h"
#include "posenc/positions.h"

namespace posenc {
namespace {

using test::narrow;
using test::widen;

constexpr Index kTokens = 3, kWidth = 2, kCount = kTokens * kWidth;

// `call` of inputs and outputs [3, 2], in 16 bits and in f64.
void expect_rounded_once(int inputs, int outputs,
                         const std::function<void(std::span<const TensorView>)>& call) {
  for (const DType type : {DType::f16, DType::bf16}) {
    std::vector<std::vector<std::uint16_t>> small;
    std::vector<std::vector<double>> wide;
    std::vector<TensorView> small_views, wide_views;
    for (int n = 0; n < inputs + outputs; ++n) {
      small.emplace_back(kCount), wide.emplace_back(kCount);
      for (std::size_t i = 0; n < inputs && i < kCount; ++i) {
        auto* at = reinterpret_cast<std::byte*>(&small.back()[i]);
        narrow(std::sin(static_cast<double>(7 * n + 1) + static_cast<double>(i)), type, at);
        wide.back()[i] = widen(at, type);
      }
      const Index shape[] = {kTokens, kWidth};
      small_views.push_back(tensor(static_cast<void*>(small.back().data()), type, shape));
      wide_views.push_back(tensor(wide.back().data(), {kTokens, kWidth}));
    }
    call(small_views);
    call(wide_views);
    for (int n = inputs; n < inputs + outputs; ++n)
      for (std::size_t i = 0; i < kCount; ++i) {
        const auto at = static_cast<std::size_t>(n);
        std::uint16_t want = 0;
        narrow(wide[at][i], type, reinterpret_cast<std::byte*>(&want));
        EXPECT_EQ(small[at][i], want) << dtype_name(type) << ' ' << n << ' ' << i;
        EXPECT_NE(wide[at][i], 0);
      }
  }
}

TEST(SixteenBits, ComplexSchemes) {
  ComplexOrder s;
  s.width = kWidth, s.vocabulary = 3;
  std::vector<double> r{1, 2, 3, 4, 5, 6}, w{0.1, 0.2, 0.3, 0.4, 0.5, 0.6};
  const ConstTensorView p[] = {tensor(r.data(), {3, 2}), tensor(w.data(), {3, 2})};
  const std::uint8_t bytes[] = {2, 0, 1};
  const std::int64_t words[] = {2, 0, 1};
  const Index shape[] = {3};
  const ConstTensorView ids = tensor(static_cast<const void*>(bytes), DType::u8, shape);
  std::vector<double> by_byte(2 * kCount), by_word(2 * kCount);
  for (const auto& [list, out] :
       {std::pair{ids, &by_byte}, std::pair{tensor(words, {3}), &by_word}})
    complex_embedding(s, p, list, arange(1, 3),
                      {tensor(out->data(), {3, 2}), tensor(out->data() + kCount, {3, 2})});
  EXPECT_EQ(by_byte, by_word);
  expect_rounded_once(0, 2, [&](std::span<const TensorView> v) {
    complex_embedding(s, p, ids, arange(1, 3), {v[0], v[1]});
  });
  ComplexMap map;
  std::vector<double> re{1, 2, 3, 4}, im{-1, 0.5, 2, 1};
  map.weight = {tensor(re.data(), {2, 2}), tensor(im.data(), {2, 2})};
  expect_rounded_once(2, 2, [&](std::span<const TensorView> v) {
    complex_linear(map, {v[0], v[1]}, {v[2], v[3]});
  });
  expect_rounded_once(4, 2, [&](std::span<const TensorView> v) {
    complex_linear_gradient(map, {v[0], v[1]}, {v[2], v[3]}, {v[4], v[5]}, {});
  });
}

TEST(SixteenBits, ConvolutionsAndAlignedRows) {
  const Convolutional s{.width = kWidth, .kernel = 3, .groups = 1, .weight_norm = false};
  std::vector<double> weight(12), bias{0.1, 0.2};
  for (std::size_t i = 0; i < weight.size(); ++i) weight[i] = 0.1 * static_cast<double>(i);
  const ConstTensorView p[] = {tensor(weight.data(), {2, 2, 3}), tensor(bias.data(), {2})};
  expect_rounded_once(
      1, 1, [&](std::span<const TensorView> v) { convolutional_positions(s, p, v[0], v[1]); });
  const TensorView none[] = {{}, {}};
  expect_rounded_once(2, 1, [&](std::span<const TensorView> v) {
    convolutional_gradient(s, p, v[0], v[1], v[2], none);
  });
  const std::int64_t alignment[] = {0, 1, 2, 0, 1, -1};
  const ConstTensorView a = tensor(alignment, {3, 2});
  expect_rounded_once(1, 1, [&](std::span<const TensorView> v) { aligned_rows(v[0], a, v[1]); });
  // A row that one token reads: a sum of one.
  const std::int64_t one[] = {2, 0, 1};
  expect_rounded_once(1, 1, [&](std::span<const TensorView> v) {
    aligned_rows_gradient(v[0], tensor(one, {3, 1}), v[1]);
  });
}

}  // namespace
}  // namespace posenc
