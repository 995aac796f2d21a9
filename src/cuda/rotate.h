// SPDX-License-Identifier: Apache-2.0
// The CUDA twin of the rotation kernels: the same structs (RotaryTables, RotateCall), on the
// device.
#pragma once
#include <cuda_runtime_api.h>

#include <span>
#include <vector>

#include "kernels/rotate.h"

namespace posenc::inline v0::cuda {

// Device copies of a plan's tables, made once; the structs point to device memory.
class DeviceTables {
 public:
  // Throws std::runtime_error("[cuda] ...") when the device refuses.
  explicit DeviceTables(std::span<const RotaryTables> host);
  ~DeviceTables();
  DeviceTables(const DeviceTables&) = delete;
  DeviceTables& operator=(const DeviceTables&) = delete;
  const RotaryTables* data() const noexcept { return tables_.data(); }
  std::int32_t count() const noexcept { return static_cast<std::int32_t>(tables_.size()); }

 private:
  void* upload(const void* host, std::size_t bytes);
  void release() noexcept;
  std::vector<RotaryTables> tables_;
  std::vector<void*> memory_;
};

// Turns every token of call.in into call.out on `stream` and returns without waiting. Data,
// positions and the arrays of call.blocks are device pointers; the structs themselves are the
// host's. Table-free: cos and sin within 1.0e-7 for |p| <= 2^37 (f64: 3e-16), one rounding.
// The launch cannot be refused by a value on the device: positions must be finite and below 2^62.
// Rows of the caller (call.rows, device pointers; the structs are the host's) replace the phase: layout half, f32 or f64,
// the same for all heads, one block without decay, forward or gradient. Their numbers are used as they are: gain and
// direction are the caller's.
// Throws [cuda]: other rows, or neither rows nor positions; even_then_odd in place with windows above 48 KB;
// std::runtime_error when a launch fails.
void rotate(const detail::RotateCall& call, DType dtype, cudaStream_t stream);

}  // namespace posenc::v0::cuda
