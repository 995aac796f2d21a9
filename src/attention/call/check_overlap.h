// SPDX-License-Identifier: Apache-2.0
// Outputs of attention lie apart: from each other, from all that a call reads, and each element from
// the others of its own view. Throws [attention] by name.
#pragma once
#include <span>
#include <vector>

#include "core/overlap.h"
#include "posenc/attention/attend.h"

namespace posenc::inline v0::detail {

// What a call reads and what its gradients write, with names.
std::vector<Operand> operands_read(const AttentionArgs&);
std::vector<Operand> operands_written(const AttentionGradients&);

void check_overlap(const AttentionArgs&, const AttentionResult&);
// Two gradients may be the very same view (terms that share a table): both are added to it.
void check_overlap(const AttentionArgs&, const AttentionGradients&);
// The gradients against the gradient of the result, which is read while they are written.
void check_overlap(const ConstAttentionResult& d_result, const AttentionGradients&);
void check_overlap(const ConstTensorView& d_scores, const AttentionGradients&);
// The workspace of a call lies apart from all that the call reads and writes.
void check_overlap(const AttentionArgs&, const AttentionResult&, Workspace);
void check_overlap(const AttentionArgs&, const ConstAttentionResult& d_result,
                   const AttentionGradients&, Workspace);
// Views over pairs, each with its name.
void check_overlap(const AttentionArgs&, std::span<const Operand> outputs);
// A merge: the whole may be a part, of which each row is read before it is written. Gradients of
// parts lie apart from all.
void check_overlap(std::span<const ConstAttentionResult> parts, const AttentionResult& whole);
void check_overlap(std::span<const ConstAttentionResult> parts, const ConstAttentionResult& whole,
                   const ConstAttentionResult& d_whole, std::span<const AttentionResult> d_parts);

}  // namespace posenc::v0::detail
