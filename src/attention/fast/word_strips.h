// SPDX-License-Identifier: Apache-2.0
// Blocks of rows whose q, k and v are bfloat16, on machines that multiply pairs of such numbers
// (kernels/attention/fast_words.h): what takes the place of q, packed keys, packed values and strips in float.
#pragma once
#include <span>

#include "attention/call/ready_call.h"
#include "attention/fast/row_blocks.h"
#include "kernels/attention/fast_words.h"

namespace posenc::inline v0::detail {

struct FastCall;
struct FastWork;

// What multiplies a call: pairs of bfloat16 or, null, floats. Terms that enter as start values go both ways. Stages give
// q and k in float, which are not rounded; terms that are products, gates, weights or rows added to the values, regions
// and caps are computed in float too.
const WordKernels* words_of(const FastCall&) noexcept;
bool takes_words(const FastCall&) noexcept;  // where the machine can

// How rows and keys are cut.
struct StripShape {
  Index rows, few_rows, block_keys;
};

// Memory of one thread.
struct WordWork {
  WordWork(const FastCall&, Index rows, CallArena&);

  std::span<std::uint32_t> q;             // [rows][words]
  std::span<float> factors;               // [rows]
  std::span<std::uint32_t> keys, values;  // packed
  std::span<std::uint32_t> weights;       // [rows of a strip][keys of a block / 2]
  std::span<float> rounded;               // [rows][lanes]: sums of rounded weights
};

// q of all rows and their factors. Rows that bfloat16 or float cannot work with are left.
void take_word_queries(const FastCall&, FastWork&) noexcept;
// Keys and values of a block that some group sees. False: a number of them is none that these products can work with.
bool pack_words(const FastCall&, const FastRowBlock&, Run keys, FastWork&) noexcept;
// Adds a block of keys to a strip, of which `rows` has all but q. start: whether start values are given. False: the rows
// cannot be used.
bool run_words(const FastCall&, FastWork&, const RowGroup&, const FastStrip& rows, bool start,
               bool careful) noexcept;
// The sums of values of a group, which are those of rounded weights, as if the sum of these were that of the weights.
void finish_words(const FastCall&, FastWork&, const RowGroup&) noexcept;

}  // namespace posenc::v0::detail
