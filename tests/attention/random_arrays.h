// SPDX-License-Identifier: Apache-2.0
// Arrays of random numbers, shapes kept and strides at random, and their memory.
#pragma once
#include <deque>
#include <initializer_list>
#include <type_traits>
#include <utility>
#include <vector>

#include "posenc/core/tensor_view.h"
#include "support/random.h"

namespace posenc {

class RandomArrays {
 protected:
  explicit RandomArrays(std::uint64_t seed) : r_(seed) {}

  // Values in any order of the axes, with or without holes.
  ConstTensorView real(const std::vector<Index>& shape, double size = 0.7, double middle = 0) {
    if (chance(0.25)) return strided<float>(shape, DType::f32, size, middle);
    return strided<double>(shape, DType::f64, size, middle);
  }

  template <class T>
  Index layout(const std::vector<Index>& shape, std::vector<Index>& stride,
               std::deque<std::vector<T>>& keep) {
    std::vector<std::size_t> axes;
    for (std::size_t n = 0; n < shape.size(); ++n) axes.push_back(n);
    for (std::size_t n = axes.size(); n > 1; --n)
      if (chance(0.5))
        std::swap(axes[n - 1],
                  axes[static_cast<std::size_t>(r_.integer(0, static_cast<Index>(n) - 1))]);
    stride.resize(shape.size());
    Index step = 1;
    for (std::size_t n = axes.size(); n-- > 0;) {
      stride[axes[n]] = step;
      step *= std::max<Index>(1, shape[axes[n]]);
      if (chance(0.2)) step += 1;
    }
    keep.emplace_back(static_cast<std::size_t>(step) + 1);
    return step;
  }
  template <class T>
  ConstTensorView strided(const std::vector<Index>& shape, DType type, double size, double middle) {
    std::vector<Index> stride;
    auto& keep = kept<T>();
    layout(shape, stride, keep);
    for (T& x : keep.back()) x = static_cast<T>(middle + size * r_.normal());
    return tensor(static_cast<const void*>(keep.back().data()), type, shape, stride);
  }
  template <class T>
  std::deque<std::vector<T>>& kept() {
    if constexpr (std::is_same_v<T, float>)
      return floats_;
    else
      return doubles_;
  }
  bool chance(double p) { return r_.uniform() < p; }
  Index one_of(std::initializer_list<Index> x) {
    return x.begin()[static_cast<std::size_t>(r_.integer(0, static_cast<Index>(x.size()) - 1))];
  }
  static std::size_t count_of(const std::vector<Index>& shape) {
    Index n = 1;
    for (const Index s : shape) n *= s;
    return static_cast<std::size_t>(n);
  }
  template <class F>
  ConstTensorView integers(const std::vector<Index>& shape, const F& value) {
    wide_.emplace_back(count_of(shape) + 1);
    Index n = 0;
    for (Index& x : wide_.back()) x = value(n++);
    if (!chance(0.3))
      return tensor(static_cast<const void*>(wide_.back().data()), DType::i64, shape);
    narrow_.emplace_back();
    for (const Index x : wide_.back()) narrow_.back().push_back(static_cast<std::int32_t>(x));
    return tensor(static_cast<const void*>(narrow_.back().data()), DType::i32, shape);
  }
  ConstTensorView flags(const std::vector<Index>& shape, double p) {
    flags_.emplace_back(count_of(shape) + 1);
    for (std::uint8_t& x : flags_.back()) x = chance(p) ? 1 : 0;
    return tensor(static_cast<const void*>(flags_.back().data()), DType::u8, shape);
  }

  test::Random r_;
  std::deque<std::vector<double>> doubles_;
  std::deque<std::vector<float>> floats_;
  std::deque<std::vector<std::uint16_t>> halves_;
  std::deque<std::vector<Index>> wide_;
  std::deque<std::vector<std::int32_t>> narrow_, rows_;
  std::deque<std::vector<std::uint8_t>> flags_;
};

}  // namespace posenc
