// SPDX-License-Identifier: Apache-2.0
// WavLM's gated bias: T5 buckets (t5.h) times a gate of the hidden state of the query. Chen et al.,
// arXiv:2110.13900, gated relative position bias, as transformers computes it:
//   S_ij += (a (b c_h - 1) + 2) T[bucket(j - i), h]
//   a, b = sigmoid of the sums of the first and of the last four of W x_ih + w
// x_ih are the head's channels of the hidden state itself, before any projection. The paper writes
// the same with an update gate 1 - a and a reset gate b, each with a vector that is multiplied with q.
// What computes it is in src/relative/wavlm.cpp.
#pragma once
#include <vector>

#include "posenc/relative/scheme.h"

namespace posenc::inline v0 {

struct WavLm {
  static constexpr Card card{"wavlm", "WavLM gated relative position bias", "arXiv:2110.13900",
                             "sec. 3.1"};
  Index num_buckets = 320, max_distance = 800;

  // table [num_buckets, heads], N(0, 1); gate_const [1, heads, 1, 1], ones; gate_weight
  // [8, head_dim], N(0, 0.02); gate_bias [8], zeros.
  POSENC_API std::vector<Parameter> parameters(const ScoreShape& s) const;
  // hidden [batch, queries, heads * head_dim].
  POSENC_API std::vector<Input> inputs(const ScoreShape& s) const;
  POSENC_API void lower(const ScoreShape& s, std::span<const ConstTensorView> p,
                        LoweredTerms& out) const;
  POSENC_API void bind(const ScoreShape& s, std::span<const ConstTensorView> p,
                       const CallData& call, std::span<Term> terms, TermStore& store) const;
  POSENC_API void pull_back(const ScoreShape& s, std::span<const ConstTensorView> p,
                            const CallData& call, const LoweredGradient& g,
                            std::span<const TensorView> dp,
                            std::span<const TensorView> d_inputs) const;

  bool operator==(const WavLm&) const = default;
  template <class S, class V>
  static constexpr void describe(S& s, V&& v) {
    v("num_buckets", s.num_buckets, Field{.doc = "rows of the table", .min = 2, .max = 65536});
    v("max_distance", s.max_distance,
      Field{.doc = "distances from here on share one bucket",
            .unit = "tokens",
            .min = 2,
            .max = 1e9});
  }
};

}  // namespace posenc::v0
