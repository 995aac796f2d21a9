// SPDX-License-Identifier: Apache-2.0
// A number for every two modalities, and tables by distance where both share an axis:
//   S_ij += B[m_i, m_j, h]
//         + sum of T_t[clip(c_i - c_j, -k_t, k_t) + k_t, h] over tables t of (m_i, m_j)
// c is the coordinate on axis_t of the positions. Table t applies to queries of query_modality[t] and
// keys of key_modality[t] (empty: of the same modality). The inputs are query_modality and
// key_modality, 0 .. modalities - 1. It has no paper: it is the general form of biases
// between text and images. Not scaled with q.k.
#pragma once
#include "posenc/relative/scheme.h"

namespace posenc::inline v0 {

struct ModalityPairs {
  static constexpr Card card{"modality_pairs", "learned bias for pairs of modalities", "posenc",
                             "own definition"};
  Index modalities = 2;
  std::vector<Index> query_modality{}, key_modality{}, axis{}, clip{};

  // pairs [modalities, modalities, heads], table_0 .. [2 clip + 1, heads], zeros.
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

  bool operator==(const ModalityPairs&) const = default;
  template <class S, class V>
  static constexpr void describe(S& s, V&& v) {
    v("modalities", s.modalities, Field{.doc = "number of modalities", .min = 1, .max = 1024});
    v("query_modality", s.query_modality, Field{.doc = "modality of the queries of each table"});
    v("key_modality", s.key_modality,
      Field{.doc = "modality of the keys of each table; none: that of the queries"});
    v("axis", s.axis, Field{.doc = "axis of the positions for each table; none: 0"});
    v("clip", s.clip, Field{.doc = "largest distance that has its own row, for each table"});
  }

 private:
  std::size_t tables() const noexcept { return query_modality.size(); }
  Index keys_of(std::size_t t) const {
    return (key_modality.empty() ? query_modality : key_modality)[t];
  }
  void check_fields(const ScoreShape& s) const;
};

}  // namespace posenc::v0
