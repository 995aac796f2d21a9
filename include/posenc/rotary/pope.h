// SPDX-License-Identifier: Apache-2.0
// Polar position embedding (PoPE), arXiv:2509.10534: the content is a length, never an angle.
//   mu = ln(1 + e^x),  phi_i = p theta_i (+ bias_hi for keys),  theta_i = base^(-i/d), i = 0 .. d-1
//   y = [mu_i cos phi_i | mu_i sin phi_i]
// d frequencies, one a channel, and the width doubles. The bias is learned, one a head and channel,
// and is used clamped to [-2 pi, 0]. It is no rotation of x, so it has a kernel of its own.
#pragma once
#include <memory>

#include "posenc/core/executor.h"
#include "posenc/core/heads.h"
#include "posenc/phase.h"
#include "posenc/positions.h"
#include "posenc/rotary/plan_options.h"

namespace posenc {

namespace detail {
struct PopePlanState;
}

struct Pope {
  static constexpr Card card{"pope", "polar position embedding", "arXiv:2509.10534", "3"};
  Index head_dim = 0;
  double base = 10000;

  Spectrum spectrum() const { return geometric_spectrum(base, 2 * head_dim); }
  bool operator==(const Pope&) const = default;
  template <class S, class V>
  static constexpr void describe(S& s, V&& v) {
    v("head_dim", s.head_dim,
      Field{.doc = "channels of a head before they double",
            .min = 1,
            .max = 32768,
            .required = true});
    v("base", s.base, Field{.doc = "theta", .min = 1e-300});
  }
};
static_assert(Described<Pope>);

// Immutable, thread-safe, cheap to copy. Arithmetic in double, one rounding to the dtype; before it
// mu and its slope are within 4e-16 of themselves (or 2^-1074), cosine and sine within 3e-16 for
// |p| <= 2^37, 6e-16 with a bias. The same bits for any number of threads, split of a batch, and
// strides.
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
  void apply(const Heads& in, const Heads& out, const Positions&, const TensorView& bias = {},
             const Executor& = default_executor()) const;
  // d_in is written, d_bias (f64 [heads, d], may be empty) is added to; zero at and beyond the ends
  // of [-2 pi, 0], as the peer has it. Outputs are apart from each other and from all that is read.
  void gradient(const Heads& in, const Heads& d_out, const Positions&, const TensorView& bias,
                const Heads& d_in, const TensorView& d_bias = {},
                const Executor& = default_executor()) const;

 private:
  std::shared_ptr<const detail::PopePlanState> state_;
};

}  // namespace posenc
