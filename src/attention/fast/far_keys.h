// SPDX-License-Identifier: Apache-2.0
// Rows whose numbers by distance differ by more than weights can: from which reference they begin, and which keys weigh
// nothing.
//
//   x_ij = q_i.k_j + t(i - j) <= |q_i| max |k| + max t
//
// Where that, relative to the reference of the row, is below kSmallestExponent, the weight is 0 in float. Keys with such
// weights are left out, and the results have the same bits.
#pragma once
#include "attention/fast/row_blocks.h"
#include "attention/fast/starts.h"
#include "core/parallel.h"

namespace posenc::inline v0::detail {

struct FastCall;

// The largest length |k| of the keys of a row and head, [R][G]; infinite where float cannot work with a number of k or v.
// Empty: nothing is left out.
std::span<const float> find_key_lengths(const FastCall&, CallArena&, const Executor&);

// Of rows of groups: the largest number of the line among the visible keys, by RowGroup::first + n. Fills in `near`.
void find_tops(const FastCall&, std::span<RowGroup>, double* tops) noexcept;
// Where references begin: whole numbers. `tops` empty: 0.
void begin_references(const FastCall&, const RowGroup&, std::span<const double> tops,
                      double* reference) noexcept;
// Fills in RowGroup::weighs. Row n of the group is q + n * width, relative to reference[n].
void find_weighing_keys(const FastCall&, RowGroup&, const float* q, Index width,
                        const double* reference) noexcept;

}  // namespace posenc::v0::detail
