// SPDX-License-Identifier: Apache-2.0
// LayoutLM's bias of documents: T5 buckets (t5.h) of the order of reading and of two coordinates of
// boxes. Xu et al., arXiv:2012.14740; Huang et al., arXiv:2204.08387:
//   S_ij += s (T_1d[bucket(j - i)] + T_x[bucket_2d(x_j - x_i)] + T_y[bucket_2d(y_j - y_i)])
// Axis 0 of the positions is the order, axes 1 and 2 are the left and the lower edge of a box, as
// whole numbers 0 .. 1000. LayoutLMv3 multiplies the biases by the scale of the content (s),
// LayoutLMv2 does not (s = 1).
// What computes it is in src/relative/layoutlm.cpp.
#pragma once
#include <vector>

#include "posenc/relative/scheme.h"

namespace posenc::inline v0 {

struct LayoutLm {
  static constexpr Card card{"layoutlm", "LayoutLM one- and two-dimensional bias",
                             "arXiv:2012.14740", ""};
  Index num_buckets = 32, max_distance = 128;
  Index num_buckets_2d = 64, max_distance_2d = 256;
  bool scaled = true;  // LayoutLMv3
  bool heads_first = false;

  // table_1d [num_buckets, heads], table_x and table_y [num_buckets_2d, heads]; N(0, 0.02).
  POSENC_API std::vector<Parameter> parameters(const ScoreShape& s) const;
  POSENC_API void lower(const ScoreShape& s, std::span<const ConstTensorView> p,
                        LoweredTerms& out) const;
  POSENC_API void pull_back(const ScoreShape& s, std::span<const ConstTensorView> p,
                            const CallData& call, const LoweredGradient& g,
                            std::span<const TensorView> dp,
                            std::span<const TensorView> d_inputs) const;

  bool operator==(const LayoutLm&) const = default;
  template <class S, class V>
  static constexpr void describe(S& s, V&& v) {
    v("num_buckets", s.num_buckets,
      Field{.doc = "rows of the table of the order", .min = 2, .max = 65536});
    v("max_distance", s.max_distance,
      Field{.doc = "distances from here on share one bucket",
            .unit = "tokens",
            .min = 2,
            .max = 1e9});
    v("num_buckets_2d", s.num_buckets_2d,
      Field{.doc = "rows of the tables of boxes", .min = 2, .max = 65536});
    v("max_distance_2d", s.max_distance_2d,
      Field{.doc = "distances from here on share one bucket", .min = 2, .max = 1e9});
    v("scaled", s.scaled,
      Field{.doc = "the biases are multiplied by the scale of the content (v3)"});
    v("heads_first", s.heads_first, Field{.doc = "tables are [heads, buckets], as linear layers"});
  }
};

}  // namespace posenc::v0
