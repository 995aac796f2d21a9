// SPDX-License-Identifier: Apache-2.0
#include <cuda_bf16.h>

#include <algorithm>
#include <cstdint>

#include "device_memory.h"

namespace posenc::bench {
namespace {

constexpr int kThreads = 256;

unsigned blocks(std::size_t vectors) {
  return static_cast<unsigned>(
      std::min<std::size_t>((vectors + kThreads - 1) / kThreads, 1u << 30));
}

__global__ void __launch_bounds__(kThreads) copy(uint4* to, const uint4* from, std::size_t n) {
  for (std::size_t i = blockIdx.x * std::size_t{kThreads} + threadIdx.x; i < n;
       i += std::size_t{gridDim.x} * kThreads)
    to[i] = from[i];
}

__global__ void __launch_bounds__(kThreads) scale_floats(float4* x, std::size_t n, float factor) {
  for (std::size_t i = blockIdx.x * std::size_t{kThreads} + threadIdx.x; i < n;
       i += std::size_t{gridDim.x} * kThreads) {
    float4 v = x[i];
    v.x *= factor, v.y *= factor, v.z *= factor, v.w *= factor;
    x[i] = v;
  }
}

struct alignas(16) EightHalves {
  __nv_bfloat162 pair[4];
};

__global__ void __launch_bounds__(kThreads)
    scale_halves(EightHalves* x, std::size_t n, float factor) {
  for (std::size_t i = blockIdx.x * std::size_t{kThreads} + threadIdx.x; i < n;
       i += std::size_t{gridDim.x} * kThreads) {
    EightHalves v = x[i];
#pragma unroll
    for (int p = 0; p < 4; ++p) {
      const float2 f = __bfloat1622float2(v.pair[p]);
      v.pair[p] = __floats2bfloat162_rn(f.x * factor, f.y * factor);
    }
    x[i] = v;
  }
}

}  // namespace

void copy_on_device(void* to, const void* from, std::size_t bytes, cudaStream_t stream) {
  copy<<<blocks(bytes / 16), kThreads, 0, stream>>>(static_cast<uint4*>(to),
                                                    static_cast<const uint4*>(from), bytes / 16);
}

void scale_on_device(void* x, std::size_t bytes, bool wide, cudaStream_t stream) {
  if (wide)
    scale_floats<<<blocks(bytes / 16), kThreads, 0, stream>>>(static_cast<float4*>(x), bytes / 16,
                                                              1);
  else
    scale_halves<<<blocks(bytes / 16), kThreads, 0, stream>>>(static_cast<EightHalves*>(x),
                                                              bytes / 16, 1);
}

}  // namespace posenc::bench
