// SPDX-License-Identifier: Apache-2.0
// UDOP's bias: T5 buckets (t5.h) of the order and of the centres of boxes. Tang et al.,
// arXiv:2212.02623, as transformers computes it:
//   S_ij += T_1d[bucket(j - i)] + T_h[bucket(trunc(u (x_j - x_i)))]
//         + T_v[bucket(trunc(u (y_j - y_i)))]
// Axis 0 of the positions is the order, axes 1 and 2 are the centre of a box, real, 0 .. 1;
// u = 100. As T5 it does not scale q.k: the scheme sets scale 1.
// What computes it is in src/relative/udop.cpp.
#pragma once
#include <vector>

#include "posenc/relative/scheme.h"

namespace posenc::inline v0 {

struct Udop {
  static constexpr Card card{"udop", "UDOP one- and two-dimensional bias", "arXiv:2212.02623", ""};
  Index num_buckets = 32, max_distance = 128;
  Index horizontal_buckets = 32, horizontal_max_distance = 100;
  Index vertical_buckets = 32, vertical_max_distance = 100;
  double per_unit = 100;

  // table_1d, table_horizontal, table_vertical [buckets, heads]; N(0, d_model^-1/2).
  POSENC_API std::vector<Parameter> parameters(const ScoreShape& s) const;
  POSENC_API void lower(const ScoreShape& s, std::span<const ConstTensorView> p,
                        LoweredTerms& out) const;
  POSENC_API void pull_back(const ScoreShape& s, std::span<const ConstTensorView> p,
                            const CallData& call, const LoweredGradient& g,
                            std::span<const TensorView> dp,
                            std::span<const TensorView> d_inputs) const;

  bool operator==(const Udop&) const = default;
  template <class S, class V>
  static constexpr void describe(S& s, V&& v) {
    v("num_buckets", s.num_buckets,
      Field{.doc = "rows of the table of the order", .min = 2, .max = 65536});
    v("max_distance", s.max_distance,
      Field{.doc = "distances from here on share one bucket",
            .unit = "tokens",
            .min = 2,
            .max = 1e9});
    v("horizontal_buckets", s.horizontal_buckets,
      Field{.doc = "rows of the table", .min = 2, .max = 65536});
    v("horizontal_max_distance", s.horizontal_max_distance,
      Field{.doc = "distances from here on share one bucket", .min = 2, .max = 1e9});
    v("vertical_buckets", s.vertical_buckets,
      Field{.doc = "rows of the table", .min = 2, .max = 65536});
    v("vertical_max_distance", s.vertical_max_distance,
      Field{.doc = "distances from here on share one bucket", .min = 2, .max = 1e9});
    v("per_unit", s.per_unit,
      Field{.doc = "distance for 1 between boxes", .min = 1e-9, .max = 1e9});
  }
};

}  // namespace posenc::v0
