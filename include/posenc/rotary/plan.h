// SPDX-License-Identifier: Apache-2.0
// A plan: spec and dtype, checked and prepared. Immutable, thread-safe, cheap to copy and to make.
// Each call passes its positions. The checks of a call are O(1), except that positions are scanned if
// the frequencies are valid for some lengths only. A call allocates nothing.
#pragma once
#include <memory>

#include "posenc/core/executor.h"
#include "posenc/core/heads.h"
#include "posenc/core/rotation.h"
#include "posenc/positions.h"
#include "posenc/rotary/plan_options.h"
#include "posenc/rotary/spec.h"

namespace posenc::inline v0 {

namespace detail {
struct RotaryPlanState;
struct StateAccess;
}  // namespace detail

// Cosine and sine of the caller, which are not assumed to be orthonormal: y_a = x_a cos_a - x_b sin_a,
// y_b = x_b cos_b + x_a sin_b. `half`: cos_a = cos_b, one column a pair; `duplicated` and
// `repeated` have a column for each member. cos, sin: [tokens, columns], [batch, tokens, columns]
// or [batch, tokens, heads, columns] of f32 or the dtype of the plan (f64 plans: f64).
struct CallerRows {
  ConstTensorView cos, sin;
  TableLayout layout = TableLayout::half;
  Positions index;  // row of each token (in a cache [positions, columns]); empty: row = token
};

// Gradients with respect to the phase; empty: not computed. All f64, accumulated (+=), with the same bits
// for any number of threads; they must not overlap each other or inputs. Of one block: call it for each
// block, then the gradients of positions add up. Shapes: frequency [heads|1, axes,
// pairs]; gain [1]; position [axes, batch, tokens] (real-valued).
struct PhaseGradients {
  Index block = 0;
  TensorView frequency, gain, position;
};
// cos, sin: the shapes of the CallerRows, f64 or f32; accumulated, without overlap as above.
struct RowGradients {
  TensorView cos, sin;
};

class POSENC_API RotaryPlan {
 public:
  // Throws [rotary] ... (check_rotary), integer dtype.
  RotaryPlan(const RotarySpec&, DType, PlanOptions = {});

  // Rotates queries and keys in place, or one tensor: queries, values, an attention output.
  // Table-free: f32, f16, bf16: cos and sin within 1.0e-7 (1.1e-7 without FMA) for |p| <= 2^37,
  // arithmetic in f32, one rounding; f64 within 3e-16. Zero tokens or heads: nothing happens.
  // Throws [rotary]: tensors and positions that do not fit the plan or each other; positions of
  // lengths for which the frequencies are not valid (plan_options.h; a shift has no length).
  void apply(const Heads& q, const Heads& k, const Positions& p,
             RotateMode mode = RotateMode::forward,
             const Executor& executor = default_executor()) const {
    apply(QK{q, k}, p, mode, executor);
  }
  void apply(const Heads& q, const Positions& p, RotateMode mode = RotateMode::forward,
             const Executor& executor = default_executor()) const {
    apply(QK{q, {}}, p, mode, executor);
  }
  // The same into outputs. An output may be its input (same memory and strides); any other overlap
  // is rejected.
  void apply_into(const ConstHeads& q, const ConstHeads& k, const Heads& q_out, const Heads& k_out,
                  const Positions& p, RotateMode mode = RotateMode::forward,
                  const Executor& executor = default_executor()) const {
    apply({q, k}, {q_out, k_out}, p, mode, executor);
  }
  void apply_into(const ConstHeads& q, const Heads& out, const Positions& p,
                  RotateMode mode = RotateMode::forward,
                  const Executor& executor = default_executor()) const {
    apply({q, {}}, {out, {}}, p, mode, executor);
  }
  // The general forms: q, k or both. With xPos, keys (q empty) rotate differently from queries.
  void apply(const QK&, const Positions&, RotateMode = RotateMode::forward,
             const Executor& = default_executor()) const;
  void apply(const ConstQK& in, const QK& out, const Positions&, RotateMode = RotateMode::forward,
             const Executor& = default_executor()) const;

  // In two steps: exact rows once per step for all layers (within 3.0e-8) ...
  // out: [batch * tokens, row_columns()] f32 (f64 for f64 plans); gain in, decay not.
  Index row_columns() const noexcept;  // sum over blocks of heads * 2 * pairs: [cos | sin] a block
  void rows(const Positions&, const TensorView& out, const Executor& = default_executor()) const;
  // ... then rotate; rows must not overlap an output. (xPos needs positions too and is rejected.)
  void apply_rows(const Heads& q, const Heads& k, const ConstTensorView& rows,
                  RotateMode mode = RotateMode::forward,
                  const Executor& executor = default_executor()) const {
    apply_rows(QK{q, k}, rows, mode, executor);
  }
  void apply_rows(const Heads& q, const ConstTensorView& rows,
                  RotateMode mode = RotateMode::forward,
                  const Executor& executor = default_executor()) const {
    apply_rows(QK{q, {}}, rows, mode, executor);
  }
  void apply_rows(const QK&, const ConstTensorView& rows, RotateMode = RotateMode::forward,
                  const Executor& = default_executor()) const;
  void apply_rows(const ConstQK& in, const QK& out, const ConstTensorView& rows,
                  RotateMode = RotateMode::forward, const Executor& = default_executor()) const;
  // Any cos and sin (one block): the spectrum is not used. inverse divides by cos^2 + sin^2; shift is
  // rejected, because the rows need not be a rotation.
  void apply_rows(const Heads& q, const Heads& k, const CallerRows& rows,
                  RotateMode mode = RotateMode::forward,
                  const Executor& executor = default_executor()) const {
    apply_rows(QK{q, k}, rows, mode, executor);
  }
  void apply_rows(const Heads& q, const CallerRows& rows, RotateMode mode = RotateMode::forward,
                  const Executor& executor = default_executor()) const {
    apply_rows(QK{q, {}}, rows, mode, executor);
  }
  void apply_rows(const QK&, const CallerRows&, RotateMode = RotateMode::forward,
                  const Executor& = default_executor()) const;
  void apply_rows(const ConstQK& in, const QK& out, const CallerRows&,
                  RotateMode = RotateMode::forward, const Executor& = default_executor()) const;

  // x and d_out are q and k (or only q) before the rotation and the gradient of the result.
  void phase_gradients(const ConstQK& x, const ConstQK& d_out, const Positions&,
                       const PhaseGradients&, Workspace,
                       const Executor& = default_executor()) const;
  std::size_t phase_gradients_workspace(const ConstQK& x) const;
  void row_gradients(const ConstQK& x, const ConstQK& d_out, const CallerRows&, const RowGradients&,
                     const Executor& = default_executor()) const;

  const RotarySpec& spec() const noexcept POSENC_LIFETIME_BOUND;
  std::span<const RotaryTables> tables() const noexcept POSENC_LIFETIME_BOUND;
  DType dtype() const noexcept;

 private:
  friend struct detail::StateAccess;
  std::shared_ptr<const detail::RotaryPlanState> state_;
};

}  // namespace posenc::v0
