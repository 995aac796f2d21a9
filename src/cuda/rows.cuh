// SPDX-License-Identifier: Apache-2.0
// The caller's rows of cosine and sine on the device, in place of the phase.
#pragma once
#include "cuda/phase.cuh"
#include "kernels/rotate.h"
#include "posenc/core/error.h"
#include "positions/shared_row.h"

namespace posenc::inline v0::cuda {

// Rows of cosine and sine that the caller made, layout half: float32 or double, columns one behind another.
struct Rows {
  const void *cos = nullptr, *sin = nullptr;
  bool wide = false;     // double
  bool indexed = false;  // the row of a token is its number in `index`, else the token
  Positions index;
  Index cos_batch = 0, cos_token = 0, sin_batch = 0, sin_token = 0;
};

template <class C>
__device__ __forceinline__ C row_element(const void* rows, bool wide, Index at) {
  return wide ? static_cast<C>(static_cast<const double*>(rows)[at])
              : static_cast<C>(static_cast<const float*>(rows)[at]);
}

template <class C>
__device__ __forceinline__ void row_coefficients(const Rows& r, Index pair, Index batch,
                                                 Index token, C& c, C& s) {
  Index cos = token * r.cos_token + batch * r.cos_batch;
  Index sin = token * r.sin_token + batch * r.sin_batch;
  if (r.indexed) {
    const auto row = static_cast<Index>(read_position(r.index, batch, token, 0).whole);
    cos = row * r.cos_token;
    sin = row * r.sin_token;
  }
  c = row_element<C>(r.cos, r.wide, cos + pair);
  s = row_element<C>(r.sin, r.wide, sin + pair);
}

inline Rows rows_of(const detail::RowSource& r) {
  Rows rows;
  rows.cos = r.cos.data;
  rows.sin = r.sin.data;
  rows.wide = r.cos.dtype == DType::f64;
  rows.indexed = r.index != nullptr;
  if (rows.indexed) rows.index = detail::shared_row(*r.index);
  rows.cos_batch = r.cos.batch_stride;
  rows.cos_token = r.cos.token_stride;
  rows.sin_batch = r.sin.batch_stride;
  rows.sin_token = r.sin.token_stride;
  return rows;
}

// Throws [cuda].
inline void check_rows(const detail::RotateCall& call) {
  const detail::RowSource& r = *call.rows;
  if (r.kind != detail::RowSource::Kind::caller || r.layout != TableLayout::half)
    refuse_field("cuda", "rows", "must be cosines and sines of their own, in the layout half");
  if (call.mode != RotateMode::forward && call.mode != RotateMode::gradient)
    refuse("cuda", "rows are for forward and gradient", enum_text(call.mode));
  if (call.block_count != 1 || call.blocks[0].log2_decay != nullptr)
    refuse("cuda", "rows are for one block without decay", Index{call.block_count});
  for (const detail::RowView* v : {&r.cos, &r.sin})
    if (v->data == nullptr || v->column_stride != 1 || v->head_stride != 0 ||
        v->dtype != r.cos.dtype || (v->dtype != DType::f32 && v->dtype != DType::f64))
      refuse_field("cuda", "rows",
                   "must be f32 or f64 with contiguous columns, the same for all heads",
                   dtype_name(v->dtype));
}

}  // namespace posenc::v0::cuda
