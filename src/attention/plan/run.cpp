// SPDX-License-Identifier: Apache-2.0
// The calls of lowered schemes: the caller's arguments are bound, run, and the gradients go back.
#include "attention/call/check_overlap.h"
#include "attention/call/check_parts.h"
#include "attention/engines/engine.h"
#include "attention/plan/plan_call.h"
#include "posenc/attention/explain_plan.h"

namespace posenc::inline v0 {

namespace {

// A workspace lies apart from the inputs and named gradients of a call too.
void check_named_apart(std::span<const NamedArray> inputs, std::span<const NamedGradient> named,
                       Workspace w) {
  const detail::Operand workspace{"workspace", detail::memory_of(std::span<const std::byte>(w))};
  for (const NamedArray& a : inputs)
    detail::check_separate(detail::kPlan, {a.name, detail::memory_of(a.array)}, workspace);
  for (const NamedGradient& g : named)
    detail::check_separate(detail::kPlan, {g.name, detail::memory_of(g.array)}, workspace);
}

}  // namespace

std::size_t LoweredAttention::workspace_bytes(const AttentionArgs& call,
                                              std::span<const NamedArray> inputs,
                                              const Executor& executor) const {
  return detail::bytes_of(
      [&](detail::CallArena& arena) { run_forward(call, inputs, {}, arena, executor); });
}

std::size_t LoweredAttention::workspace_bytes(const AttentionArgs& call,
                                              std::span<const NamedArray> inputs,
                                              const AttentionGradients& gradients,
                                              std::span<const NamedGradient> named,
                                              const Executor& executor) const {
  return detail::bytes_of([&](detail::CallArena& arena) {
    run_backward(call, inputs, {}, {}, gradients, named, arena, executor);
  });
}

void LoweredAttention::run_forward(const AttentionArgs& call, std::span<const NamedArray> inputs,
                                   const AttentionResult& result, detail::CallArena& arena,
                                   const Executor& executor) const {
  const detail::PlanCall bound(*state_, call, inputs, arena);
  detail::attend_lowered(bound.args, bound.lowered(), result, arena, executor);
}

void LoweredAttention::run_backward(const AttentionArgs& call, std::span<const NamedArray> inputs,
                                    const ConstAttentionResult& result,
                                    const ConstAttentionResult& d_result,
                                    const AttentionGradients& gradients,
                                    std::span<const NamedGradient> named, detail::CallArena& arena,
                                    const Executor& executor) const {
  const detail::PlanCall bound(*state_, call, inputs, arena);
  detail::PlanGradients all(*state_, bound, gradients, named, arena);
  if (!arena.counts()) {
    detail::check_read(bound.args, result, "the result");
    detail::check_read(bound.args, d_result, "the gradient of the result");
    all.check_upstream(d_result);
  }
  detail::attend_lowered_backward(bound.args, bound.lowered(), result, d_result, all.gradients,
                                  arena, executor);
  if (!arena.counts()) all.pull_back(*state_, bound);
}

void LoweredAttention::forward(const AttentionArgs& call, std::span<const NamedArray> inputs,
                               const AttentionResult& result, const Executor& executor,
                               Workspace workspace) const {
  detail::check_overlap(call, result, workspace);
  check_named_apart(inputs, {}, workspace);
  detail::run_in(workspace, [&](detail::CallArena& arena) {
    run_forward(call, inputs, result, arena, executor);
  });
}

void LoweredAttention::backward(const AttentionArgs& call, std::span<const NamedArray> inputs,
                                const ConstAttentionResult& result,
                                const ConstAttentionResult& d_result,
                                const AttentionGradients& gradients,
                                std::span<const NamedGradient> named, const Executor& executor,
                                Workspace workspace) const {
  detail::check_overlap(call, d_result, gradients, workspace);
  check_named_apart(inputs, named, workspace);
  detail::run_in(workspace, [&](detail::CallArena& arena) {
    run_backward(call, inputs, result, d_result, gradients, named, arena, executor);
  });
}

void LoweredAttention::scores(const AttentionArgs& call, std::span<const NamedArray> inputs,
                              const AttentionScores& scores, const Executor& executor) const {
  detail::CallArena arena;
  const detail::PlanCall bound(*state_, call, inputs, arena);
  detail::attend_scores_lowered(bound.args, bound.lowered(), scores, executor);
}

void LoweredAttention::scores_backward(const AttentionArgs& call,
                                       std::span<const NamedArray> inputs,
                                       const ConstTensorView& d_scores,
                                       const AttentionGradients& gradients,
                                       std::span<const NamedGradient> named,
                                       const Executor& executor) const {
  detail::CallArena arena;
  const detail::PlanCall bound(*state_, call, inputs, arena);
  detail::PlanGradients all(*state_, bound, gradients, named, arena);
  all.check_upstream(d_scores);
  detail::attend_scores_lowered_backward(bound.args, bound.lowered(), d_scores, all.gradients,
                                         executor);
  all.pull_back(*state_, bound);
}

PlanExplanation LoweredAttention::explain(const AttentionArgs& call,
                                          std::span<const NamedArray> inputs) const {
  detail::CallArena arena;
  const detail::PlanCall bound(*state_, call, inputs, arena);
  PlanExplanation e = detail::explain_lowered(bound.args, bound.lowered());
  for (std::size_t s = 0; s < state_->schemes.size(); ++s)
    for (std::size_t n = 0; n < state_->schemes[s].lowered.terms.size(); ++n)
      e.terms[bound.term_index(s, n)].name = state_->plan->schemes[s].name();
  return e;
}

}  // namespace posenc::v0
