// SPDX-License-Identifier: Apache-2.0
// Gradients of wide products (wide_products.h) from those of the wider rows of q and k.
#pragma once
#include <span>

#include "attention/fast/vector_gradients.h"

namespace posenc::inline v0::detail {

class ProductGradients {
 public:
  // slices: of the keys of a head.
  ProductGradients(const FastCall&, const AttentionGradients&, Index slices, CallArena&);

  // Whether q gets more than its factor times d_q.
  bool adds_to_q() const noexcept { return adds_to_q_; }
  // to[c] += gradient of q, without the factor of the query, of terms whose x is the call's q.
  void add_content(Index b, Index i, const float* d_q, double* to) const noexcept;
  // To x of one row. With several slices d_q must be their sum, and one thread calls it for all rows.
  void add_query(Index b, Index h, Index i, const float* d_q) noexcept;
  // To y of one head and slice: d_k of the keys, `width` apart. What it adds becomes 0.
  void add_keys(Index b, Index h, Index slice, Run keys, float* d_k, Index width) noexcept;
  // To the caller's gradients, what is not there yet.
  void finish(const Executor&) noexcept;

 private:
  struct Wanted {
    VectorGradient x, y;
  };

  const FastCall& call_;
  std::span<Wanted> wanted_;
  bool adds_to_q_ = false;
};

}  // namespace posenc::v0::detail
