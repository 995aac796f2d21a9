// SPDX-License-Identifier: Apache-2.0
// Mask::key_visible as start values, and how many keys of a range it shows. It is read once a call: padding would
// otherwise cost a look at each key for each query.
#pragma once
#include <span>

#include "attention/call/ready_call.h"
#include "kernels/attention/args.h"

namespace posenc::inline v0::detail {

class KeyFlags {
 public:
  KeyFlags(const ReadyCall&, CallArena&);
  // Of a row of keys. Without key_visible all keys are shown.
  bool shows_all(Index row, Run keys) const noexcept {
    return shown_.empty() || count(row, keys) == keys.end - keys.begin;
  }
  bool hides_all(Index row, Run keys) const noexcept {
    return !shown_.empty() && count(row, keys) == 0;
  }
  // [Tk]: 0, -inf where a key is hidden. Not without key_visible.
  const float* starts(Index row) const noexcept { return starts_.data() + row * keys_; }

 private:
  Index count(Index row, Run keys) const noexcept {
    const Index* sum = shown_.data() + row * (keys_ + 1);
    return sum[keys.end] - sum[keys.begin];
  }
  Index keys_;
  std::span<Index> shown_;  // [R][Tk + 1]: keys before one that are shown
  std::span<float> starts_;
};

}  // namespace posenc::v0::detail
