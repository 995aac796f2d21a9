// SPDX-License-Identifier: Apache-2.0
#include "attention/fast/prepare.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "attention/call/rotation_positions.h"
#include "attention/call/visible_runs.h"
#include "core/parallel.h"
#include "kernels/attention/fast_strips.h"
#include "posenc/rotary/plan.h"

namespace posenc::inline v0::detail {
namespace {

// One tensor on its way: float, [B, T, heads, D].
struct Copy {
  float* x = nullptr;
  Index batch, tokens, heads, dim;
  std::span<const std::uint8_t> seen{};  // [B, tiles]; empty: all tokens

  Heads some(Index b, Run t) const noexcept {
    float* first = x + (b * tokens + t.begin) * heads * dim;
    return {first, 1, t.end - t.begin, heads, dim, tokens * heads * dim, heads * dim,
            dim,   1, DType::f32};
  }
  ConstHeads view() const noexcept {
    return {x, batch, tokens, heads, dim, tokens * heads * dim, heads * dim, dim, 1, DType::f32};
  }
  // fn(b, tokens) for tokens that are wanted.
  template <class F>
  void each_run(const F& fn) const {
    const Index tiles = whole_tiles(tokens) / kTile;
    for (Index b = 0; b < batch; ++b)
      for (Index t = 0; t < tiles; ++t) {
        const auto wanted = [&](Index n) {
          return seen.empty() || seen[static_cast<std::size_t>(b * tiles + n)] != 0;
        };
        if (!wanted(t)) continue;
        const Index first = t;
        while (t + 1 < tiles && wanted(t + 1)) ++t;
        fn(b, Run{first * kTile, std::min(tokens, (t + 1) * kTile)});
      }
  }
  // fn(vector) for each vector of them, by all threads.
  template <class F>
  void each_vector(const Executor& executor, const F& fn) const {
    each_run([&](Index b, Run run) {
      const Index first = (b * tokens + run.begin) * heads, count = (run.end - run.begin) * heads;
      parallel_for(executor, count, count * dim / kValuesPerTask,
                   [&](Index begin, Index end) noexcept {
                     for (Index n = first + begin; n < first + end; ++n) fn(n);
                   });
    });
  }
};

Copy copy_of(const ConstHeads& from, std::span<const std::uint8_t> seen, CallArena& arena,
             const Executor& executor) {
  Copy to{nullptr, from.batch, from.tokens, from.heads, from.dim, seen};
  const std::span<float> memory =
      arena.array<float>(from.batch * from.tokens * from.heads * from.dim);
  if (arena.counts()) return to;
  to.x = memory.data();
  const auto take = fast_kernels(active_isa()).take_row[fast_type(from.dtype)];
  to.each_vector(executor, [&](Index n) {
    const Index token = n / to.heads;
    const Index at = token / to.tokens * from.batch_stride + token % to.tokens * from.token_stride +
                     n % to.heads * from.head_stride;
    take(to.x + n * to.dim, static_cast<const std::byte*>(from.data) + at * size_of(from.dtype),
         to.dim, 1.0f);
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
  t.each_vector(executor, [&](Index n) {
    const Index group = array.empty() ? 0 : Grouping{t.heads, array.shape[0]}.of(n % t.heads);
    run_vector(s, array, group, t.dim, t.x + n * t.dim);
  });
}

void rotate(const RotaryPlan& plan, const Positions& all, const Copy& t, bool as_key,
            const Executor& executor) {
  if (t.batch * t.tokens * t.heads == 0) return;
  const Positions p = rotation_positions(plan.spec(), all);
  t.each_run([&](Index b, Run run) {
    const Heads some = t.some(b, run);
    plan.apply(as_key ? QK{{}, some} : QK{some, {}}, slice_positions(p, b, run),
               RotateMode::forward, executor);
  });
}

}  // namespace

std::string_view stages_why_not(const AttentionArgs& a) noexcept {
  if (a.prepare.empty()) return {};
  if (!a.block_table.empty()) return "keys in pages pass stages first";
  if (a.q.dim_stride != 1 || a.k.dim_stride != 1)
    return "q or k passes stages first, and its channels are not adjacent";
  for (const Stage& s : a.prepare)
    if (s.value) return "values are rotated";
  return {};
}

PreparedQK prepare_qk(const ReadyCall& c, const LoweredCall& lowered, CallArena& arena,
                      const Executor& executor) {
  const AttentionArgs& a = c.args;
  if (a.prepare.empty()) return {a.q, a.k};
  const std::span<const std::uint8_t> seen = tiles_seen(c, false, arena);
  const Copy q = copy_of(a.q, {}, arena, executor), k = copy_of(a.k, seen, arena, executor);
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
    rotate(*plan, a.query_positions, q, false, executor);
    rotate(*plan, a.key_positions, k, true, executor);
  }
  return {q.view(), k.view(), seen};
}

}  // namespace posenc::v0::detail
