// SPDX-License-Identifier: Apache-2.0
// A checked call of embed or of its gradient: which row of which part each token reads.
#pragma once
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernels/rows.h"
#include "kernels/weighted_sum.h"
#include "posenc/absolute/embed.h"

namespace posenc::inline v0::detail {

// Doubles as a float type, each rounded once. kRowPadding more are read behind n.
inline void narrow_row(const RowKernels& k, const double* v, DType t, Index n, void* p) {
  switch (t) {
    case DType::f64:
      return static_cast<void>(std::copy_n(v, n, static_cast<double*>(p)));
    case DType::f32:
      return k.store_f32(v, n, p);
    case DType::f16:
      return k.store_f16(v, n, p);
    default:
      return k.store_bf16(v, n, p);
  }
}

// Memory, or a tensor of no elements, which needs none.
inline bool is_given(const ConstTensorView& v) {
  return !v.empty() || (v.rank > 0 && v.count() == 0);
}

// [b, t, width] as tokens; batch stride 0 where one row serves all.
template <class Byte>
struct BasicEmbedTokens {
  Byte* data = nullptr;
  Index batch_bytes = 0, token_bytes = 0;
  Byte* at(Index b, Index t) const { return data + b * batch_bytes + t * token_bytes; }
};
using EmbedTokens = BasicEmbedTokens<std::byte>;
using ConstEmbedTokens = BasicEmbedTokens<const std::byte>;

// Doubles from the beginning of a line of the cache on, so that no vector lies in two, and memory
// behind the last for the vector that begins there; not cleared.
class LineDoubles {
 public:
  LineDoubles() = default;
  explicit LineDoubles(Index n)
      : memory_(std::make_unique_for_overwrite<double[]>(
            static_cast<std::size_t>(n + kRowPadding + kLine))),
        data_(memory_.get() +
              (0 - reinterpret_cast<std::uintptr_t>(memory_.get()) / sizeof(double)) % kLine) {}
  bool empty() const noexcept { return data_ == nullptr; }
  double* data() const noexcept { return data_; }

 private:
  static constexpr Index kLine = 8;
  std::unique_ptr<double[]> memory_;
  double* data_ = nullptr;
};

struct EmbedCall {
  DType dtype = DType::f32;
  Index batch = 1, tokens = 0, width = 0;
  ConstEmbedTokens y;
  std::vector<std::vector<Index>> row;  // a part each: [batch x tokens]; empty: given rows
  std::vector<ConstEmbedTokens> given;  // of parts with rows
  std::vector<double> scale;
  bool has_norm = false;
  LineDoubles gamma, beta;  // empty: 1 and 0
  double epsilon = 0;
  const EmbedPart* parts = nullptr;
  // How sums are made: the part whose rows differ most from token to token first (the words), and
  // its scale; whether a part is the same for the whole batch.
  std::vector<std::size_t> order;
  std::vector<double> weight;
  bool shared = false;

  Index count() const noexcept { return batch * tokens; }
  Index part_count() const noexcept { return static_cast<Index>(scale.size()); }
  bool is_shared(std::size_t part) const noexcept;
  // The token that comes as number i: batch rows side by side where they share a part, so that one
  // row of it serves them all.
  Index token(Index i) const noexcept { return shared ? i % batch * tokens + i / batch : i; }
  // The rows that token reads, in that order.
  void rows_of(Index token, const void** rows) const noexcept;
};

// Throws [embed]. `y`: what is written, or the gradient that comes in; `what` errors call it.
EmbedCall check_embed(std::span<const EmbedPart>, const std::optional<EmbedNorm>&,
                      const ConstTensorView& y, const std::string& what);
EmbedTokens embed_tokens(const TensorView&, Index batch, Index tokens, Index width,
                         const char* what);
ConstEmbedTokens embed_tokens(const ConstTensorView&, Index batch, Index tokens, Index width,
                              const char* what);

}  // namespace posenc::v0::detail
