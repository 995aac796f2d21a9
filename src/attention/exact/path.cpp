// SPDX-License-Identifier: Apache-2.0
#include "posenc/attention/path.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "core/element.h"
#include "core/extent.h"
#include "core/memory_limit.h"
#include "core/overlap.h"
#include "core/parallel.h"
#include "core/shape.h"
#include "posenc/core/error.h"

namespace posenc::inline v0 {
namespace {

constexpr const char* kPath = "path";
using PathNumbers = std::vector<double>;

// [batch, heads, tokens, dim] in double.
struct PathArray {
  PathNumbers x;
  Index heads = 0, tokens = 0, dim = 0;
  bool given() const noexcept { return heads > 0; }
  // Of what serves head h of `of`.
  const double* at(Index b, Index h, Index of) const noexcept {
    return x.data() + (b * heads + h / (of / heads)) * tokens * dim;
  }
};

PathArray path_array(const ConstHeads& h) {
  PathArray a;
  if (h.data == nullptr) return a;
  a.heads = h.heads, a.tokens = h.tokens, a.dim = h.dim;
  a.x.reserve(static_cast<std::size_t>(h.batch * h.heads * h.tokens * h.dim));
  for (Index b = 0; b < h.batch; ++b)
    for (Index g = 0; g < h.heads; ++g)
      for (Index t = 0; t < h.tokens; ++t)
        for (Index d = 0; d < h.dim; ++d)
          a.x.push_back(detail::float_element(
              h.data, h.dtype,
              b * h.batch_stride + t * h.token_stride + g * h.head_stride + d * h.dim_stride));
  return a;
}

void check_path_array(const ConstHeads& h, const char* name, const PathArgs& a, Index tokens,
                      Index dim) {
  const std::string who(name);
  if (!is_float(h.dtype)) refuse(kPath, who + " must be of a float type", dtype_name(h.dtype));
  detail::check_extent(kPath, who, h);
  if (h.batch != a.q.batch)
    refuse(kPath, who + " must have the batch of q, " + std::to_string(a.q.batch), h.batch);
  if (h.tokens != tokens)
    refuse(kPath, who + " must have the tokens of k, " + std::to_string(tokens), h.tokens);
  if (h.heads < 1 || a.q.heads % h.heads != 0)
    refuse(kPath, who + " must have heads that divide those of q, " + std::to_string(a.q.heads),
           h.heads);
  if (dim >= 0 && h.dim != dim)
    refuse(kPath, who + " must have " + std::to_string(dim) + " channels", h.dim);
}

void check_path(const PathArgs& a) {
  const std::pair<const ConstHeads&, const char*> needed[] = {
      {a.q, "q"}, {a.k, "k"}, {a.v, "v"}, {a.w, "w"}, {a.beta, "beta"}};
  for (const auto& [array, name] : needed)
    if (array.data == nullptr) refuse(kPath, std::string(name) + " must be given");
  if (a.q.heads < 1 || a.q.dim < 1) refuse(kPath, "q must have heads and channels", a.q.heads);
  check_path_array(a.q, "q", a, a.q.tokens, a.q.dim);
  check_path_array(a.k, "k", a, a.k.tokens, a.q.dim);
  check_path_array(a.v, "v", a, a.k.tokens, -1);
  check_path_array(a.w, "w", a, a.k.tokens, a.q.dim);
  check_path_array(a.beta, "beta", a, a.k.tokens, 1);
  if (a.beta.heads != a.w.heads) refuse(kPath, "beta must have the heads of w", a.beta.heads);
  if (a.log_gate.data != nullptr) check_path_array(a.log_gate, "log_gate", a, a.k.tokens, 1);
  if (a.scale && !std::isfinite(*a.scale)) refuse(kPath, "scale must be finite", *a.scale);
  if (a.query_offset < 0 || a.query_offset > a.k.tokens - a.q.tokens)
    refuse(kPath, "queries must be among the keys, query_offset 0 to keys - queries",
           a.query_offset);
  if (a.window_left < 0) refuse(kPath, "window_left must not be negative", a.window_left);
  Index bytes = 0;
  for (const ConstHeads* h : {&a.q, &a.k, &a.v, &a.w, &a.beta, &a.log_gate})
    if (h->data != nullptr &&
        __builtin_add_overflow(
            bytes, detail::saturated_product({h->batch, h->heads, h->tokens, h->dim, 8}), &bytes))
      bytes = std::numeric_limits<Index>::max();
  detail::check_memory(kPath, "q, k, v, w, beta and log_gate in double",
                       static_cast<std::size_t>(bytes));
}

struct PathCall {
  explicit PathCall(const PathArgs& a)
      : args(a),
        B(a.q.batch),
        H(a.q.heads),
        Tq(a.q.tokens),
        Tk(a.k.tokens),
        D(a.q.dim),
        V(a.v.dim),
        scale(a.scale ? *a.scale : 1 / std::sqrt(static_cast<double>(a.q.dim))),
        gate_scale(a.gates_scaled ? scale : 1),
        q(path_array(a.q)),
        k(path_array(a.k)),
        v(path_array(a.v)),
        w(path_array(a.w)),
        beta(path_array(a.beta)),
        sums(path_array(a.log_gate)) {
    for (std::size_t i = 1; sums.given() && i < sums.x.size(); ++i)
      if (i % static_cast<std::size_t>(Tk) != 0) sums.x[i] += sums.x[i - 1];
  }
  const PathArgs& args;
  Index B, H, Tq, Tk, D, V;
  double scale, gate_scale;
  PathArray q, k, v, w, beta, sums;
};

double path_dot(const double* a, const double* b, Index n) noexcept {
  double s = 0;
  for (Index i = 0; i < n; ++i) s += a[i] * b[i];
  return s;
}
void path_add(double* to, double by, const double* x, Index n) noexcept {
  for (Index i = 0; i < n; ++i) to[i] += by * x[i];
}

// A row: probabilities of keys first .. own, and what the query has become at each of them.
struct PathRow {
  explicit PathRow(const PathCall& c, bool backward)
      : p(static_cast<std::size_t>(c.Tk)),
        x(static_cast<std::size_t>((backward ? c.Tk : 1) * c.D)),
        out(static_cast<std::size_t>(c.V)),
        d(static_cast<std::size_t>(c.D)) {}
  PathNumbers p, x, out, d;
  Index first = 0, own = 0;
  double log_sum_exp = 0;
};

void fill_path_row(const PathCall& c, Index b, Index h, Index i, bool keep, PathRow& r) noexcept {
  const double *q = c.q.at(b, h, c.H) + i * c.D, *k = c.k.at(b, h, c.H);
  const double *w = c.w.at(b, h, c.H), *beta = c.beta.at(b, h, c.H);
  const double* sums = c.sums.given() ? c.sums.at(b, h, c.H) : nullptr;
  r.own = c.args.query_offset + i;
  r.first = c.args.window_left >= r.own ? 0 : r.own - c.args.window_left;
  double most = -INFINITY;
  double* x = r.x.data() + (keep ? r.own * c.D : 0);
  std::copy(q, q + c.D, x);
  for (Index j = r.own;; --j) {
    double s = c.scale * path_dot(x, k + j * c.D, c.D);
    if (sums != nullptr) s += c.gate_scale * (sums[r.own] - sums[j]);
    r.p[static_cast<std::size_t>(j)] = s;
    most = std::max(most, s);
    if (j == r.first) break;
    const double along = beta[j] * path_dot(w + j * c.D, x, c.D);
    if (keep) {
      std::copy(x, x + c.D, x - c.D);
      x -= c.D;
    }
    path_add(x, -along, w + j * c.D, c.D);
  }
  double total = 0;
  for (Index j = r.first; j <= r.own; ++j) {
    double& p = r.p[static_cast<std::size_t>(j)];
    p = std::exp(p - most);
    total += p;
  }
  for (Index j = r.first; j <= r.own; ++j) r.p[static_cast<std::size_t>(j)] /= total;
  r.log_sum_exp = most + std::log(total);
}

// Gradients by query head, [B, H, tokens, channels].
struct PathSums {
  explicit PathSums(const PathCall& c)
      : q(static_cast<std::size_t>(c.B * c.H * c.Tq * c.D)),
        k(static_cast<std::size_t>(c.B * c.H * c.Tk * c.D)),
        v(static_cast<std::size_t>(c.B * c.H * c.Tk * c.V)),
        w(k.size()),
        beta(static_cast<std::size_t>(c.B * c.H * c.Tk)),
        sums(c.sums.given() ? beta.size() : 0) {}
  PathNumbers q, k, v, w, beta, sums;
};

// d_p: dS of the keys of the row. Reflections from the first key on: x_(j-1) = H_j x_j.
void pull_path_row(const PathCall& c, Index b, Index h, PathRow& r, const PathNumbers& ds,
                   PathSums& g, double* dq) noexcept {
  const Index slab = (b * c.H + h) * c.Tk;
  const double *k = c.k.at(b, h, c.H), *w = c.w.at(b, h, c.H), *beta = c.beta.at(b, h, c.H);
  double* d = r.d.data();
  std::fill(r.d.begin(), r.d.end(), 0.0);
  for (Index j = r.first; j <= r.own; ++j) {
    const double s = ds[static_cast<std::size_t>(j)];
    const double* x = r.x.data() + j * c.D;
    if (j > r.first) {
      const double wd = path_dot(w + j * c.D, d, c.D), wx = path_dot(w + j * c.D, x, c.D);
      g.beta[static_cast<std::size_t>(slab + j)] -= wd * wx;
      double* dw = g.w.data() + (slab + j) * c.D;
      path_add(dw, -beta[j] * wx, d, c.D);
      path_add(dw, -beta[j] * wd, x, c.D);
      path_add(d, -beta[j] * wd, w + j * c.D, c.D);
    }
    path_add(d, c.scale * s, k + j * c.D, c.D);
    path_add(g.k.data() + (slab + j) * c.D, c.scale * s, x, c.D);
    if (!g.sums.empty()) {
      g.sums[static_cast<std::size_t>(slab + r.own)] += c.gate_scale * s;
      g.sums[static_cast<std::size_t>(slab + j)] -= c.gate_scale * s;
    }
  }
  path_add(dq, 1, d, c.D);
}

double path_upstream(const ConstHeads& h, Index b, Index t, Index head, Index d) noexcept {
  return detail::float_element(
      h.data, h.dtype,
      b * h.batch_stride + t * h.token_stride + head * h.head_stride + d * h.dim_stride);
}

void pull_path_head(const PathCall& c, const ConstAttentionResult& up, Index b, Index h, PathRow& r,
                    PathNumbers& ds, PathSums& g, const Executor& executor) noexcept {
  const Index slab = (b * c.H + h) * c.Tk;
  const double* v = c.v.at(b, h, c.H);
  for (Index i = 0; i < c.Tq && !detail::is_cancelled(executor); ++i) {
    fill_path_row(c, b, h, i, true, r);
    for (Index d = 0; d < c.V; ++d)
      r.out[static_cast<std::size_t>(d)] = path_upstream(up.out, b, i, h, d);
    const ConstTensorView& l = up.log_sum_exp;
    const double d_lse =
        l.empty() ? 0
                  : detail::float_element(l.data, l.dtype,
                                          b * l.stride[0] + h * l.stride[1] + i * l.stride[2]);
    double mean = 0;
    for (Index j = r.first; j <= r.own; ++j) {
      const auto at = static_cast<std::size_t>(j);
      ds[at] = path_dot(r.out.data(), v + j * c.V, c.V);
      mean += r.p[at] * ds[at];
      path_add(g.v.data() + (slab + j) * c.V, r.p[at], r.out.data(), c.V);
    }
    for (Index j = r.first; j <= r.own; ++j) {
      const auto at = static_cast<std::size_t>(j);
      ds[at] = r.p[at] * (ds[at] - mean + d_lse);
    }
    pull_path_row(c, b, h, r, ds, g, g.q.data() + ((b * c.H + h) * c.Tq + i) * c.D);
  }
  // c_t is in every later sum.
  if (g.sums.empty()) return;
  for (Index j = c.Tk - 1; j > 0; --j)
    g.sums[static_cast<std::size_t>(slab + j - 1)] += g.sums[static_cast<std::size_t>(slab + j)];
}

void check_path_gradient(const Heads& to, const ConstHeads& of, const char* name) {
  if (to.data == nullptr) return;
  if (to.dtype != DType::f64 && to.dtype != DType::f32)
    refuse(kPath, "the gradient of " + std::string(name) + " must be f64 or f32",
           dtype_name(to.dtype));
  if (to.batch != of.batch || to.tokens != of.tokens || to.heads != of.heads || to.dim != of.dim)
    detail::refuse_shape(
        kPath,
        "the gradient of " + std::string(name) + " must have its shape, " + detail::shape_text(of),
        detail::shape_text(ConstHeads(to)));
  detail::check_extent(kPath, "the gradient of " + std::string(name), to);
}

// Heads of `dense` [batch, all, tokens, dim] that share an entry are summed.
void add_path_gradient(const Heads& to, const PathNumbers& dense, Index all) {
  if (to.data == nullptr) return;
  for (Index b = 0; b < to.batch; ++b)
    for (Index h = 0; h < all; ++h)
      for (Index t = 0; t < to.tokens; ++t)
        for (Index d = 0; d < to.dim; ++d) {
          const Index at = b * to.batch_stride + t * to.token_stride +
                           h / (all / to.heads) * to.head_stride + d * to.dim_stride;
          const double x =
              dense[static_cast<std::size_t>(((b * all + h) * to.tokens + t) * to.dim + d)];
          detail::add_element(to.data, to.dtype, at, x);
        }
}

void check_path_result(const PathArgs& a, const ConstAttentionResult& r, const char* what) {
  const ConstHeads& o = r.out;
  if (o.data == nullptr || o.batch != a.q.batch || o.tokens != a.q.tokens || o.heads != a.q.heads ||
      o.dim != a.v.dim || !is_float(o.dtype))
    detail::refuse_shape(kPath,
                         std::string(what) + " must be of a float type and have the shape " +
                             detail::sizes_text({a.q.batch, a.q.tokens, a.q.heads, a.v.dim}),
                         detail::shape_text(o));
  detail::check_extent(kPath, what, o);
  const ConstTensorView& l = r.log_sum_exp;
  if (!l.empty() && l.device != Device::cpu)
    refuse(kPath, "log_sum_exp must be in the CPU's memory");
  if (!l.empty() && (l.rank != 3 || l.shape[0] != a.q.batch || l.shape[1] != a.q.heads ||
                     l.shape[2] != a.q.tokens || (l.dtype != DType::f64 && l.dtype != DType::f32)))
    detail::refuse_shape(kPath,
                         "log_sum_exp must be [batch, heads, queries] of f64 or f32, " +
                             detail::sizes_text({a.q.batch, a.q.heads, a.q.tokens}),
                         l);
  if (!l.empty()) detail::check_extent(kPath, "log_sum_exp", l);
}

// What a call reads, by name.
std::vector<detail::Operand> path_inputs(const PathArgs& a) {
  using detail::memory_of;
  return {{"q", memory_of(a.q)}, {"k", memory_of(a.k)},       {"v", memory_of(a.v)},
          {"w", memory_of(a.w)}, {"beta", memory_of(a.beta)}, {"log_gate", memory_of(a.log_gate)}};
}
void check_path_overlap(const PathArgs& a, const AttentionResult& r) {
  const std::array<detail::Operand, 2> out{
      {{"out", detail::memory_of(r.out)}, {"log_sum_exp", detail::memory_of(r.log_sum_exp)}}};
  detail::check_outputs(kPath, out, {}, path_inputs(a));
}
void check_path_overlap(const PathArgs& a, const ConstAttentionResult& d, const PathGradients& g) {
  using detail::memory_of;
  const std::array<detail::Operand, 6> out{{{"the gradient of q", memory_of(g.q)},
                                            {"the gradient of k", memory_of(g.k)},
                                            {"the gradient of v", memory_of(g.v)},
                                            {"the gradient of w", memory_of(g.w)},
                                            {"the gradient of beta", memory_of(g.beta)},
                                            {"the gradient of log_gate", memory_of(g.log_gate)}}};
  std::vector<detail::Operand> read = path_inputs(a);
  read.push_back({"the gradient of out", memory_of(d.out)});
  read.push_back({"the gradient of log_sum_exp", memory_of(d.log_sum_exp)});
  detail::check_outputs(kPath, out, {}, read);
}

Index path_work(const PathCall& c) noexcept {
  return detail::saturated_product({c.B, c.H, c.Tq, std::max<Index>(1, c.Tk), c.D}) /
         detail::kValuesPerTask;
}

}  // namespace

void attend_path(const PathArgs& a, const AttentionResult& result, const Executor& executor) {
  check_path(a);
  check_path_result(a, result, "out");
  check_path_overlap(a, result);
  const PathCall c(a);
  const Index count = c.B * c.H * c.Tq, most = path_work(c);
  std::vector<PathRow> rows(static_cast<std::size_t>(detail::task_count(executor, count, most)),
                            PathRow(c, false));
  detail::parallel_for(executor, count, most, [&](Index begin, Index end, Index task) noexcept {
    PathRow& r = rows[static_cast<std::size_t>(task)];
    for (Index n = begin; n < end && !detail::is_cancelled(executor); ++n) {
      const Index b = n / (c.H * c.Tq), h = n / c.Tq % c.H, i = n % c.Tq;
      fill_path_row(c, b, h, i, false, r);
      std::fill(r.out.begin(), r.out.end(), 0.0);
      for (Index j = r.first; j <= r.own; ++j)
        path_add(r.out.data(), r.p[static_cast<std::size_t>(j)], c.v.at(b, h, c.H) + j * c.V, c.V);
      const Heads& o = result.out;
      for (Index d = 0; d < c.V; ++d)
        detail::put_element(
            o.data, o.dtype,
            b * o.batch_stride + i * o.token_stride + h * o.head_stride + d * o.dim_stride,
            r.out[static_cast<std::size_t>(d)]);
      const TensorView& l = result.log_sum_exp;
      if (!l.empty())
        detail::put_element(l.data, l.dtype, b * l.stride[0] + h * l.stride[1] + i * l.stride[2],
                            r.log_sum_exp);
    }
  });
  if (detail::is_cancelled(executor)) throw Cancelled(kPath);
}

void attend_path_backward(const PathArgs& a, const ConstAttentionResult& d_result,
                          const PathGradients& to, const Executor& executor) {
  check_path(a);
  check_path_result(a, d_result, "the gradient of out");
  check_path_gradient(to.q, a.q, "q");
  check_path_gradient(to.k, a.k, "k");
  check_path_gradient(to.v, a.v, "v");
  check_path_gradient(to.w, a.w, "w");
  check_path_gradient(to.beta, a.beta, "beta");
  check_path_gradient(to.log_gate, a.log_gate, "log_gate");
  check_path_overlap(a, d_result, to);
  const PathCall c(a);
  PathSums g(c);
  const Index count = c.B * c.H, most = path_work(c);
  const auto tasks = static_cast<std::size_t>(detail::task_count(executor, count, most));
  std::vector<PathRow> rows(tasks, PathRow(c, true));
  std::vector<PathNumbers> ds(tasks, PathNumbers(static_cast<std::size_t>(c.Tk)));
  detail::parallel_for(executor, count, most, [&](Index begin, Index end, Index task) noexcept {
    const auto at = static_cast<std::size_t>(task);
    for (Index n = begin; n < end; ++n)
      pull_path_head(c, d_result, n / c.H, n % c.H, rows[at], ds[at], g, executor);
  });
  if (detail::is_cancelled(executor)) throw Cancelled(kPath);
  add_path_gradient(to.q, g.q, c.H);
  add_path_gradient(to.k, g.k, c.H);
  add_path_gradient(to.v, g.v, c.H);
  add_path_gradient(to.w, g.w, c.H);
  add_path_gradient(to.beta, g.beta, c.H);
  if (c.sums.given()) add_path_gradient(to.log_gate, g.sums, c.H);
}

}  // namespace posenc::v0
