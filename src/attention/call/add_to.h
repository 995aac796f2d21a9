// SPDX-License-Identifier: Apache-2.0
// Sums in double added to a gradient of the caller.
#pragma once
#include <span>

#include "posenc/attention/attention.h"

namespace posenc::inline v0::detail {

// Adds dense values of the view's shape; nothing to an empty one.
void add_to(const TensorView&, std::span<const double> dense);
// From [batch, heads, tokens, dim].
void add_to(const Heads&, std::span<const double> dense);
void add_vector(const Heads&, Index b, Index t, Index h, const double* x);
// Zeros for some tokens of one head; and for all gradients that are not initialised.
void clear_tokens(const Heads&, Index b, Index begin, Index end, Index h) noexcept;
void clear_overwritten(const AttentionGradients&) noexcept;

}  // namespace posenc::v0::detail
