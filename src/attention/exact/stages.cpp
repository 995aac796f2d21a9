// SPDX-License-Identifier: Apache-2.0
// q, k and v through the stages of a call, and the gradients of what came out back to the caller's.
#include <cmath>

#include "attention/call/check_parts.h"
#include "attention/exact/call_view.h"
#include "attention/exact/gradient_sums.h"
#include "core/element.h"
#include "posenc/core/error.h"
#include "posenc/rotary/plan.h"

namespace posenc::inline v0::detail {
namespace {

// Where vectors [batch, heads, tokens, dim] of a stage lie.
struct StageShape {
  Index batch, heads, tokens, dim;
  Index vectors() const noexcept { return batch * heads * tokens; }
  Index head(Index vector) const noexcept { return vector / tokens % heads; }
};

// Entry [g, 0..] of an array [G, dim] as the head reads it.
Index array_group(const ConstTensorView& array, Index head, Index heads) noexcept {
  return array.empty() ? 0 : head / (heads / array.shape[0]);
}

double sum_of_squares(const double* x, Index n) noexcept {
  return dot(x, x, n);
}

void run_stage(const Stage& s, const ConstTensorView& array, const StageShape& shape, Numbers& x) {
  const auto n = static_cast<double>(shape.dim);
  for (Index vector = 0; vector < shape.vectors(); ++vector) {
    double* y = x.data() + vector * shape.dim;
    const Index g = array_group(array, shape.head(vector), shape.heads);
    double r = 1;
    if (s.kind == StageKind::l2)
      r = 1 / std::max(std::sqrt(sum_of_squares(y, shape.dim)), s.epsilon);
    if (s.kind == StageKind::rms) r = 1 / std::sqrt(sum_of_squares(y, shape.dim) / n + s.epsilon);
    for (Index c = 0; c < shape.dim; ++c) {
      y[c] *= r;
      if (array.empty()) continue;
      if (s.kind == StageKind::add)
        y[c] += read_number(array, g, c);
      else
        y[c] *= read_number(array, g, c);
    }
  }
}

// y = w r x with r = 1 / norm(x): d x = r w d - r^3 (x . w d) x / n (rms: n channels; l2: n = 1,
// and none of it where epsilon is the norm), d w += d r x. add: d bias += d.
void pull_vector(const Stage& s, const ConstTensorView& array, Index g, const double* x, double* d,
                 Index dim, double* d_array) {
  if (d_array != nullptr) d_array += g * dim;
  if (s.kind == StageKind::add) {
    if (d_array != nullptr) add_scaled(d_array, 1, d, dim);
    return;
  }
  const bool rms = s.kind == StageKind::rms;
  const double squares = sum_of_squares(x, dim), norm = std::sqrt(squares);
  const double n = rms ? static_cast<double>(dim) : 1;
  const double r = rms ? 1 / std::sqrt(squares / n + s.epsilon) : 1 / std::max(norm, s.epsilon);
  for (Index c = 0; c < dim; ++c) {
    if (d_array != nullptr) d_array[c] += d[c] * x[c] * r;
    if (!array.empty()) d[c] *= read_number(array, g, c);
  }
  const double slope = rms || norm > s.epsilon ? r * r * r / n : 0;
  const double along = slope * dot(x, d, dim);
  for (Index c = 0; c < dim; ++c) d[c] = r * d[c] - along * x[c];
}

void pull_stage(const Stage& s, const ConstTensorView& array, const StageShape& shape,
                const Numbers& before, Numbers& d, const TensorView& d_array) {
  Numbers sums;
  if (!d_array.empty()) sums.assign(static_cast<std::size_t>(array.count()), 0.0);
  for (Index vector = 0; vector < shape.vectors(); ++vector) {
    double* y = d.data() + vector * shape.dim;
    // What nothing comes back to may hold anything.
    if (std::all_of(y, y + shape.dim, [](double v) { return v == 0; })) continue;
    pull_vector(s, array, array_group(array, shape.head(vector), shape.heads),
                before.data() + vector * shape.dim, y, shape.dim,
                sums.empty() ? nullptr : sums.data());
  }
  add_to(d_array, sums);
}

void rotate(const RotaryPlan& plan, Numbers& x, const StageShape& s, Positions p, bool as_key,
            RotateMode mode, const Executor& executor) {
  if (x.empty()) return;
  const Index axes = plan.spec().axes();
  if (axes > p.axes)
    refuse(kAttention,
           "a rotation must have axes of the positions, at most " + std::to_string(p.axes), axes);
  p.axes = static_cast<std::int32_t>(axes);
  const Heads h{x.data(), s.batch,          s.tokens, s.heads,   s.dim, s.heads * s.tokens * s.dim,
                s.dim,    s.tokens * s.dim, 1,        DType::f64};
  plan.apply(as_key ? QK{{}, h} : QK{h, {}}, p, mode, executor);
}

struct Shapes {
  explicit Shapes(const CallView& c)
      : q{c.B, c.H, c.Tq, c.D}, k{c.R, c.G, c.Tk, c.D}, v{c.R, c.G, c.Tk, c.V} {}
  StageShape q, k, v;
};

void rotate_all(const AttentionArgs& a, const Stage& s, const Shapes& shapes, Numbers& q,
                Numbers& k, Numbers& v, RotateMode mode, const Executor& executor) {
  const RotaryPlan plan(*s.rotary, DType::f64);
  rotate(plan, q, shapes.q, a.query_positions, false, mode, executor);
  rotate(plan, k, shapes.k, a.key_positions, true, mode, executor);
  if (s.value) rotate(plan, v, shapes.v, a.key_positions, false, mode, executor);
}

// From [batch, heads, tokens, dim] into the caller's, paged ones by their pages.
void add_keys(const CallView& c, const Heads& to, const Numbers& d) {
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

void run_stages(CallView& c, bool backward, const Executor& executor) {
  const Shapes shapes(c);
  for (const Stage& s : c.args.prepare) {
    if (backward) {
      c.q_before.push_back(s.kind == StageKind::rotate ? Numbers{} : c.q);
      c.k_before.push_back(s.kind == StageKind::rotate ? Numbers{} : c.k);
    }
    if (s.kind == StageKind::rotate) {
      rotate_all(c.args, s, shapes, c.q, c.k, c.v, RotateMode::forward, executor);
      continue;
    }
    run_stage(s, s.q, shapes.q, c.q);
    run_stage(s, s.k, shapes.k, c.k);
  }
}

void pull_stages(const CallView& c, Numbers& d_q, Numbers& d_k, Numbers& d_v,
                 const AttentionGradients& g, const Executor& executor) {
  const Shapes shapes(c);
  for (std::size_t n = c.args.prepare.size(); n-- > 0;) {
    const Stage& s = c.args.prepare[n];
    if (s.kind == StageKind::rotate) {  // the transpose of a rotation, its gain kept
      rotate_all(c.args, s, shapes, d_q, d_k, d_v, RotateMode::gradient, executor);
      continue;
    }
    const StageGradient to = g.prepare.empty() ? StageGradient{} : g.prepare[n];
    pull_stage(s, s.q, shapes.q, c.q_before[n], d_q, to.q);
    pull_stage(s, s.k, shapes.k, c.k_before[n], d_k, to.k);
  }
  add_to(g.q, d_q);
  add_keys(c, g.k, d_k);
  add_keys(c, g.v, d_v);
}

}  // namespace posenc::v0::detail
