// SPDX-License-Identifier: Apache-2.0
// Plans of polar position embedding; the definition is pope_scheme.h.
#pragma once
#include <memory>

#include "posenc/core/executor.h"
#include "posenc/core/heads.h"
#include "posenc/phase.h"
#include "posenc/positions.h"
#include "posenc/rotary/plan_options.h"
#include "posenc/rotary/pope_scheme.h"

namespace posenc::inline v0 {

namespace detail {
struct PopePlanState;
}

// Immutable, thread-safe, cheap to copy. Arithmetic in double, one rounding to the dtype; before it
// mu and its slope are within 4e-16 of themselves (or 2^-1074), cosine and sine within 3e-16 for
// |p| <= 2^37, 6e-16 with a bias. Of f32, f16 and bf16: 7e-11 and 1e-10, a thousandth of float's
// rounding. The same bits for any number of threads, split of a batch, and strides.
class POSENC_API PopePlan {
 public:
  // Throws [pope]: head_dim outside 1 .. 32768, base not finite and positive, integer dtype.
  PopePlan(const Pope&, DType, PlanOptions = {});
  // The same with a spectrum of the caller's (scaled, or learned): one axis, one head, one
  // frequency a channel, gain 1.
  PopePlan(const Spectrum&, DType, PlanOptions = {});

  // in [.., d] -> out [.., 2 d], apart from each other. bias [heads, d] of f32 or f64, empty for
  // queries. Throws [pope]: what does not fit; positions of lengths for which the spectrum does not
  // hold (plan_options.h).
  void apply(const ConstHeads& in, const Heads& out, const Positions&,
             const ConstTensorView& bias = {}, const Executor& = default_executor()) const;
  // d_in is written, d_bias (f64 [heads, d], may be empty) is added to; zero at and beyond the ends
  // of [-2 pi, 0], as the peer has it. Outputs are apart from each other and from all that is read.
  void gradient(const ConstHeads& in, const ConstHeads& d_out, const Positions&,
                const ConstTensorView& bias, const Heads& d_in, const TensorView& d_bias = {},
                const Executor& = default_executor()) const;

 private:
  std::shared_ptr<const detail::PopePlanState> state_;
};

}  // namespace posenc::v0
