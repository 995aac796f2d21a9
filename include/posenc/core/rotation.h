// SPDX-License-Identifier: Apache-2.0
// What rotary plans and the kernels of the rotation share, on CPUs and GPUs.
#pragma once
#include "posenc/core/describe.h"

namespace posenc::inline v0 {

// forward g R(p) | gradient g R(-p) (the transpose) | inverse R(-p)/g | shift R(p) (moves cached
// keys by p positions). Four different things as soon as g is not 1.
enum class RotateMode : std::uint8_t { forward, gradient, inverse, shift };
template <>
struct EnumNames<RotateMode> {
  static constexpr std::array<std::string_view, 4> value{"forward", "gradient", "inverse", "shift"};
};

// Layout of rows of cosine and sine, for n pairs.
//   half        n columns: one a pair
//   duplicated  2n columns: f0..fn-1, f0..fn-1       (transformers, half-split models)
//   repeated    2n columns: f0, f0, f1, f1 ..        (interleaved models)
//   pairs       2n columns: c0, s0, c1, s1 ..        (cos_sin only: complex numbers)
enum class TableLayout : std::uint8_t { half, duplicated, repeated, pairs };
template <>
struct EnumNames<TableLayout> {
  static constexpr std::array<std::string_view, 4> value{"half", "duplicated", "repeated", "pairs"};
};

// The plan's half of the kernel arguments, one per block. POD; host or device pointers.
struct RotaryTables {
  const std::uint32_t *turns_hi = nullptr,
                      *turns_lo = nullptr;                     // [heads, axes, pairs], 64-bit turns
  const std::uint64_t *wide_hi = nullptr, *wide_lo = nullptr;  // the same in 128 bits (f64 work)
  const double* per_unit = nullptr;                            // turns a position, for fractions
  const double* log2_decay = nullptr;                          // [pairs] or null
  double gain = 1, decay_center = 0, decay_scale = 512;
  Index head_dim = 0, offset = 0, pairs = 0;
  std::int32_t heads = 1, axes = 1, direction = 1;
  Pairing pairing = Pairing::unset;
  OutputOrder output_order = OutputOrder::in_place;
};

}  // namespace posenc::v0
