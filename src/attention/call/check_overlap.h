// SPDX-License-Identifier: Apache-2.0
// Outputs of attention lie apart: from each other, from all that a call reads, and each element from
// the others of its own view. Throws [attention] by name.
#pragma once
#include <array>
#include <span>
#include <vector>

#include "core/overlap.h"
#include "posenc/attention/attend.h"

namespace posenc::inline v0::detail {

// Operands of a call: memory is allocated for calls with many of them only.
class OperandList {
 public:
  void push_back(const Operand& x) {
    if (size_ < few_.size()) {
      few_[size_++] = x;
      return;
    }
    if (many_.empty()) many_.assign(few_.begin(), few_.end());
    many_.push_back(x);
    ++size_;
  }
  std::size_t size() const noexcept { return size_; }
  const Operand* data() const noexcept { return many_.empty() ? few_.data() : many_.data(); }
  const Operand* begin() const noexcept { return data(); }
  const Operand* end() const noexcept { return data() + size_; }
  const Operand& operator[](std::size_t n) const noexcept { return data()[n]; }

 private:
  std::array<Operand, 24> few_{};
  std::vector<Operand> many_;
  std::size_t size_ = 0;
};

// What a call reads and what its gradients write, with names.
OperandList operands_read(const AttentionArgs&);
OperandList operands_written(const AttentionGradients&);

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
