// SPDX-License-Identifier: Apache-2.0
// CPM-Ant's segment bias: T5 buckets (t5.h) within a segment, a number for each pair of segments
// across. As transformers computes it:
//   S_ij += T[bucket(j - i), h]                   if segment_i = segment_j
//   S_ij += T[num_buckets + segment_i n + segment_j, h] else, n = segments
// transformers uses token indices for i and j and ignores position ids.
// What computes it is in src/relative/cpmant.cpp.
#pragma once
#include <vector>

#include "posenc/relative/scheme.h"

namespace posenc::inline v0 {

struct CpmAnt {
  static constexpr Card card{"cpmant", "CPM-Ant segment bias", "OpenBMB", ""};
  Index num_buckets = 512, max_distance = 2048, segments = 32;
  double init = 1;

  // table [num_buckets + segments^2, heads]; N(0, init).
  POSENC_API std::vector<Parameter> parameters(const ScoreShape& s) const;
  // query_segment [batch, queries], key_segment [batch, keys], 0 .. segments - 1.
  POSENC_API std::vector<Input> inputs(const ScoreShape& s) const;
  POSENC_API void lower(const ScoreShape& s, std::span<const ConstTensorView> p,
                        LoweredTerms& out) const;
  POSENC_API void bind(const ScoreShape& s, std::span<const ConstTensorView> p,
                       const CallData& call, std::span<Term> terms, TermStore& store) const;
  POSENC_API void pull_back(const ScoreShape& s, std::span<const ConstTensorView> p,
                            const CallData& call, const LoweredGradient& g,
                            std::span<const TensorView> dp,
                            std::span<const TensorView> d_inputs) const;

  bool operator==(const CpmAnt&) const = default;
  template <class S, class V>
  static constexpr void describe(S& s, V&& v) {
    v("num_buckets", s.num_buckets, Field{.doc = "rows by distance", .min = 2, .max = 65536});
    v("max_distance", s.max_distance,
      Field{.doc = "distances from here on share one bucket",
            .unit = "tokens",
            .min = 2,
            .max = 1e9});
    v("segments", s.segments, Field{.doc = "kinds of segments", .min = 1, .max = 4096});
    v("init", s.init, Field{.doc = "initial deviation", .min = 0});
  }
};

}  // namespace posenc::v0
