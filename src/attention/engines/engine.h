// SPDX-License-Identifier: Apache-2.0
// Engines in the order in which they are asked. The first that takes a call runs it; the exact one is
// the last and takes every call.
#pragma once
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "attention/lowered/lowered_call.h"
#include "posenc/attention/attend.h"
#include "posenc/attention/explain_plan.h"

namespace posenc::inline v0::detail {

// The calls have passed check_attention and check_attention_indices.
struct Engine {
  std::string_view name;
  // Why the engine does not run the call; empty: it does.
  std::string (*why_not)(const AttentionArgs&, const LoweredCall&);
  // Memory that a forward pass needs beside inputs and outputs.
  std::size_t (*workspace_bytes)(const AttentionArgs&, const LoweredCall&);
  void (*forward)(const AttentionArgs&, const LoweredCall&, const AttentionResult&,
                  const Executor&);
  // Adds to the gradients. `result` is what forward gave.
  void (*backward)(const AttentionArgs&, const LoweredCall&, const ConstAttentionResult& result,
                   const ConstAttentionResult& d_result, const AttentionGradients&,
                   const Executor&);
};
std::span<const Engine> engines() noexcept;

struct Choice {
  const Engine* engine = nullptr;
  std::vector<std::pair<std::string_view, std::string>> refused;  // engines before it, and why
};
// The first engine that takes the call. The last one must take every call.
Choice choose_engine(std::span<const Engine>, const AttentionArgs&, const LoweredCall&);

// attend and attend_backward with what a plan prepared.
void attend_lowered(const AttentionArgs&, const LoweredCall&, const AttentionResult&,
                    const Executor&);
void attend_lowered_backward(const AttentionArgs&, const LoweredCall&, const ConstAttentionResult&,
                             const ConstAttentionResult& d_result, const AttentionGradients&,
                             const Executor&);

// explain_plan with what a plan prepared.
PlanExplanation explain_lowered(const AttentionArgs&, const LoweredCall&);

}  // namespace posenc::v0::detail
