// SPDX-License-Identifier: Apache-2.0
// The kernels of one dtype: those of an instruction set, or entries that replace them.
#include "kernels/compose.h"

#include "core/isa_table.h"
#include "posenc/core/error.h"

namespace posenc::inline v0::detail {

const ComposeKernels& compose_kernels(DType type, Isa isa) {
  switch (type) {
    case DType::f64:
      return compose_kernels_f64(isa);
    case DType::f32:
      return compose_kernels_f32(isa);
    case DType::f16:
      return compose_kernels_f16(isa);
    case DType::bf16:
      return best_kernels(compose_kernels_bf16(isa),
                          {{{CpuFeature::avx512_bf16}, compose_kernels_avx512_bf16()}}, isa);
    default:
      refuse_field("input_plan", "dtype", "must be f64, f32, f16 or bf16", dtype_name(type));
  }
}

}  // namespace posenc::v0::detail
