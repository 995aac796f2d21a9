// SPDX-License-Identifier: Apache-2.0
// A non-owning view of a strided tensor with the content of a DLPack tensor.
#pragma once
#include <array>
#include <initializer_list>
#include <span>
#include <type_traits>

#include "posenc/core/dtype.h"
#include "posenc/core/export.h"

namespace posenc::inline v0 {

// Data is void (elements may be written) or const void (they are only read).
template <class Data>
struct BasicTensorView {
  static constexpr int kMaxRank = 5;
  Data* data = nullptr;  // of the element [0, 0, ...]; the byte offset is folded in
  DType dtype = DType::f32;
  Device device = Device::cpu;
  std::int16_t device_id = 0;
  std::int32_t rank = 0;
  std::array<Index, kMaxRank> shape{};   // elements
  std::array<Index, kMaxRank> stride{};  // elements, any sign, 0 = broadcast

  bool empty() const noexcept { return data == nullptr; }
  // Product of the shape (1 for rank 0). The checked constructors guarantee that it fits.
  Index count() const noexcept;
  // A writable view converts to a read-only one, not the other way round.
  operator BasicTensorView<const void>() const noexcept requires(!std::is_const_v<Data>) {
    return {data, dtype, device, device_id, rank, shape, stride};
  }
};
using TensorView = BasicTensorView<void>;
using ConstTensorView = BasicTensorView<const void>;

// Dense row-major view of caller's memory. Throws std::invalid_argument: rank above 5, negative
// size, null data with elements, product of sizes beyond 2^63 bytes.
POSENC_API TensorView tensor(void* data, DType, std::span<const Index> shape);
POSENC_API ConstTensorView tensor(const void* data, DType, std::span<const Index> shape);
// The same with strides in elements (any sign).
POSENC_API TensorView tensor(void* data, DType, std::span<const Index> shape,
                             std::span<const Index> stride);
POSENC_API ConstTensorView tensor(const void* data, DType, std::span<const Index> shape,
                                  std::span<const Index> stride);

// A T* makes a TensorView, a const T* a ConstTensorView.
template <class T>
auto tensor(std::span<T> values) {
  using Data = std::conditional_t<std::is_const_v<T>, const void, void>;
  const Index shape[] = {static_cast<Index>(values.size())};
  return tensor(static_cast<Data*>(values.data()), dtype_of<std::remove_const_t<T>>, shape);
}
POSENC_API TensorView tensor(void* data, DType, std::initializer_list<Index> shape);
POSENC_API ConstTensorView tensor(const void* data, DType, std::initializer_list<Index> shape);
template <class T>
auto tensor(T* data, std::initializer_list<Index> shape) {
  using Data = std::conditional_t<std::is_const_v<T>, const void, void>;
  return tensor(static_cast<Data*>(data), dtype_of<std::remove_const_t<T>>, shape);
}

// The elements as T: const T where they are only read.
template <class T, class Data>
auto data_of(const BasicTensorView<Data>& v) noexcept {
  return static_cast<std::conditional_t<std::is_const_v<Data>, const T, T>*>(v.data);
}

// True when elements lie row-major without holes (sizes of 1 may have any stride).
POSENC_API bool is_dense(const ConstTensorView&) noexcept;

template <class Data>
Index BasicTensorView<Data>::count() const noexcept {
  Index n = 1;
  for (std::int32_t i = 0; i < rank; ++i) n *= shape[static_cast<std::size_t>(i)];
  return n;
}

}  // namespace posenc::v0
