// SPDX-License-Identifier: Apache-2.0
#include "positions/exact.h"
#include "core/shape.h"

namespace posenc::inline v0 {

IntegerRows integer_rows(const ConstTensorView& v, std::string_view who) {
  if (v.dtype != DType::u8 && v.dtype != DType::i32 && v.dtype != DType::i64)
    refuse_field(who, "dtype", "must be u8, i32 or i64", dtype_name(v.dtype));
  if (v.device != Device::cpu) refuse(who, "memory must be the CPU's");
  if (v.rank != 1 && v.rank != 2) detail::refuse_shape(who, "must be [t] or [b, t]", v);
  IntegerRows r;
  const auto last = static_cast<std::size_t>(v.rank - 1);
  r.tokens = v.shape[last];
  r.batch = v.rank == 2 ? v.shape[0] : 1;
  const Index row_stride = v.rank == 2 ? v.stride[0] : 0;
  r.value.reserve(static_cast<std::size_t>(r.batch * r.tokens));
  for (Index b = 0; b < r.batch; ++b) {
    for (Index t = 0; t < r.tokens; ++t) {
      const Index at = b * row_stride + t * v.stride[last];
      r.value.push_back(detail::integer_element(v.data, v.dtype, at));
    }
  }
  return r;
}

IntegerRows mask_rows(const ConstTensorView& v, std::string_view who) {
  IntegerRows r = integer_rows(v, who);
  for (const Index x : r.value)
    if (x != 0 && x != 1) refuse_field(who, "mask", "must hold 0 and 1 only", x);
  return r;
}

void check_cu_seqlens(std::span<const Index> cu, std::string_view who) {
  if (cu.empty()) refuse_field(who, "cu_seqlens", "must have at least one entry", Index{0});
  if (cu[0] != 0) refuse_field(who, "cu_seqlens", "must start at 0", cu[0]);
  for (std::size_t i = 1; i < cu.size(); ++i)
    if (cu[i] < cu[i - 1]) refuse_field(who, "cu_seqlens", "must not decrease", cu[i]);
}

}  // namespace posenc::v0
