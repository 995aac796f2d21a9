// SPDX-License-Identifier: Apache-2.0
// Calls by heads, as parallel/ring.h has those of a ring.
#pragma once
#include "parallel/ring.h"

namespace posenc::inline v0::detail {

inline constexpr std::string_view kUlysses = "ulysses";

void ulysses_call(const Group&, const AttentionArgs&, const LoweredCall&, const AttentionResult&,
                  const Executor&, const std::exception_ptr& problem, const Agreed& agreed);
void ulysses_call_backward(const Group&, const AttentionArgs&, const LoweredCall&,
                           const ConstAttentionResult& result, const ConstAttentionResult& d_result,
                           const AttentionGradients&, const SummedGradients&, const Executor&,
                           const std::exception_ptr& problem, const Agreed& agreed);

}  // namespace posenc::inline v0::detail
