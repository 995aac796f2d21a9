// SPDX-License-Identifier: Apache-2.0
#include "attention/fast/prepare.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "attention/call/rotation_positions.h"
#include "core/parallel.h"
#include "kernels/attention/fast_strips.h"
#include "posenc/rotary/plan.h"

namespace posenc::inline v0::detail {
namespace {

// One tensor on its way: float, [B, T, heads, D].
struct Copy {
  float* x = nullptr;
  Index batch, tokens, heads, dim;

  Heads view() const noexcept {
    return {x, batch, tokens, heads, dim, tokens * heads * dim, heads * dim, dim, 1, DType::f32};
  }
  Index vectors() const noexcept { return batch * tokens * heads; }
};

Copy copy_of(const ConstHeads& from, CallArena& arena, const Executor& executor) {
  Copy to{nullptr, from.batch, from.tokens, from.heads, from.dim};
  const std::span<float> memory = arena.array<float>(to.vectors() * to.dim);
  if (arena.counts()) return to;
  to.x = memory.data();
  const auto take = fast_kernels(active_isa()).take_row[fast_type(from.dtype)];
  parallel_for(executor, to.vectors(), to.vectors() * to.dim / kValuesPerTask,
               [&](Index begin, Index end) noexcept {
                 for (Index n = begin; n < end; ++n) {
                   const Index token = n / to.heads, at = token / to.tokens * from.batch_stride +
                                                          token % to.tokens * from.token_stride +
                                                          n % to.heads * from.head_stride;
                   const auto* x =
                       static_cast<const std::byte*>(from.data) + at * size_of(from.dtype);
                   take(to.x + n * to.dim, x, to.dim, 1.0f);
                 }
               });
  return to;
}

// y = w x / norm(x), or x + bias, of one vector; sums in double.
void run_vector(const Stage& s, const ConstTensorView& array, Index group, Index dim,
                float* x) noexcept {
  double squares = 0;
  for (Index c = 0; c < dim; ++c) squares += static_cast<double>(x[c]) * static_cast<double>(x[c]);
  double r = 1;
  if (s.kind == StageKind::l2) r = 1 / std::max(std::sqrt(squares), s.epsilon);
  if (s.kind == StageKind::rms) r = 1 / std::sqrt(squares / static_cast<double>(dim) + s.epsilon);
  for (Index c = 0; c < dim; ++c) {
    double y = static_cast<double>(x[c]) * r;
    if (!array.empty()) {
      const double w = read_number(array, group, c);
      y = s.kind == StageKind::add ? y + w : y * w;
    }
    x[c] = static_cast<float>(y);
  }
}

void run_stage(const Stage& s, const ConstTensorView& array, const Copy& t,
               const Executor& executor) {
  if (s.kind == StageKind::add && array.empty()) return;
  parallel_for(
      executor, t.vectors(), t.vectors() * t.dim / kValuesPerTask,
      [&](Index begin, Index end) noexcept {
        for (Index n = begin; n < end; ++n) {
          const Index group = array.empty() ? 0 : Grouping{t.heads, array.shape[0]}.of(n % t.heads);
          run_vector(s, array, group, t.dim, t.x + n * t.dim);
        }
      });
}

void rotate(const ReadyCall& c, const RotaryPlan& plan, const Copy& q, const Copy& k,
            const Executor& executor) {
  if (q.vectors() > 0)
    plan.apply({q.view(), {}}, rotation_positions(plan.spec(), c.args.query_positions),
               RotateMode::forward, executor);
  if (k.vectors() > 0)
    plan.apply({{}, k.view()}, rotation_positions(plan.spec(), c.args.key_positions),
               RotateMode::forward, executor);
}

}  // namespace

std::string_view stages_why_not(const AttentionArgs& a) noexcept {
  if (a.prepare.empty()) return {};
  if (!a.block_table.empty()) return "stages of keys in pages";
  if (a.q.dim_stride != 1 || a.k.dim_stride != 1)
    return "stages of q or k whose channels are not adjacent";
  for (const Stage& s : a.prepare)
    if (s.value) return "values are rotated";
  return {};
}

PreparedQK prepare_qk(const ReadyCall& c, const LoweredCall& lowered, CallArena& arena,
                      const Executor& executor) {
  const AttentionArgs& a = c.args;
  if (a.prepare.empty()) return {a.q, a.k};
  const Copy q = copy_of(a.q, arena, executor), k = copy_of(a.k, arena, executor);
  std::size_t number = 0;
  for (const Stage& s : a.prepare) {
    const std::size_t n = number++;
    if (arena.counts()) break;
    if (s.kind != StageKind::rotate) {
      run_stage(s, s.q, q, executor);
      run_stage(s, s.k, k, executor);
      continue;
    }
    std::optional<RotaryPlan> own;
    const RotaryPlan* plan = lowered.narrow_rotation(n);
    if (plan == nullptr)
      plan = &own.emplace(*s.rotary, DType::f32, PlanOptions{.outside = OutsideRange::allow});
    rotate(c, *plan, q, k, executor);
  }
  return {q.view(), k.view()};
}

}  // namespace posenc::v0::detail
