// SPDX-License-Identifier: Apache-2.0
// The table of composition kernels: one entry for each instruction set and dtype, some
// replaced.
#include "kernels/compose.h"

#include "core/isa_table.h"
#include "posenc/core/error.h"

namespace posenc::detail {

ComposeKernels compose_kernels_f32(Isa);
ComposeKernels compose_kernels_f64(Isa);
ComposeKernels compose_kernels_f16(Isa);
ComposeKernels compose_kernels_bf16(Isa);
ComposeKernel compose_kernel_native_bf16();  // null where this build has none

ComposeKernels compose_kernels(DType type, Isa isa) {
  switch (type) {
    case DType::f32:
      return compose_kernels_f32(isa);
    case DType::f64:
      return compose_kernels_f64(isa);
    case DType::f16:
      return compose_kernels_f16(isa);
    case DType::bf16: {
      ComposeKernels kernels = compose_kernels_bf16(isa);
      if (has_native_bf16(isa) && compose_kernel_native_bf16() != nullptr)
        kernels.compose = compose_kernel_native_bf16();
      return kernels;
    }
    default:
      refuse("input_plan", "dtype must be f64, f32, f16 or bf16", name(type));
  }
}

}  // namespace posenc::detail
