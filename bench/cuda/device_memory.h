// SPDX-License-Identifier: Apache-2.0
// What a GPU's memory allows: kernels that move bytes and do nothing else.
#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>

namespace posenc::bench {

// 16 bytes a thread and step. `bytes` is a multiple of 16.
void copy_on_device(void* to, const void* from, std::size_t bytes, cudaStream_t);
// x *= 1 in place, in the arithmetic of float32, of bf16 where `wide` is false.
void scale_on_device(void* x, std::size_t bytes, bool wide, cudaStream_t);

}  // namespace posenc::bench
