// SPDX-License-Identifier: Apache-2.0
// Elements on the device: float32 arithmetic for 16-bit types, one rounding to nearest even.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

namespace posenc::inline v0::cuda {

template <class T>
struct Element {
  using Compute = float;
};
template <>
struct Element<double> {
  using Compute = double;
};
template <class T>
using Compute = typename Element<T>::Compute;

__device__ __forceinline__ float widen(float x) {
  return x;
}
__device__ __forceinline__ double widen(double x) {
  return x;
}
__device__ __forceinline__ float widen(__half x) {
  return __half2float(x);
}
__device__ __forceinline__ float widen(__nv_bfloat16 x) {
  return __bfloat162float(x);
}

template <class T>
__device__ __forceinline__ T narrow(Compute<T> x);
template <>
__device__ __forceinline__ float narrow<float>(float x) {
  return x;
}
template <>
__device__ __forceinline__ double narrow<double>(double x) {
  return x;
}
template <>
__device__ __forceinline__ __half narrow<__half>(float x) {
  return __float2half_rn(x);
}
template <>
__device__ __forceinline__ __nv_bfloat16 narrow<__nv_bfloat16>(float x) {
  return __float2bfloat16_rn(x);
}

// 16 bytes of elements, read and written at once.
template <class T>
struct alignas(16) Vector {
  static constexpr int kSize = 16 / static_cast<int>(sizeof(T));
  T at[kSize];
};
template <class T>
__device__ __forceinline__ Vector<T> load(const T* p) {
  const uint4 raw = *reinterpret_cast<const uint4*>(p);
  return *reinterpret_cast<const Vector<T>*>(&raw);
}
template <class T>
__device__ __forceinline__ void store(T* p, const Vector<T>& v) {
  *reinterpret_cast<uint4*>(p) = *reinterpret_cast<const uint4*>(&v);
}

}  // namespace posenc::v0::cuda
