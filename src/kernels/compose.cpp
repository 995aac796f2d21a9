// SPDX-License-Identifier: Apache-2.0
// The table of composition kernels: one entry for each instruction set and dtype.
#include "kernels/compose.h"

#include "posenc/core/error.h"

namespace posenc::detail {

ComposeKernels compose_kernels_f32(Isa);
ComposeKernels compose_kernels_f64(Isa);
ComposeKernels compose_kernels_f16(Isa);
ComposeKernels compose_kernels_bf16(Isa);

ComposeKernels compose_kernels(DType type, Isa isa) {
  switch (type) {
    case DType::f32:
      return compose_kernels_f32(isa);
    case DType::f64:
      return compose_kernels_f64(isa);
    case DType::f16:
      return compose_kernels_f16(isa);
    case DType::bf16:
      return compose_kernels_bf16(isa);
    default:
      refuse("input_plan", "dtype must be f64, f32, f16 or bf16", name(type));
  }
}

}  // namespace posenc::detail
