// SPDX-License-Identifier: Apache-2.0
// From an instruction set to a kernel of Highway's. Highway gives no pointer to a dispatched
// function, so the table that HWY_EXPORT makes is indexed here, once per plan:
//
//   HWY_EXPORT(RotateF32);                                      // after foreach_target, HWY_ONCE
//   Kernel k = isa_entry(HWY_DISPATCH_TABLE(RotateF32), active_isa());
//
// Highway's own choice (HWY_DYNAMIC_DISPATCH) is never used: it knows nothing of force_isa.
#pragma once
#include <cstddef>

#include "posenc/core/isa.h"

namespace posenc {

// Where the kernels of an instruction set stand in a table of several targets. Throws
// std::invalid_argument("[isa] ...") when the machine or this build cannot run it.
std::size_t isa_dispatch_index(Isa);

// A build for one target has tables of one entry.
template <class Function, std::size_t n>
Function isa_entry(const Function (&table)[n], Isa isa) {
  const std::size_t index = isa_dispatch_index(isa);
  return table[n == 1 ? 0 : index];
}

// Whether the entries of native bfloat16 replace those of this instruction set: avx512 with the
// avx512_bf16 feature, and not switched off.
bool has_native_bf16(Isa) noexcept;

}  // namespace posenc
