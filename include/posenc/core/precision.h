// SPDX-License-Identifier: Apache-2.0
// exact, or the arithmetic of a program that models were trained or served with.
#pragma once
#include "posenc/core/describe.h"

namespace posenc::inline v0 {

// exact              the doubles of the spectrum are the truth
// hf_float32         transformers: float32 frequencies times float32 position, cosine, times gain
// hf_bfloat16_table  the same table rounded to bfloat16, products rounded one by one to bfloat16
// ggml               ggml's CPU code: the angle by an iterated float32 product
enum class Precision : std::uint8_t { exact, hf_float32, hf_bfloat16_table, ggml };

template <>
struct EnumNames<Precision> {
  static constexpr std::array<std::string_view, 4> value{"exact", "hf_float32", "hf_bfloat16_table",
                                                         "ggml"};
};

}  // namespace posenc::v0
