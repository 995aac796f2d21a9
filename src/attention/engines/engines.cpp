// SPDX-License-Identifier: Apache-2.0
#include "attention/engines/engine.h"

#include <string>

#include "attention/call/check_overlap.h"
#include "attention/call/check_parts.h"
#include "attention/exact/engine.h"
#include "attention/fast/engine.h"
#include "posenc/core/error.h"

namespace posenc::inline v0 {
namespace detail {

namespace {

// The exact engine computes the rows that the fast one leaves, in memory of its own: there are none unless numbers of
// the call are huge or not finite.
void fast_then_exact(const ReadyCall& call, const LoweredCall& lowered,
                     const AttentionResult& result, CallArena& arena, const Executor& executor) {
  const std::span<const Index> left = fast_forward(call, lowered, result, arena, executor);
  if (left.empty()) return;
  CallArena own;
  exact_forward_rows(call, lowered, result, left, own, executor);
}

// The same of the gradients, of which one row that float cannot work with leaves all to the exact engine.
void fast_or_exact_backward(const ReadyCall& call, const LoweredCall& lowered,
                            const ConstAttentionResult& result,
                            const ConstAttentionResult& d_result, const AttentionGradients& g,
                            CallArena& arena, const Executor& executor) {
  if (fast_backward(call, lowered, result, d_result, g, arena, executor)) return;
  CallArena own;
  exact_backward(call, lowered, result, d_result, g, own, executor);
}

std::string_view takes_all(const ReadyCall&, const LoweredCall&) {
  return {};
}

}  // namespace

std::span<const Engine> engines() noexcept {
  static constexpr Engine all[] = {
      {"fast", fast_why_not, fast_then_exact, fast_backward_why_not, fast_or_exact_backward},
      {"exact", takes_all, exact_forward, takes_all, exact_backward},
  };
  return all;
}

const Engine& choose_engine(std::span<const Engine> list, const ReadyCall& call,
                            const LoweredCall& lowered, Pass pass) {
  for (const Engine& engine : list)
    if ((pass == Pass::forward ? engine.why_not : engine.backward_why_not)(call, lowered).empty())
      return engine;
  return list.back();
}

void refuse_workspace(Workspace w, std::size_t needed) {
  refuse_field(kAttention, "workspace",
               "must have the bytes that workspace_bytes gives, " + std::to_string(needed),
               static_cast<Index>(w.size()));
}

void attend_lowered(const AttentionArgs& a, const LoweredCall& l, const AttentionResult& r,
                    CallArena& arena, const Executor& executor) {
  if (arena.counts())
    check_call(a);
  else
    check_attention(a, r);
  check_attention_indices(a);
  const ReadyCall call(a, arena);
  choose_engine(engines(), call, l).forward(call, l, r, arena, executor);
}

void attend_lowered_backward(const AttentionArgs& a, const LoweredCall& l,
                             const ConstAttentionResult& result,
                             const ConstAttentionResult& d_result, const AttentionGradients& g,
                             CallArena& arena, const Executor& executor) {
  check_attention(a, g);
  check_attention_indices(a);
  if (!arena.counts()) {
    check_read(a, result, "the result");
    check_whole(a, result);
    check_read(a, d_result, "the gradient of the result");
    check_overlap(d_result, g);
  }
  const ReadyCall call(a, arena);
  choose_engine(engines(), call, l, Pass::backward)
      .backward(call, l, result, d_result, g, arena, executor);
}

void attend_scores_lowered(const AttentionArgs& a, const LoweredCall& l, const AttentionScores& s,
                           const Executor& executor) {
  exact_scores(a, l, s, executor);
}

void attend_scores_lowered_backward(const AttentionArgs& a, const LoweredCall& l,
                                    const ConstTensorView& d_scores, const AttentionGradients& g,
                                    const Executor& executor) {
  exact_scores_backward(a, l, d_scores, g, executor);
}

}  // namespace detail

std::size_t workspace_bytes(const AttentionArgs& a, const Executor& executor) {
  return detail::bytes_of(
      [&](detail::CallArena& arena) { detail::attend_lowered(a, {}, {}, arena, executor); });
}

std::size_t workspace_bytes(const AttentionArgs& a, const AttentionGradients& g,
                            const Executor& executor) {
  return detail::bytes_of([&](detail::CallArena& arena) {
    detail::attend_lowered_backward(a, {}, {}, {}, g, arena, executor);
  });
}

void attend(const AttentionArgs& a, const AttentionResult& r, const Executor& executor,
            Workspace workspace) {
  detail::check_overlap(a, r, workspace);
  detail::run_in(workspace, [&](detail::CallArena& arena) {
    detail::attend_lowered(a, {}, r, arena, executor);
  });
}

void attend_backward(const AttentionArgs& a, const ConstAttentionResult& result,
                     const ConstAttentionResult& d_result, const AttentionGradients& g,
                     const Executor& executor, Workspace workspace) {
  detail::check_overlap(a, d_result, g, workspace);
  detail::run_in(workspace, [&](detail::CallArena& arena) {
    detail::attend_lowered_backward(a, {}, result, d_result, g, arena, executor);
  });
}

void attend_scores(const AttentionArgs& a, const AttentionScores& s, const Executor& executor) {
  detail::exact_scores(a, {}, s, executor);
}

void attend_scores_backward(const AttentionArgs& a, const ConstTensorView& d_scores,
                            const AttentionGradients& g, const Executor& executor) {
  detail::exact_scores_backward(a, {}, d_scores, g, executor);
}

}  // namespace posenc::v0
