// SPDX-License-Identifier: Apache-2.0
// Where gradients are summed before they are added to the caller's: what several slices of a call
// share has an array for each slice, added in order.
#pragma once
#include "attention/call/add_to.h"
#include "attention/exact/call_view.h"

namespace posenc::inline v0::detail {

// One array that all slices add to; null pointers: not wanted.
class SharedSum {
 public:
  void want(bool wanted, Index size) { size_ = wanted ? size : 0; }
  void start(Index slices, CallArena& arena);
  Index size() const noexcept { return size_; }
  // A counting arena gives no memory.
  double* slice(Index n) noexcept {
    return size_ == 0 || x_.data() == nullptr ? nullptr : x_.data() + n * size_;
  }
  std::span<double> total() noexcept;  // once

 private:
  Index size_ = 0;
  std::span<double> x_;
};

// Of one term, as one slice sees it: of the shapes of the dense copies.
struct TermPull {
  double *table = nullptr, *query = nullptr, *key = nullptr;
  double* band = nullptr;  // instead of table, if its values are a band
  double *in = nullptr, *in_bias = nullptr, *out = nullptr, *out_bias = nullptr;
};
struct TermSums {
  SharedSum table, query, key, band, in, in_bias, out, out_bias;
  std::span<double> rows_of_band;  // of the table
  TermPull slice(Index n) noexcept {
    return {table.slice(n), query.slice(n),   key.slice(n), band.slice(n),
            in.slice(n),    in_bias.slice(n), out.slice(n), out_bias.slice(n)};
  }
};

struct GradientSums {
  GradientSums(const CallView&, const AttentionGradients&, CallArena&);
  Index shared() noexcept;  // doubles that a slice has of its own
  void start(const CallView&, Index slices, Index cuts, CallArena&);
  double* k_of(Index cut) noexcept { return k.data() + cut * k_size_; }
  double* v_of(Index cut) noexcept { return v.data() + cut * v_size_; }
  void add_all(const CallView&, const AttentionGradients&, const Executor&);

  // Of q, k and v as prepared: each row has one owner. q: none where nothing was prepared, rows
  // go to the caller's. k and v: one after the other for each cut of the rows.
  std::span<double> q, k, v;
  std::span<std::span<double>> region_q;
  std::span<SharedSum> region_k;
  std::span<TermSums> terms;
  SharedSum head_scale, query_factor, sink, mix_before, mix_after;

 private:
  template <class F>
  void each_shared(const F& fn);
  std::span<RegionPull> rotated_;
  Index k_size_ = 0, v_size_ = 0;
  std::span<double> array_sums_;  // of stages
};

// As one slice sees them.
struct Pull {
  Pull(GradientSums&, const AttentionGradients&, Index slice, CallArena&);
  // For the rows of one cut.
  void use_cut(Index cut) noexcept { k = sums.k_of(cut), v = sums.v_of(cut); }
  GradientSums& sums;
  Heads q{};  // the caller's, where nothing was prepared
  double *k = nullptr, *v = nullptr;
  std::span<TermPull> terms;
  std::span<double*> region_k;
  double *head_scale, *query_factor, *sink, *mix_before, *mix_after;
  TensorView bias;
  double* query_bias = nullptr;  // of the work's bias, of the same shape
};

}  // namespace posenc::v0::detail
