// SPDX-License-Identifier: Apache-2.0
#include "io/gguf_types.h"

#include <array>

namespace posenc::inline v0::gguf {

// Facts of the format: ggml.h (enum ggml_type) and the structs of ggml-common.h.
std::optional<BlockSize> block_size(std::uint32_t t) noexcept {
  // clang-format off
  static constexpr std::array<BlockSize, 43> sizes{{
      {1, 4}, {1, 2}, {32, 18}, {32, 20}, {}, {},                                // f32 f16 q4_0 q4_1
      {32, 22}, {32, 24}, {32, 34}, {32, 36},                                    // q5_0 q5_1 q8_0 q8_1
      {256, 84}, {256, 110}, {256, 144}, {256, 176}, {256, 210}, {256, 292},     // q2_K ... q8_K
      {256, 66}, {256, 74}, {256, 98}, {256, 50},                                // iq2_xxs iq2_xs iq3_xxs iq1_s
      {32, 18}, {256, 110}, {256, 82}, {256, 136},                               // iq4_nl iq3_s iq2_s iq4_xs
      {1, 1}, {1, 2}, {1, 4}, {1, 8}, {1, 8},                                    // i8 i16 i32 i64 f64
      {256, 56}, {1, 2}, {}, {}, {}, {256, 54}, {256, 66}, {}, {}, {},           // iq1_m bf16 tq1_0 tq2_0
      {32, 17}, {64, 36}, {128, 18}, {64, 18},                                   // mxfp4 nvfp4 q1_0 q2_0
  }};
  // clang-format on
  if (t >= sizes.size() || sizes[t].bytes == 0) return std::nullopt;
  return sizes[t];
}

}  // namespace posenc::v0::gguf
