// SPDX-License-Identifier: Apache-2.0
#include "posenc/attention/path.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "attention/call/check_parts.h"
#include "attention/exact/gradient_sums.h"
#include "attention/exact/load_vectors.h"
#include "attention/exact/softmax.h"
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
  std::span<double> x;
  Index heads = 0, tokens = 0, dim = 0;
  bool given() const noexcept { return heads > 0; }
  // Of what serves head h of `of`.
  const double* at(Index b, Index h, Index of) const noexcept {
    return x.data() + (b * heads + detail::Grouping{of, heads}.of(h)) * tokens * dim;
  }
};

PathArray path_array(const ConstHeads& h, detail::CallArena& arena, const Executor& executor) {
  if (h.data == nullptr) return {};
  return {detail::load_by_heads(h, arena, executor), h.heads, h.tokens, h.dim};
}

void check_path_array(const ConstHeads& h, const char* name, const PathArgs& a, Index tokens,
                      Index dim) {
  const std::string_view who(name);
  detail::check_float(kPath, h, name);
  if (h.batch != a.q.batch)
    refuse_field(kPath, who, "must have the batch of q, " + std::to_string(a.q.batch), h.batch);
  if (h.tokens != tokens)
    refuse_field(kPath, who, "must have the tokens of k, " + std::to_string(tokens), h.tokens);
  if (h.heads < 1 || a.q.heads % h.heads != 0)
    refuse_field(kPath, who, "must have heads that divide those of q, " + std::to_string(a.q.heads),
                 h.heads);
  if (dim >= 0 && h.dim != dim)
    refuse_field(kPath, who, "must have " + std::to_string(dim) + " channels", h.dim);
}

void check_path(const PathArgs& a) {
  const std::pair<const ConstHeads&, const char*> needed[] = {
      {a.q, "q"}, {a.k, "k"}, {a.v, "v"}, {a.w, "w"}, {a.beta, "beta"}};
  for (const auto& [array, name] : needed)
    if (array.data == nullptr) refuse_field(kPath, name, "must be given");
  if (a.q.heads < 1 || a.q.dim < 1)
    refuse_field(kPath, "q", "must have heads and channels", a.q.heads);
  check_path_array(a.q, "q", a, a.q.tokens, a.q.dim);
  check_path_array(a.k, "k", a, a.k.tokens, a.q.dim);
  check_path_array(a.v, "v", a, a.k.tokens, -1);
  check_path_array(a.w, "w", a, a.k.tokens, a.q.dim);
  check_path_array(a.beta, "beta", a, a.k.tokens, 1);
  if (a.beta.heads != a.w.heads)
    refuse_field(kPath, "beta", "must have the heads of w", a.beta.heads);
  if (a.log_gate.data != nullptr) check_path_array(a.log_gate, "log_gate", a, a.k.tokens, 1);
  if (a.scale && !std::isfinite(*a.scale)) refuse_field(kPath, "scale", "must be finite", *a.scale);
  if (a.query_offset < 0 || a.query_offset > a.k.tokens - a.q.tokens)
    refuse_field(kPath, "queries", "must be among the keys, query_offset 0 to keys - queries",
                 a.query_offset);
  if (a.window_left < 0) refuse_field(kPath, "window_left", "must not be negative", a.window_left);
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
  PathCall(const PathArgs& a, detail::CallArena& arena, const Executor& executor)
      : args(a),
        B(a.q.batch),
        H(a.q.heads),
        Tq(a.q.tokens),
        Tk(a.k.tokens),
        D(a.q.dim),
        V(a.v.dim),
        scale(a.scale ? *a.scale : 1 / std::sqrt(static_cast<double>(a.q.dim))),
        gate_scale(a.gates_scaled ? scale : 1),
        q(path_array(a.q, arena, executor)),
        k(path_array(a.k, arena, executor)),
        v(path_array(a.v, arena, executor)),
        w(path_array(a.w, arena, executor)),
        beta(path_array(a.beta, arena, executor)),
        sums(path_array(a.log_gate, arena, executor)) {
    for (std::size_t i = 1; sums.given() && i < sums.x.size(); ++i)
      if (i % static_cast<std::size_t>(Tk) != 0) sums.x[i] += sums.x[i - 1];
  }
  const PathArgs& args;
  const detail::ExactRowKernels& lanes = detail::exact_row_kernels(active_isa());
  Index B, H, Tq, Tk, D, V;
  double scale, gate_scale;
  PathArray q, k, v, w, beta, sums;
};

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
  detail::Run keys() const noexcept { return {first, own + 1}; }
};

