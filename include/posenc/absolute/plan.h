// SPDX-License-Identifier: Apache-2.0
// Composition with the token embeddings, prepared: the terms that absolute schemes lower to,
// checked and rounded to one dtype. Immutable, thread-safe, cheap to copy. No table of sines
// exists: the rows of a phase are computed from exact turns when they are added.
//
//   InputPlan plan(lowered, DType::f32);
//   plan.apply(x, positions, x);                      // y = compose(input_gain x, rows), in place
//
// Arithmetic in f32 (f64 for f64 tensors), rounded once to the dtype: with u = 2^-24, for one term
// that is added, |y - exact| <= |gain| e + 2 u (|gain row| + |input_gain x|) + u |y| before that
// rounding, without the part of a gain that is a power of two. e of a table is u |row|; of a phase
// 3.1e-8 for f32 (another gain than a power of two: 6e-8, its part in it), 9e-7 for f16 and bf16;
// real positions, several axes, among other terms: 1.1e-7. |p| <= 2^37. f64: u 2^-53, 4e-16, any p.
#pragma once
#include <cstddef>
#include <memory>
#include <span>

#include "posenc/absolute/input_term.h"
#include "posenc/core/executor.h"

namespace posenc::inline v0 {

namespace detail {
struct InputPlanState;
}

class POSENC_API InputPlan {
 public:
  // Copies what the terms point to, except the caller's rows, which must outlive the plan. Tables are
  // stored in `dtype` and in f64. Throws [input_plan]: integer dtype, a term without exactly one source
  // of rows, a phase of several heads, gains that are not finite, tables that are not [rows, width] of
  // f64, rules for rows out of range.
  InputPlan(const LoweredInput&, DType);

  // y = compose(input_gain x, rows). x, y: [t, c] or [b, t, c] of the plan's dtype, any strides; y
  // has the channels of x and those that concat appends. y may be x (same memory and strides)
  // unless something is appended; any other overlap of the two, and a y in which two elements share
  // memory, is rejected. x empty: only the rows. positions: of batch 1, or of the batch of x.
  // Nothing is allocated, except by terms with dense layers, which use the double path of apply_input.
  // Results do not depend on the number of threads or on how a batch is split. Throws [input_plan]: dtype, shapes, positions that do not fit or are not finite, and a
  // position without a row in its table (before anything is written).
  void apply(const ConstTensorView& x, const Positions&, const TensorView& y,
             const Executor& = default_executor()) const;

  // The transpose. d_x (may be empty, may be d_y unless something is appended): overwritten.
  // Gradients of the terms, one each or none: f64, accumulated, without overlap with other
  // arrays of the call (two terms may share one). If every term is added or appended, d_x and the
  // gradients of tables run at the speed of memory; gains, positions, the caller's rows, extended tables
  // and products use the double path of input_gradient on the calling thread. The same bits for any
  // number of threads. x is required for the gradient of a product and may be empty otherwise.
  void gradient(const ConstTensorView& x, const Positions&, const ConstTensorView& d_y,
                const TensorView& d_x, std::span<const InputGradient>, Workspace,
                const Executor& = default_executor()) const;
  // Bytes that `gradient` needs for so many tokens.
  std::size_t gradient_workspace(Index batch, Index tokens) const;

  DType dtype() const noexcept;
  Index appended() const noexcept;  // channels of y beyond those of x

 private:
  std::shared_ptr<const detail::InputPlanState> state_;
};

}  // namespace posenc::v0
