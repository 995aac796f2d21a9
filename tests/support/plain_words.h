// SPDX-License-Identifier: Apache-2.0
// Loops over pairs of bfloat16 whose products are made of those that every machine with vectors has: they stand for machines with
// AVX512_BF16 or AMX.
#pragma once
#include "kernels/attention/fast_word_slopes.h"
#include "posenc/core/isa.h"

namespace posenc::test {

// The instruction set beside which they run; null where this machine has not got it.
Isa isa_of_plain_words() noexcept;
const detail::WordKernels* plain_words_of_vectors() noexcept;
const detail::WordKernels* plain_words_of_tiles() noexcept;
const detail::WordSlopeKernels* plain_word_slopes() noexcept;

// While it lives, calls of bfloat16 use these kernels beside an instruction set.
class WordsInUse {
 public:
  WordsInUse(const detail::WordKernels* k, Isa isa,
             const detail::WordSlopeKernels* slopes = nullptr) {
    force_isa(isa);
    detail::replace_word_kernels(k);
    detail::replace_word_slopes(slopes);
  }
  WordsInUse(const WordsInUse&) = delete;
  WordsInUse& operator=(const WordsInUse&) = delete;
  ~WordsInUse() {
    detail::replace_word_kernels(nullptr);
    detail::replace_word_slopes(nullptr);
    reset_isa();
  }
};

}  // namespace posenc::test
