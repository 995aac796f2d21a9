// SPDX-License-Identifier: Apache-2.0
// ProphetNet's relative bias, which depends on the hidden state of the query. Qi et al.,
// arXiv:2001.04063, section 2.3, and the authors' code:
//   S_ij += (W x_i + c)[bucket(i - j), h]
// x is the hidden state that q is projected from, bucket that of T5 for keys before the query
// (t5.h). Not scaled. W x is not computed for every bucket: x is multiplied with the rows of W. A predict
// stream is a call of its own, with its x and its positions. Implementations disagree there:
// transformers adds the biases of the predict streams in an order of batch, stream, head and
// position other than the scores', and is up to 5.07 off.
// What computes it is in src/relative/prophetnet.cpp.
#pragma once
#include <vector>

#include "posenc/relative/scheme.h"

namespace posenc::inline v0 {

struct ProphetNet {
  static constexpr Card card{"prophetnet", "ProphetNet relative bias", "arXiv:2001.04063",
                             "sec. 2.3"};
  Index d_model = 0;
  Index num_buckets = 32, max_distance = 128;
  double init = 0.02;

  // bias_weight [num_buckets * heads, d_model] and bias_bias [num_buckets * heads], by bucket, then
  // head; N(0, init) and zeros.
  POSENC_API std::vector<Parameter> parameters(const ScoreShape& s) const;
  // hidden [batch, queries, d_model].
  POSENC_API std::vector<Input> inputs(const ScoreShape& s) const;
  POSENC_API void lower(const ScoreShape& s, std::span<const ConstTensorView> p,
                        LoweredTerms& out) const;
  POSENC_API void bind(const ScoreShape& s, std::span<const ConstTensorView> p,
                       const CallData& call, std::span<Term> terms, TermStore& store) const;
  POSENC_API void pull_back(const ScoreShape& s, std::span<const ConstTensorView> p,
                            const CallData& call, const LoweredGradient& g,
                            std::span<const TensorView> dp,
                            std::span<const TensorView> d_inputs) const;

  bool operator==(const ProphetNet&) const = default;
  template <class S, class V>
  static constexpr void describe(S& s, V&& v) {
    v("d_model", s.d_model,
      Field{.doc = "channels of the hidden state", .min = 1, .max = 65536, .required = true});
    v("num_buckets", s.num_buckets, Field{.doc = "rows for each head", .min = 2, .max = 65536});
    v("max_distance", s.max_distance,
      Field{.doc = "distances from here on share one bucket",
            .unit = "tokens",
            .min = 2,
            .max = 1e9});
    v("init", s.init, Field{.doc = "initial deviation of the weight", .min = 0});
  }

 private:
  void check_fields(const ScoreShape& s) const;
};

}  // namespace posenc::v0
