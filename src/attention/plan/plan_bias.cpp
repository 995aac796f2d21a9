// SPDX-License-Identifier: Apache-2.0
// What the schemes of a plan add to the score: the scores of queries and keys that are zero.
#include "attention/plan/plan_call.h"
#include "posenc/core/error.h"

namespace posenc::inline v0 {
namespace {

// [1, tokens, heads, dim] of one zero.
ConstHeads zeros(Index tokens, Index heads, Index dim) {
  static const double zero = 0;
  ConstHeads h;
  h.data = &zero;
  h.dtype = DType::f64;
  h.batch = 1, h.tokens = tokens, h.heads = heads, h.dim = dim;
  h.batch_stride = h.token_stride = h.head_stride = h.dim_stride = 0;
  return h;
}

AttentionArgs zero_call(const LoweredAttention& plan, const Positions& query,
                        const Positions& key) {
  const AttentionSizes& s = plan.sizes();
  for (const auto& [p, what] : {std::pair{&query, "query"}, std::pair{&key, "key"}})
    if (p->batch != 1)
      refuse_field(detail::kPlan, std::string(what) + " positions of a bias",
                   "must be those of one sequence", p->batch);
  if (plan.reads_content())
    refuse_sentence(
        detail::kPlan, "schemes",
        "the schemes of a bias must not read q, k or v; scores shows what such a scheme adds");
  AttentionArgs a;
  a.q = zeros(query.count, s.heads, s.head_dim);
  a.k = zeros(key.count, s.key_heads, s.head_dim);
  a.v = zeros(key.count, s.key_heads, s.value_dim);
  a.query_positions = query;
  a.key_positions = key;
  return a;
}

}  // namespace

void LoweredAttention::bias(const Positions& query, const Positions& key,
                            std::span<const NamedArray> inputs, const TensorView& bias,
                            const Executor& executor) const {
  AttentionScores s;
  s.scores = bias;
  scores(zero_call(*this, query, key), inputs, s, executor);
}

void LoweredAttention::bias_backward(const Positions& query, const Positions& key,
                                     std::span<const NamedArray> inputs,
                                     const ConstTensorView& d_bias,
                                     std::span<const NamedGradient> named,
                                     const Executor& executor) const {
  scores_backward(zero_call(*this, query, key), inputs, d_bias, {}, named, executor);
}

}  // namespace posenc::v0
