// SPDX-License-Identifier: Apache-2.0
// Stick-breaking over parts of the keys, from the last keys to the first: what is left of a stick after a part is broken by
// the next,
//
//   o = sum over parts n of e^(L_n) o_n,  L_n = sum of l_m over the parts m before n
//   d o_n = e^(L_n) D,   d l_n = d L + D . (o - sum over m up to n of e^(L_m) o_m)
//
// where l_n is the logarithm of what part n leaves. The ring brings the keys of rank r, r - 1, ... 0, so that contiguous tokens
// come in that order; what comes then is hidden by the causal mask.
#pragma once
#include "parallel/ring_call.h"

namespace posenc::inline v0::detail {

// Throws [ring]: a call without a causal mask, tokens that are not neighbours, the form that keeps the remainder.
void check_sticks(const AttentionArgs&);
// Once all ranks make the call. Throws [ring], on all of them: tokens that do not follow those of the rank before.
void check_stick_order(const Group&, const AttentionArgs&);

// The gradients of the parts, as they come: each is computed again, so that none is kept.
class StickParts {
 public:
  StickParts(const RingCall&, const ConstAttentionResult& whole,
             const ConstAttentionResult& d_whole);

  // Of one part: its result goes to `part()`, `advance()` then gives its upstream gradient.
  const AttentionResult& part() const noexcept { return part_; }
  ConstAttentionResult advance();

 private:
  const ConstAttentionResult &whole_, &d_whole_;
  PacketBytes part_out_, part_sums_, d_out_, d_sums_, sum_, left_;
  AttentionResult part_, d_part_;
  Heads sum_so_far_;
  TensorView left_so_far_;  // L of the next part
};

}  // namespace posenc::v0::detail
