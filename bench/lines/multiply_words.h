// SPDX-License-Identifier: Apache-2.0
// Products of bfloat16 of one thread, from registers: by AVX512_BF16 and by AMX.
#pragma once
#include <cstddef>

namespace posenc::bench {

// At least n multiply-adds. null: this build has none. The machine must have the instructions; for AMX the program asks
// the system before.
double (*multiply_words_by_vectors())(std::size_t n);
double (*multiply_words_by_tiles())(std::size_t n);

}  // namespace posenc::bench
