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

// token_at(batch entry, token): the first element of its first head.
template <class F>
void fill_copy(const StageCopy& to, const ConstHeads& from, const F& token_at,
               const Executor& executor) {
  const auto take = fast_kernels(active_isa()).take_row[fast_type(from.dtype)];
  to.each_vector(executor, [&](Index n) {
    const Index token = n / to.heads;
    const Index at =
        token_at(token / to.tokens, token % to.tokens) + n % to.heads * from.head_stride;
    float* x = to.x + n * to.dim;
    if (from.dim_stride == 1)
      take(x, static_cast<const std::byte*>(from.data) + at * size_of(from.dtype), to.dim, 1.0f);
    else
      for (Index c = 0; c < to.dim; ++c)
        x[c] = static_cast<float>(float_element(from.data, from.dtype, at + c * from.dim_stride));
  });
}

// Of the same shape, with memory.
StageCopy empty_copy(StageCopy like, CallArena& arena) {
  const std::span<float> memory = arena.array<float>(like.size());
  like.x = arena.counts() ? nullptr : memory.data();
  return like;
}
StageCopy copy_of(const StageCopy& from, CallArena& arena, const Executor& executor) {
  const StageCopy to = empty_copy(from, arena);
  if (!arena.counts())
    to.each_vector(executor,
                   [&](Index n) { std::copy_n(from.x + n * to.dim, to.dim, to.x + n * to.dim); });
  return to;
}

