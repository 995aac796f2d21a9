// SPDX-License-Identifier: Apache-2.0
#include "posenc/io/array.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "posenc/core/error.h"

namespace posenc {
namespace {

template <class T>
Array array_of(DType t, std::vector<T> values) {
  Array a = make_array(t, {static_cast<Index>(values.size())});
  EXPECT_EQ(a.bytes.size(), values.size() * sizeof(T));
  std::memcpy(a.bytes.data(), values.data(), a.bytes.size());
  return a;
}

TEST(Array, WidensEveryType) {
  using D = std::vector<double>;
  EXPECT_EQ(array_of<double>(DType::f64, {0.1, -2}).doubles(), (D{0.1, -2}));
  EXPECT_EQ(array_of<float>(DType::f32, {0.5f, -2}).doubles(), (D{0.5, -2}));
  EXPECT_EQ(array_of<std::uint16_t>(DType::f16, {0x3c00, 0xc000, 0x0001}).doubles(),
            (D{1, -2, 0x1p-24}));
  EXPECT_EQ(array_of<std::uint16_t>(DType::bf16, {0x3f80, 0xc000}).doubles(), (D{1, -2}));
  EXPECT_EQ(array_of<std::int64_t>(DType::i64, {1, -2}).doubles(), (D{1, -2}));
  EXPECT_EQ(array_of<std::int32_t>(DType::i32, {1, -2}).doubles(), (D{1, -2}));
  EXPECT_EQ(array_of<std::uint8_t>(DType::u8, {1, 255}).doubles(), (D{1, 255}));
}

TEST(Array, IntegersAreWhole) {
  const Index big = std::numeric_limits<Index>::max();
  EXPECT_EQ(array_of<Index>(DType::i64, {big, -big - 1}).integers(),
            (std::vector<Index>{big, -big - 1}));
  EXPECT_EQ(array_of<double>(DType::f64, {4096, -0x1p63}).integers(),
            (std::vector<Index>{4096, -big - 1}));
  for (const double d : {0.5, std::nan(""), HUGE_VAL, -HUGE_VAL, 0x1p63, -0x1.8p63})
    EXPECT_THROW(array_of<double>(DType::f64, {d}).integers(), std::invalid_argument) << d;
}

TEST(Array, MakesZerosAndChecksShapes) {
  const Array a = make_array(DType::f32, {2, 3});
  EXPECT_EQ(a.doubles(), std::vector<double>(6, 0.0));
  EXPECT_EQ(a.count(), 6);
  EXPECT_EQ(a.view().shape[1], 3);
  static_assert(std::is_same_v<decltype(a.view()), ConstTensorView>);
  EXPECT_EQ(make_array(DType::f32, {}).bytes.size(), 4u);
  EXPECT_EQ(make_array(DType::f32, {0, 5}).bytes.size(), 0u);
  EXPECT_THROW(make_array(DType::f32, {-1}), std::invalid_argument);
  EXPECT_THROW(make_array(DType::f64, {Index{1} << 32, Index{1} << 32}), std::invalid_argument);
  EXPECT_THROW(make_array(DType::f64, {0, Index{1} << 32, Index{1} << 32}), std::invalid_argument);
  Array broken = a;
  broken.bytes.pop_back();
  EXPECT_THROW(broken.view(), std::invalid_argument);
  EXPECT_THROW(broken.doubles(), std::invalid_argument);
  EXPECT_THROW(make_array(DType::u8, {1, 1, 1, 1, 1, 1}).view(), std::invalid_argument);
}

TEST(Array, CopiesAnyStrides) {
  std::vector<double> x(24);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<double>(i);
  const Index shape[] = {2, 3}, backwards[] = {-4, 2}, broadcast[] = {0, 1}, transposed[] = {1, 8};
  EXPECT_EQ(make_array(tensor(&x[10], DType::f64, shape, backwards)).doubles(),
            (std::vector<double>{10, 12, 14, 6, 8, 10}));
  EXPECT_EQ(make_array(tensor(&x[3], DType::f64, shape, broadcast)).doubles(),
            (std::vector<double>{3, 4, 5, 3, 4, 5}));
  EXPECT_EQ(make_array(tensor(x.data(), DType::f64, shape, transposed)).doubles(),
            (std::vector<double>{0, 8, 16, 1, 9, 17}));
  EXPECT_EQ(make_array(tensor(std::span<const double>(x))).doubles(), x);
  const Index one[] = {1}, any[] = {77};
  EXPECT_EQ(make_array(tensor(x.data() + 5, DType::f64, one, any)).doubles(),
            std::vector<double>{5});
  EXPECT_EQ(make_array(tensor(x.data() + 5, DType::f64, {}, {})).doubles(), std::vector<double>{5});
  TensorView device = tensor(std::span<double>(x));
  device.device = Device::cuda;
  EXPECT_THROW(make_array(device), std::invalid_argument);
}

}  // namespace
}  // namespace posenc
