// SPDX-License-Identifier: Apache-2.0
// The table of rotation kernels: one entry for each instruction set and dtype, some replaced.
#include "kernels/rotate.h"

#include "core/isa_table.h"
#include "posenc/core/error.h"

namespace posenc::detail {

RotateKernel rotate_kernel_f32(Isa);
RotateKernel rotate_kernel_f64(Isa);
RotateKernel rotate_kernel_f16(Isa);
RotateKernel rotate_kernel_bf16(Isa);
RotateKernel rotate_kernel_native_bf16();  // null where this build has none

RotateKernel rotate_kernel(DType type, Isa isa) {
  switch (type) {
    case DType::f32:
      return rotate_kernel_f32(isa);
    case DType::f64:
      return rotate_kernel_f64(isa);
    case DType::f16:
      return rotate_kernel_f16(isa);
    case DType::bf16:
      if (has_native_bf16(isa) && rotate_kernel_native_bf16() != nullptr)
        return rotate_kernel_native_bf16();
      return rotate_kernel_bf16(isa);
    default:
      refuse("rotary", "dtype must be f64, f32, f16 or bf16", name(type));
  }
}

}  // namespace posenc::detail
