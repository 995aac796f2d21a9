// SPDX-License-Identifier: Apache-2.0
// q, k and v through the stages of a call, and the gradients of what came out back to the caller's.
#include <cmath>

#include "attention/exact/gradient_sums.h"
#include "attention/exact/load_keys.h"
#include "attention/exact/regions.h"
#include "attention/exact/rotation.h"
#include "core/element.h"

namespace posenc::inline v0::detail {
namespace {

// Entry [g, 0..] of an array [G, dim] as the head reads it.
Index array_group(const ConstTensorView& array, Index head, Index heads) noexcept {
  return array.empty() ? 0 : Grouping{heads, array.shape[0]}.of(head);
}

double sum_of_squares(const double* x, Index n) noexcept {
  return dot(x, x, n);
}

// Vectors [begin, end) of one group of heads, one after the other.
void run_stage(const Stage& s, const ConstTensorView& array, Index group, Index begin, Index end,
               Index dim, double* x) noexcept {
  const auto n = static_cast<double>(dim);
  for (Index vector = begin; vector < end; ++vector) {
    double* y = x + vector * dim;
    double r = 1;
    if (s.kind == StageKind::l2) r = 1 / std::max(std::sqrt(sum_of_squares(y, dim)), s.epsilon);
    if (s.kind == StageKind::rms) r = 1 / std::sqrt(sum_of_squares(y, dim) / n + s.epsilon);
    for (Index c = 0; c < dim; ++c) {
      y[c] *= r;
      if (array.empty()) continue;
      if (s.kind == StageKind::add)
        y[c] += read_number(array, group, c);
      else
        y[c] *= read_number(array, group, c);
    }
  }
}

// y = w r x with r = 1 / norm(x): d x = r w d - r^3 (x . w d) x / n (rms: n channels; l2: n = 1,
// and none of it where epsilon is the norm), d w += d r x. add: d bias += d.
double norm_factor(const Stage& s, const double* x, Index dim) noexcept {
  if (s.kind == StageKind::add) return 1;
  const double squares = sum_of_squares(x, dim);
  if (s.kind == StageKind::rms)
    return 1 / std::sqrt(squares / static_cast<double>(dim) + s.epsilon);
  return 1 / std::max(std::sqrt(squares), s.epsilon);
}
void pull_vector(const Stage& s, const ConstTensorView& array, Index g, const double* x, double* d,
                 Index dim) noexcept {
  if (s.kind == StageKind::add) return;
  const bool rms = s.kind == StageKind::rms;
  const double r = norm_factor(s, x, dim), norm = std::sqrt(sum_of_squares(x, dim));
  const double n = rms ? static_cast<double>(dim) : 1;
  for (Index c = 0; !array.empty() && c < dim; ++c) d[c] *= read_number(array, g, c);
  const double slope = rms || norm > s.epsilon ? r * r * r / n : 0;
  const double along = slope * dot(x, d, dim);
  for (Index c = 0; c < dim; ++c) d[c] = r * d[c] - along * x[c];
}

// What nothing comes back to may hold anything.
bool is_zero(const double* d, Index dim) noexcept {
  return std::all_of(d, d + dim, [](double v) { return v == 0; });
}

// d w or d bias: a sum over vectors in their order, split over the channels.
void add_array_gradient(const Stage& s, const ConstTensorView& array, const StageShape& shape,
                        std::span<const double> before, std::span<const double> d,
                        const TensorView& to, std::span<double> memory, const Executor& executor) {
  if (to.empty()) return;
  const std::span<double> sums = memory.first(static_cast<std::size_t>(to.count()));
  std::fill(sums.begin(), sums.end(), 0.0);
  constexpr Index kLine = 8;
  const Index most = static_cast<Index>(d.size()) / kValuesPerTask;
  parallel_for(
      executor, block_count(shape.dim, kLine), most, [&](Index from, Index to_block) noexcept {
        const Index begin = from * kLine, count = std::min(shape.dim, to_block * kLine) - begin;
        for (Index vector = 0; vector < shape.vectors(); ++vector) {
          const double *y = d.data() + vector * shape.dim, *x = before.data() + vector * shape.dim;
          if (is_zero(y, shape.dim)) continue;
          double* sum =
              sums.data() + array_group(array, shape.head(vector), shape.heads) * shape.dim + begin;
          if (s.kind == StageKind::add) {
            add_scaled(sum, 1, y + begin, count);
            continue;
          }
          const double r = norm_factor(s, x, shape.dim);
          for (Index c = 0; c < count; ++c) sum[c] += y[begin + c] * x[begin + c] * r;
        }
      });
  add_to(to, sums);
}

void pull_stage(const Stage& s, const ConstTensorView& array, const StageShape& shape,
                std::span<const double> before, std::span<double> d, const TensorView& d_array,
                std::span<double> memory, const Executor& executor) {
  add_array_gradient(s, array, shape, before, d, d_array, memory, executor);
  if (s.kind == StageKind::add) return;
  const Index most = static_cast<Index>(d.size()) / kValuesPerTask;
  parallel_for(executor, shape.vectors(), most, [&](Index begin, Index end) noexcept {
    for (Index vector = begin; vector < end; ++vector) {
      double* y = d.data() + vector * shape.dim;
      if (is_zero(y, shape.dim)) continue;
      pull_vector(s, array, array_group(array, shape.head(vector), shape.heads),
                  before.data() + vector * shape.dim, y, shape.dim);
    }
  });
}

void rotate_all(const CallView& c, std::size_t stage, const Shapes& shapes, double* q, double* k,
                double* v, RotateMode mode, const Executor& executor) {
  const Rotation rotation{
      c, *c.rotations[stage], c.args.query_positions, c.args.key_positions, mode, executor};
  rotation.queries(q, shapes.q);
  if (c.streams) return rotation.check_keys(shapes.k);
  rotation.keys(k, shapes.k, true);
  if (c.args.prepare[stage].value) rotation.keys(v, shapes.v, false);
}

void find_rotations(CallView& c, CallArena& arena) {
  const std::span<const Stage> stages = c.args.prepare;
  c.rotations = arena.objects<const RotaryPlan*>(static_cast<Index>(stages.size()));
  if (arena.counts()) return;
  std::size_t own = 0;
  const auto makes = [&](std::size_t n) {
    return stages[n].kind == StageKind::rotate && c.lowered.rotation(n) == nullptr;
  };
  for (std::size_t n = 0; n < stages.size(); ++n) own += makes(n) ? 1 : 0;
  c.own_rotations.reserve(own + c.args.regions.size());
  for (std::size_t n = 0; n < stages.size(); ++n)
    c.rotations[n] =
        makes(n) ? &c.own_rotations.emplace_back(*stages[n].rotary, DType::f64,
                                                 PlanOptions{.outside = OutsideRange::allow})
                 : c.lowered.rotation(n);
}

// From [batch, heads, tokens, dim] into the caller's, paged ones by their pages.
void add_keys(const CallView& c, const Heads& to, std::span<const double> d) {
  const AttentionArgs& a = c.args;
  if (to.data == nullptr) return;
  if (a.block_table.empty()) return add_to(to, d);
  for (Index r = 0; r < c.R; ++r)
    for (Index j = 0, n = read_index(a.mask.key_length, r); j < n; ++j)
      for (Index g = 0; g < c.G; ++g)
        add_vector(to, read_index(a.block_table, r, j / a.k.tokens), j % a.k.tokens, g,
                   d.data() + ((r * c.G + g) * c.Tk + j) * to.dim);
}

}  // namespace

void run_stages(CallView& c, bool backward, CallArena& arena, const Executor& executor) {
  const Shapes shapes(c);
  const auto copy_of = [&](std::span<const double> x) {
    const std::span<double> to = arena.array<double>(static_cast<Index>(x.size()));
    if (!arena.counts()) std::copy(x.begin(), x.end(), to.begin());
    return to;
  };
  const Index count = backward ? static_cast<Index>(c.args.prepare.size()) : 0;
  find_rotations(c, arena);
  c.q_before = arena.objects<std::span<double>>(count);
  c.k_before = arena.objects<std::span<double>>(count);
  for (std::size_t n = 0; n < c.args.prepare.size(); ++n) {
    const Stage& s = c.args.prepare[n];
    if (s.kind == StageKind::rotate) make_rotated_regions(c, arena, executor);
    if (backward && s.kind != StageKind::rotate)
      c.q_before[n] = copy_of(c.q), c.k_before[n] = copy_of(c.k);
    if (arena.counts()) continue;
    if (s.kind == StageKind::rotate) {
      rotate_all(c, n, shapes, c.q.data(), c.k.data(), c.v.data(), RotateMode::forward, executor);
      continue;
    }
    const Index most = static_cast<Index>(c.q.size()) / kValuesPerTask;
    parallel_for(executor, c.B * c.H, most, [&](Index begin, Index end) noexcept {
      for (Index slab = begin; slab < end; ++slab)
        run_stage(s, s.q, array_group(s.q, slab % c.H, c.H), slab * c.Tq, (slab + 1) * c.Tq, c.D,
                  c.q.data());
    });
    if (c.streams) continue;
    each_seen_keys(c, c.D, executor, [&](Index r, Index g, Run some) noexcept {
      const Index at = (r * c.G + g) * c.Tk;
      run_stage(s, s.k, array_group(s.k, g, c.G), at + some.begin, at + some.end, c.D, c.k.data());
    });
  }
  if (!ends_with_rotation(c.args)) make_rotated_regions(c, arena, executor);
}

void run_key_stages(const CallView& c, Index r, Index g, Run some, double* k) noexcept {
  const Index count = some.end - some.begin;
  for (std::size_t n = 0; n < c.args.prepare.size(); ++n) {
    const Stage& s = c.args.prepare[n];
    if (s.kind != StageKind::rotate) {
      run_stage(s, s.k, array_group(s.k, g, c.G), 0, count, c.D, k);
      continue;
    }
    Positions p = c.args.key_positions;  // which run_stages checked
    p.axes = static_cast<std::int32_t>(c.rotations[n]->spec().axes());
    const Heads heads{k, 1, count, 1, c.D, 0, c.D, 0, 1, DType::f64};
    c.rotations[n]->apply({{}, heads}, slice_positions(p, r, some), RotateMode::forward,
                          inline_executor());
  }
}

void pull_stages(const CallView& c, const StagePull& d, const AttentionGradients& g,
                 const Executor& executor) {
  const Shapes shapes(c);
  if (!ends_with_rotation(c.args)) pull_rotated_regions(c, d, executor);
  for (std::size_t n = c.args.prepare.size(); n-- > 0;) {
    const Stage& s = c.args.prepare[n];
    if (s.kind == StageKind::rotate) {  // the transpose of a rotation, its gain kept
      rotate_all(c, n, shapes, d.q.data(), d.k.data(), d.v.data(), RotateMode::gradient, executor);
      if (n + 1 == c.args.prepare.size()) pull_rotated_regions(c, d, executor);
      continue;
    }
    const StageGradient to = g.prepare.empty() ? StageGradient{} : g.prepare[n];
    pull_stage(s, s.q, shapes.q, c.q_before[n], d.q, to.q, d.array_sums, executor);
    pull_stage(s, s.k, shapes.k, c.k_before[n], d.k, to.k, d.array_sums, executor);
  }
  add_to(g.q, d.q);
  add_keys(c, g.k, d.k);
  add_keys(c, g.v, d.v);
}

}  // namespace posenc::v0::detail
