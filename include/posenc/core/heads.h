// SPDX-License-Identifier: Apache-2.0
// Queries, keys or values with NAMED axes, so that layouts cannot be mixed up.
#pragma once
#include "posenc/core/tensor_view.h"

namespace posenc::inline v0 {

// [batch, tokens, heads, dim]; every stride is free (elements, any sign). dim_stride is 1 in nearly
// every program; other values work and are slower.
template <class Data>
struct BasicHeads {
  Data* data = nullptr;
  Index batch = 1, tokens = 0, heads = 0, dim = 0;
  Index batch_stride = 0, token_stride = 0, head_stride = 0, dim_stride = 1;
  DType dtype = DType::f32;

  // A writable view converts to a read-only one, not the other way round.
  operator BasicHeads<const void>() const noexcept requires(!std::is_const_v<Data>) {
    return {data,         batch,        tokens,      heads,      dim,
            batch_stride, token_stride, head_stride, dim_stride, dtype};
  }
};
using Heads = BasicHeads<void>;
using ConstHeads = BasicHeads<const void>;

// Order of the axes of a tensor: b batch, t tokens, h heads, d channels.
enum class HeadsLayout : std::uint8_t { thd, bthd, bhtd, tbhd, htd };

POSENC_API std::string_view layout_name(HeadsLayout) noexcept;
POSENC_API HeadsLayout layout_from_name(std::string_view);

// Throws std::invalid_argument("[heads] ..."): wrong rank, integer dtype, CUDA memory.
POSENC_API Heads heads(const TensorView&, HeadsLayout);
POSENC_API ConstHeads heads(const ConstTensorView&, HeadsLayout);
// One q, k or v inside a packed [.., heads_total, dim] tensor: heads [first, first + count).
POSENC_API Heads slice_heads(const Heads&, Index first, Index count);
POSENC_API ConstHeads slice_heads(const ConstHeads&, Index first, Index count);

// Dense [tokens, heads, dim]. Of a T* Heads, of a const T* ConstHeads.
template <class T>
auto heads(T* p, Index tokens, Index n_heads, Index dim) {
  return heads(tensor(p, {tokens, n_heads, dim}), HeadsLayout::thd);
}

// Queries and keys of one call: equal batch and tokens, any head counts. A default member (no memory,
// dim 0) is absent; at least one must be present. Values or an attention output rotate as q. Only
// xPos treats q and k differently.
template <class Data>
struct BasicQK {
  BasicHeads<Data> q, k;

  operator BasicQK<const void>() const noexcept requires(!std::is_const_v<Data>) { return {q, k}; }
};
using QK = BasicQK<void>;
using ConstQK = BasicQK<const void>;

}  // namespace posenc::v0
