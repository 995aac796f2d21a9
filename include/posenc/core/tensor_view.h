// SPDX-License-Identifier: Apache-2.0
// A non-owning view of a strided tensor: what DLPack carries, and no more.
#pragma once
#include <array>
#include <initializer_list>
#include <span>
#include <type_traits>

#include "posenc/core/dtype.h"
#include "posenc/core/export.h"

namespace posenc::inline v0 {

struct TensorView {
  static constexpr int kMaxRank = 5;
  void* data = nullptr;  // of the element [0, 0, ...]; the byte offset is folded in
  DType dtype = DType::f32;
  Device device = Device::cpu;
  bool read_only = false;
  std::int16_t device_id = 0;
  std::int32_t rank = 0;
  std::array<Index, kMaxRank> shape{};   // elements
  std::array<Index, kMaxRank> stride{};  // elements, any sign, 0 = broadcast

  bool empty() const noexcept { return data == nullptr; }
  // Product of the shape (1 for rank 0). The checked constructors guarantee that it fits.
  Index count() const noexcept;
};

// Dense row-major view of caller's memory. Throws std::invalid_argument: rank above 5, negative
// size, null data with elements, product of sizes beyond 2^63 bytes.
POSENC_API TensorView tensor(void* data, DType, std::span<const Index> shape);
POSENC_API TensorView tensor(const void* data, DType, std::span<const Index> shape);  // read-only
// The same with strides in elements (any sign).
POSENC_API TensorView tensor(void* data, DType, std::span<const Index> shape,
                             std::span<const Index> stride);

template <class T>
TensorView tensor(std::span<T> values) {
  const Index shape[] = {static_cast<Index>(values.size())};
  if constexpr (std::is_const_v<T>)
    return tensor(static_cast<const void*>(values.data()), dtype_of<std::remove_const_t<T>>, shape);
  else
    return tensor(static_cast<void*>(values.data()), dtype_of<T>, shape);
}
inline TensorView tensor(void* data, DType dtype, std::initializer_list<Index> shape) {
  return tensor(data, dtype, std::span<const Index>(shape.begin(), shape.size()));
}
inline TensorView tensor(const void* data, DType dtype, std::initializer_list<Index> shape) {
  return tensor(data, dtype, std::span<const Index>(shape.begin(), shape.size()));
}
template <class T>
TensorView tensor(T* data, std::initializer_list<Index> shape) {
  const std::span<const Index> s(shape.begin(), shape.size());
  if constexpr (std::is_const_v<T>)
    return tensor(static_cast<const void*>(data), dtype_of<std::remove_const_t<T>>, s);
  else
    return tensor(static_cast<void*>(data), dtype_of<T>, s);
}

// True when elements lie row-major without holes (sizes of 1 may have any stride).
POSENC_API bool is_dense(const TensorView&) noexcept;

inline Index TensorView::count() const noexcept {
  Index n = 1;
  for (std::int32_t i = 0; i < rank; ++i) n *= shape[static_cast<std::size_t>(i)];
  return n;
}

}  // namespace posenc::v0
