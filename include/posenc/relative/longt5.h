// SPDX-License-Identifier: Apache-2.0
// LongT5's transient-global attention: T5 buckets (t5.h) between tokens, and others between a token
// and a summary of a block. Guo et al., arXiv:2112.07916, section 3.1.2:
//   S_ij += T[bucket(j - i), h]                    key j is a token
//   S_ij += G[bucket(block_j - block_i), h]        key j represents a block
// Axis 0 of the positions is the token, axis 1 the block: a query's is its own block, a
// summary's its own number. transformers assigns remaining tokens at the end to the last whole block, and
// padding to block -1. The input is key_global, 1 for a summary. The mask of the call limits which tokens
// are visible (a radius). Not scaled, as in T5: the scheme requires scale 1. What computes it is in src/relative/longt5.cpp.
#pragma once
#include <vector>

#include "posenc/relative/t5.h"

namespace posenc::inline v0 {

struct LongT5 {
  static constexpr Card card{"longt5", "LongT5 local and global buckets", "arXiv:2112.07916",
                             "sec. 3.1.2"};
  Index num_buckets = 32, max_distance = 128;

  // table and global_table [num_buckets, heads]; N(0, (heads head_dim)^-1/2).
  POSENC_API std::vector<Parameter> parameters(const ScoreShape& s) const;
  // key_global [batch, keys], 0 or 1.
  POSENC_API std::vector<Input> inputs(const ScoreShape& s) const;
  POSENC_API void lower(const ScoreShape& s, std::span<const ConstTensorView> p,
                        LoweredTerms& out) const;
  POSENC_API void bind(const ScoreShape& s, std::span<const ConstTensorView> p,
                       const CallData& call, std::span<Term> terms, TermStore& store) const;
  POSENC_API void pull_back(const ScoreShape& s, std::span<const ConstTensorView> p,
                            const CallData&, const LoweredGradient& g,
                            std::span<const TensorView> dp,
                            std::span<const TensorView> d_inputs) const;

  bool operator==(const LongT5&) const = default;
  template <class S, class V>
  static constexpr void describe(S& s, V&& v) {
    v("num_buckets", s.num_buckets, Field{.doc = "rows of each table", .min = 2, .max = 65536});
    v("max_distance", s.max_distance,
      Field{.doc = "distances from here on share one bucket, for tokens and blocks",
            .min = 2,
            .max = 1e9});
  }

 private:
  T5 rule(Index axis) const;
};

}  // namespace posenc::v0
