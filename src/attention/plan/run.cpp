// SPDX-License-Identifier: Apache-2.0
// The calls of lowered schemes: the caller's arguments are bound, run, and the gradients go back.
#include "attention/call/check_parts.h"
#include "attention/engines/engine.h"
#include "attention/plan/plan_call.h"
#include "posenc/attention/explain_plan.h"

namespace posenc::inline v0 {

void LoweredAttention::forward(const AttentionArgs& call, std::span<const NamedArray> inputs,
                               const AttentionResult& result, const Executor& executor) const {
  const detail::PlanCall bound(*state_, call, inputs);
  detail::attend_lowered(bound.args, bound.lowered(), result, executor, {});
}

void LoweredAttention::scores(const AttentionArgs& call, std::span<const NamedArray> inputs,
                              const AttentionScores& scores, const Executor& executor) const {
  const detail::PlanCall bound(*state_, call, inputs);
  attend_scores(bound.args, scores, executor);
}

void LoweredAttention::backward(const AttentionArgs& call, std::span<const NamedArray> inputs,
                                const ConstAttentionResult& result,
                                const ConstAttentionResult& d_result,
                                const AttentionGradients& gradients,
                                std::span<const NamedGradient> named,
                                const Executor& executor) const {
  const detail::PlanCall bound(*state_, call, inputs);
  detail::PlanGradients all(*state_, bound, gradients, named);
  detail::check_read(bound.args, result, "the result");
  detail::check_read(bound.args, d_result, "the gradient of the result");
  all.check_upstream(d_result);
  detail::attend_lowered_backward(bound.args, bound.lowered(), result, d_result, all.gradients,
                                  executor, {});
  all.pull_back(*state_, bound);
}

void LoweredAttention::scores_backward(const AttentionArgs& call,
                                       std::span<const NamedArray> inputs,
                                       const ConstTensorView& d_scores,
                                       const AttentionGradients& gradients,
                                       std::span<const NamedGradient> named,
                                       const Executor& executor) const {
  const detail::PlanCall bound(*state_, call, inputs);
  detail::PlanGradients all(*state_, bound, gradients, named);
  all.check_upstream(d_scores);
  attend_scores_backward(bound.args, d_scores, all.gradients, executor);
  all.pull_back(*state_, bound);
}

PlanExplanation LoweredAttention::explain(const AttentionArgs& call,
                                          std::span<const NamedArray> inputs) const {
  const detail::PlanCall bound(*state_, call, inputs);
  PlanExplanation e = detail::explain_lowered(bound.args, bound.lowered());
  for (std::size_t s = 0; s < state_->schemes.size(); ++s)
    for (std::size_t n = 0; n < state_->schemes[s].lowered.terms.size(); ++n)
      e.terms[bound.term_index(s, n)].name = state_->plan->schemes[s].name();
  return e;
}

}  // namespace posenc::v0
