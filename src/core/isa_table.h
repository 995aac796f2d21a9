// SPDX-License-Identifier: Apache-2.0
// From an instruction set to a kernel of Highway's. Highway gives no pointer to a dispatched
// function, so the table that HWY_EXPORT makes is indexed here, once per plan:
//
//   HWY_EXPORT(rotate_f32);                                     // after foreach_target, HWY_ONCE
//   const RotateKernels& k = isa_kernels(HWY_DISPATCH_TABLE(rotate_f32), active_isa());
//
// Highway's own choice (HWY_DYNAMIC_DISPATCH) is never used: it knows nothing of force_isa.
#pragma once
#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "posenc/core/dtype.h"
#include "posenc/core/isa.h"

namespace posenc::inline v0 {

// Where the kernels of an instruction set stand in a table of several targets. Throws
// std::invalid_argument("[isa] ...") when the machine or this build cannot run it.
std::size_t isa_dispatch_index(Isa);

// A build for one target has tables of one entry.
template <class Function, std::size_t n>
Function isa_entry(const Function (&table)[n], Isa isa) {
  const std::size_t index = isa_dispatch_index(isa);
  return table[n == 1 ? 0 : index];
}

// Of functions that return the kernels of their target.
template <class Kernels, std::size_t n>
const Kernels& isa_kernels(const Kernels* (*const (&table)[n])(), Isa isa) {
  return *isa_entry(table, isa)();
}

// Of kernels that a target has for each float type.
template <class Kernels>
const Kernels* kernels_of_type(DType type, const Kernels& f64, const Kernels& f32,
                               const Kernels& f16, const Kernels& bf16) noexcept {
  switch (type) {
    case DType::f64:
      return &f64;
    case DType::f16:
      return &f16;
    case DType::bf16:
      return &bf16;
    default:
      return &f32;
  }
}

// What processors have beyond an instruction set.
enum class CpuFeature : std::uint8_t {
  avx512_bf16,  // beside avx512: conversion to and products of bfloat16
  amx_bf16,     // beside avx512: tiles of bfloat16, after may_use_tiles
};
// Linux keeps tiles only for programs that have asked (arch_prctl); asks once. False: it refuses.
bool may_use_tiles() noexcept;

class CpuFeatures {
 public:
  constexpr CpuFeatures() = default;
  constexpr CpuFeatures(std::initializer_list<CpuFeature> list) {
    for (const CpuFeature f : list) add(f);
  }
  constexpr void add(CpuFeature f) noexcept { bits_ |= 1u << static_cast<unsigned>(f); }
  // Whether all of `wanted` are among these.
  constexpr bool include(CpuFeatures wanted) const noexcept { return (wanted.bits_ & ~bits_) == 0; }

 private:
  unsigned bits_ = 0;
};

// Those that entries may use beside the kernels of an instruction set: this machine has them, and
// they are not switched off. Empty for instruction sets that this machine or build cannot run.
CpuFeatures usable_features(Isa) noexcept;

// Kernels that replace those of the instruction set where the machine has all that they need. null:
// this build has none.
template <class Kernels>
struct NativeEntry {
  CpuFeatures needs;
  const Kernels* kernels;
};
// The first of `entries`, best first, that is usable beside `isa`, else `vectors`.
template <class Kernels>
const Kernels& best_kernels(const Kernels& vectors,
                            std::initializer_list<NativeEntry<Kernels>> entries, Isa isa) noexcept {
  const CpuFeatures usable = usable_features(isa);
  for (const NativeEntry<Kernels>& e : entries)
    if (e.kernels != nullptr && usable.include(e.needs)) return *e.kernels;
  return vectors;
}

}  // namespace posenc::v0
