// SPDX-License-Identifier: Apache-2.0
#include "attention/engines/engine.h"

#include <string>

#include "attention/call/check_overlap.h"
#include "attention/call/check_parts.h"
#include "attention/exact/engine.h"
#include "posenc/core/error.h"

namespace posenc::inline v0 {
namespace detail {

std::span<const Engine> engines() noexcept {
  static constexpr Engine all[] = {
      {"exact", [](const ReadyCall&, const LoweredCall&) { return std::string_view(); },
       exact_forward, exact_backward},
  };
  return all;
}

const Engine& choose_engine(std::span<const Engine> list, const ReadyCall& call,
                            const LoweredCall& lowered) {
  for (const Engine& engine : list)
    if (engine.why_not(call, lowered).empty()) return engine;
  return list.back();
}

namespace {

void run_forward(const AttentionArgs& a, const LoweredCall& l, const AttentionResult& r,
                 CallArena& arena, const Executor& executor) {
  const ReadyCall call(a, arena);
  choose_engine(engines(), call, l).forward(call, l, r, arena, executor);
}

void run_backward(const AttentionArgs& a, const LoweredCall& l, const ConstAttentionResult& result,
                  const ConstAttentionResult& d_result, const AttentionGradients& g,
                  CallArena& arena, const Executor& executor) {
  const ReadyCall call(a, arena);
  choose_engine(engines(), call, l).backward(call, l, result, d_result, g, arena, executor);
}

// run(arena) in the workspace; in memory of its own where that is empty.
template <class F>
void run_in(Workspace w, const F& run) {
  CallArena arena(w);
  try {
    run(arena);
  } catch (const WorkspaceEnds&) {
    refuse_field(kAttention, "workspace",
                 "must have the bytes that workspace_bytes gives, " + std::to_string(bytes_of(run)),
                 static_cast<Index>(w.size()));
  }
}

}  // namespace

std::size_t forward_bytes(const AttentionArgs& a, const LoweredCall& l, const Executor& executor) {
  return bytes_of([&](CallArena& arena) { run_forward(a, l, {}, arena, executor); });
}

std::size_t backward_bytes(const AttentionArgs& a, const LoweredCall& l,
                           const AttentionGradients& g, const Executor& executor) {
  return bytes_of([&](CallArena& arena) { run_backward(a, l, {}, {}, g, arena, executor); });
}

void attend_lowered(const AttentionArgs& a, const LoweredCall& l, const AttentionResult& r,
                    const Executor& executor, Workspace workspace) {
  check_attention(a, r);
  check_attention_indices(a);
  check_overlap(a, r, workspace);
  run_in(workspace, [&](CallArena& arena) { run_forward(a, l, r, arena, executor); });
}

void attend_lowered_backward(const AttentionArgs& a, const LoweredCall& l,
                             const ConstAttentionResult& result,
                             const ConstAttentionResult& d_result, const AttentionGradients& g,
                             const Executor& executor, Workspace workspace) {
  check_attention(a, g);
  check_attention_indices(a);
  check_read(a, result, "the result");
  check_read(a, d_result, "the gradient of the result");
  check_overlap(d_result, g);
  check_overlap(a, d_result, g, workspace);
  run_in(workspace,
         [&](CallArena& arena) { run_backward(a, l, result, d_result, g, arena, executor); });
}

}  // namespace detail

std::size_t workspace_bytes(const AttentionArgs& a, const Executor& executor) {
  detail::check_call(a);
  check_attention_indices(a);
  return detail::forward_bytes(a, {}, executor);
}

std::size_t workspace_bytes(const AttentionArgs& a, const AttentionGradients& g,
                            const Executor& executor) {
  check_attention(a, g);
  check_attention_indices(a);
  return detail::backward_bytes(a, {}, g, executor);
}

void attend(const AttentionArgs& a, const AttentionResult& r, const Executor& executor,
            Workspace workspace) {
  detail::attend_lowered(a, {}, r, executor, workspace);
}

void attend_backward(const AttentionArgs& a, const ConstAttentionResult& result,
                     const ConstAttentionResult& d_result, const AttentionGradients& g,
                     const Executor& executor, Workspace workspace) {
  detail::attend_lowered_backward(a, {}, result, d_result, g, executor, workspace);
}

}  // namespace posenc::v0
