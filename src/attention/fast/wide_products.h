// SPDX-License-Identifier: Apache-2.0
// Terms <x_i, y_j> as channels of a wider q.k: kernels see longer vectors and no term. Where y is the call's k, x is
// added to q instead, and nothing becomes wider.
#pragma once
#include <span>

#include "attention/call/ready_call.h"
#include "kernels/attention/fast_strips.h"
#include "posenc/attention/term.h"

namespace posenc::inline v0::detail {

// Channels of one token, times factor, in float; the rest of `width` is 0. False: a number is not finite or too large.
bool take_vector(const FastKernels&, const ConstHeads&, Index b, Index t, Index h, float factor,
                 float* to, Index width) noexcept;
// The same of vectors that come with a term, of which one entry may serve all.
bool take_given(const FastKernels&, const ConstHeads&, Index heads, Index b, Index t, Index h,
                float factor, float* to) noexcept;

// Where the channels of one lie.
const void* given_vector(const ConstHeads&, Index heads, Index b, Index t, Index h) noexcept;

// All of them in float, [batch][tokens][heads][channels].
std::span<const float> copy_vectors(const FastKernels&, const ConstHeads&, CallArena&,
                                    const Executor&);

// The same, or x itself where its channels are adjacent and no doubles.
ConstHeads readable_vectors(const FastKernels&, const ConstHeads& x, CallArena&, const Executor&);

// Whether channels are adjacent, and of a type that kernels read. Heads of no channels may be null.
inline bool is_readable(const ConstHeads& x) noexcept {
  return x.data != nullptr && x.dim_stride == 1 && x.dtype != DType::f64;
}
inline const std::byte* token_at(const ConstHeads& x, Index b, Index t, Index h) noexcept {
  return static_cast<const std::byte*>(x.data) +
         (b * x.batch_stride + t * x.token_stride + h * x.head_stride) * size_of(x.dtype);
}

// y += factor x, of tokens; rows of x lie `width` apart. Nothing without y.
void add_floats(const FastKernels&, const Heads& y, Index b, Run tokens, Index h, double factor,
                const float* x, Index width) noexcept;

struct WideProduct {
  const ProductTerm* term = nullptr;
  std::size_t number = 0;  // of the terms of the call
  Index at = 0;            // its first channel
  Index channels = 0;      // that it adds; 0: y is the call's k
  ConstHeads y{};          // of channels that are adjacent, f32, f16 or bf16
};

class WideProducts {
 public:
  WideProducts(const ReadyCall&, const FastKernels&, CallArena&, const Executor&);
  static bool takes(const Term&) noexcept;
  // Of q.k with all products of a call.
  static Index channels_of(const AttentionArgs&) noexcept;

  bool none() const noexcept { return terms_.empty(); }
  Index channels() const noexcept { return channels_; }
  std::span<const WideProduct> terms() const noexcept { return terms_; }
  // Whether heads that read one k read different y.
  bool splits_groups() const noexcept { return splits_groups_; }
  // Of terms whose x and y are both content: their share of the factor of q.k, without that of the query.
  double content_scale() const noexcept { return content_scale_; }

  // Adds to a row of q in float, `channels` wide. False: a number is not finite or too large.
  bool add_query(const FastKernels&, const ConstHeads& q, Index b, Index h, Index i,
                 float* to) const noexcept;
  // Channels of a key; null: they count as 0.
  const void* key(const WideProduct&, Index row, Index h, Index j) const noexcept;
  // Whether the vectors of a key are finite and not too large, for all heads. scratch: [channels].
  bool is_bounded(const FastKernels&, Index row, Index j, float* scratch) const noexcept;

 private:
  const ReadyCall& call_;
  std::span<WideProduct> terms_;
  Index channels_;
  bool splits_groups_ = false;
  double content_scale_ = 0;
};

// Whether the classes of a query, or of a key, disable a product: pairs that a term leaves out must be all pairs of some
// classes (TUPE's class token).
bool disables_query(const ProductTerm&, Index b, Index i) noexcept;
bool disables_key(const ProductTerm&, Index row, Index j) noexcept;

}  // namespace posenc::v0::detail
