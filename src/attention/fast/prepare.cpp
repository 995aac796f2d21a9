// SPDX-License-Identifier: Apache-2.0
#include "attention/fast/prepare.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "attention/call/rotation_positions.h"
#include "attention/call/visible_runs.h"
#include "core/element.h"
#include "core/parallel.h"
#include "kernels/attention/fast_strips.h"
#include "posenc/rotary/plan.h"

namespace posenc::inline v0::detail {
namespace {

StageCopy copy_of(const ConstHeads& from, std::span<const std::uint8_t> seen, CallArena& arena,
                  const Executor& executor) {
  StageCopy to{nullptr, from.batch, from.tokens, from.heads, from.dim, seen};
  const std::span<float> memory = arena.array<float>(to.size());
  if (arena.counts()) return to;
  to.x = memory.data();
  const auto take = fast_kernels(active_isa()).take_row[fast_type(from.dtype)];
  to.each_vector(executor, [&](Index n) {
    const Index token = n / to.heads;
    const Index at = token / to.tokens * from.batch_stride + token % to.tokens * from.token_stride +
                     n % to.heads * from.head_stride;
    float* x = to.x + n * to.dim;
    if (from.dim_stride == 1)
      take(x, static_cast<const std::byte*>(from.data) + at * size_of(from.dtype), to.dim, 1.0f);
    else
      for (Index c = 0; c < to.dim; ++c)
        x[c] = static_cast<float>(float_element(from.data, from.dtype, at + c * from.dim_stride));
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

void run_stage(const Stage& s, const ConstTensorView& array, const StageCopy& t,
               const Executor& executor) {
  if (s.kind == StageKind::add && array.empty()) return;
  t.each_vector(executor, [&](Index n) {
    const Index group = array.empty() ? 0 : Grouping{t.heads, array.shape[0]}.of(n % t.heads);
    run_vector(s, array, group, t.dim, t.x + n * t.dim);
  });
}

void rotate(const RotaryPlan& plan, const Positions& all, const StageCopy& t, bool as_key,
            RotateMode mode, const Executor& executor) {
  if (t.batch * t.tokens * t.heads == 0) return;
  const Positions p = rotation_positions(plan.spec(), all);
  t.each_run([&](Index b, Run run) {
    const Heads some = t.some(b, run);
    plan.apply(as_key ? QK{{}, some} : QK{some, {}}, slice_positions(p, b, run), mode, executor);
  });
}

const float* input_of(const StageCopy& t, CallArena& arena) {
  const std::span<float> x = arena.array<float>(t.size());
  if (!arena.counts()) std::copy_n(t.x, t.size(), x.data());
  return x.data();
}

}  // namespace

std::string_view stages_why_not(const AttentionArgs& a) noexcept {
  if (a.prepare.empty()) return {};
  if (!a.block_table.empty()) return "the call has paged keys and stages";
  for (const Stage& s : a.prepare)
    if (s.value) return "a stage rotates values";
  return {};
}

void rotate_stage(const ReadyCall& c, const LoweredCall& lowered, std::size_t n, const StageCopy& q,
                  const StageCopy& k, RotateMode mode, const Executor& executor) {
  std::optional<RotaryPlan> own;
  const RotaryPlan* plan = lowered.narrow_rotation(n);
  if (plan == nullptr)
    plan = &own.emplace(*c.args.prepare[n].rotary, DType::f32,
                        PlanOptions{.outside = OutsideRange::allow});
  rotate(*plan, c.args.query_positions, q, false, mode, executor);
  rotate(*plan, c.args.key_positions, k, true, mode, executor);
}

PreparedQK prepare_qk(const ReadyCall& c, const LoweredCall& lowered, Keep keep, CallArena& arena,
                      const Executor& executor) {
  const std::span<const Stage> stages = c.args.prepare;
  if (stages.empty()) return {c.args.q, c.given_k};
  const std::span<const std::uint8_t> seen = tiles_seen(c, false, arena);
  const StageCopy q = copy_of(c.args.q, {}, arena, executor),
                  k = copy_of(c.given_k, seen, arena, executor);
  const std::span<StageInput> before =
      arena.objects<StageInput>(keep == Keep::inputs ? static_cast<Index>(stages.size()) : 0);
  for (std::size_t n = 0; n < stages.size(); ++n) {
    const Stage& s = stages[n];
    const bool norm = s.kind == StageKind::l2 || s.kind == StageKind::rms;
    if (norm && !before.empty()) before[n] = {input_of(q, arena), input_of(k, arena)};
    if (arena.counts()) continue;
    if (s.kind == StageKind::rotate) {
      rotate_stage(c, lowered, n, q, k, RotateMode::forward, executor);
    } else {
      run_stage(s, s.q, q, executor);
      run_stage(s, s.k, k, executor);
    }
  }
  return {q.view(), k.view(), seen, before};
}

}  // namespace posenc::v0::detail
