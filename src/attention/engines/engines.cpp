// SPDX-License-Identifier: Apache-2.0
#include "attention/engines/engine.h"

#include "attention/call/check_overlap.h"
#include "attention/call/check_parts.h"
#include "attention/exact/engine.h"

namespace posenc::inline v0 {
namespace detail {

std::span<const Engine> engines() noexcept {
  static constexpr Engine all[] = {
      {"exact", [](const AttentionArgs&, const LoweredCall&) { return std::string(); },
       exact_workspace_bytes, exact_forward, exact_backward},
  };
  return all;
}

Choice choose_engine(std::span<const Engine> list, const AttentionArgs& a, const LoweredCall& l) {
  Choice choice;
  for (const Engine& engine : list) {
    choice.engine = &engine;
    std::string why = engine.why_not(a, l);
    if (why.empty()) return choice;
    choice.refused.emplace_back(engine.name, std::move(why));
  }
  return choice;
}

void attend_lowered(const AttentionArgs& a, const LoweredCall& l, const AttentionResult& r,
                    const Executor& executor) {
  check_attention(a, r);
  check_attention_indices(a);
  choose_engine(engines(), a, l).engine->forward(a, l, r, executor);
}

void attend_lowered_backward(const AttentionArgs& a, const LoweredCall& l,
                             const ConstAttentionResult& result,
                             const ConstAttentionResult& d_result, const AttentionGradients& g,
                             const Executor& executor) {
  check_attention(a, g);
  check_attention_indices(a);
  check_read(a, result, "the result");
  check_read(a, d_result, "the gradient of the result");
  check_overlap(d_result, g);
  choose_engine(engines(), a, l).engine->backward(a, l, result, d_result, g, executor);
}

}  // namespace detail

void attend(const AttentionArgs& a, const AttentionResult& r, const Executor& executor) {
  detail::attend_lowered(a, {}, r, executor);
}

void attend_backward(const AttentionArgs& a, const ConstAttentionResult& result,
                     const ConstAttentionResult& d_result, const AttentionGradients& g,
                     const Executor& executor) {
  detail::attend_lowered_backward(a, {}, result, d_result, g, executor);
}

}  // namespace posenc::v0
