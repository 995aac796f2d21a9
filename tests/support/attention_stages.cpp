// SPDX-License-Identifier: Apache-2.0
// A call made ready: keys out of their pages, then biases, norms and rotations of q, k and v.
#include <algorithm>
#include <cmath>

#include "posenc/rotary/plan.h"
#include "support/attention_parts.h"

namespace posenc::support {
namespace {

// Every vector of x [.., heads, dim] through an `add`, `l2` or `rms`.
void run_stage(const Stage& s, Numbers& x, Index heads, Index dim, const ConstTensorView& array) {
  const Index n = static_cast<Index>(x.size()) / std::max<Index>(dim, 1);
  for (Index row = 0; row < n; ++row) {
    double* y = x.data() + row * dim;
    double squares = 0;
    for (Index c = 0; c < dim; ++c) squares += y[c] * y[c];
    const Index g = array.empty() ? 0 : group(row % heads, heads, array.shape[0]);
    for (Index c = 0; c < dim; ++c) {
      if (s.kind == StageKind::add) y[c] += get(array, {g, c});
      if (s.kind == StageKind::l2) y[c] /= std::max(std::sqrt(squares), s.epsilon);
      if (s.kind == StageKind::rms)
        y[c] *= get(array, {g, c}, 1) / std::sqrt(squares / static_cast<double>(dim) + s.epsilon);
    }
  }
}

// The transpose for one vector: x before the stage, d of what came out, then of x.
void pull_norm(const Stage& s, const double* x, double* d, Index dim, Index g,
               const ConstTensorView& weight, const TensorView& d_weight) {
  const auto n = static_cast<double>(dim);
  double squares = 0, dot = 0;
  for (Index c = 0; c < dim; ++c) squares += x[c] * x[c];
  const double norm = std::sqrt(squares);
  const bool rms = s.kind == StageKind::rms;
  const double r = rms ? 1 / std::sqrt(squares / n + s.epsilon) : 1 / std::max(norm, s.epsilon);
  for (Index c = 0; c < dim; ++c) {
    add(d_weight, {g, c}, d[c] * x[c] * r);
    d[c] *= get(weight, {g, c}, 1);
    dot += d[c] * x[c];
  }
  const double slope = rms ? r * r * r / n : norm > s.epsilon ? r * r * r : 0;
  for (Index c = 0; c < dim; ++c) d[c] = r * d[c] - slope * dot * x[c];
}

void pull_stage(const Stage& s, const Numbers& before, Numbers& d, Index heads, Index dim,
                const ConstTensorView& array, const TensorView& d_array) {
  const Index n = static_cast<Index>(d.size()) / std::max<Index>(dim, 1);
  for (Index row = 0; row < n; ++row) {
    double* dy = d.data() + row * dim;
    // Vectors that nothing comes back to may hold anything.
    if (std::all_of(dy, dy + dim, [](double x) { return x == 0; })) continue;
    const Index g = array.empty() ? 0 : group(row % heads, heads, array.shape[0]);
    if (s.kind == StageKind::add)
      for (Index c = 0; c < dim; ++c) add(d_array, {g, c}, dy[c]);
    else
      pull_norm(s, before.data() + row * dim, dy, dim, g, array, d_array);
  }
}

// The axes that the rotation reads.
Positions axes_of(Positions p, const RotarySpec& spec) {
  p.axes = static_cast<std::int32_t>(spec.axes());
  return p;
}

// x [batch, tokens, heads, dim] in place.
void rotate(const RotarySpec& spec, Numbers& x, const Index (&shape)[4], const Positions& p,
            bool as_key, RotateMode mode) {
  if (x.empty()) return;
  const Heads h = heads(tensor(static_cast<void*>(x.data()), DType::f64, shape), HeadsLayout::bthd);
  const QK qk = as_key ? QK{{}, h} : QK{h, {}};
  RotaryPlan(spec, DType::f64).apply(qk, axes_of(p, spec), mode);
}

void rotate_all(const Call& c, const Stage& s, Numbers& q, Numbers& k, Numbers& v,
                RotateMode mode) {
  const AttentionArgs& a = c.args;
  rotate(*s.rotary, q, {c.B, c.Tq, c.H, c.D}, a.query_positions, false, mode);
  rotate(*s.rotary, k, {c.R, c.Tk, c.G, c.D}, a.key_positions, true, mode);
  if (s.value) rotate(*s.rotary, v, {c.R, c.Tk, c.G, c.V}, a.key_positions, false, mode);
}

// q and k of regions with a rotation, in place.
void rotate_regions(const Call& c, std::vector<Numbers>& q, std::vector<Numbers>& k,
                    RotateMode mode) {
  for (std::size_t n = 0; n < c.args.regions.size(); ++n) {
    const ScoreRegion& r = c.args.regions[n];
    if (r.rotary == nullptr) continue;
    rotate(*r.rotary, q[n], {c.B, c.Tq, c.H, c.D}, r.query_positions, false, mode);
    rotate(*r.rotary, k[n], {c.R, c.Tk, c.G, c.D}, r.key_positions, true, mode);
  }
}

}  // namespace

Call::Call(const AttentionArgs& a)
    : args(a),
      B(a.q.batch),
      R(a.block_table.empty() ? a.q.batch : a.block_table.shape[0]),
      H(a.q.heads),
      G(a.k.heads),
      Tq(a.q.tokens),
      Tk(a.block_table.empty() ? a.k.tokens : a.block_table.shape[1] * a.k.tokens),
      D(a.q.dim),
      V(a.v.dim) {
  gather();
  prepare();
  visible.resize(pairs());
  each_row([&](Index b, Index h, Index i) {
    for (Index j = 0; j < Tk; ++j) visible[pair(b, h, i, j)] = is_visible(b, h, i, j);
  });
}

template <class F>
void Call::each_key(const F& fn) const {
  const bool paged = !args.block_table.empty();
  for (Index r = 0; r < R; ++r) {
    const Index n = paged ? static_cast<Index>(get(args.mask.key_length, {r})) : Tk;
    for (Index j = 0; j < n; ++j)
      for (Index g = 0; g < G; ++g)
        if (paged)
          fn(r, j, static_cast<Index>(get(args.block_table, {r, j / args.k.tokens})),
             j % args.k.tokens, g);
        else
          fn(r, j, r, j, g);
  }
}

void Call::gather() {
  q.resize(static_cast<std::size_t>(B * Tq * H * D));
  k.resize(static_cast<std::size_t>(R * Tk * G * D));
  v.resize(static_cast<std::size_t>(R * Tk * G * V));
  for (Index b = 0; b < B; ++b)
    for (Index i = 0; i < Tq; ++i)
      for (Index h = 0; h < H; ++h)
        for (Index c = 0; c < D; ++c) q[at_q(b, i, h, c)] = get(args.q, b, i, h, c);
  each_key([&](Index r, Index j, Index b, Index t, Index g) {
    const Index h = g * (H / G);  // the first query head that reads it
    for (Index c = 0; c < D; ++c) k[at_k(r, j, h, c)] = get(args.k, b, t, g, c);
    for (Index c = 0; c < V; ++c) v[at_v(r, j, h, c)] = get(args.v, b, t, g, c);
  });
}

void Call::prepare() {
  for (const Stage& s : args.prepare) {
    q_before.push_back(q);
    k_before.push_back(k);
    if (s.kind == StageKind::rotate) {
      rotate_all(*this, s, q, k, v, RotateMode::forward);
      continue;
    }
    const bool only_given = s.kind == StageKind::add;
    if (!only_given || !s.q.empty()) run_stage(s, q, H, D, s.q);
    if (!only_given || !s.k.empty()) run_stage(s, k, G, D, s.k);
  }
  // In place of the call's rotation, which is the last stage.
  const bool rotated = !args.prepare.empty() && args.prepare.back().kind == StageKind::rotate;
  region_q.assign(args.regions.size(), rotated ? q_before.back() : q);
  region_k.assign(args.regions.size(), rotated ? k_before.back() : k);
  rotate_regions(*this, region_q, region_k, RotateMode::forward);
}

void Call::pull_prepared(Pulled p, const AttentionGradients& g) const {
  Numbers &d_q = p.q, &d_k = p.k, &d_v = p.v;
  rotate_regions(*this, p.region_q, p.region_k, RotateMode::gradient);
  std::size_t n = args.prepare.size();
  if (n > 0 && args.prepare.back().kind == StageKind::rotate)
    rotate_all(*this, args.prepare[--n], d_q, d_k, d_v, RotateMode::gradient);
  for (std::size_t r = 0; r < args.regions.size(); ++r) {
    if (args.regions[r].rotary == nullptr) continue;
    for (std::size_t i = 0; i < d_q.size(); ++i) d_q[i] += p.region_q[r][i];
    for (std::size_t i = 0; i < d_k.size(); ++i) d_k[i] += p.region_k[r][i];
  }
  while (n-- > 0) {
    const Stage& s = args.prepare[n];
    if (s.kind == StageKind::rotate) {
      rotate_all(*this, s, d_q, d_k, d_v, RotateMode::gradient);
      continue;
    }
    const StageGradient to = g.prepare.empty() ? StageGradient{} : g.prepare[n];
    pull_stage(s, q_before[n], d_q, H, D, s.q, to.q);
    pull_stage(s, k_before[n], d_k, G, D, s.k, to.k);
  }
  for (Index b = 0; b < B; ++b)
    for (Index i = 0; i < Tq; ++i)
      for (Index h = 0; h < H; ++h)
        for (Index c = 0; c < D; ++c) add(g.q, b, i, h, c, d_q[at_q(b, i, h, c)]);
  each_key([&](Index r, Index j, Index b, Index t, Index e) {
    const Index h = e * (H / G);
    for (Index c = 0; c < D; ++c) add(g.k, b, t, e, c, d_k[at_k(r, j, h, c)]);
    for (Index c = 0; c < V; ++c) add(g.v, b, t, e, c, d_v[at_v(r, j, h, c)]);
  });
}

}  // namespace posenc::support
