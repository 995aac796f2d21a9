// SPDX-License-Identifier: Apache-2.0
// The weighted sum of the rows that a token reads, then LayerNorm (arXiv:1607.06450), token after
// token: in double, rounded once.
#pragma once
#include "posenc/core/dtype.h"
#include "posenc/core/isa.h"

namespace posenc::inline v0::detail {

// Tokens whose rows are prefetched while others are summed.
inline constexpr Index kEmbedAhead = 4;

// Of token i < tokens, s = sum over k < parts of weight[k] rows[i * parts + k], is written to
// out[i], or with norm (s - mean) / sqrt(variance + epsilon) * gamma + beta. Row 0 of a token is
// the one that differs from those of its neighbours: what the others add up to is kept as long as
// they stay the same.
struct EmbedRows {
  const void* const* rows;  // [tokens + kEmbedAhead, parts]: the last are prefetched
  void* const* out;         // [tokens], of `width` elements
  const double* weight;     // [parts]
  Index parts, tokens, width;
  bool norm, stream;           // stream: around the cache; whole lines, aligned
  double epsilon;              // with norm ...
  const double *gamma, *beta;  // ... both or neither
  double* scratch;             // embed_scratch(width) doubles
};                             // doubles are best aligned to lines of the cache
constexpr Index embed_scratch(Index width) noexcept {
  return 2 * ((width + 7) / 8 * 8 + 64);
}

struct EmbedKernels {
  void (*rows)(const EmbedRows&);
};
// Of elements of a float type. Throws what isa_dispatch_index throws.
const EmbedKernels& embed_kernels(Isa, DType);

}  // namespace posenc::v0::detail
