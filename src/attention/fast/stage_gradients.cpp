// SPDX-License-Identifier: Apache-2.0
#include "attention/fast/stage_gradients.h"

#include <algorithm>
#include <cmath>

#include "attention/call/add_to.h"
#include "core/element.h"

namespace posenc::inline v0::detail {
namespace {

double sum_of_products(const float* a, const float* b, Index n) noexcept {
  double sum = 0;
  for (Index i = 0; i < n; ++i) sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  return sum;
}
// What nothing comes back to may hold anything.
bool is_zero(const float* d, Index n) noexcept {
  return std::all_of(d, d + n, [](float x) { return x == 0; });
}
Index group_of(const ConstTensorView& array, const StageCopy& t, Index vector) noexcept {
  return array.empty() ? 0 : Grouping{t.heads, array.shape[0]}.of(vector % t.heads);
}

// r of y = w r x: 1 / norm(x).
double norm_factor(const Stage& s, const float* x, Index dim) noexcept {
  if (s.kind == StageKind::add) return 1;
  const double squares = sum_of_products(x, x, dim);
  if (s.kind == StageKind::l2) return 1 / std::max(std::sqrt(squares), s.epsilon);
  return 1 / std::sqrt(squares / static_cast<double>(dim) + s.epsilon);
}

// d x = r w d - r^3 (x . w d) x / n; rms: n channels; l2: n = 1, and none of it where epsilon is the norm.
void pull_vector(const Stage& s, const ConstTensorView& array, Index group, const float* x,
                 float* d, Index dim) noexcept {
  const bool rms = s.kind == StageKind::rms;
  const double r = norm_factor(s, x, dim);
  for (Index c = 0; !array.empty() && c < dim; ++c)
    d[c] = static_cast<float>(static_cast<double>(d[c]) * read_number(array, group, c));
  const bool moves = rms || std::sqrt(sum_of_products(x, x, dim)) > s.epsilon;
  const double slope = moves ? r * r * r / (rms ? static_cast<double>(dim) : 1) : 0;
  const double along = slope * sum_of_products(x, d, dim);
  for (Index c = 0; c < dim; ++c)
    d[c] = static_cast<float>(r * static_cast<double>(d[c]) - along * static_cast<double>(x[c]));
}

// d w += d r x, d bias += d: over vectors in their order, split over the channels.
void add_array(const Stage& s, const ConstTensorView& array, const StageCopy& d,
               const float* before, const TensorView& to, std::span<double> memory,
               const Executor& executor) noexcept {
  if (to.empty()) return;
  const std::span<double> sums = memory.first(static_cast<std::size_t>(to.count()));
  std::fill(sums.begin(), sums.end(), 0.0);
  constexpr Index kLine = 8;
  parallel_for(executor, block_count(d.dim, kLine), d.size() / kValuesPerTask,
               [&](Index from, Index end_block) noexcept {
                 const Index begin = from * kLine, end = std::min(d.dim, end_block * kLine);
                 for (Index n = 0; n < d.size() / d.dim; ++n) {
                   const float* y = d.x + n * d.dim;
                   if (is_zero(y, d.dim)) continue;
                   const float* x = before == nullptr ? nullptr : before + n * d.dim;
                   double* sum = sums.data() + group_of(array, d, n) * d.dim;
                   const double r = norm_factor(s, x, d.dim);
                   for (Index c = begin; c < end; ++c)
                     sum[c] += static_cast<double>(y[c]) *
                               (x == nullptr ? 1 : r * static_cast<double>(x[c]));
                 }
               });
  add_to(to, sums);
}

void pull_stage(const Stage& s, const ConstTensorView& array, const StageCopy& d,
                const float* before, const TensorView& to, std::span<double> memory,
                const Executor& executor) noexcept {
  if (d.size() == 0) return;
  add_array(s, array, d, before, to, memory, executor);
  if (s.kind == StageKind::add) return;
  parallel_for(executor, d.size() / d.dim, d.size() / kValuesPerTask,
               [&](Index begin, Index end) noexcept {
                 for (Index n = begin; n < end; ++n)
                   if (float* y = d.x + n * d.dim; !is_zero(y, d.dim))
                     pull_vector(s, array, group_of(array, d, n), before + n * d.dim, y, d.dim);
               });
}

void put_copy(const BackwardCall& c, const Heads& to, const StageCopy& d,
              const Executor& executor) noexcept {
  if (to.data == nullptr) return;
  parallel_for(executor, d.batch * d.tokens, d.size() / kValuesPerTask,
               [&](Index begin, Index end) noexcept {
                 for (Index n = begin; n < end; ++n)
                   for (Index h = 0; h < d.heads; ++h)
                     put_floats(c, to, n / d.tokens, {n % d.tokens, n % d.tokens + 1}, h, 1,
                                d.x + (n * d.heads + h) * d.dim, d.dim);
               });
}

}  // namespace

Index largest_stage_array(const AttentionGradients& g) noexcept {
  Index most = 0;
  for (const StageGradient& s : g.prepare)
    for (const TensorView* v : {&s.q, &s.k})
      if (!v->empty()) most = std::max(most, v->count());
  return most;
}

void pull_fast_stages(const BackwardCall& c, const LoweredCall& lowered, std::span<double> sums,
                      const Executor& executor) {
  const StageCopy q{c.prepared_q.data(), c.B, c.Tq, c.H, c.D, {}, {}},
      k{c.prepared_k.data(), c.B, c.Tk, c.G, c.D, c.seen, {}};
  const std::size_t count = c.args.prepare.size();
  const bool rotates = count > 0 && c.args.prepare.back().kind == StageKind::rotate;
  if (!rotates) c.region_gradients.pull_back(c, lowered, q, k, executor);
  for (std::size_t n = count; n-- > 0;) {
    const Stage& s = c.args.prepare[n];
    if (s.kind == StageKind::rotate) {  // the transpose of a rotation, its gain kept
      rotate_stage(c, lowered, n, q, k, RotateMode::gradient, executor);
      if (n + 1 == count) c.region_gradients.pull_back(c, lowered, q, k, executor);
      continue;
    }
    const StageGradient to = c.gradients.prepare.empty() ? StageGradient{} : c.gradients.prepare[n];
    pull_stage(s, s.q, q, c.before[n].q, to.q, sums, executor);
    pull_stage(s, s.k, k, c.before[n].k, to.k, sums, executor);
  }
  put_copy(c, c.gradients.q, q, executor);
  put_copy(c, c.gradients.k, k, executor);
}

}  // namespace posenc::v0::detail
