// SPDX-License-Identifier: Apache-2.0
// Calls of bfloat16 for the loops over pairs of such numbers.
#pragma once
#include <string>
#include <vector>

#include "attention/float_call.h"
#include "support/plain_words.h"

namespace posenc {

// q, k and v in bf16.
struct WordCall : FloatCall {
  WordCall(Index b, Index queries, Index keys, Index h, Index g, Index d, Index dv,
           std::uint64_t seed)
      : FloatCall(b, queries, keys, h, g, d, dv, seed) {
    round_to_words();
  }
  void round_to_words() {
    for (std::size_t n = 0; n < 3; ++n) {
      words[n].clear();
      for (std::size_t i = 0; i < narrow[n].size(); ++i) {
        words[n].push_back(bf16_from(static_cast<double>(narrow[n][i])));
        wide[n][i] = static_cast<double>(f32_from_bf16(words[n].back()));
      }
    }
    args.q = narrow_view(0, Tq, H, D), args.k = narrow_view(1, Tk, G, D),
    args.v = narrow_view(2, Tk, G, V);
  }
  ConstHeads narrow_view(std::size_t n, Index tokens, Index count, Index dim) const {
    return heads(
        tensor(static_cast<const void*>(words[n].data()), DType::bf16, {B, tokens, count, dim}),
        HeadsLayout::bthd);
  }
  std::string wrong_words() const {
    EXPECT_TRUE(is_fast(args)) << explain_plan(args).others[0].why_not;
    return wrong_of_fast(of_attend(args), plain(), DType::bf16);
  }
  std::vector<std::uint16_t> words[3];
};

}  // namespace posenc
