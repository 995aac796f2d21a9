// SPDX-License-Identifier: Apache-2.0
// The input of a model, in one pass over the tokens:
//   s_i = sum over parts of scale_part row_part(i),   y_i = gamma (s_i - mean) / sqrt(var + eps) +
//   beta
// A part is a table looked up by ids (words, positions, segments, boxes) or rows that are there
// already (a sinusoid, patches). BERT: words + positions + types, then the norm, eps 1e-12; GPT-2:
// words + positions; BART, Marian: sqrt(width) words + positions; LayoutLM, TAPAS, Segatron: more.
#pragma once
#include <optional>
#include <span>

#include "posenc/core/executor.h"
#include "posenc/core/tensor_view.h"

namespace posenc::inline v0 {

struct EmbedPart {
  ConstTensorView table;  // [n, width], channels together; with ...
  ConstTensorView ids;    // ... [t] (every batch entry) or [b, t] of i64 or i32, or instead ...
  ConstTensorView rows;   // ... [t, width] or [b, t, width]
  double scale = 1;       // alpha
  Index offset = 0;       // added to the ids
  std::optional<Index> frozen{};  // a row of the table without a gradient: padding
};

struct EmbedNorm {
  ConstTensorView gamma, beta;  // [width]; empty: 1 and 0
  double epsilon = 1e-12;       // BERT; RoBERTa, LayoutLMv3 1e-5
};

// y [t, width] or [b, t, width]. All tables, rows, gamma, beta and y of one dtype: f64, f32, f16 or
// bf16; arithmetic in double, rounded once. Ids are checked before anything is written. Throws
// [embed]: shapes, dtypes, an id without a row, epsilon negative.
POSENC_API void embed(std::span<const EmbedPart>, const std::optional<EmbedNorm>&,
                      const TensorView& y, const Executor& = default_executor());

// Gradients, ACCUMULATED, f64 or f32; empty: not computed. `parts`: of each part's table or rows, or
// empty for none. Sums over the tokens that read a row are in double and in an order that does not depend on
// the number of threads.
struct EmbedGradients {
  std::span<const TensorView> parts;
  TensorView gamma, beta;
};
POSENC_API void embed_gradient(std::span<const EmbedPart>, const std::optional<EmbedNorm>&,
                               const ConstTensorView& d_y, const EmbedGradients&,
                               const Executor& = default_executor());

}  // namespace posenc::v0
