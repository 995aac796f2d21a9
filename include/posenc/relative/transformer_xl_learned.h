// SPDX-License-Identifier: Apache-2.0
// Transformer-XL with learned rows instead of sinusoids (attn_type 1 of the authors' code, for
// Dai et al., arXiv:1901.02860):
//   S_ij = s [ (q_i + u_h) . k_j + q_i . E_r,h + c_r,h ],   r = rows - 1 - min(i - j, last)
// last = rows - 1, or clamp_len - 1 if that is less. s is the scale of the content, and scales c
// too. For the past only: for a key after the query the authors' shift reads the next number in
// memory; here such a pair has no E and no c. r_emb and r_bias are of one layer.
// What computes it is in src/relative/transformer_xl_learned.cpp.
#pragma once
#include <vector>

#include "posenc/relative/scheme.h"

namespace posenc::inline v0 {

struct TransformerXlLearned {
  static constexpr Card card{"transformer_xl_learned", "Transformer-XL with learned rows",
                             "arXiv:1901.02860", "attn_type 1"};
  static constexpr bool rows_count_positions = true;
  Index rows = 0;
  Index clamp_len = 0;
  double init = 0.02;

  // Row of delta = query - key; -1: a key after the query.
  POSENC_API Index row(Index delta) const noexcept;

  // r_emb [rows, heads, head_dim], r_bias [rows, heads], u [heads, head_dim]; all N(0, init).
  POSENC_API std::vector<Parameter> parameters(const ScoreShape& s) const;
  POSENC_API void lower(const ScoreShape& s, std::span<const ConstTensorView> p,
                        LoweredTerms& out) const;
  POSENC_API void pull_back(const ScoreShape& s, std::span<const ConstTensorView> p,
                            const CallData&, const LoweredGradient& g,
                            std::span<const TensorView> dp,
                            std::span<const TensorView> d_inputs) const;

  bool operator==(const TransformerXlLearned&) const = default;
  template <class S, class V>
  static constexpr void describe(S& s, V&& v) {
    v("rows", s.rows,
      Field{.doc = "rows of the table, the last one for distance 0",
            .min = 1,
            .max = 16777216,
            .required = true});
    v("clamp_len", s.clamp_len,
      Field{.doc = "rows that are read, from the last; 0 = all", .min = 0});
    v("init", s.init, Field{.doc = "initial deviation of the parameters", .min = 0});
  }

 private:
  void check_fields(const ScoreShape& s) const;
};

}  // namespace posenc::v0
