// SPDX-License-Identifier: Apache-2.0
// WeNet's Conformer, which omits the shift of the position scores:
//   S_ij = s [ (q_i + u_h) . k_j + (q_i + v_h) . (W P_j)_h ]
// P_j is the sinusoid of the ABSOLUTE position of the key, not of a distance: a departure from the
// Conformer (conformer.h) that its checkpoints are trained with. s is the scale of the content.
// What computes it is in src/relative/conformer_absolute_key.cpp.
#pragma once
#include <vector>

#include "posenc/relative/scheme.h"

namespace posenc::inline v0 {

struct ConformerAbsoluteKey {
  static constexpr Card card{"conformer_absolute_key", "WeNet's Conformer, keys by position",
                             "wenet-e2e/wenet", "RelPositionMultiHeadedAttention"};
  static constexpr bool rows_count_positions = true;
  Index d_model = 0, rows = 0;
  double base = 10000;

  // P [rows, d_model], which starts as the sinusoids of 0 .. rows - 1, interleaved; w_kr
  // [heads * head_dim, d_model], u and v_bias [heads, head_dim].
  POSENC_API std::vector<Parameter> parameters(const ScoreShape& s) const;
  // None: the positions of the keys, whole numbers, are the call's.
  POSENC_API std::vector<Input> inputs(const ScoreShape&) const;
  POSENC_API void lower(const ScoreShape& s, std::span<const ConstTensorView> p,
                        LoweredTerms& out) const;
  POSENC_API void bind(const ScoreShape& s, std::span<const ConstTensorView> p,
                       const CallData& call, std::span<Term> terms, TermStore& store) const;
  POSENC_API void pull_back(const ScoreShape& s, std::span<const ConstTensorView> p,
                            const CallData&, const LoweredGradient& g,
                            std::span<const TensorView> dp,
                            std::span<const TensorView> d_inputs) const;

  bool operator==(const ConformerAbsoluteKey&) const = default;
  template <class S, class V>
  static constexpr void describe(S& s, V&& v) {
    v("d_model", s.d_model,
      Field{.doc = "width of the sinusoid", .min = 2, .max = 1e6, .required = true});
    v("rows", s.rows,
      Field{.doc = "rows of P, one more than the largest position of a key",
            .min = 1,
            .max = 16777216,
            .required = true});
    v("base", s.base, Field{.doc = "of the sinusoid", .min = 1e-300});
  }

 private:
  void check_fields(const ScoreShape& s) const;
};

}  // namespace posenc::v0