void fill_path_row(const PathCall& c, Index b, Index h, Index i, bool keep, PathRow& r) noexcept {
  const double *q = c.q.at(b, h, c.H) + i * c.D, *k = c.k.at(b, h, c.H);
  const double *w = c.w.at(b, h, c.H), *beta = c.beta.at(b, h, c.H);
  const double* sums = c.sums.given() ? c.sums.at(b, h, c.H) : nullptr;
  r.own = c.args.query_offset + i;
  r.first = c.args.window_left >= r.own ? 0 : r.own - c.args.window_left;
  double* x = r.x.data() + (keep ? r.own * c.D : 0);
  std::copy(q, q + c.D, x);
  for (Index j = r.own;; --j) {
    double s = c.scale * detail::dot(x, k + j * c.D, c.D);
    if (sums != nullptr) s += c.gate_scale * (sums[r.own] - sums[j]);
    r.p[static_cast<std::size_t>(j)] = s;
    if (j == r.first) break;
    const double along = beta[j] * detail::dot(w + j * c.D, x, c.D);
    if (keep) {
      std::copy(x, x + c.D, x - c.D);
      x -= c.D;
    }
    detail::add_scaled(x, -along, w + j * c.D, c.D);
  }
  const detail::Run run = r.keys();
  r.log_sum_exp = detail::softmax_row(c.lanes, r.p.data(), r.p.data(), {&run, 1});
}

// Sums of one gradient, [B, slabs, tokens, channels]: a slab for each head of the array and cut of
// the query heads.
struct PathSum {
  PathSum() = default;
  PathSum(const PathCall& c, const PathArray& of, Index cuts)
      : heads(c.H), tokens(c.Tk), dim(of.dim) {
    if (!of.given()) return;
    slabs = std::lcm(of.heads, cuts);
    x.assign(static_cast<std::size_t>(c.B * slabs * tokens * dim), 0.0);
  }
  double* at(Index b, Index h) noexcept {
    return x.data() + (b * slabs + detail::Grouping{heads, slabs}.of(h)) * tokens * dim;
  }
  detail::Numbers x;
  Index heads = 0, slabs = 0, tokens = 0, dim = 0;
};
struct PathSums {
  // Key heads, or so many more that there are 16 cuts of the query heads: by the shape alone.
  static constexpr Index kWantedCuts = 16;
  explicit PathSums(const PathCall& c) {
    cuts = c.k.heads;
    for (Index n = cuts; c.B * cuts < kWantedCuts && n <= c.H; n += c.k.heads)
      if (c.H % n == 0) cuts = n;
    k = {c, c.k, cuts}, v = {c, c.v, cuts}, w = {c, c.w, cuts};
    beta = {c, c.beta, cuts}, sums = {c, c.sums, cuts};
  }
  Index cuts = 1;
  PathSum k, v, w, beta, sums;
};

// ds: gradients of the scores of the row. Reflections from the first key on: x_(j-1) = H_j x_j.
void pull_path_row(const PathCall& c, Index b, Index h, PathRow& r, const PathNumbers& ds,
                   PathSums& g) noexcept {
  const double *k = c.k.at(b, h, c.H), *w = c.w.at(b, h, c.H), *beta = c.beta.at(b, h, c.H);
  double *d_k = g.k.at(b, h), *d_w = g.w.at(b, h), *d_beta = g.beta.at(b, h);
  double* d_sums = c.sums.given() ? g.sums.at(b, h) : nullptr;
  double* d = r.d.data();
  std::fill(r.d.begin(), r.d.end(), 0.0);
  for (Index j = r.first; j <= r.own; ++j) {
    const double s = ds[static_cast<std::size_t>(j)];
    const double* x = r.x.data() + j * c.D;
    if (j > r.first) {
      const double wd = detail::dot(w + j * c.D, d, c.D), wx = detail::dot(w + j * c.D, x, c.D);
      d_beta[j] -= wd * wx;
      detail::add_scaled(d_w + j * c.D, -beta[j] * wx, d, c.D);
      detail::add_scaled(d_w + j * c.D, -beta[j] * wd, x, c.D);
      detail::add_scaled(d, -beta[j] * wd, w + j * c.D, c.D);
    }
    detail::add_scaled(d, c.scale * s, k + j * c.D, c.D);
    detail::add_scaled(d_k + j * c.D, c.scale * s, x, c.D);
    if (d_sums == nullptr) continue;
    d_sums[r.own] += c.gate_scale * s;
    d_sums[j] -= c.gate_scale * s;
  }
}

