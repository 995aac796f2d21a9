// SPDX-License-Identifier: Apache-2.0
// Untied positions. TUPE, Ke, He and Liu, arXiv:2006.15595, equations 7 to 10, as the authors' code:
//   S_ij = s (q_i . k_j + reset(x_i . y_j)) [+ reset(T[bucket(i - j)])],   s = 1 / sqrt(2 head_dim)
//   x = LayerNorm(P) U_Q + b_Q, y = LayerNorm(P) U_K + b_K, by head
// Token at position n has row n + 1 of P. reset: row of the class token: x_0 . y_0 of row 0 of P,
// column of the class token: x_1 . y_1 of row 1; the paper has free numbers instead and no
// LayerNorm. num_buckets > 0 is TUPE-R: T5's buckets of both sides, not scaled; there the class row
// has row num_buckets / 2, which no distance has, and the class column the extra last row.
// The inputs are query_class and key_class, 1 for the class token. Nothing is added at the input.
#pragma once
#include "posenc/relative/scheme.h"

namespace posenc::inline v0 {

struct Tupe {
  static constexpr Card card{"tupe", "untied positions", "arXiv:2006.15595", "eq. 7 to 10"};
  Index positions = 512;
  bool reset = true;
  Index num_buckets = 0, max_distance = 128;
  double epsilon = 1e-5;

  // pos [positions + 1, width], ln_weight, ln_bias, w_q [width, width], b_q, w_k, b_k and, with
  // buckets, table [num_buckets + 1, heads]; width = heads head_dim. N(0, 0.02), biases 0.
  POSENC_API std::vector<Parameter> parameters(const ScoreShape& s) const;
  POSENC_API std::vector<Input> inputs(const ScoreShape& s) const;
  POSENC_API void lower(const ScoreShape& s, std::span<const ConstTensorView> p,
                        LoweredTerms& out) const;
  POSENC_API void bind(const ScoreShape& s, std::span<const ConstTensorView> p,
                       const CallData& call, std::span<Term> terms, TermStore& store) const;
  POSENC_API void pull_back(const ScoreShape& s, std::span<const ConstTensorView> p,
                            const CallData&, const LoweredGradient& g,
                            std::span<const TensorView> dp,
                            std::span<const TensorView> d_inputs) const;

  bool operator==(const Tupe&) const = default;
  template <class S, class V>
  static constexpr void describe(S& s, V&& v) {
    v("positions", s.positions, Field{.doc = "0 .. positions - 1", .min = 1, .max = 16777216});
    v("reset", s.reset, Field{.doc = "the class token has its own numbers"});
    v("num_buckets", s.num_buckets,
      Field{.doc = "buckets of TUPE-R's relative part, 0 = TUPE-A", .min = 0, .max = 65536});
    v("max_distance", s.max_distance,
      Field{.doc = "distances from here on share one bucket",
            .unit = "tokens",
            .min = 2,
            .max = 1e9});
    v("epsilon", s.epsilon, Field{.doc = "of the LayerNorm", .min = 0});
  }

 private:
  struct Layers;
  double scale(const ScoreShape& s) const;
  void check_fields(const ScoreShape& s) const;
};

}  // namespace posenc::v0
