// SPDX-License-Identifier: Apache-2.0
#include "attention/call/add_to.h"

#include <algorithm>
#include <array>

#include "core/element.h"

namespace posenc::inline v0::detail {

void add_to(const TensorView& v, std::span<const double> dense) {
  if (v.empty() || dense.empty()) return;
  std::array<Index, 4> n{1, 1, 1, 1}, step{};
  for (std::size_t a = 0; a < static_cast<std::size_t>(v.rank); ++a)
    n[a] = v.shape[a], step[a] = v.shape[a] == 1 ? 0 : v.stride[a];
  const double* x = dense.data();
  for (Index a = 0; a < n[0]; ++a)
    for (Index b = 0; b < n[1]; ++b)
      for (Index c = 0; c < n[2]; ++c)
        for (Index d = 0; d < n[3]; ++d)
          add_element(v.data, v.dtype, a * step[0] + b * step[1] + c * step[2] + d * step[3], *x++);
}

void add_to(const Heads& h, std::span<const double> dense) {
  if (h.data == nullptr || dense.empty()) return;
  const double* x = dense.data();
  for (Index b = 0; b < h.batch; ++b)
    for (Index g = 0; g < h.heads; ++g)
      for (Index t = 0; t < h.tokens; ++t, x += h.dim) add_vector(h, b, t, g, x);
}

void clear_tokens(const Heads& x, Index b, Index begin, Index end, Index h) noexcept {
  for (Index t = begin; t < end; ++t) {
    const Index at = b * x.batch_stride + t * x.token_stride + h * x.head_stride;
    const auto clear = [&](auto* data) {
      if (x.dim_stride == 1)
        std::fill_n(data + at, x.dim, 0);
      else
        for (Index d = 0; d < x.dim; ++d) data[at + d * x.dim_stride] = 0;
    };
    if (x.dtype == DType::f64)
      clear(static_cast<double*>(x.data));
    else
      clear(static_cast<float*>(x.data));
  }
}

void clear_overwritten(const AttentionGradients& g) noexcept {
  if (!g.overwrite) return;
  for (const Heads* x : {&g.q, &g.k, &g.v})
    for (Index b = 0; x->data != nullptr && b < x->batch; ++b)
      for (Index h = 0; h < x->heads; ++h) clear_tokens(*x, b, 0, x->tokens, h);
}

void add_vector(const Heads& h, Index b, Index t, Index g, const double* x) {
  const Index at = b * h.batch_stride + t * h.token_stride + g * h.head_stride;
  if (h.dtype == DType::f64 && h.dim_stride == 1) {
    double* to = static_cast<double*>(h.data) + at;
    for (Index d = 0; d < h.dim; ++d) to[d] += x[d];
    return;
  }
  for (Index d = 0; d < h.dim; ++d) add_element(h.data, h.dtype, at + d * h.dim_stride, x[d]);
}

}  // namespace posenc::v0::detail
