// SPDX-License-Identifier: Apache-2.0
// Engines in the order in which they are asked. The first that takes a call runs it; the exact one is
// the last and takes every call.
#pragma once
#include <string_view>

#include "attention/call/ready_call.h"
#include "attention/lowered/lowered_call.h"
#include "posenc/attention/attend.h"
#include "posenc/attention/explain_plan.h"

namespace posenc::inline v0::detail {

// The calls have passed check_attention and check_attention_indices.
struct Engine {
  std::string_view name;
  // Why the engine does not run the call; empty: it does.
  std::string_view (*why_not)(const ReadyCall&, const LoweredCall&);
  // Both take all of their memory from the arena before they write a result. With an arena that
  // counts they return then, with nothing read of q, k and v.
  void (*forward)(const ReadyCall&, const LoweredCall&, const AttentionResult&, CallArena&,
                  const Executor&);
  // The same of the gradients.
  std::string_view (*backward_why_not)(const ReadyCall&, const LoweredCall&);
  // Adds to the gradients. `result` is what the forward pass of any engine gave.
  void (*backward)(const ReadyCall&, const LoweredCall&, const ConstAttentionResult& result,
                   const ConstAttentionResult& d_result, const AttentionGradients&, CallArena&,
                   const Executor&);
};
std::span<const Engine> engines() noexcept;
// The first engine that takes the call. The last one must take every call.
enum class Pass : std::uint8_t { forward, backward };
const Engine& choose_engine(std::span<const Engine>, const ReadyCall&, const LoweredCall&,
                            Pass = Pass::forward);

// attend and attend_backward with what a plan prepared, checks included. With an arena that counts
// they take their memory and return.
void attend_lowered(const AttentionArgs&, const LoweredCall&, const AttentionResult&, CallArena&,
                    const Executor&);
void attend_lowered_backward(const AttentionArgs&, const LoweredCall&, const ConstAttentionResult&,
                             const ConstAttentionResult& d_result, const AttentionGradients&,
                             CallArena&, const Executor&);

// attend_scores and attend_scores_backward with what a plan prepared.
void attend_scores_lowered(const AttentionArgs&, const LoweredCall&, const AttentionScores&,
                           const Executor&);
void attend_scores_lowered_backward(const AttentionArgs&, const LoweredCall&,
                                    const ConstTensorView& d_scores, const AttentionGradients&,
                                    const Executor&);

// Throws [attention]: a workspace of fewer bytes than needed.
[[noreturn]] void refuse_workspace(Workspace, std::size_t needed);
// run(arena) in the workspace; in memory of its own where that is empty. With an arena that counts,
// run gives the size that a message names.
template <class F>
void run_in(Workspace w, const F& run) {
  CallArena arena(w, CallArena::Own::kept);
  try {
    run(arena);
  } catch (const WorkspaceEnds&) {
    refuse_workspace(w, bytes_of(run));
  }
}

// explain_plan with what a plan prepared.
PlanExplanation explain_lowered(const AttentionArgs&, const LoweredCall&);

}  // namespace posenc::v0::detail
