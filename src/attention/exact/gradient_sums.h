// SPDX-License-Identifier: Apache-2.0
// Where gradients are summed before they are added to the caller's: what several slices of a call
// share has an array for each slice, added in order.
#pragma once
#include <vector>

#include "attention/exact/call_view.h"

namespace posenc::inline v0::detail {

// Adds dense values of the view's shape; nothing to an empty one.
void add_to(const TensorView&, const Numbers& dense);
// From [batch, heads, tokens, dim].
void add_to(const Heads&, const Numbers& dense);
void add_vector(const Heads&, Index b, Index t, Index h, const double* x);

// One array that all slices add to; null pointers: not wanted.
class SharedSum {
 public:
  void want(bool wanted, Index size) { size_ = wanted ? size : 0; }
  void start(Index slices) { x_.assign(static_cast<std::size_t>(size_ * slices), 0.0); }
  Index size() const noexcept { return size_; }
  double* slice(Index n) noexcept { return size_ == 0 ? nullptr : x_.data() + n * size_; }
  Numbers total();  // once

 private:
  Index size_ = 0;
  Numbers x_;
};

// Of one term, as one slice sees it: of the shapes of the dense copies.
struct TermPull {
  double *table = nullptr, *query = nullptr, *key = nullptr;
  double* band = nullptr;  // in place of table, where its values are a band
  double *in = nullptr, *in_bias = nullptr, *out = nullptr, *out_bias = nullptr;
};
struct TermSums {
  SharedSum table, query, key, band, in, in_bias, out, out_bias;
  TermPull slice(Index n) noexcept {
    return {table.slice(n), query.slice(n),   key.slice(n), band.slice(n),
            in.slice(n),    in_bias.slice(n), out.slice(n), out_bias.slice(n)};
  }
};

struct GradientSums {
  GradientSums(const CallView&, const AttentionGradients&);
  Index shared() noexcept;  // doubles that a slice has of its own
  void start(Index slices, Index cuts);
  double* k_of(Index cut) noexcept { return k.data() + cut * k_size_; }
  double* v_of(Index cut) noexcept { return v.data() + cut * v_size_; }
  void add_all(const CallView&, const AttentionGradients&, const Executor&);

  // Of q, k and v as prepared: each part has one owner. q: none where nothing was prepared, rows go
  // to the caller's. k and v: one behind the other for each cut of the rows.
  Numbers q, k, v;
  std::vector<Numbers> region_q;
  std::vector<SharedSum> region_k;
  std::vector<TermSums> terms;
  SharedSum head_scale, query_factor, sink, mix_before, mix_after;

 private:
  template <class F>
  void each_shared(const F& fn);
  Index k_size_ = 0, v_size_ = 0;
};

// As one slice sees them.
struct Pull {
  Pull(GradientSums&, const AttentionGradients&, Index slice);
  // For the rows of one cut.
  void use_cut(Index cut) noexcept { k = sums.k_of(cut), v = sums.v_of(cut); }
  GradientSums& sums;
  Heads q{};  // the caller's, where nothing was prepared
  double *k = nullptr, *v = nullptr;
  std::vector<TermPull> terms;
  std::vector<double*> region_k;
  double *head_scale, *query_factor, *sink, *mix_before, *mix_after;
  TensorView bias;
  double* query_bias = nullptr;  // of the work's bias, at the same places
};

}  // namespace posenc::v0::detail
