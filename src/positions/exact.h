// SPDX-License-Identifier: Apache-2.0
// Integer arithmetic that refuses to leave int64, and integer tensors as dense lists.
#pragma once
#include <string_view>
#include <vector>

#include "core/element.h"
#include "posenc/core/error.h"
#include "posenc/positions/view.h"

namespace posenc::inline v0 {

using detail::floor_divide;

// Of one call: lists of more do not fit a machine.
inline constexpr Index kMaxTokens = Index{1} << 40;

inline Index add_exact(Index a, Index b, std::string_view who) {
  Index r = 0;
  if (__builtin_add_overflow(a, b, &r))
    refuse_field(who, "positions", "must stay inside 64 bits, from", a);
  return r;
}
inline Index multiply_exact(Index a, Index b, std::string_view who) {
  Index r = 0;
  if (__builtin_mul_overflow(a, b, &r))
    refuse_field(who, "positions", "must stay inside 64 bits, from", a);
  return r;
}
// [t] or [b, t] of u8, i32 or i64, dense.
struct IntegerRows {
  std::vector<Index> value;
  Index batch = 1, tokens = 0;
  Index operator()(Index b, Index t) const {
    return value[static_cast<std::size_t>(b * tokens + t)];
  }
};
IntegerRows integer_rows(const ConstTensorView&, std::string_view who);
// The same, and every value must be 0 or 1.
IntegerRows mask_rows(const ConstTensorView&, std::string_view who);

inline OwnedPositions own(std::vector<Index> v, Index batch = 1, std::int32_t axes = 1) {
  OwnedPositions p;
  p.value = std::move(v);
  p.batch = batch;
  p.axes = axes;
  return p;
}
inline OwnedPositions own(std::vector<double> v, Index batch = 1, std::int32_t axes = 1) {
  OwnedPositions p;
  p.value = std::move(v);
  p.batch = batch;
  p.axes = axes;
  return p;
}

// 0 first, never decreasing, at least one entry.
void check_cu_seqlens(std::span<const Index>, std::string_view who);

}  // namespace posenc::v0
