// SPDX-License-Identifier: Apache-2.0
#include "posenc/core/dtype.h"

#include <array>

#include "core/known_enum.h"
#include "posenc/core/error.h"

namespace posenc::inline v0 {
namespace {
constexpr std::array<std::string_view, 7> kNames{"f64", "f32", "f16", "bf16", "i64", "i32", "u8"};
}  // namespace

std::string_view dtype_name(DType t) noexcept {
  return detail::name_of(kNames, static_cast<std::size_t>(t));
}

DType dtype_from_name(std::string_view text) {
  for (std::size_t i = 0; i < kNames.size(); ++i)
    if (kNames[i] == text) return static_cast<DType>(i);
  refuse("dtype", "must be one of f64, f32, f16, bf16, i64, i32, u8", text);
}

}  // namespace posenc::v0
