// SPDX-License-Identifier: Apache-2.0
// Gradients of wide products (wide_products.h) from those of the wider rows of q and k.
#pragma once
#include <span>

#include "attention/fast/work.h"
#include "posenc/attention/attention.h"

namespace posenc::inline v0::detail {

// What pieces of work share is kept for each head of each batch entry, and added at the end in one order.
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
  // Of x or y of one term.
  struct Side {
    Heads to{};              // empty: not wanted
    std::span<float> rows;   // [B][H][tokens][channels]: of entries that pieces share
    std::span<double> sums;  // [B][H][slices][channels]: of one token for all
  };
  struct Wanted {
    Side x, y;
  };
  void want(Side&, const Heads& to, Index tokens, Index slices, bool owned, CallArena&);
  void add_row(Side&, Index b, Index h, Index t, Index tokens, double factor, const float* d,
               Index slice, Index slices) noexcept;
  void finish_rows(const Side&, Index tokens, double factor, const Executor&) noexcept;
  void finish_sums(const Side&, Index slices) noexcept;

  const FastCall& call_;
  std::span<Wanted> wanted_;
  Index slices_;
  bool adds_to_q_ = false;
};

}  // namespace posenc::v0::detail
