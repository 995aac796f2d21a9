// SPDX-License-Identifier: Apache-2.0
// Where the fields of the interface's structs lie, so that a struct_size that ends inside one is
// refused. A field that is missing here fails to compile.
#pragma once
#include <cstddef>

#include "posenc/posenc_c.h"
#include "posenc/rotary/rerotation_c.h"

namespace posenc::inline v0::c {

struct FieldPlace {
  std::size_t begin, end, alignment;
};

// Whether the fields follow each other without a gap that another one fits in.
template <std::size_t N>
constexpr bool cover(const FieldPlace (&fields)[N], std::size_t size) {
  std::size_t end = 0;
  for (const FieldPlace& f : fields) {
    if (f.begin < end || f.begin - end >= f.alignment) return false;
    end = f.end;
  }
  return size - end < fields[0].alignment;
}

#define POSENC_C_FIELD(T, field)                                                           \
  FieldPlace {                                                                             \
    offsetof(T, field), offsetof(T, field) + sizeof(T::field), alignof(decltype(T::field)) \
  }

// struct_size first.
template <class T>
struct StructFields;
template <>
struct StructFields<posenc_plan_options> {
  static constexpr FieldPlace list[] = {
      POSENC_C_FIELD(posenc_plan_options, struct_size),
      POSENC_C_FIELD(posenc_plan_options, outside),
  };
};
template <>
struct StructFields<posenc_plan_info> {
  static constexpr FieldPlace list[] = {
      POSENC_C_FIELD(posenc_plan_info, struct_size),
      POSENC_C_FIELD(posenc_plan_info, head_dim),
      POSENC_C_FIELD(posenc_plan_info, axes),
      POSENC_C_FIELD(posenc_plan_info, blocks),
      POSENC_C_FIELD(posenc_plan_info, row_columns),
      POSENC_C_FIELD(posenc_plan_info, valid_from),
      POSENC_C_FIELD(posenc_plan_info, valid_to),
      POSENC_C_FIELD(posenc_plan_info, attention_factor),
      POSENC_C_FIELD(posenc_plan_info, logit_factor),
  };
};
template <>
struct StructFields<posenc_key_pages> {
  static constexpr FieldPlace list[] = {
      POSENC_C_FIELD(posenc_key_pages, struct_size), POSENC_C_FIELD(posenc_key_pages, pages),
      POSENC_C_FIELD(posenc_key_pages, count),       POSENC_C_FIELD(posenc_key_pages, out),
      POSENC_C_FIELD(posenc_key_pages, tokens),
  };
};
template <>
struct StructFields<posenc_finding> {
  static constexpr FieldPlace list[] = {
      POSENC_C_FIELD(posenc_finding, struct_size), POSENC_C_FIELD(posenc_finding, severity),
      POSENC_C_FIELD(posenc_finding, code),        POSENC_C_FIELD(posenc_finding, message),
      POSENC_C_FIELD(posenc_finding, where),       POSENC_C_FIELD(posenc_finding, fix),
  };
};
template <>
struct StructFields<posenc_executor> {
  static constexpr FieldPlace list[] = {
      POSENC_C_FIELD(posenc_executor, struct_size),
      POSENC_C_FIELD(posenc_executor, context),
      POSENC_C_FIELD(posenc_executor, concurrency),
      POSENC_C_FIELD(posenc_executor, run),
  };
};
template <>
struct StructFields<posenc_attention_sizes> {
  static constexpr FieldPlace list[] = {
      POSENC_C_FIELD(posenc_attention_sizes, struct_size),
      POSENC_C_FIELD(posenc_attention_sizes, heads),
      POSENC_C_FIELD(posenc_attention_sizes, head_dim),
      POSENC_C_FIELD(posenc_attention_sizes, key_heads),
      POSENC_C_FIELD(posenc_attention_sizes, value_dim),
      POSENC_C_FIELD(posenc_attention_sizes, has_scale),
      POSENC_C_FIELD(posenc_attention_sizes, scale),
      POSENC_C_FIELD(posenc_attention_sizes, context),
  };
};
template <>
struct StructFields<posenc_attention_array_info> {
  static constexpr FieldPlace list[] = {
      POSENC_C_FIELD(posenc_attention_array_info, struct_size),
      POSENC_C_FIELD(posenc_attention_array_info, name),
      POSENC_C_FIELD(posenc_attention_array_info, is_input),
      POSENC_C_FIELD(posenc_attention_array_info, is_integer),
      POSENC_C_FIELD(posenc_attention_array_info, is_optional),
      POSENC_C_FIELD(posenc_attention_array_info, rank),
      POSENC_C_FIELD(posenc_attention_array_info, shape),
  };
};
template <>
struct StructFields<posenc_score_region> {
  static constexpr FieldPlace list[] = {
      POSENC_C_FIELD(posenc_score_region, struct_size),
      POSENC_C_FIELD(posenc_score_region, chunk),
      POSENC_C_FIELD(posenc_score_region, low),
      POSENC_C_FIELD(posenc_score_region, high),
      POSENC_C_FIELD(posenc_score_region, axis),
      POSENC_C_FIELD(posenc_score_region, q),
      POSENC_C_FIELD(posenc_score_region, k),
      POSENC_C_FIELD(posenc_score_region, query_positions),
      POSENC_C_FIELD(posenc_score_region, key_positions),
      POSENC_C_FIELD(posenc_score_region, rotation),
      POSENC_C_FIELD(posenc_score_region, d_q),
      POSENC_C_FIELD(posenc_score_region, d_k),
  };
};
template <>
struct StructFields<posenc_attention_call> {
  static constexpr FieldPlace list[] = {
      POSENC_C_FIELD(posenc_attention_call, struct_size),
      POSENC_C_FIELD(posenc_attention_call, layout),
      POSENC_C_FIELD(posenc_attention_call, q),
      POSENC_C_FIELD(posenc_attention_call, k),
      POSENC_C_FIELD(posenc_attention_call, v),
      POSENC_C_FIELD(posenc_attention_call, query_positions),
      POSENC_C_FIELD(posenc_attention_call, key_positions),
      POSENC_C_FIELD(posenc_attention_call, causal),
      POSENC_C_FIELD(posenc_attention_call, query_offset),
      POSENC_C_FIELD(posenc_attention_call, has_window),
      POSENC_C_FIELD(posenc_attention_call, window_left),
      POSENC_C_FIELD(posenc_attention_call, window_right),
      POSENC_C_FIELD(posenc_attention_call, chunk),
      POSENC_C_FIELD(posenc_attention_call, sink_tokens),
      POSENC_C_FIELD(posenc_attention_call, softcap),
      POSENC_C_FIELD(posenc_attention_call, visible),
      POSENC_C_FIELD(posenc_attention_call, bias),
      POSENC_C_FIELD(posenc_attention_call, key_visible),
      POSENC_C_FIELD(posenc_attention_call, key_length),
      POSENC_C_FIELD(posenc_attention_call, prefix),
      POSENC_C_FIELD(posenc_attention_call, query_document),
      POSENC_C_FIELD(posenc_attention_call, key_document),
      POSENC_C_FIELD(posenc_attention_call, query_cu_seqlens),
      POSENC_C_FIELD(posenc_attention_call, key_cu_seqlens),
      POSENC_C_FIELD(posenc_attention_call, block_table),
      POSENC_C_FIELD(posenc_attention_call, sink),
      POSENC_C_FIELD(posenc_attention_call, query_factor),
      POSENC_C_FIELD(posenc_attention_call, softcap_after_terms),
      POSENC_C_FIELD(posenc_attention_call, query_order),
      POSENC_C_FIELD(posenc_attention_call, key_order),
      POSENC_C_FIELD(posenc_attention_call, chunk_origin),
      POSENC_C_FIELD(posenc_attention_call, query_offsets),
      POSENC_C_FIELD(posenc_attention_call, head_scale),
      POSENC_C_FIELD(posenc_attention_call, head_side),
      POSENC_C_FIELD(posenc_attention_call, mix_before),
      POSENC_C_FIELD(posenc_attention_call, mix_after),
      POSENC_C_FIELD(posenc_attention_call, exact),
      POSENC_C_FIELD(posenc_attention_call, regions),
      POSENC_C_FIELD(posenc_attention_call, region_count),
      POSENC_C_FIELD(posenc_attention_call, log_sum_exp),
      POSENC_C_FIELD(posenc_attention_call, d_log_sum_exp),
      POSENC_C_FIELD(posenc_attention_call, whole),
  };
};

#undef POSENC_C_FIELD

}  // namespace posenc::v0::c
