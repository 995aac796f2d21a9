// SPDX-License-Identifier: Apache-2.0
// A checked call of embed or of its gradient: which row of which part each token reads.
#pragma once
#include <algorithm>
#include <vector>

#include "core/convert.h"
#include "kernels/weigh.h"
#include "posenc/absolute/embed.h"

namespace posenc::detail {

inline double widen_value(const void* p, DType t, Index i) {
  switch (t) {
    case DType::f64:
      return static_cast<const double*>(p)[i];
    case DType::f32:
      return static_cast<double>(static_cast<const float*>(p)[i]);
    case DType::f16:
      return static_cast<double>(f32_from_f16(static_cast<const std::uint16_t*>(p)[i]));
    default:
      return static_cast<double>(f32_from_bf16(static_cast<const std::uint16_t*>(p)[i]));
  }
}
inline void narrow_value(void* p, DType t, Index i, double v) {
  switch (t) {
    case DType::f64:
      static_cast<double*>(p)[i] = v;
      return;
    case DType::f32:
      static_cast<float*>(p)[i] = static_cast<float>(v);
      return;
    case DType::f16:
      static_cast<std::uint16_t*>(p)[i] = f16_from(v);
      return;
    default:
      static_cast<std::uint16_t*>(p)[i] = bf16_from(v);
  }
}

inline void widen_row(const void* p, DType t, Index n, double* out) {
  switch (t) {
    case DType::f64:
      return static_cast<void>(std::copy_n(static_cast<const double*>(p), n, out));
    case DType::f32:
      return static_cast<void>(std::copy_n(static_cast<const float*>(p), n, out));
    default:
      for (Index i = 0; i < n; ++i) out[i] = widen_value(p, t, i);
  }
}
inline void narrow_row(const double* v, DType t, Index n, void* p) {
  switch (t) {
    case DType::f64:
      return static_cast<void>(std::copy_n(v, n, static_cast<double*>(p)));
    case DType::f32:
      for (Index i = 0; i < n; ++i) static_cast<float*>(p)[i] = static_cast<float>(v[i]);
      return;
    default:
      for (Index i = 0; i < n; ++i) narrow_value(p, t, i, v[i]);
  }
}

// Memory, or a tensor of no elements, which needs none.
inline bool is_given(const TensorView& v) {
  return !v.empty() || (v.rank > 0 && v.count() == 0);
}

// [b, t, width] as tokens; batch stride 0 where one row serves all.
struct EmbedTokens {
  std::byte* data = nullptr;
  Index batch_bytes = 0, token_bytes = 0;
  std::byte* at(Index b, Index t) const { return data + b * batch_bytes + t * token_bytes; }
};

struct EmbedCall {
  DType dtype = DType::f32;
  Index batch = 1, tokens = 0, width = 0;
  EmbedTokens y;
  std::vector<std::vector<Index>> row;  // a part each: [batch x tokens], -1 none; empty: given rows
  std::vector<EmbedTokens> given;       // of parts with rows
  std::vector<double> scale;
  std::vector<double> gamma, beta;  // empty: no norm
  double epsilon = 0;
  const EmbedPart* parts = nullptr;

  bool has_norm() const noexcept { return !gamma.empty(); }
  Index count() const noexcept { return batch * tokens; }
  // s_i in double, by `scratch` [parts x width] where the dtype has 16 bits.
  void sum(const WeighKernels&, Index token, double* out, std::vector<const void*>& rows,
           std::vector<double>& scratch) const;
  // The rows that token reads.
  void rows_of(Index token, std::vector<const void*>& rows) const;
};

// Throws [embed]. `y`: what is written, or the gradient that comes in (read only).
EmbedCall check_embed(std::span<const EmbedPart>, const std::optional<EmbedNorm>&,
                      const TensorView& y);
EmbedTokens embed_tokens(const TensorView&, Index batch, Index tokens, Index width,
                         const char* what);

// mean and 1 / sqrt(var + eps), two passes, in eight partial sums of fixed order.
struct Moments {
  double mean = 0, scale = 0;
};
Moments moments(const double* s, Index n, double epsilon);

}  // namespace posenc::detail
