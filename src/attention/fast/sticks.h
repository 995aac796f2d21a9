// SPDX-License-Identifier: Apache-2.0
// Stick-breaking: weights are no softmax, but shares of what the keys behind leave (kernels/attention/fast_sticks.h). Blocks
// of keys are passed from the last to the first.
#pragma once
#include <span>
#include <string_view>

#include "attention/fast/row_blocks.h"
#include "kernels/attention/fast_sticks.h"

namespace posenc::inline v0::detail {

struct FastCall;
struct FastWork;
struct RowTotal;

// Whether a call breaks sticks.
bool breaks_sticks(const AttentionArgs&) noexcept;
// Why those of a call are not broken here; empty: they are, or there are none.
std::string_view sticks_why_not(const ReadyCall&) noexcept;

// Of one thread.
struct StickWork {
  StickWork(const FastCall&, Index rows, CallArena&);

  bool wants_rest = true;  // what all keys leave is wanted, however little it is
  std::span<double> left;  // [rows]: log2 of what is left
  std::span<float> own;    // value of the key of a query's own order
};

void clear_sticks(const FastCall&, FastWork&, const RowGroup&) noexcept;
// Whether float weights of all rows before are 0.
bool are_broken(const FastWork&, const RowGroup&) noexcept;
// Weights and values of a strip. False: there are no weights.
bool run_stick_strip(const FastCall&, FastWork&, const RowGroup&, const FastBlock&,
                     const FastStrip&) noexcept;
// What is left of row n of a group; with `own` its share goes to the value of the query's own key. False: float cannot work
// with that value.
bool put_rest(const FastCall&, FastWork&, const RowGroup&, Index n, RowTotal&) noexcept;

}  // namespace posenc::v0::detail
