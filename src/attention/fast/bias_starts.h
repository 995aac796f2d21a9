// SPDX-License-Identifier: Apache-2.0
// Mask::bias of float as start values, by whole rows.
#pragma once
#include "attention/fast/key_flags.h"
#include "attention/fast/starts.h"
#include "kernels/attention/fast_bias.h"

namespace posenc::inline v0::detail {

class BiasStarts {
 public:
  BiasStarts(const ReadyCall&, const Starts&, const KeyFlags&);

  // Whether rows of the bias are all that start values are made of, or with a line of them in float, and no other mask is
  // read for each pair. A bias of other types, or in steps, is read pair by pair.
  bool whole_rows() const noexcept { return whole_rows_; }
  // What is written of a row: its largest start value, and the end of the keys that it sees.
  struct Row {
    double largest = 0;
    Index last = 0;
    bool bounded =
        true;          // else nothing is written: a number is NaN, or larger than float works with
    bool far = false;  // all keys lie below kFar: they are hidden
  };
  // Of `width` start values, -inf where the row does not see the key. A bias of -inf hides it.
  Row write(const FastRow&, Run keys, float* to, Index width) const noexcept;

 private:
  FastBiasRow row_of(const FastRow&, Run keys) const noexcept;

  const ReadyCall& call_;
  const Starts& starts_;
  const KeyFlags& flags_;
  const FastBiasKernels& kernels_;
  bool whole_rows_ = false;
};

}  // namespace posenc::v0::detail