StageCopy copy_queries(const ReadyCall& c, CallArena& arena, const Executor& executor) {
  const ConstHeads& q = c.args.q;
  const StageCopy to = empty_copy({nullptr, c.B, c.Tq, c.H, c.D, {}, {}}, arena);
  if (!arena.counts())
    fill_copy(
        to, q, [&](Index b, Index i) { return b * q.batch_stride + i * q.token_stride; }, executor);
  return to;
}
// Keys of pages lie side by side in their copy.
StageCopy copy_keys(const ReadyCall& c, std::span<const std::uint8_t> seen, CallArena& arena,
                    const Executor& executor) {
  const ConstHeads& k = c.given_k;
  const ConstTensorView& pages = c.args.block_table;
  const std::span<Index> ends = arena.objects<Index>(pages.empty() ? 0 : c.R);
  for (Index r = 0; r < static_cast<Index>(ends.size()); ++r)
    ends[static_cast<std::size_t>(r)] = read_index(c.args.mask.key_length, r);
  const StageCopy to = empty_copy({nullptr, c.R, c.Tk, c.G, c.D, seen, ends}, arena);
  if (arena.counts()) return to;
  if (pages.empty())
    fill_copy(
        to, k, [&](Index b, Index j) { return b * k.batch_stride + j * k.token_stride; }, executor);
  else
    fill_copy(
        to, k,
        [&](Index r, Index j) {
          return read_index(pages, r, j / k.tokens) * k.batch_stride +
                 j % k.tokens * k.token_stride;
        },
        executor);
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

void rotate_region(const ReadyCall& c, const LoweredCall& lowered, std::size_t n,
                   const StageCopy& q, const StageCopy& k, RotateMode mode,
                   const Executor& executor) {
  const ScoreRegion& r = c.args.regions[n];
  std::optional<RotaryPlan> own;
  const RotaryPlan* plan = lowered.spec == r.rotary ? lowered.narrow_of_spec : nullptr;
  if (plan == nullptr)
    plan = &own.emplace(*r.rotary, DType::f32, PlanOptions{.outside = OutsideRange::allow});
  rotate(*plan, r.query_positions, q, false, mode, executor);
  rotate(*plan, r.key_positions, k, true, mode, executor);
}

namespace {

using Flags = std::span<const std::uint8_t>;

// Tiles that are seen and whose set passes.
template <class Passes>
Flags flags_of(Flags seen, std::span<const RegionSet> sets, const Passes& passes,
               CallArena& arena) {
  const std::span<std::uint8_t> to = arena.array<std::uint8_t>(static_cast<Index>(seen.size()));
  for (std::size_t n = 0; !arena.counts() && n < to.size(); ++n)
    to[n] = seen[n] != 0 && passes(sets[n]) ? 1 : 0;
  return to;
}

// q and k before the rotation of the call, rotated for each region. Without sets k of a region is a whole copy. With
// them tiles of one region are rotated where they are, and those that are left for the call's rotation returned.
Flags rotate_regions(const ReadyCall& c, const LoweredCall& lowered, const StageCopy& q,
                     const StageCopy& k, std::span<const RegionSet> sets, std::span<ConstQK> to,
                     CallArena& arena, const Executor& executor) {
  for (std::size_t n = 0; n < to.size(); ++n) {
    if (c.args.regions[n].rotary == nullptr) continue;
    const RegionSet bit = kNoRegion << (n + 1);
    StageCopy some = k, own = k;
    if (!sets.empty()) {
      some.seen = flags_of(
          k.seen, sets, [&](RegionSet s) { return !is_single(s) && (s & bit) != 0; }, arena);
      own.seen = flags_of(
          k.seen, sets, [&](RegionSet s) { return s == bit; }, arena);
    }
    const StageCopy q_copy = copy_of(q, arena, executor), k_copy = copy_of(some, arena, executor);
    to[n] = {q_copy.view(), k_copy.view()};
    if (arena.counts()) continue;
    rotate_region(c, lowered, n, q_copy, k_copy, RotateMode::forward, executor);
    if (!sets.empty()) rotate_region(c, lowered, n, {}, own, RotateMode::forward, executor);
  }
  if (sets.empty()) return k.seen;
  return flags_of(
      k.seen, sets, [](RegionSet s) { return (s & kNoRegion) != 0; }, arena);
}

}  // namespace

PreparedQK prepare_qk(const ReadyCall& c, const Regions& all, const LoweredCall& lowered, Keep keep,
                      bool turns, CallArena& arena, const Executor& executor) {
  const std::span<const Stage> stages = c.args.prepare;
  const std::span<ConstQK> regions =
      arena.made<ConstQK>(static_cast<Index>(c.args.regions.size()),
                          [&](Index n) { return c.args.regions[static_cast<std::size_t>(n)].qk; });
  if (stages.empty() && !rotates_regions(c.args)) return {c.args.q, c.given_k, regions};
  const std::span<const std::uint8_t> seen =
      turns ? std::span<const std::uint8_t>() : tiles_seen(c, false, arena);
  const StageCopy q = copy_queries(c, arena, executor);
  if (turns) {
    if (!arena.counts()) rotate_stage(c, lowered, 0, q, {}, RotateMode::forward, executor);
    return {q.view(), c.given_k, regions};
  }
  StageCopy k = copy_keys(c, seen, arena, executor);
  // Gradients read k of every region whole.
  const std::span<const RegionSet> sets = rotates_regions(c.args) && keep == Keep::nothing
                                              ? all.of_tiles(arena)
                                              : std::span<const RegionSet>();
  const std::span<StageInput> before =
      arena.objects<StageInput>(keep == Keep::inputs ? static_cast<Index>(stages.size()) : 0);
  for (std::size_t n = 0; n < stages.size(); ++n) {
    const Stage& s = stages[n];
    const bool norm = s.kind == StageKind::l2 || s.kind == StageKind::rms;
    if (norm && !before.empty()) before[n] = {input_of(q, arena), input_of(k, arena)};
    if (s.kind == StageKind::rotate)
      k.seen = rotate_regions(c, lowered, q, k, sets, regions, arena, executor);
    if (arena.counts()) continue;
    if (s.kind == StageKind::rotate) {
      rotate_stage(c, lowered, n, q, k, RotateMode::forward, executor);
    } else {
      run_stage(s, s.q, q, executor);
      run_stage(s, s.k, k, executor);
    }
  }
  if (stages.empty() || stages.back().kind != StageKind::rotate)
    rotate_regions(c, lowered, q, k, sets, regions, arena, executor);
  return {q.view(), k.view(), regions, sets, seen, before};
}

}  // namespace posenc::v0::detail
