// SPDX-License-Identifier: Apache-2.0
// The gradient of a weighted sum of rows behind LayerNorm (arXiv:1607.06450), and rows that are
// added to rows: in double, rounded once.
#pragma once
#include <cstddef>

#include "posenc/core/dtype.h"
#include "posenc/core/isa.h"

namespace posenc::inline v0::detail {

// With s = weight row + base, z the normalised s and g = up gamma:
// d = (g - mean(g) - z mean(g z)) / deviation, the gradient of s.
struct EmbedBack {
  const void* row;
  double weight;
  const double* base;       // null: 0
  const void* ahead;        // a later token's row, prefetched
  const std::byte* target;  // what d will be added to, prefetched: `target_size` bytes a channel
  Index target_size;        // 0: nothing
  Index width;
  double epsilon;
  const double* gamma;       // null: 1
  const void* up;            // the gradient of what the norm gave
  double* s;                 // scratch, width + kRowPadding
  double* d;                 // width + kRowPadding
  double *d_gamma, *d_beta;  // added to: up z and up; or both null
};

// In an accumulator: sum = weight row where `first`, else sum + weight row.
struct AccumulatedRow {
  const void* row;
  double weight;
  Index n;
  double* sum;
  bool first;
};
// In a tensor: to + weight row, rounded once.
struct AddedRow {
  const void* row;
  double weight;
  Index n;
  void* to;
};

struct EmbedBackKernels {
  void (*f64)(const EmbedBack&);  // elements of rows and up
  void (*f32)(const EmbedBack&);
  void (*f16)(const EmbedBack&);
  void (*bf16)(const EmbedBack&);
  void (*accumulate_f64)(const AccumulatedRow&);
  void (*accumulate_f32)(const AccumulatedRow&);
  void (*add_f64_f64)(const AddedRow&);  // elements of row and of to
  void (*add_f64_f32)(const AddedRow&);
  void (*add_f32_f64)(const AddedRow&);
  void (*add_f32_f32)(const AddedRow&);

  auto back(DType of) const noexcept {
    return of == DType::f64 ? f64 : of == DType::f32 ? f32 : of == DType::f16 ? f16 : bf16;
  }
  auto add(bool f32_row, bool f32_to) const noexcept {
    if (f32_row) return f32_to ? add_f32_f32 : add_f32_f64;
    return f32_to ? add_f64_f32 : add_f64_f64;
  }
};
// Throws what isa_dispatch_index throws.
const EmbedBackKernels& embed_back_kernels(Isa);

}  // namespace posenc::v0::detail
