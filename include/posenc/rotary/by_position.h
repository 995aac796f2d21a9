// SPDX-License-Identifier: Apache-2.0
// Two rotations in one sequence: positions below a bound rotate by one spec, the others by another.
// LongRoPE's start tokens (Ding et al., arXiv:2402.13753, section 3.2): the first few positions
// keep the plain rotary with gain 1.
// Scores between the two sides depend on both positions, not only on their difference.
#pragma once
#include "posenc/core/error.h"
#include "posenc/rotary/plan.h"
#include "posenc/scaling/policy.h"

namespace posenc::inline v0 {

struct ByPosition {
  Index bound = 0;
  RotarySpec below, from;  // p < bound, p >= bound
  bool operator==(const ByPosition&) const = default;
};

// The scheme as it is for positions below `bound`, scaled by the chain from there on.
// Throws [by position]: bound negative; and what resolve throws.
template <RotaryScheme S, class Chain>
ByPosition start_tokens(const S& scheme, const Chain& chain, Index bound, Context context = {}) {
  if (bound < 0) refuse_field("by position", "bound", "must not be negative", bound);
  return {bound, resolve(scheme), resolve(scheme, chain, context)};
}

// Rotates runs of tokens by the plan for their positions. Positions have one axis. Batch entries are
// processed one by one. Throws [by position]: several axes, fewer positions than tokens, plans of
// different head_dim or dtype; and what RotaryPlan::apply throws.
POSENC_API void apply(const RotaryPlan& below, const RotaryPlan& from, Index bound,
                      const ConstQK& in, const QK& out, const Positions&,
                      RotateMode = RotateMode::forward, const Executor& = default_executor());

}  // namespace posenc::v0
