// SPDX-License-Identifier: Apache-2.0
#include "attention/call/check_parts.h"

#include "core/extent.h"
#include "core/q8_0.h"
#include "core/shape.h"
#include "posenc/core/error.h"

namespace posenc::inline v0::detail {
namespace {

std::string wanted_size(Index want) {
  if (want == kAny) return "n";
  if (want >= kDivisorOf) return "a divisor of " + std::to_string(want - kDivisorOf);
  if (want >= kOneOr) return "1 or " + std::to_string(want - kOneOr);
  return std::to_string(want);
}

void check_shape(const ConstTensorView& v, WantedShape shape, std::string_view types, bool right,
                 const FieldName& what) {
  const auto rule = [&] { return "must be " + wanted_text(shape) + " of " + std::string(types); };
  if (v.device != Device::cpu) refuse_field(kAttention, what, "must be in the CPU's memory");
  check_extent(kAttention, what, v);
  if (!right) refuse_field(kAttention, what, rule(), dtype_name(v.dtype));
  bool same = v.rank == static_cast<std::int32_t>(shape.size());
  std::size_t axis = 0;
  for (const Index want : shape) same = same && fits(v.shape[axis++], want);
  if (!same) refuse_shape(kAttention, what, rule(), v);
}

}  // namespace

CallSizes::CallSizes(const AttentionArgs& a)
    : batch(a.q.batch),
      key_rows(a.block_table.empty() ? a.q.batch : a.block_table.shape[0]),
      heads(a.q.heads),
      key_heads(a.k.heads),
      queries(a.q.tokens),
      keys(a.block_table.empty() ? a.k.tokens
                                 : saturated_product({a.block_table.shape[1], a.k.tokens})),
      dim(a.q.dim),
      value_dim(head_size(a.v)) {}

bool fits(Index got, Index want) {
  if (want == kAny) return got >= 0;
  if (want >= kDivisorOf) return got >= 1 && (want - kDivisorOf) % got == 0;
  return want >= kOneOr ? got == 1 || got == want - kOneOr : got == want;
}

std::string wanted_text(WantedShape shape) {
  std::string text = "[";
  for (const Index want : shape) text += (text.size() > 1 ? ", " : "") + wanted_size(want);
  return text + "]";
}

void check_real(const ConstTensorView& v, WantedShape shape, const FieldName& what) {
  if (!v.empty())
    check_shape(v, shape, "f64 or f32", v.dtype == DType::f64 || v.dtype == DType::f32, what);
}

void check_integer(const ConstTensorView& v, WantedShape shape, const FieldName& what) {
  if (!v.empty())
    check_shape(v, shape, "i64 or i32", v.dtype == DType::i64 || v.dtype == DType::i32, what);
}

void check_flags(const ConstTensorView& v, WantedShape shape, const FieldName& what) {
  if (!v.empty()) check_shape(v, shape, "u8", v.dtype == DType::u8, what);
}

void check_given(const ConstTensorView& v, WantedShape shape, const FieldName& what) {
  if (v.empty())
    refuse_field(kAttention, what, std::string("must be given, ") + wanted_text(shape));
  check_real(v, shape, what);
}

void needs_axis(const AttentionArgs& a, std::int32_t axis, const FieldName& who) {
  const CallSizes s(a);
  for (const Positions* p : {&a.query_positions, &a.key_positions}) {
    const char* field = p == &a.query_positions ? "query_positions" : "key_positions";
    const Index tokens = p == &a.query_positions ? s.queries : s.keys;
    if (p->data == nullptr && tokens > 0)
      refuse_field(kAttention, who, "needs query_positions and key_positions");
    if (axis < 0 || axis >= p->axes)
      refuse_number(kAttention, field,
                    who + " reads axis " + std::to_string(axis) + " (from 0) of " + field +
                        ", which must have as many axes",
                    Index{p->axes});
  }
}

}  // namespace posenc::v0::detail