void pull_path_head(const PathCall& c, const ConstAttentionResult& up, Index b, Index h, PathRow& r,
                    PathNumbers& ds, PathSums& g, const Heads& to_q,
                    const Executor& executor) noexcept {
  const double* v = c.v.at(b, h, c.H);
  double* d_v = g.v.at(b, h);
  for (Index i = 0; i < c.Tq && !detail::is_cancelled(executor); ++i) {
    fill_path_row(c, b, h, i, true, r);
    detail::read_vector(up.out, b, i, h, r.out.data());
    const double d_lse = up.log_sum_exp.empty() ? 0 : detail::read_number(up.log_sum_exp, b, h, i);
    for (Index j = r.first; j <= r.own; ++j) {
      const auto at = static_cast<std::size_t>(j);
      ds[at] = detail::dot(r.out.data(), v + j * c.V, c.V);
      detail::add_scaled(d_v + j * c.V, r.p[at], r.out.data(), c.V);
    }
    const detail::Run run = r.keys();
    detail::pull_softmax_row(c.lanes, ds.data(), r.p.data(), ds.data(), d_lse, {&run, 1});
    pull_path_row(c, b, h, r, ds, g);
    if (to_q.data != nullptr) detail::add_vector(to_q, b, i, h, r.d.data());
  }
}

// Slabs that share a head of `to` are summed.
void add_path_gradient(const Heads& to, PathSum& sum) {
  if (to.data == nullptr || sum.x.empty()) return;
  const Index size = sum.tokens * sum.dim, each = sum.slabs / to.heads;
  for (Index b = 0; b < to.batch; ++b)
    for (Index h = 0; h < to.heads; ++h) {
      double* first = sum.x.data() + (b * sum.slabs + h * each) * size;
      for (Index n = 1; n < each; ++n) detail::add_scaled(first, 1, first + n * size, size);
      for (Index t = 0; t < to.tokens; ++t) detail::add_vector(to, b, t, h, first + t * sum.dim);
    }
}

// c_t is in every later sum.
void pull_path_sums(PathSum& sum) noexcept {
  for (std::size_t n = sum.x.size(); n-- > 1;)
    if (n % static_cast<std::size_t>(sum.tokens) != 0) sum.x[n - 1] += sum.x[n];
}

void check_path_result(const PathArgs& a, const ConstAttentionResult& r, const char* what) {
  const detail::ResultSizes s{a.q.batch, a.q.tokens, a.q.heads, a.v.dim};
  detail::check_result_view(
      kPath, r, s, "must be of a float type and have the shape of q with the channels of v", what);
  detail::check_log_sum_exp(kPath, r.log_sum_exp, s, "log_sum_exp");
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
  detail::CallArena arena;
  const PathCall c(a, arena, executor);
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
        detail::add_scaled(r.out.data(), r.p[static_cast<std::size_t>(j)],
                           c.v.at(b, h, c.H) + j * c.V, c.V);
      detail::put_result_row(result, b, h, i, r.out.data(), r.log_sum_exp);
    }
  });
  if (detail::is_cancelled(executor)) throw Cancelled(kPath);
}

void attend_path_backward(const PathArgs& a, const ConstAttentionResult& d_result,
                          const PathGradients& to, const Executor& executor) {
  check_path(a);
  check_path_result(a, d_result, "the gradient of out");
  detail::check_gradient(kPath, to.q, a.q, "the gradient of q");
  detail::check_gradient(kPath, to.k, a.k, "the gradient of k");
  detail::check_gradient(kPath, to.v, a.v, "the gradient of v");
  detail::check_gradient(kPath, to.w, a.w, "the gradient of w");
  detail::check_gradient(kPath, to.beta, a.beta, "the gradient of beta");
  detail::check_gradient(kPath, to.log_gate, a.log_gate, "the gradient of log_gate");
  check_path_overlap(a, d_result, to);
  detail::CallArena arena;
  const PathCall c(a, arena, executor);
  PathSums g(c);
  const Index count = c.B * g.cuts, most = path_work(c), each = c.H / g.cuts;
  const auto tasks = static_cast<std::size_t>(detail::task_count(executor, count, most));
  std::vector<PathRow> rows(tasks, PathRow(c, true));
  std::vector<PathNumbers> ds(tasks, PathNumbers(static_cast<std::size_t>(c.Tk)));
  detail::parallel_for(executor, count, most, [&](Index begin, Index end, Index task) noexcept {
    const auto at = static_cast<std::size_t>(task);
    for (Index n = begin * each; n < end * each; ++n)
      pull_path_head(c, d_result, n / c.H, n % c.H, rows[at], ds[at], g, to.q, executor);
  });
  if (detail::is_cancelled(executor)) throw Cancelled(kPath);
  pull_path_sums(g.sums);
  add_path_gradient(to.k, g.k);
  add_path_gradient(to.v, g.v);
  add_path_gradient(to.w, g.w);
  add_path_gradient(to.beta, g.beta);
  add_path_gradient(to.log_gate, g.sums);
}

}  // namespace posenc::v0
