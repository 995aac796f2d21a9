// SPDX-License-Identifier: Apache-2.0
// T5's bucketed bias. Raffel et al., arXiv:1910.10683, section 2.1 (mesh-tensorflow's rule):
//   S_ij += E[bucket(j - i), h]
//   bidirectional: nb = num_buckets / 2, base = nb for keys in the future; n = |j - i|
//   causal:        nb = num_buckets,     base = 0;                          n = max(i - j, 0)
//   me = nb / 2;  n < me: base + n;  else base + min(nb - 1, me + floor(K ln(n / me) /
//   ln(max_distance / me))), K = nb - me
// Computed without logarithms: bucket me + k starts at the smallest n with n^K me^k >=
// max_distance^k me^K, in whole numbers. transformers' float32 logarithm loses an exact hit in 6 of
// 1867 settings, none of them published. T5 does not scale q.k: the scheme sets scale 1.
// contextual (mesh-tensorflow's option of that name): S_ij += q_i . A[bucket(j - i)] instead of the
// number, a table of vectors for each head; q as the scores have it, T5's is not scaled.
// Over real positions (`per_unit`) trunc(per_unit |i - j|) is what is bucketed: UDOP's boxes.
// What computes it is in src/relative/t5.cpp.
#pragma once

#include "posenc/relative/scheme.h"

namespace posenc::inline v0 {

// First distance n of the buckets me + 1, me + 2, ..., nb - 1. Throws [t5]: nb < 2, max_distance
// not above nb / 2.
POSENC_API std::vector<Index> t5_thresholds(Index nb, Index max_distance);

struct T5 {
  static constexpr Card card{"t5", "T5 relative position buckets", "arXiv:1910.10683", "sec. 2.1"};
  bool bidirectional = true;
  Index num_buckets = 32, max_distance = 128;
  double bias_scale = 1;  // x-transformers multiplies the bias by sqrt(head_dim)
  Index axis = 0;
  bool heads_first = false;  // the table is [heads, num_buckets]
  double per_unit = 0;       // 0: whole distances
  bool contextual = false;

  Index side() const noexcept { return bidirectional ? num_buckets / 2 : num_buckets; }

  // Bucket of delta = query - key.
  Index bucket(Index delta) const { return bucket(delta, t5_thresholds(side(), max_distance)); }
  POSENC_API Index bucket(Index delta, const std::vector<Index>& thresholds) const;

  // The bucket of each distance of a call. Throws [t5].
  POSENC_API IndexLine line(const ScoreShape& s, TermStore& store) const;

  // table; transformers: N(0, d_model^-1/2), where d_model = heads * head_dim. contextual: [heads,
  // head_dim, num_buckets], N(0, head_dim^-1/2), as mesh-tensorflow's dense layer starts.
  POSENC_API std::vector<Parameter> parameters(const ScoreShape& s) const;

  POSENC_API void lower(const ScoreShape& s, std::span<const ConstTensorView> p,
                        LoweredTerms& out) const;

  POSENC_API void pull_back(const ScoreShape& s, std::span<const ConstTensorView> p,
                            const CallData&, const LoweredGradient& g,
                            std::span<const TensorView> dp,
                            std::span<const TensorView> d_inputs) const;

  // encoder and decoder of T5, mT5, UMT5, Flan-T5.
  POSENC_API static std::vector<Preset<T5>> presets();

  bool operator==(const T5&) const = default;
  template <class S, class V>
  static constexpr void describe(S& s, V&& v) {
    v("bidirectional", s.bidirectional,
      Field{.doc = "half of the buckets for future keys (encoders); decoders: false",
            .required = true});
    v("num_buckets", s.num_buckets, Field{.doc = "rows of the table", .min = 2, .max = 65536});
    v("max_distance", s.max_distance,
      Field{.doc = "distances from here on share one bucket",
            .unit = "tokens",
            .min = 2,
            .max = 1e9});
    v("bias_scale", s.bias_scale, Field{.doc = "multiplies the bias"});
    v("axis", s.axis, Field{.doc = "of the positions", .min = 0, .max = 7});
    v("heads_first", s.heads_first, Field{.doc = "the table is [heads, num_buckets]"});
    v("per_unit", s.per_unit,
      Field{.doc = "real positions: tokens for a distance of 1; 0: whole distances",
            .min = 0,
            .max = 1e9});
    v("contextual", s.contextual,
      Field{.doc = "vectors that are multiplied with q instead of numbers"});
  }

 private:
  template <class F>
  void each(const ScoreShape& s, const F& fn) const;
  void check_fields() const;
};

}  // namespace posenc::v0
