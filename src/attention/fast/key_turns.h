// SPDX-License-Identifier: Apache-2.0
// Keys of few queries that are rotated while they are read, so that no copy of them is made. R(p + j) = R(p) R(j): the row
// of cosines and sines of the first key of a run of positions, times rows of the positions 0, 1, ..., which are made once a
// call. Su et al., arXiv:2104.09864v5, eq. 34.
#pragma once
#include <optional>
#include <span>

#include "attention/call/ready_call.h"
#include "attention/lowered/lowered_call.h"
#include "kernels/attention/fast_decode.h"
#include "posenc/rotary/plan.h"

namespace posenc::inline v0::detail {

// Whether kernels rotate keys so: one block of pairs for all heads, in whole vectors, exact, without a decay.
bool turns_in_place(const RotarySpec&, Index head_dim, Index lanes) noexcept;

class KeyTurns {
 public:
  // None unless few queries read keys whose only stage is such a rotation. reads_keys_else: not only q.k reads them. Throws
  // [attention], [rotary]: positions that the rotation does not take.
  KeyTurns(const ReadyCall&, const LoweredCall&, bool reads_keys_else, CallArena&);
  KeyTurns(const KeyTurns&) = delete;  // plan_ may point into it

  bool none() const noexcept { return plan_ == nullptr; }
  // Floats of `rows` below.
  Index size() const noexcept { return none() ? 0 : kDecodeKeys * stride_; }
  // The rows of some keys of one row of keys, at most kDecodeKeys.
  void fill(Index row, Run keys, float* rows) const noexcept;
  // How kernels read them.
  FastTurns of(const float* rows) const noexcept;

 private:
  void write(Positions, float* to) const;

  const FastDecodeKernels* kernels_ = nullptr;
  std::optional<RotaryPlan> own_;
  const RotaryPlan* plan_ = nullptr;
  Positions positions_{};
  Index repeats_ = 1, columns_ = 0, stride_ = 0;  // of FastTurns::rows
  std::span<float> steps_;  // rows of the positions 0 to kDecodeKeys - 1, without the gain
};

}  // namespace posenc::v0::detail
