// SPDX-License-Identifier: Apache-2.0
// Views that share memory, against a walk over all their elements.
#include "core/overlap.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <vector>

namespace posenc::inline v0::detail {
namespace {

// Offsets of all elements, in any order.
std::vector<Index> offsets(const std::vector<ViewAxis>& axes) {
  std::vector<Index> all{0};
  for (const ViewAxis& a : axes) {
    std::vector<Index> next;
    for (const Index from : all)
      for (Index i = 0; i < a.size; ++i) next.push_back(from + i * a.stride);
    all = std::move(next);
  }
  return all;
}

bool shares(const std::vector<ViewAxis>& axes) {
  return shares_with_itself(axes.data(), static_cast<int>(axes.size()));
}

std::vector<ViewAxis> drawn(std::mt19937& generator, Index most) {
  std::vector<ViewAxis> axes(3);
  for (ViewAxis& a : axes) {
    a.size = static_cast<Index>(generator() % 5);
    a.stride = static_cast<Index>(generator() % static_cast<unsigned>(2 * most + 1)) - most;
  }
  return axes;
}

TEST(Overlap, OfAViewWithItselfIsFoundExactly) {
  std::mt19937 generator(7);
  int shared = 0, apart = 0;
  for (int draw = 0; draw < 20000; ++draw) {
    const std::vector<ViewAxis> axes = drawn(generator, 20);
    const std::vector<Index> all = offsets(axes);
    const bool want = std::set<Index>(all.begin(), all.end()).size() != all.size();
    ASSERT_EQ(shares(axes), want) << axes[0].size << 'x' << axes[0].stride << ' ' << axes[1].size
                                  << 'x' << axes[1].stride << ' ' << axes[2].size << 'x'
                                  << axes[2].stride;
    ++(want ? shared : apart);
  }
  EXPECT_GT(shared, 1000);
  EXPECT_GT(apart, 1000);
}

TEST(Overlap, OfTwoViewsIsFoundExactly) {
  std::mt19937 generator(8);
  int met = 0, apart = 0;
  for (int draw = 0; draw < 20000; ++draw) {
    const std::vector<ViewAxis> a = drawn(generator, 12), b = drawn(generator, 12);
    const Index distance = static_cast<Index>(generator() % 61) - 30;
    const std::vector<Index> x = offsets(a), y = offsets(b);
    if (x.empty() || y.empty()) continue;
    bool want = false;
    for (const Index i : x)
      for (const Index j : y) want = want || i == distance + j;
    std::vector<StrideRange> ranges;
    for (const ViewAxis& v : a) ranges.push_back({v.stride, 0, v.size - 1});
    for (const ViewAxis& v : b) ranges.push_back({v.stride, 1 - v.size, 0});
    ASSERT_EQ(can_reach(ranges.data(), 6, distance), want);
    ++(want ? met : apart);
  }
  EXPECT_GT(met, 1000);
  EXPECT_GT(apart, 1000);
}

// Elements of 2, 4 and 8 bytes against each other, at any byte.
TEST(Overlap, OfTwoTensorsIsFoundToTheByte) {
  std::mt19937 generator(9);
  std::vector<std::byte> memory(4096);
  const auto tensor_of = [&] {
    constexpr DType kinds[] = {DType::f16, DType::f32, DType::f64};
    TensorView v;
    v.data = memory.data() + 2048 + generator() % 160;
    v.dtype = kinds[generator() % 3];
    v.rank = 3;
    const std::vector<ViewAxis> axes = drawn(generator, 5);
    for (std::size_t i = 0; i < 3; ++i) v.shape[i] = axes[i].size, v.stride[i] = axes[i].stride;
    return v;
  };
  const auto bytes = [&](const TensorView& v) {
    std::set<const std::byte*> all;
    for (const Index at :
         offsets({{v.shape[0], v.stride[0]}, {v.shape[1], v.stride[1]}, {v.shape[2], v.stride[2]}}))
      for (Index i = 0; i < size_of(v.dtype); ++i)
        all.insert(static_cast<const std::byte*>(v.data) + at * size_of(v.dtype) + i);
    return all;
  };
  int met = 0, apart = 0;
  for (int draw = 0; draw < 20000; ++draw) {
    const TensorView a = tensor_of(), b = tensor_of();
    const auto x = bytes(a), y = bytes(b);
    if (x.empty() || y.empty()) {
      ASSERT_FALSE(overlaps(memory_of(a), memory_of(b)));
      continue;
    }
    bool want = false;
    for (const std::byte* p : x) want = want || y.contains(p);
    ASSERT_EQ(overlaps(memory_of(a), memory_of(b)), want);
    ++(want ? met : apart);
  }
  EXPECT_GT(met, 1000);
  EXPECT_GT(apart, 1000);
  std::vector<float> value(24);
  const TensorView row = tensor(value.data(), {3, 8});
  TensorView batched = row;
  batched.rank = 3, batched.shape = {1, 3, 8}, batched.stride = {99, 8, 1};
  EXPECT_TRUE(same_view(memory_of(row), memory_of(batched)));
  batched.dtype = DType::f64;
  EXPECT_FALSE(same_view(memory_of(row), memory_of(batched)));
}

TEST(Overlap, LargeViewsOfUsualLayoutsAreToldAtOnce) {
  constexpr Index million = 1000000;
  EXPECT_FALSE(shares({{8, million * 4096}, {million, 4096}, {32, 128}, {128, 1}}));  // bthd
  EXPECT_FALSE(shares({{8, million * 4096}, {million, 128}, {32, million * 128}, {128, 1}}));
  EXPECT_FALSE(shares({{million, -256}, {256, -1}}));  // reversed
  EXPECT_FALSE(shares({{0, 0}, {million, 0}}));        // nothing there
  EXPECT_TRUE(shares({{million, 1}, {128, 1}}));       // unfolded
  EXPECT_TRUE(shares({{million, 64}, {128, 1}}));
  EXPECT_TRUE(shares({{2, 0}, {128, 1}}));
  // Two halves of one packed tensor.
  StrideRange halves[] = {{256, 0, million}, {1, 0, 127}, {256, -million, 0}, {1, -127, 0}};
  EXPECT_FALSE(can_reach(halves, 4, 128));
  StrideRange one_more[] = {{256, 0, million}, {1, 0, 128}, {256, -million, 0}, {1, -127, 0}};
  EXPECT_TRUE(can_reach(one_more, 4, 128));
}

}  // namespace
}  // namespace posenc::v0::detail
